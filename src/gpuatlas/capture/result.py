"""What a finished capture writes: the merged report, and a plan that says what it covers and what it cost."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuatlas.capture.cost import too_small
from gpuatlas.capture.join import (
    Coverage,
    Measured,
    read_measured,
    require_backward,
    require_matched,
)
from gpuatlas.capture.ncu import Settings
from gpuatlas.capture.plan import Mode, Plan
from gpuatlas.capture.program import Job
from gpuatlas.capture.represent import represent, skips_of
from gpuatlas.capture.state import GivenUp, State
from gpuatlas.capture.timeline import Timeline
from gpuatlas.errors import GpuatlasError
from gpuatlas.files import whole, write_json
from gpuatlas.ncurep.slim import merge

SCHEMA = 1


@dataclass(frozen=True)
class Request:
    """One cell's capture: the program, what is measured of it, and where things go."""

    job: Job
    timeline: Path
    mode: Mode
    budget_s: float | None
    settings: Settings
    state: Path
    out: Path
    scratch: Path


def finish(request: Request, timeline: Timeline, state: State, plan: Plan) -> dict[str, Any]:
    """Join, judge, and write the outputs, the report last."""
    if not state.records:
        raise GpuatlasError(too_small(request.budget_s, plan.cost.startup_s))
    with tempfile.TemporaryDirectory(prefix="gpuatlas-merge-", dir=request.scratch) as name:
        merged = Path(name) / "report.ncu-repz"
        merge(state.reports(), merged)
        measured = read_measured(merged)
        window = _window(request.mode, timeline, state)
        asked = timeline if window is None else _head(timeline, state.launches)
        require_backward(asked, measured.keys, plan.left_out)
        coverage = require_matched(asked, measured.keys, plan.left_out)
        content = _content(request, state, plan, coverage, measured) | {"window": window}
        if window is not None:  # a window covers no step
            content |= {"coverage_time": None, "coverage_launches": None}
        else:
            parts = content["parts"]
            stands = represent(timeline.keys, timeline.durations_ns, measured.keys, skips_of(parts))
            content |= {"scaled_time": stands.scaled_time}
        request.out.mkdir(parents=True, exist_ok=True)
        write_json(request.out / "environment.json", _environment(request, measured))
        write_json(request.out / "plan.json", content)
        with whole(request.out / "report.ncu-repz") as temporary:
            shutil.copyfile(merged, temporary)
    return content


def _head(timeline: Timeline, launches: int) -> Timeline:
    return Timeline(
        timeline.keys[:launches],
        timeline.names[:launches],
        timeline.durations_ns[:launches],
        timeline.phases[:launches],
    )


def _window(mode: Mode, timeline: Timeline, state: State) -> str | None:
    """Return what a capture of only the first launches is; None where it covers the step."""
    total = len(timeline.keys)
    if mode.first is None or state.launches >= total:
        return None
    return f"the first {state.launches} of the {total} launches of a step"


def _flags(
    coverage: Coverage, lost: Sequence[str], missing: Sequence[str], given_up: GivenUp | None
) -> list[str]:
    """Return what a reader of the figures must know."""
    flags = []
    if lost:
        flags.append(f"Nsight Compute could not access {len(lost)} metrics: {', '.join(lost)}")
    if missing:
        flags.append(f"asked for and not stored: {', '.join(missing)}")
    if given_up is not None:
        from_part = f" from part {given_up.part + 1} on" if given_up.part else ""
        flags.append(f"no second measurements{from_part}: {given_up.reason}")
    if coverage.foreign:
        flags.append(
            f"{coverage.foreign} measured launches are of configurations that the timeline does not have"
        )
    return flags


def _content(
    request: Request, state: State, plan: Plan, coverage: Coverage, measured: Measured
) -> dict[str, Any]:
    settings = request.settings
    lost = sorted({name for record in state.records for name in record.lost})
    missing = [name for name in settings.metrics if name not in measured.metrics]
    return {
        "schema": SCHEMA,
        "mode": request.mode.text,
        "window": None,
        "configs_total": coverage.configs_total,
        "configs_measured": coverage.configs_measured,
        "launches_total": coverage.launches_total,
        "launches_measured": len(measured.keys),
        "gpu_time_ns": coverage.gpu_time_ns,
        "coverage_time": coverage.coverage_time,
        "coverage_launches": coverage.coverage_launches,
        "unmatched_time": coverage.unmatched_time,
        "foreign_launches": coverage.foreign,
        "budget_s": request.budget_s,
        "predicted_s": state.predicted_s,
        "probe_s": state.probe_s,
        "spent_s": state.spent_s,
        "passes": plan.cost.passes,
        "sections": list(settings.sections),
        "metrics": list(settings.metrics),
        "metrics_lost": sorted({*lost, *missing}),
        "replay": settings.replay,
        "cache": settings.cache,
        "clock": settings.clock,
        "ncu": measured.ncu,
        "flags": _flags(coverage, lost, missing, state.given_up),
        "parts": [
            {
                "launches": record.launches,
                "again": record.again,
                "second": list(record.second),
                "startup_s": round(record.startup_s, 3),
                "profile_s": round(record.profile_s, 3),
                "passes": record.passes,
            }
            for record in state.records
        ],
    }


def _environment(request: Request, measured: Measured) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((request.state / "environment.json").read_text(encoding="utf-8"))
    record["stack"]["ncu"] = measured.ncu
    return record
