"""What is published: manifests, pages, bundles."""
