"""Read Nsight Compute reports."""

from pathlib import Path
from typing import Annotated

import typer

from gpuatlas import console

_Reports = Annotated[
    list[Path],
    typer.Argument(metavar="REPORT…", help=".ncu-rep, .ncu-repz, .nsight-cuprof-report; also .xz, .gz."),
]


def _convert(
    reports: _Reports,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the Parquet tables.")],
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="KEY=VALUE", help="Hive partition of the tables; may be repeated."
        ),
    ] = None,
    instances: Annotated[
        bool, typer.Option("--instances", help="Write the values per instance too (large).")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Keep the whole launches of a damaged report.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Processes for several reports; default: all CPUs."),
    ] = None,
) -> None:
    """Convert reports to Parquet: launches, metrics, rules, session."""
    from gpuatlas.tables.convert import convert
    from gpuatlas.tables.write import parse_partition

    result = convert(
        reports,
        out,
        partition=parse_partition(partition or []),
        instances=instances,
        partial=partial,
        jobs=jobs,
    )
    for report in result.converted:
        lost = f", at least {report.lost} lost" if report.lost else ""
        console.out.print(
            f"{report.path}: {report.launches} launches, {report.metrics} metric values{lost}", markup=False
        )
        for note in report.notes:
            console.note(f"{report.path}: {note}")
    for error in result.refused:
        console.fail(str(error))
    if result.refused:
        raise typer.Exit(result.refused[0].exit_code)


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    app.command("convert")(_convert)
