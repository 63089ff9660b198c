"""Quality runs as a cell's: what `benchmarks/bench_workload.py` leaves, checked, in one file.

``quality.json`` says how far a target lies from baseline; the runs that it was made from lie beside it, as
``quality-{target}-{seed}/quality.json``, and say on which card, for how many steps, with what data.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from gpuatlas.errors import InputRefused
from gpuatlas.files import sha256, write_json
from gpuatlas.publish.device import load_architecture, require_architecture
from gpuatlas.publish.recording import read_record
from gpuatlas.workload.distance import compare

SCHEMA_VERSION = 1
FIGURES = ("loss", "ms_ssim")
_MEASURED = ("mean", "baseline_mean", "baseline_sd", "distance")
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 1}
_VALUES = {"type": "array", "items": _NUMBER, "minItems": 1}
_FIGURE = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"enum": ["measured", "not measured"]}},
    "if": {"properties": {"status": {"const": "measured"}}},
    "then": {
        "required": list(_MEASURED),
        "properties": dict.fromkeys(_MEASURED, _NUMBER)
        | {"distance": {"type": ["number", "null"], "minimum": 0}},
    },
}
_COMPARISON = {
    "type": "object",
    "required": ["target", *FIGURES],
    "properties": {"target": {"type": "string"}, **dict.fromkeys(FIGURES, _FIGURE)},
}
_RUN_KEYS = {
    "target": {"type": "string"},
    "seed": {"type": "integer", "minimum": 0},
    "steps": _COUNT,
    "seconds": {"type": "number", "minimum": 0},
    "loss": _NUMBER,
    "ms_ssim": _VALUES,
    "ms_ssim_blurred": _VALUES,
    "network": {"type": "string"},
    "size": _COUNT,
    "volumes": _COUNT,
    "learning_rate": {"type": "number", "exclusiveMinimum": 0},
    "environment": {
        "type": "object",
        "required": ["gpu", "stack", "data_sha256"],
        "properties": {
            "gpu": {"type": ["object", "null"], "required": ["name", "cc"]},
            "stack": {"type": "object", "required": ["torch", "cudnn"]},
        },
    },
}
_RUN = {"type": "object", "required": list(_RUN_KEYS), "properties": _RUN_KEYS}
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
        ``loss`` and ``ms_ssim``, computed again, and ``runs``: those of the target and of baseline.

    Raises
    ------
    InputRefused
        If a file is damaged, the comparison is of another target or does not follow from the runs, a run is
        there twice, or the runs were not made alike on the cell's architecture.
    """
    comparison, target = read_record(source, _COMPARISON, "make it again"), cell.partition("/")[2]
    if comparison["target"] != target:
        raise InputRefused(
            f"{source}: compares {comparison['target']!r} with baseline, but cell {cell} is of "
            f"{target!r}; put it where it belongs"
        )
    paths = sorted(source.parent.glob("quality-*/quality.json"))
    records = {path: read_record(path, _RUN, "repeat the run") for path in paths}
    records = {path: raw for path, raw in records.items() if raw["target"] in ("baseline", target)}
    _counted_once(records)
    runs = [_run(path, raw, cell, architecture) for path, raw in records.items()]
    for key in ALIKE:
        if len(found := sorted({str(run[key]) for run in runs})) > 1:
            raise InputRefused(
                f"{source}: its runs differ in {key} ({', '.join(found)}); repeat them alike on one card"
            )
    again = compare(list(records.values()), target)
    for figure in FIGURES:
        _follows(source, figure, comparison[figure], again[figure], target)
    return {
        "schema": SCHEMA_VERSION,
        "cell": cell,
        **{figure: again[figure] for figure in FIGURES},
        "runs": runs,
        "source": {"name": source.name, "sha256": sha256(source)},
    }


def _counted_once(records: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuse a run that is there twice, as it is or under another seed: it would narrow the spread."""
    for index, (path, raw) in enumerate(records.items()):
        for earlier, other in list(records.items())[:index]:
            content = [{key: value for key, value in one.items() if key != "seed"} for one in (raw, other)]
            if (raw["target"], raw["seed"]) == (other["target"], other["seed"]):
                wrong = f"is of seed {raw['seed']}, and so is"
            elif content[0] == content[1]:
                wrong = "holds the same run as"
            else:
                continue
            raise InputRefused(f"{path}: {wrong} {earlier}; remove one of them and compare again")


def _run(path: Path, raw: Mapping[str, Any], cell: str, architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return what matters of one run; refuse one of another architecture or target than it says."""
    environment = raw["environment"]
    gpu, stack = environment["gpu"], environment["stack"]
    if environment.get("target", raw["target"]) != raw["target"]:
        raise InputRefused(
            f"{path}: is of target {raw['target']!r}, but was made under {environment['target']!r}; "
            "repeat the run"
        )
    name = str(gpu["name"]) if gpu else None
    device = {"name": name or "a CPU", "compute_capability": gpu["cc"] if gpu else None}
    require_architecture(device, architecture, cell, path)
    return {
        "target": raw["target"],
        "seed": raw["seed"],
        "steps": raw["steps"],
        "minutes": raw["seconds"] / 60,
        "loss": raw["loss"],
        "ms_ssim": fmean(raw["ms_ssim"]),
        "network": raw["network"],
        "size": raw["size"],
        "volumes": raw["volumes"],
        "learning_rate": raw["learning_rate"],
        "data_sha256": environment["data_sha256"],
        "gpu": name,
        "torch": stack["torch"],
        "cudnn": stack["cudnn"],
        "sha256": sha256(path),
    }


def _follows(
    source: Path, figure: str, stated: Mapping[str, Any], again: Mapping[str, Any], target: str
) -> None:
    """Check that what was compared is what the runs beside it give."""
    if stated["status"] == "measured" and str(again["reason"]).startswith("no run of"):
        raise InputRefused(
            f"{source}: has no run of {target} beside it (quality-{target}-SEED/quality.json); "
            "copy the runs too"
        )
    for key in ("status", *(_MEASURED if again["status"] == "measured" else ())):
        said, found = stated.get(key), again[key]
        if said != found and not (
            isinstance(said, int | float) and isinstance(found, float) and math.isclose(said, found)
        ):
            raise InputRefused(
                f"{source}: {figure}: {key} is stated as {said}, but the runs beside it give {found}; "
                "compare them again (benchmarks/bench_workload.py table)"
            )
