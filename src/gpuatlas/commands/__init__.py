"""The commands of `gpuatlas`, a module a stage; `register` adds a module's commands."""

from collections.abc import Sequence
from importlib import import_module

import typer

MODULES: dict[str, Sequence[str]] = {
    "training": ("data", "train", "sample", "timing", "timeline"),
    "capture": ("capture", "plan", "doctor"),
    "cluster": ("launch", "image"),
    "reports": ("convert", "check", "slim", "info"),
    "study": ("compare", "claims", "figures", "report"),
    "publish": ("import", "describe", "quality"),
}
"""Module -> its commands, in the order in which `gpuatlas --help` lists them."""


def register(app: typer.Typer, command: str | None) -> None:
    """Add a command to `app`, with those of its module; all commands if there is none of this name."""
    found = [module for module, commands in MODULES.items() if command in commands]
    for module in found or MODULES:
        import_module(f"gpuatlas.commands.{module}").register(app)
