"""What lies beside a cell's report, checked: each file whole, of the cell's target and GPU, of one step.

Files that were swapped are valid each by itself; what each says of itself is compared with the cell.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuatlas.capture.join import join
from gpuatlas.capture.timeline import Timeline, read_timeline
from gpuatlas.config import violation
from gpuatlas.errors import InputRefused
from gpuatlas.files import read_json
from gpuatlas.publish.device import require_architecture
from gpuatlas.tables.read import read_columns
from gpuatlas.tables.schema import TIMELINE, TIMINGS

_TABLES = {"timeline.parquet": (TIMELINE, "duration_ns"), "timings.parquet": (TIMINGS, "step_ms")}
AGAIN = "restore the file, or time the cell again"
_COUNT = {"type": ["integer", "null"], "minimum": 0}
_SHARE = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_TEXT = {"type": ["string", "null"]}
_PLAN = {
    "mode": {"type": "string"},
    "window": _TEXT,
    "configs_total": _COUNT,
    "configs_measured": _COUNT,
    "launches_total": _COUNT,
    "gpu_time_ns": {"type": ["number", "null"], "minimum": 0},
    "coverage_time": _SHARE,
    "coverage_launches": _SHARE,
    "unmatched_time": _SHARE,
}
_PLAN_SCHEMA = {
    "type": "object",
    "required": list(_PLAN),
    "properties": _PLAN
    | {
        "launches_measured": _COUNT,
        "refused": _TEXT,
        "scaled_time": _SHARE,
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["launches"],
                "properties": {
                    "launches": {"type": "integer", "minimum": 1},
                    "again": {"type": ["integer", "null"], "minimum": 2},
                    "second": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0},
                        "uniqueItems": True,
                    },
                    # Older captures had second measurements in parts of their own, told by a number here.
                    "skip": {"enum": [None, 0]},
                },
            },
        },
        "flags": {"type": "array", "items": {"type": "string"}},
    },
}
_EVIDENCE_SCHEMA = {
    "type": "object",
    "required": ["target", "in_effect", "checks", "source"],
    "properties": {
        "target": {"type": "string"},
        "in_effect": {"enum": ["true", "false", "unknown"]},
        "source": {"type": "array", "items": {"type": "string"}},
        "checks": {
            "type": "array",
            "items": {"type": "object", "required": ["name", "observed", "threshold", "ok"]},
        },
    },
}
_ENVIRONMENT_SCHEMA = {
    "type": "object",
    "required": ["gpu", "stack"],
    "properties": {
        "target": {"type": "string"},
        "network": {"type": "string"},
        "gpu": {"type": ["object", "null"]},
        "stack": {"type": "object"},
    },
}


def read_record(path: Path, schema: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """Read a JSON object that follows a JSON schema and holds finite numbers alone.

    Raises
    ------
    InputRefused
        If it does not; `remedy` is what the sentence says to do.
    """
    content = read_json(path, remedy)
    wrong = violation(content, schema)
    if wrong is not None:
        raise InputRefused(f"{path}: {wrong}; {remedy}")
    return content


def read_plan(path: Path) -> dict[str, Any]:
    """Read ``plan.json``.

    Raises
    ------
    InputRefused
        If the file is damaged, lacks a key, or a key has a wrong value.
    """
    return read_record(path, _PLAN_SCHEMA, "restore the file, or capture the cell again")


def read_evidence(path: Path) -> dict[str, Any]:
    """Read ``evidence.json``.

    Raises
    ------
    InputRefused
        If the file is damaged, lacks a key, or a key has a wrong value.
    """
    return read_record(path, _EVIDENCE_SCHEMA, AGAIN)


def check_beside(
    capture: Path,
    timing: Path,
    cell: str,
    architecture: Mapping[str, Any],
    *,
    keys: Sequence[str] | int,
    network: str | None = None,
) -> dict[str, Any]:
    """Check all that a cell has beside its report, and return its plan.

    Parameters
    ----------
    capture
        Folder of ``plan.json`` and ``environment.json``.
    timing
        Folder of the timing's four files; there may be none.
    cell
        The cell, ``architecture/target``.
    architecture
        The cell's entry of ``config/architectures.yaml``.
    keys
        Launch keys of the report in its order, or only how many there are.
    network
        Network of the study; where it is not given, the files need only agree.

    Raises
    ------
    InputRefused
        If a file is damaged, is of another target, network or GPU, or does not go with the others.
    """
    path = capture / "plan.json"
    plan = read_plan(path)
    told = {capture / "environment.json": _environment(capture / "environment.json", cell, architecture)}
    timeline = None
    if timing.is_dir():
        told[timing / "environment.json"] = _environment(timing / "environment.json", cell, architecture)
        told[timing / "evidence.json"] = read_evidence(timing / "evidence.json")
        told |= {timing / name: _table(timing / name) for name in _TABLES}
        timeline = read_timeline(timing / "timeline.parquet")
    _of_cell(told, cell, network)
    _follows(path, plan, keys, timeline)
    return plan


def _of_cell(told: Mapping[Path, Mapping[str, Any]], cell: str, network: str | None) -> None:
    """Compare what files tell of their target and network with the cell, and with each other."""
    target = cell.partition("/")[2]
    where = "the study"
    for path, words in told.items():
        if words.get("target", target) != target:
            raise InputRefused(
                f"{path}: is of target {words['target']!r}, but cell {cell} is of {target!r}; "
                "put it where it belongs"
            )
        if "network" not in words:
            continue
        if network is None:
            network, where = words["network"], str(path)
        elif words["network"] != network:
            raise InputRefused(
                f"{path}: is of network {words['network']!r}, but {where} is of {network!r}; "
                "put it where it belongs"
            )


def _environment(path: Path, cell: str, architecture: Mapping[str, Any]) -> dict[str, Any]:
    record = read_record(path, _ENVIRONMENT_SCHEMA, AGAIN)
    gpu = record["gpu"] or {}
    if gpu.get("cc") is not None:
        device = {"name": gpu.get("name"), "compute_capability": gpu["cc"]}
        require_architecture(device, architecture, cell, path)
    return record


def _table(path: Path) -> dict[str, str]:
    """Check a table of the timing and return what its file metadata tells."""
    schema, figure = _TABLES[path.name]
    table = read_columns(path, schema.names, AGAIN)
    for name in schema.names:
        found, kind = _plain(table.schema.field(name).type), _plain(schema.field(name).type)
        if found != kind:
            raise InputRefused(f"{path}: column {name!r} holds {found}, not {kind}; {AGAIN}")
    if table.num_rows == 0:
        raise InputRefused(f"{path}: holds no row; {AGAIN}")
    values = table[figure].drop_null().to_numpy()
    if not all(math.isfinite(value) and value >= 0 for value in values) or not values.sum() > 0:
        raise InputRefused(f"{path}: column {figure!r} holds no times; {AGAIN}")
    if schema is TIMINGS and not pc.any(pc.equal(table["variant"].cast(pa.string()), "autotune_off")).as_py():
        raise InputRefused(f"{path}: holds no row of variant autotune_off; {AGAIN}")
    metadata = table.schema.metadata or {}
    prefix = "gpuatlas."
    return {key.decode().removeprefix(prefix): value.decode() for key, value in metadata.items()}


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _follows(
    path: Path, plan: Mapping[str, Any], keys: Sequence[str] | int, timeline: Timeline | None
) -> None:
    """Check what a plan states against the report and the step's timeline, where it is of the whole step."""
    if plan.get("refused") is not None:
        return
    known = () if isinstance(keys, int) else keys
    found: dict[str, float] = {"launches_measured": keys if isinstance(keys, int) else len(keys)}
    if plan["window"] is None and timeline is not None:
        covered = join(timeline, known)
        step = {name: getattr(covered, name) for name in ("configs_total", "launches_total", "gpu_time_ns")}
        joined = ("configs_measured", "coverage_time", "coverage_launches")
        found |= step | ({name: getattr(covered, name) for name in joined} if known else {})
    elif known and not plan.get("foreign_launches"):
        found["configs_measured"] = len(set(known))
    for name, value in found.items():
        stated = plan.get(name)
        if stated is not None and not math.isclose(stated, value, rel_tol=1e-6, abs_tol=1e-6):
            raise InputRefused(
                f"{path}: states {name} {stated:.10g}, but the report and the timeline beside it give "
                f"{value:.10g}: it is of another capture; restore the file, or capture the cell again"
            )
    parts = sum(part["launches"] for part in plan.get("parts", []))
    if parts and parts != found["launches_measured"]:
        raise InputRefused(
            f"{path}: its parts hold {parts} launches, but the report holds {found['launches_measured']}: "
            "it is of another capture; restore the file, or capture the cell again"
        )
    for number, part in enumerate(plan.get("parts", [])):
        second = part.get("second", [])
        if any(place >= part["launches"] for place in second) or (second and part.get("again") is None):
            raise InputRefused(
                f"{path}: key 'parts/{number}/second': names launches that the part does not hold, or not of "
                "which number they are; restore the file, or capture the cell again"
            )
    if (plan["configs_measured"] or 0) > found["launches_measured"]:
        raise InputRefused(
            f"{path}: states {plan['configs_measured']} measured launch configurations, but the report holds "
            f"{found['launches_measured']} launches: it is of another capture; restore the file, or capture "
            "the cell again"
        )
