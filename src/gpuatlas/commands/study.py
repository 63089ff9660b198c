"""Compare captures, check claims, draw figures, write the report."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gpuatlas import console

Results = Annotated[Path, typer.Option("--results", help="Folder with study.json, cells/ and tables/.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")]


def _compare(results: Results = Path("results"), as_json: AsJson = False) -> None:
    """Compare the captures: classes, instructions, pipes, stalls, caches, roofline, priorities."""
    from gpuatlas.compare.run import compare

    rows = compare(results)
    if as_json:
        console.say(json.dumps({"rows": rows}, indent=2))
        return
    for name, count in rows.items():
        console.say(f"{results / 'compare' / name}.parquet  {count} rows")


def _claims(
    results: Results = Path("results"),
    claims: Annotated[Path, typer.Option("--claims", help="The claims, as data.")] = Path(
        "config/claims.yaml"
    ),
    as_json: AsJson = False,
) -> None:
    """Check the published claims against what was measured."""
    from gpuatlas.compare.verdicts import WORDS, write_claims

    counts = write_claims(results, claims)
    if as_json:
        console.say(json.dumps({"verdicts": counts}, indent=2))
        return
    for status, count in counts.items():
        console.say(f"{count:4d} {WORDS[status]}")
    console.say(f"{results / 'claims' / 'verdicts.md'}")


def _figures(
    results: Results = Path("results"),
    figure: Annotated[
        list[str] | None, typer.Option("--figure", help="Draw this figure only; may be given again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the figures as SVG, PNG and PDF, each with the CSV it was drawn from."""
    from gpuatlas.figures.draw import draw

    written = [str(path) for path in draw(results, figure or None)]
    if as_json:
        console.say(json.dumps({"files": written}, indent=2))
        return
    for path in written:
        console.say(path)


def _report(
    results: Results = Path("results"),
    captions: Annotated[Path, typer.Option("--captions", help="Folder of the figures' captions.")] = Path(
        "workflow/report"
    ),
) -> None:
    """Write results/report.html: the whole study on one page that needs nothing else."""
    from gpuatlas.publish.report import write_report

    console.say(str(write_report(results, captions)))


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    app.command("compare")(_compare)
    app.command("claims")(_claims)
    app.command("figures")(_figures)
    app.command("report")(_report)
