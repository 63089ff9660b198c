"""What a person sees: results on standard output, progress and errors on standard error."""

import sys
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@dataclass
class Settings:
    """The global options of the command line."""

    debug: bool = False
    quiet: bool = False


settings = Settings()
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Say on standard error what is being done, unless `--quiet`."""
    if not settings.quiet:
        err.print(message, markup=False)


def fail(message: str) -> None:
    """Print one line that says what went wrong."""
    print("gpuatlas: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201


def progress() -> Progress:
    """Return a progress bar on standard error; silent with `--quiet` or where nobody watches."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:g}/{task.total:g}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=settings.quiet or not err.is_terminal,
    )
