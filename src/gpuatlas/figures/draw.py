"""Draws figures by name; writes each as SVG, PNG and PDF with its CSV, same tables, same bytes."""

import csv
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from matplotlib.figure import Figure

from gpuatlas import console
from gpuatlas.config import nearest
from gpuatlas.errors import ConfigError
from gpuatlas.figures import FIGURES
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.style import use_style
from gpuatlas.files import whole

# Nothing that changes from run to run may be written into a file.
METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "gpuatlas"},
    "png": {"Software": "gpuatlas"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "gpuatlas", "Producer": "gpuatlas"},
}


def draw(results: Path, names: Sequence[str] | None = None) -> list[Path]:
    """Draw figures into ``results/figures``.

    Parameters
    ----------
    results
        The results folder, after the comparison and the claims.
    names
        Names of `gpuatlas.figures.FIGURES`; None: all.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ConfigError
        If a name is unknown.
    InputRefused
        If a table is missing or damaged.
    OSError
        If ``results/figures`` cannot be written.
    """
    for name in names or ():
        if name not in FIGURES:
            raise ConfigError(f"--figure {name!r}: there is no such figure{nearest(name, FIGURES)}")
    use_style()
    inputs = Inputs(results)
    written: list[Path] = []
    chosen = [name for name in FIGURES if not names or name in names]
    with console.progress() as progress:
        task = progress.add_task("drawing", total=len(chosen))
        for name in chosen:
            figure, rows = import_module(f"gpuatlas.figures.{name}").draw(inputs)
            written += _write(figure, rows, results / "figures" / name)
            progress.advance(task)
    return written


def _write(figure: Figure, rows: Rows, stem: Path) -> list[Path]:
    paths = []
    for kind, metadata in METADATA.items():
        path = stem.with_suffix(f".{kind}")
        with whole(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=metadata)
        paths.append(path)
    path = stem.with_suffix(".csv")
    with whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        columns = list(dict.fromkeys(key for row in rows for key in row)) or ["architecture", "target"]
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return [*paths, path]
