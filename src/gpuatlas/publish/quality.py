"""Quality runs as a cell's: what `benchmarks/bench_workload.py` leaves, checked, in one file.

``quality.json`` says how far a target lies from baseline; the runs that it was made from lie beside it, as
``quality-{target}-{seed}/quality.json``, and say on which card, for how many steps, with what data.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import StatisticsError, fmean
from typing import Any

from gpuatlas.errors import InputRefused
from gpuatlas.files import read_json, sha256, write_json
from gpuatlas.publish.device import load_architecture, require_architecture

SCHEMA_VERSION = 1
FIGURES = ("loss", "ms_ssim")
ALIKE = ("network", "size", "volumes", "learning_rate", "data_sha256", "gpu", "torch", "cudnn")
"""What runs must share before the distance between them says anything of their targets."""


def import_quality(source: Path, cell: str, *, results: Path, architectures: Path) -> Path:
    """Write ``results/cells/{cell}/quality/quality.json`` and return its path.

    It holds what `read_quality` returns; `architectures` is ``config/architectures.yaml``.
    """
    path = results / "cells" / cell / "quality" / "quality.json"
    write_json(path, read_quality(source, cell, load_architecture(architectures, cell)))
    return path


def read_quality(source: Path, cell: str, architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Read a comparison and the runs beside it.

    Parameters
    ----------
    source
        The comparison, ``quality.json``.
    cell
        The cell that it is for, ``architecture/target``.
    architecture
        The cell's entry of ``config/architectures.yaml``.

    Returns
    -------
    dict
        ``loss`` and ``ms_ssim`` as compared, and ``runs``: those of the target and of baseline.

    Raises
    ------
    InputRefused
        If a file is damaged, the comparison is of another target or does not follow from the runs, or the
        runs were not made alike on the cell's architecture.
    """
    comparison, target = read_json(source), cell.partition("/")[2]
    if comparison.get("target") != target:
        raise InputRefused(
            f"{source}: compares {comparison.get('target')!r} with baseline, but cell {cell} is of "
            f"{target!r}; put it where it belongs"
        )
    runs = [_run(path, cell, architecture) for path in sorted(source.parent.glob("quality-*/quality.json"))]
    runs = [run for run in runs if run["target"] in ("baseline", target)]
    for key in ALIKE:
        if len(found := sorted({str(run[key]) for run in runs})) > 1:
            raise InputRefused(
                f"{source}: its runs differ in {key} ({', '.join(found)}); repeat them alike on one card"
            )
    try:
        for figure in FIGURES:
            _follows(comparison[figure], figure, runs, target, source)
    except (KeyError, TypeError, ValueError) as error:
        raise InputRefused(f"{source}: is no comparison of quality ({error!r}); make it again") from error
    return {
        "schema": SCHEMA_VERSION,
        "cell": cell,
        **{figure: comparison[figure] for figure in FIGURES},
        "runs": runs,
        "source": {"name": source.name, "sha256": sha256(source)},
    }


def _run(path: Path, cell: str, architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return what matters of one run; refuse one of another architecture."""
    raw = read_json(path)
    try:
        gpu, stack = raw["environment"]["gpu"], raw["environment"]["stack"]
        run = {
            "target": str(raw["target"]),
            "seed": int(raw["seed"]),
            "steps": int(raw["steps"]),
            "minutes": float(raw["seconds"]) / 60,
            "loss": float(raw["loss"]),
            "ms_ssim": fmean(raw["ms_ssim"]),
            "network": str(raw["network"]),
            "size": int(raw["size"]),
            "volumes": int(raw["volumes"]),
            "learning_rate": float(raw["learning_rate"]),
            "data_sha256": raw["environment"]["data_sha256"],
            "gpu": str(gpu["name"]) if gpu else None,
            "torch": stack["torch"],
            "cudnn": stack["cudnn"],
            "sha256": sha256(path),
        }
        device = {"name": run["gpu"] or "a CPU", "compute_capability": gpu["cc"] if gpu else None}
    except (KeyError, TypeError, ValueError, StatisticsError) as error:
        raise InputRefused(f"{path}: is no record of a quality run ({error!r}); repeat the run") from error
    require_architecture(device, architecture, cell, path)
    return run


def _follows(
    entry: Mapping[str, Any], figure: str, runs: Sequence[Mapping[str, Any]], target: str, source: Path
) -> None:
    """Check that what was compared is the mean over the runs beside it."""
    if entry["status"] == "not measured":
        return
    for name, key in ((target, "mean"), ("baseline", "baseline_mean")):
        values = [run[figure] for run in runs if run["target"] == name]
        if not values:
            raise InputRefused(
                f"{source}: has no run of {name} beside it (quality-{name}-SEED/quality.json); "
                "copy the runs too"
            )
        if not math.isclose(fmean(values), entry[key], rel_tol=1e-9):
            raise InputRefused(
                f"{source}: {figure} of {name} does not follow from the runs beside it; compare them again "
                "(benchmarks/bench_workload.py table)"
            )
