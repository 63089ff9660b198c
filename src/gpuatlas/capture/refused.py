"""A cell whose counters are refused: it keeps its timing and timeline, and its plan says why no more."""

import json
from pathlib import Path

from gpuatlas.capture.result import SCHEMA, Request
from gpuatlas.files import write_json, write_text


def write_refusal(request: Request, timing: Path, reason: str) -> None:
    """Write a capture that holds nothing, and says so.

    Parameters
    ----------
    timing
        Folder of the cell's timing, whose environment record is the capture's too.
    reason
        Why nothing was profiled.

    Notes
    -----
    The report is an empty file: every reader refuses it, so that it cannot be taken for a measurement.
    """
    settings = request.settings
    record = json.loads((timing / "environment.json").read_text(encoding="utf-8"))
    write_json(request.out / "environment.json", record)
    write_json(
        request.out / "plan.json",
        {
            "schema": SCHEMA,
            "mode": "refused",
            "refused": reason,
            "window": None,
            "configs_total": None,
            "configs_measured": 0,
            "launches_total": None,
            "gpu_time_ns": None,
            "coverage_time": None,
            "coverage_launches": None,
            "unmatched_time": None,
            "sections": list(settings.sections),
            "metrics": list(settings.metrics),
            "replay": settings.replay,
            "cache": settings.cache,
            "clock": settings.clock,
            "flags": [reason],
        },
    )
    write_text(request.out / "report.ncu-repz", "")
