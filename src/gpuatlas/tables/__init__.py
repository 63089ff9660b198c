"""The project's tables: their Arrow schemas (`schema`) and how reports become them (`write`)."""
