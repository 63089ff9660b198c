"""Results folders for tests: the three recorded windows, converted for real, and whole steps made from them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpuatlas.config import load_named
from gpuatlas.publish.cell import describe
from gpuatlas.tables.convert import convert

ROOT = Path(__file__).parents[1]
WINDOWS = ROOT / "tests" / "data" / "windows" / "h200"
RECORDED = {"baseline": (109, 44786208.0), "opt1": (105, 1996512.0), "opt12": (102, 8359168.0)}
ARCHITECTURES = ("v100", "a100", "h100", "h200")
TARGETS = ("baseline", "opt1", "opt2", "opt12")
TABLES = ("launches", "metrics", "rules", "session")


def table(results: Path, name: str, architecture: str, target: str) -> Path:
    return results / "tables" / name / f"architecture={architecture}" / f"target={target}" / "part.parquet"


def write_study(results: Path, origins: dict[str, str]) -> None:
    """Write study.json; cells that `origins` does not name are absent."""
    architectures, targets = load_named(ROOT, "architectures"), load_named(ROOT, "targets")
    cells = [
        {
            "cell": f"{a}/{t}",
            "architecture": a,
            "target": t,
            "origin": origins.get(f"{a}/{t}", "absent"),
            "site": None,
            "reason": None if f"{a}/{t}" in origins else "no recording here",
        }
        for a in ARCHITECTURES
        for t in TARGETS
    ]
    study = {
        "schema": 1,
        "site": "local",
        "workload": {"network": "whole_head_128", "size": 128},
        "architectures": {a: architectures[a] for a in ARCHITECTURES},
        "targets": {t: targets[t] for t in TARGETS},
        "cells": cells,
    }
    results.mkdir(parents=True, exist_ok=True)
    (results / "study.json").write_text(json.dumps(study))


def add_window(results: Path, target: str, report: Path | None = None) -> None:
    """Convert a recorded window and describe its cell, with the project's own code."""
    report = report or WINDOWS / target / "report.ncu-repz"
    capture = results / "cells" / "h200" / target / "capture"
    capture.mkdir(parents=True, exist_ok=True)
    shutil.copy(report, capture / "report.ncu-repz")
    shutil.copy(WINDOWS / target / "environment.json", capture)
    plan = json.loads((WINDOWS / target / "plan.json").read_text())
    plan |= {"window": f"first launches of {target}"}
    (capture / "plan.json").write_text(json.dumps(plan))
    convert([report], results / "tables", partition={"architecture": "h200", "target": target})
    describe(
        f"h200/{target}",
        origin="recorded",
        results=results,
        architectures=ROOT / "config" / "architectures.yaml",
        targets=ROOT / "config" / "targets.yaml",
    )


def windows(results: Path, targets: tuple[str, ...] = tuple(RECORDED)) -> Path:
    """Write a results folder with the recorded windows."""
    write_study(results, {f"h200/{target}": "recorded" for target in targets})
    for target in targets:
        add_window(results, target)
    return results


def scaled(source: pa.Table, factors: dict[str, float]) -> pa.Table:
    """Return a metrics table in which the named metrics are multiplied."""
    names = source["metric"].cast(pa.string())
    values = source["value"]
    for name, factor in factors.items():
        values = pc.if_else(pc.equal(names, name), pc.multiply(values, factor), values)
    return source.set_column(source.column_names.index("value"), source.schema.field("value"), values)


def longer(launches: pa.Table, factor: float) -> pa.Table:
    """Return a launches table whose launches last longer."""
    at = launches.column_names.index("duration_ns")
    return launches.set_column(at, launches.schema.field(at), pc.multiply(launches["duration_ns"], factor))


def add_step(
    results: Path,
    windows_folder: Path,
    cell: str,
    *,
    like: str,
    metrics: dict[str, float] | None = None,
    duration: float = 1.0,
    **manifest: Any,
) -> None:
    """Write a cell that passes for a whole step: the tables of a window, with metrics multiplied."""
    architecture, target = cell.split("/")
    for name in TABLES:
        found = pq.read_table(table(windows_folder, name, "h200", like), partitioning=None)
        if name == "metrics" and metrics:
            found = scaled(found, metrics)
        if name == "launches":
            found = longer(found, duration)
        path = table(results, name, architecture, target)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(found, path)
    cells = json.loads((windows_folder / "cells" / "h200" / like / "cell.json").read_text())
    cells |= {
        "cell": cell,
        "architecture": architecture,
        "target": target,
        "comparable": True,
        "window": None,
        "coverage": {"time": 0.99, "launches": 0.98},
        "evidence": {"in_effect": "true", "checks": []},
        "notes": [],
        **manifest,
    }
    path = results / "cells" / architecture / target / "cell.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells))
