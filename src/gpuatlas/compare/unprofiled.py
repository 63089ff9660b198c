"""Figures that rest on no profile: unprofiled step times, and the distance in quality.

They speak of whole steps and whole runs whatever the cell's capture is, so they carry no window.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpuatlas.compare import catalog
from gpuatlas.compare.rows import Figure, Row
from gpuatlas.compare.study import Cell
from gpuatlas.errors import InputRefused
from gpuatlas.files import read_json

TIMES = ("step_ms", "step_ms_spread")
# The comparison of quality behind each figure, and the direction in which it gets worse.
DISTANCES = {"quality_distance": ("loss", 1.0), "quality_distance_samples": ("ms_ssim", -1.0)}
UNPROFILED = (*TIMES, *DISTANCES)

TIMING_REPEATS = 5
EQUAL_STEPS = 0.05
"""Relative difference in steps up to which runs count as equally long: what is longer trained is better."""


def timing_path(results: Path, cell: Cell) -> Path:
    """Return where a cell's unprofiled step times lie."""
    return results / "cells" / cell.name / "timing" / "timings.parquet"


def quality_path(results: Path, cell: Cell) -> Path:
    """Return where a cell's comparison of quality lies."""
    return results / "cells" / cell.name / "quality" / "quality.json"


def unprofiled_rows(cell: Cell, results: Path) -> Iterator[Row]:
    """Yield the unprofiled figures of a cell; of one that was not measured null, with the reason."""
    for label, figures in (*_times(cell, timing_path(results, cell)), ("", _distances(cell, results))):
        for metric, figure in figures.items():
            unit = catalog.load().known[metric].unit
            yield Row(
                cell.architecture, cell.target, "step", label, metric, figure.value, unit,
                source=figure.source, reason=figure.note,
            )  # fmt: skip


def _times(cell: Cell, path: Path) -> Iterator[tuple[str, dict[str, Figure]]]:
    """Yield median and spread of the step times of each variant; the one without autotune has no label."""
    if not path.is_file():
        yield "", dict.fromkeys(TIMES, Figure(None, cell.absence if cell.absent else "not timed"))
        return
    try:
        table = pq.read_table(path, columns=["variant", "step_ms"])
    except (pa.ArrowInvalid, OSError) as error:
        raise InputRefused(f"{path}: is not a readable table of timings; time the cell again") from error
    times: dict[str, list[float]] = {}
    for variant, value in zip(table["variant"].to_pylist(), table["step_ms"].to_pylist(), strict=True):
        if value is not None:
            times.setdefault(variant, []).append(value)
    for variant, values in sorted(times.items()):
        found = (float(np.median(values)), max(values) - min(values))
        if len(values) < TIMING_REPEATS:
            few = Figure(None, f"only {len(values)} repeats; {TIMING_REPEATS} are needed")
            figures = dict.fromkeys(TIMES, few)
        else:
            figures = {name: Figure(value) for name, value in zip(TIMES, found, strict=True)}
        yield "" if variant == "autotune_off" else variant, figures


def _distances(cell: Cell, results: Path) -> dict[str, Figure]:
    """Return by how many spreads over baseline's seeds a cell's target is worse than baseline."""
    path = quality_path(results, cell)
    if not path.is_file():
        return dict.fromkeys(DISTANCES, Figure(None, cell.absence if cell.absent else "no quality runs"))
    found = read_json(path, "delete it and run the workflow again")
    try:
        return {
            metric: _distance(found[name], worse, cell.target, found["runs"])
            for metric, (name, worse) in DISTANCES.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputRefused(
            f"{path}: is no comparison of quality ({error!r}); delete it and run the workflow again"
        ) from error


def _distance(entry: Mapping[str, Any], worse: float, target: str, runs: list[dict[str, Any]]) -> Figure:
    """Return a distance, positive where the target is worse, with what the runs were."""
    if entry["status"] == "not measured":
        return Figure(None, entry["reason"])
    if entry["distance"] is None:
        return Figure(None, "baseline's seeds do not differ: there is no spread")
    mine = [run for run in runs if run["target"] == target]
    base = [run for run in runs if run["target"] == "baseline"]
    longer = fmean(run["steps"] for run in mine) / fmean(run["steps"] for run in base)
    if not 1 - EQUAL_STEPS <= longer <= 1 + EQUAL_STEPS:
        return Figure(
            None, f"{target} ran {longer:.3g} times baseline's steps; only runs of equally many are compared"
        )
    above = worse * (entry["mean"] - entry["baseline_mean"])
    first = runs[0]
    told = f"{first['gpu']}, {first['network']} at {first['size']}³, volumes: {first['volumes']}"
    told += f"; {target}: {_length(mine)}; baseline: {_length(base)}; wall clock, no step times"
    return Figure(math.copysign(entry["distance"], above), told)


def _length(runs: list[dict[str, Any]]) -> str:
    """Return how long runs were, in words: seeds, steps, minutes."""
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
    steps = "–".join(f"{end:.4g}" for end in _ends([run["steps"] for run in runs]))
    minutes = "–".join(dict.fromkeys(f"{end:.1f}" for end in _ends([run["minutes"] for run in runs])))
    return f"{seeds}, {steps} steps in {minutes} min{' each' if len(runs) > 1 else ''}"


def _ends(values: list[float]) -> list[float]:
    """Return the least and the greatest value, once where they are the same."""
    return sorted({min(values), max(values)})
