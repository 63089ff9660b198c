"""Describe cells and package results."""

from pathlib import Path
from typing import Annotated

import typer

from gpuatlas import console

Results = Annotated[Path, typer.Option(help="Folder of the results.")]
Architectures = Annotated[Path, typer.Option(help="The architectures that there are.")]


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    app.command("import")(import_report)
    app.command("describe")(describe)
    app.command("quality")(quality)


def import_report(
    report: Annotated[Path, typer.Argument(help="A report of Nsight Compute.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the capture.")],
) -> None:
    """Take a report that you have as a cell's capture; how much of a step it covers stays unknown."""
    from gpuatlas.publish.importing import import_report as take

    console.note(f"{report}: {take(report, out)} launches imported")


def describe(
    cell: Annotated[str, typer.Argument(help="The cell, architecture/target.")],
    *,
    origin: Annotated[str, typer.Option(help="captured, recorded or imported.")],
    results: Results = Path("results"),
    architectures: Architectures = Path("config/architectures.yaml"),
    targets: Annotated[Path, typer.Option(help="The targets that there are.")] = Path("config/targets.yaml"),
) -> None:
    """Write a cell's manifest, cell.json, from its files and tables."""
    from gpuatlas.publish.cell import describe as describe_cell

    manifest = describe_cell(
        cell, origin=origin, results=results, architectures=architectures, targets=targets
    )
    console.note(f"{cell}: {manifest['launches']} launches, {origin}")


def quality(
    comparison: Annotated[Path, typer.Argument(help="quality.json; its runs lie beside it, a folder each.")],
    *,
    cell: Annotated[str, typer.Option(help="The cell, architecture/target.")],
    results: Results = Path("results"),
    architectures: Architectures = Path("config/architectures.yaml"),
) -> None:
    """Take a comparison of quality with baseline as a cell's, with what its runs were."""
    from gpuatlas.publish.quality import import_quality

    path = import_quality(comparison, cell, results=results, architectures=architectures)
    console.note(f"{cell}: {path}")
