"""What a person sees: results on standard output, progress and errors on standard error.

rich takes a while to import, so it is imported where something is drawn with it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


@dataclass
class Settings:
    """The global options of the command line."""

    debug: bool = False
    quiet: bool = False


settings = Settings()


@cache
def _err() -> "Console":
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """Print a result as it is."""
    print(line)  # noqa: T201


def note(message: str) -> None:
    """Say on standard error what is being done, unless `--quiet`."""
    if not settings.quiet:
        _err().print(message, markup=False)


def fail(message: str) -> None:
    """Print one line that says what went wrong."""
    print("gpuatlas: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201


def progress() -> "Progress":
    """Return a progress bar on standard error; silent with `--quiet` or where nobody watches."""
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:g}/{task.total:g}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=_err(),
        transient=True,
        disable=settings.quiet or not _err().is_terminal,
    )


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress while the block runs; it calls what it gets with the number of things that are done."""
    if settings.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with progress() as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
