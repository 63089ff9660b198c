"""The comparison as one step: every cell's tables in, results/compare/ out."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuatlas import console
from gpuatlas.compare.breakdown import absent_rows, class_rows, kernel_rows, summary_rows
from gpuatlas.compare.captures import Capture, load_capture, table_path, timeline_path
from gpuatlas.compare.instructions import instruction_rows
from gpuatlas.compare.priority import priority_rows
from gpuatlas.compare.roofline import roofline_rows
from gpuatlas.compare.rows import Row, sources_of, write_rows
from gpuatlas.compare.stalls import stall_rows
from gpuatlas.compare.study import load_study
from gpuatlas.compare.unprofiled import quality_path, timing_path, unprofiled_rows
from gpuatlas.compare.weightrows import weight_rows
from gpuatlas.tables import schema

TABLES: dict[str, Callable[[Capture], Iterator[Row]]] = {
    "summary": summary_rows,
    "classes": class_rows,
    "kernels": kernel_rows,
    "instructions": instruction_rows,
    "stalls": stall_rows,
    "roofline": roofline_rows,
    "priority": priority_rows,
}


def compare(results: Path) -> dict[str, int]:
    """Write ``results/compare/{name}.parquet`` and ``.csv`` for every table.

    Parameters
    ----------
    results
        The results folder, with study.json, cells/ and tables/.

    Returns
    -------
    dict
        Number of rows of each table.

    Raises
    ------
    ConfigError, InputRefused
        If the study or a table is missing or damaged.
    OSError
        If ``results/compare`` cannot be written.
    """
    study = load_study(results)
    rows: dict[str, list[Row]] = {name: [] for name in TABLES}
    weights: list[dict[str, Any]] = []
    read: list[Path] = []
    with console.progress() as progress:
        task = progress.add_task("comparing captures", total=len(study.cells))
        for cell in study.cells:
            if not cell.profiled:
                rows["summary"].extend(absent_rows(cell))
            else:
                capture = load_capture(results, cell)
                for name, build in TABLES.items():
                    rows[name].extend(build(capture))
                weights.extend(weight_rows(capture))
                read.extend(table_path(results, name, cell) for name in ("launches", "metrics", "rules"))
                read.append(timeline_path(results, cell))
            rows["summary"].extend(unprofiled_rows(cell, results))
            read += [timing_path(results, cell), quality_path(results, cell)]
            progress.advance(task)
    sources = sources_of(results, read)
    for name, found in rows.items():
        write_rows(results / "compare", name, map(asdict, found), sources)
    write_rows(results / "compare", "weights", weights, sources, schema.WEIGHTS)
    return {name: len(found) for name, found in rows.items()} | {"weights": len(weights)}
