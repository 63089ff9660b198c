"""Read Nsight Compute reports."""

import typer


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    del app
