"""The command line: every step of the workflow, each also usable without Snakemake.

The commands live in `gpuatlas.commands`, a module a stage; only that of the command asked for is imported.
Each imports what it needs when it runs, so that `gpuatlas --help` needs neither torch nor pandas.
"""

import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from gpuatlas import __version__, commands, console
from gpuatlas.errors import GpuatlasError, Interrupted

app = typer.Typer(
    name="gpuatlas",
    help="Training performance across GPU generations: capture, convert, compare, check claims, publish.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        console.say(f"gpuatlas {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, errors only.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    console.settings.debug = debug
    console.settings.quiet = quiet


def _command(words: Sequence[str]) -> str | None:
    """Return the command that is asked for; None where all must be known, for instance for `--help`."""
    first = next((word for word in words if word not in ("-q", "--quiet", "--debug")), "-")
    return None if first.startswith("-") else first


def main() -> None:
    """Run the command line; an expected error is one line on standard error and its own exit status."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name can hold any byte
    try:
        commands.register(app, _command(sys.argv[1:]))
        app(standalone_mode=True)
    except GpuatlasError as error:
        if console.settings.debug:
            raise
        console.fail(str(error))
        if isinstance(error, Interrupted):
            # The state is saved: a second warning must not turn the exit status into a kill.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (MemoryError, RuntimeError) as error:
        # A thread that finds no memory for its stack is a RuntimeError.
        if console.settings.debug or not (isinstance(error, MemoryError) or "new thread" in str(error)):
            raise
        console.fail("not enough memory; free some, or raise the job's limit.")
        sys.exit(1)
    except OSError as error:
        if console.settings.debug:
            raise
        console.fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
