"""A cell whose counters are refused: it keeps its timing and timeline, and its plan says why no more."""

import json
from pathlib import Path

from gpuatlas.capture.messages import CountersRefused
from gpuatlas.capture.result import SCHEMA, Request
from gpuatlas.errors import InputRefused
from gpuatlas.files import write_json, write_text


def write_refusal(request: Request, timing: Path, error: CountersRefused) -> None:
    """Write a capture that holds nothing, and says so.

    Parameters
    ----------
    timing
        Folder of the cell's timing, whose environment record is the capture's too.
    error
        Why nothing was profiled, and what to ask for.

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
            "refused": error.reason,
            "window": None,
            "configs_total": None,
            "configs_measured": 0,
            "launches_total": None,
            "launches_measured": 0,
            "gpu_time_ns": None,
            "coverage_time": None,
            "coverage_launches": None,
            "unmatched_time": None,
            "sections": list(settings.sections),
            "metrics": list(settings.metrics),
            "replay": settings.replay,
            "cache": settings.cache,
            "clock": settings.clock,
            "flags": [str(error)],
        },
    )
    write_text(request.out / "report.ncu-repz", "")


def refusal(plan: Path) -> str | None:
    """Return why the capture of ``plan.json`` holds nothing; None where it was not refused.

    Raises
    ------
    InputRefused
        If the file is not one JSON object.
    """
    try:
        content = json.loads(plan.read_text(encoding="utf-8"))
        reason = content.get("refused")
    except (OSError, ValueError, AttributeError) as error:
        raise InputRefused(f"{plan}: is not a readable plan; capture the cell again") from error
    return None if reason is None else str(reason)
