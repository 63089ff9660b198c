"""A cell's manifest: what it is, where it comes from, what it covers, and the SHA-256 of each file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuatlas.capture.represent import skips_of
from gpuatlas.compare.weights import read_step
from gpuatlas.errors import InputRefused
from gpuatlas.files import read_json, sha256, write_json
from gpuatlas.publish.device import load_architecture, require_architecture
from gpuatlas.publish.recording import AGAIN, check_beside, read_evidence
from gpuatlas.tables.read import read_columns
from gpuatlas.workload.evidence import failures, judge
from gpuatlas.workload.targets import load_target

SCHEMA_VERSION = 1
CONVERT = "delete it and convert the report again"
# Versions that a session table tells, under the manifest's names.
_VERSIONS = {"ncu": "ncu_version", "cuda": "cuda_version", "driver": "driver_version"}


def describe(name: str, *, origin: str, results: Path, architectures: Path, targets: Path) -> dict[str, Any]:
    """Write ``results/cells/{name}/cell.json`` from the cell's files and tables.

    Parameters
    ----------
    name
        The cell, ``architecture/target``.
    origin
        ``captured``, ``recorded``, ``imported`` or ``merged``.
    results
        Folder of the results.
    architectures
        ``config/architectures.yaml``: a report belongs to an architecture by compute capability.
    targets
        ``config/targets.yaml``: what must be seen of a target. Of an import only kernel names can tell.

    Returns
    -------
    dict
        The manifest, as written.

    Raises
    ------
    ConfigError
        If the cell's architecture is not in `architectures`, or an import's target not in `targets`.
    InputRefused
        If the report was measured on another architecture, or a file that the manifest needs is not valid.
    """
    architecture, _, target = name.partition("/")
    entry = load_architecture(architectures, name)
    folder = results / "cells" / name
    place = Path(f"architecture={architecture}") / f"target={target}" / "part.parquet"
    tables = {table: results / "tables" / table / place for table in ("launches", "metrics", "session")}
    launches = read_columns(tables["launches"], ["key", "demangled", "function", "duration_ns"], CONVERT)
    plan = check_beside(folder / "capture", folder / "timing", name, entry, keys=launches["key"].to_pylist())
    refused = plan.get("refused")
    if refused is None:
        session = {
            row["key"]: row["value"]
            for row in read_columns(tables["session"], ["key", "value"], CONVERT).to_pylist()
        }
        device = _device(tables["metrics"])
        versions = {short: session.get(key) for short, key in _VERSIONS.items()}
        recorded = _of_environment(read_json(folder / "capture" / "environment.json"))
        versions |= {short: value for short, value in recorded.items() if not versions.get(short)}
    else:
        device, versions = _of_record(folder / "capture" / "environment.json")
    require_architecture(device, entry, name, folder / "capture" / "report.ncu-repz")
    coverage = None
    if plan.get("coverage_time") is not None:
        coverage = {"time": plan["coverage_time"], "launches": plan.get("coverage_launches")}
    step = _step(folder / "timing")
    weighted = step is not None or plan.get("mode") == "first:inf"
    whole_gpu = device["sm_count"] in entry["sm_counts"]
    comparable = plan.get("window") is None and coverage is not None and weighted and whole_gpu
    parts = [
        {"launches": one["launches"], "again": one.get("again"), "second": one.get("second") or []}
        for one in plan.get("parts", [])
    ]
    scaled = None
    if comparable and step is not None:
        skips = skips_of(parts) or None
        timeline = folder / "timing" / "timeline.parquet"
        read = read_step(launches["key"].to_pylist(), timeline, plan["coverage_time"], skips=skips)
        scaled = None if read is None else read.stands.scaled_time
    durations = launches["duration_ns"]
    evidence = _of_names(launches, target, targets) if origin == "imported" else _evidence(folder)
    manifest = {
        "schema": SCHEMA_VERSION,
        "cell": name,
        "architecture": architecture,
        "target": target,
        "origin": origin,
        "source": plan.get("source"),
        "comparable": comparable,
        "window": plan.get("window"),
        "refused": refused,
        "coverage": coverage,
        "step": step,
        "evidence": evidence,
        "device": device,
        "versions": versions,
        "launches": len(durations) if refused is None else None,
        "parts": parts or None,
        "scaled_time": scaled,
        "gpu_time_ns": pc.sum(durations).as_py(),
        "notes": _notes(
            plan, refused, origin, device, entry, evidence=evidence, weighted=weighted, scaled=scaled
        ),
        "files": {
            str(path.relative_to(folder)): sha256(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "cell.json" and ".state" not in path.parts
        },
    }
    write_json(folder / "cell.json", manifest)
    return manifest


def _notes(
    plan: Mapping[str, Any],
    refused: str | None,
    origin: str,
    device: Mapping[str, Any],
    architecture: Mapping[str, Any],
    *,
    evidence: dict[str, Any],
    weighted: bool,
    scaled: float | None,
) -> list[str]:
    """Return what a reader must know of a cell, a sentence each."""
    notes, covered, window = [], plan.get("coverage_time") is not None, plan.get("window")
    if device["sm_count"] not in architecture["sm_counts"]:
        part = f"{device['sm_count']} multiprocessors: not a whole {architecture['label']}"
        notes.append(f"{part}, comparable with nothing")
    if architecture["label"] not in device["name"]:
        notes.append(f"the device calls itself {device['name']}")
    if origin == "imported" and not covered:
        notes.append("imported, coverage unknown: shown by itself, compared with nothing")
        if failed := failures(evidence):
            notes.append(f"its kernels' names speak against its target: {failed}")
    if window is not None:
        notes.append(f"a window ({window}): it covers no step and is comparable with nothing")
    if refused is not None:
        notes.append(
            f"counters refused ({refused}): it has its unprofiled times and its timeline, no profile"
        )
    notes += plan.get("flags", [])
    if plan.get("unmatched_time"):
        notes.append(f"{100 * plan['unmatched_time']:.2g} % of the step's GPU time has no measured launch")
    if scaled:
        notes.append(
            f"{100 * scaled:.2g} % of the step's GPU time is in launches longer or shorter by a "
            "fifth than the measured launch of their configuration; its counters are scaled by time for them"
        )
    if covered and not weighted:
        notes.append("no timeline says how often a step launches what was measured: comparable with nothing")
    return notes


def _evidence(folder: Path) -> dict[str, Any]:
    path = folder / "timing" / "evidence.json"
    if path.is_file():
        return _kept(read_evidence(path))
    return {"in_effect": "unknown", "checks": [], "source": []}


def _of_names(launches: pa.Table, target: str, targets: Path) -> dict[str, Any]:
    """Judge by the kernels' names in an import whether its target was in effect."""
    names = pc.coalesce(launches["demangled"].cast("string"), launches["function"].cast("string"))
    kernels = pa.table({"name": names, "duration_ns": pc.fill_null(launches["duration_ns"], 0.0)})
    return _kept(
        judge(load_target(targets, target), None, kernels) | {"source": ["kernel names of an import"]}
    )


def _kept(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {"in_effect": evidence["in_effect"], "checks": evidence["checks"], "source": evidence["source"]}


def _step(timing: Path) -> dict[str, Any] | None:
    """Return what is known of the unprofiled step: its median time, its launches and their GPU time."""
    if not (timing / "timeline.parquet").is_file():
        return None
    durations = read_columns(timing / "timeline.parquet", ["duration_ns"], AGAIN)["duration_ns"]
    times = read_columns(timing / "timings.parquet", ["variant", "step_ms"], AGAIN)
    unprofiled = times.filter(pc.equal(times["variant"].cast("string"), "autotune_off"))["step_ms"]
    return {
        "median_ms": pc.quantile(unprofiled, 0.5)[0].as_py(),
        "launches": len(durations),
        "gpu_time_ns": pc.sum(durations).as_py(),
    }


def _of_record(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the device and the versions by an environment record, for a cell without a report."""
    record = read_json(path)
    gpu = record.get("gpu") or {}
    device = {"name": gpu.get("name"), "compute_capability": gpu.get("cc"), "sm_count": gpu.get("sm_count")}
    missing = [key for key, value in device.items() if value is None]
    if missing:
        raise InputRefused(f"{path}: key gpu does not tell the {missing[0]}; time the cell again on its GPU")
    return device, {"ncu": None, **_of_environment(record)}


def _of_environment(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions that an environment record tells."""
    gpu, stack = record.get("gpu") or {}, record.get("stack") or {}
    return {"driver": gpu.get("driver")} | {name: stack.get(name) for name in ("cuda", "torch", "cudnn")}


def _device(metrics: Path) -> dict[str, Any]:
    """Read the device from the attributes that every report stores with its launches."""
    prefix = "device__attribute_"
    wanted = ["display_name", "compute_capability_major", "compute_capability_minor", "multiprocessor_count"]
    columns, first = ["launch_id", "metric", "value", "text"], [("launch_id", "=", 0)]
    table = read_columns(metrics, columns, CONVERT, filters=first)
    found = {
        row["metric"].removeprefix(prefix): row["text"] if row["value"] is None else int(row["value"])
        for row in table.to_pylist()
        if row["metric"].removeprefix(prefix) in wanted
    }
    missing = [f"{prefix}{key}" for key in wanted if found.get(key) is None]
    if missing:
        raise InputRefused(
            f"{metrics}: the report stores no {missing[0]}, so its GPU is unknown; capture again"
        )
    return {
        "name": found["display_name"],
        "compute_capability": f"{found['compute_capability_major']}.{found['compute_capability_minor']}",
        "sm_count": found["multiprocessor_count"],
    }
