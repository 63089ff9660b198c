"""A report that a user already has, as a cell's capture: slim, with what it tells of itself and no more."""

from pathlib import Path
from typing import Any

from gpuatlas.files import sha256, write_json
from gpuatlas.ncurep.report import Outline, outline
from gpuatlas.ncurep.slim import slim
from gpuatlas.publish.device import device_of

SCHEMA_VERSION = 1


def import_report(report: Path, out: Path) -> int:
    """Write `out`/report.ncu-repz, plan.json and environment.json.

    Parameters
    ----------
    report
        The report, in any form that the converter reads; it is not changed.
    out
        Folder of the capture.

    Returns
    -------
    int
        Number of launches.

    Raises
    ------
    InputRefused
        If the report is damaged or holds no launch; nothing is written then.
    """
    slimmed = slim(report, out / "report.ncu-repz")
    write_json(out / "plan.json", _plan(report, slimmed.launches))
    write_json(out / "environment.json", _environment(outline(out / "report.ncu-repz")))
    return slimmed.launches


def _plan(report: Path, launches: int) -> dict[str, Any]:
    """Return what is known of the capture: of the file the name and the digest, not where it lay."""
    return {
        "schema": SCHEMA_VERSION,
        "mode": "imported",
        "source": {"name": report.name, "sha256": sha256(report)},
        "window": None,
        "configs_total": None,
        "configs_measured": None,
        "launches_total": None,
        "launches_measured": launches,
        "gpu_time_ns": None,
        "coverage_time": None,
        "coverage_launches": None,
        "unmatched_time": None,
    }


def _environment(report: Outline) -> dict[str, Any]:
    session, device = report.session, device_of(report)
    return {
        "schema": SCHEMA_VERSION,
        "gpu": {
            "name": device["name"],
            "cc": device["compute_capability"],
            "sm_count": device["sm_count"],
            "memory_bytes": None,
            "vgpu": None,
            "driver": session.versions.get("Display Driver Version"),
        },
        "stack": {
            "name": None,
            "python": None,
            "torch": None,
            "cuda": session.versions.get("CUDA Version"),
            "cudnn": None,
            "ncu": session.ncu_version or None,
        },
        "flags": {},
        "image": None,
        "site": None,
        "job": None,
        "data_sha256": None,
    }
