"""The recordings that the project comes with: whole files, small, and steps that cover what they state."""

import json
from pathlib import Path

import pytest
from tests.studies import ROOT

from gpuatlas.capture.join import join, read_measured
from gpuatlas.capture.refused import refusal
from gpuatlas.capture.timeline import read_timeline
from gpuatlas.config import RECORDING, REPORT_NAME
from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline

FOLDER = ROOT / "resources" / "recordings"
RECORDINGS = sorted(path.parent for path in FOLDER.rglob("plan.json"))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_there_are_some_and_they_are_small():
    assert RECORDINGS
    assert size(FOLDER) <= 20_000_000


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recording(folder):
    assert all((folder / name).is_file() for name in RECORDING)
    assert size(folder) <= 3_000_000
    assert refusal(folder / "plan.json") is None
    plan = json.loads((folder / "plan.json").read_text())
    report = outline(folder / REPORT_NAME)
    names = [launch.demangled for chunk in decode_report(report) for launch in chunk.infos]
    assert len(names) == report.launches > 0
    if plan["window"] is not None:
        assert plan["coverage_time"] is None
        return
    timeline = read_timeline(folder / "timing" / "timeline.parquet")
    covered = join(timeline, read_measured(folder / REPORT_NAME).keys)
    assert covered.coverage_time == pytest.approx(plan["coverage_time"], abs=1e-6)
    assert plan["unmatched_time"] < 0.005
    for kind in ("dgrad", "wgrad"):
        assert any(kind in name for name in names), f"no {kind} kernel: the backward pass is missing"
