"""Compare captures, draw figures, check claims."""

import typer


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    del app
