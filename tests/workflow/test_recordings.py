"""The recordings that the project comes with: whole files, small, and steps that cover what they state."""

import json
from pathlib import Path

import pytest
from tests.studies import ROOT

from gpuatlas.capture.join import join, read_measured
from gpuatlas.capture.refused import refusal
from gpuatlas.capture.timeline import read_timeline
from gpuatlas.config import QUALITY, RECORDING, REPORT_NAME, TIMING, load_named
from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline
from gpuatlas.publish.device import load_architecture
from gpuatlas.publish.quality import read_quality

FOLDER = ROOT / "resources" / "recordings"
RECORDINGS = sorted(path.parent for path in FOLDER.rglob("plan.json"))
QUALITIES = sorted(path for path in FOLDER.glob(f"*/*/{QUALITY}"))
WHOLE = {"baseline", "opt1", "opt2", "opt12", "compile"}
WINDOWS = {"baseline_first500", "opt2_first500"}


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def window(folder: Path) -> str | None:
    return json.loads((folder / "plan.json").read_text())["window"]


def test_they_are_small_and_those_of_the_study_are_whole_steps():
    assert size(FOLDER) <= 20_000_000
    assert {path.name for path in RECORDINGS if window(path) is None} == WHOLE
    assert {path.name for path in RECORDINGS if window(path) is not None} == WINDOWS
    assert [path.parents[1].name for path in QUALITIES] == ["opt1"]
    assert not WINDOWS & set(load_named(ROOT, "targets"))


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
    assert all((folder / "timing" / name).is_file() for name in TIMING)
    assert json.loads((folder / "timing" / "evidence.json").read_text())["in_effect"] == "true"
    timeline = read_timeline(folder / "timing" / "timeline.parquet")
    covered = join(timeline, read_measured(folder / REPORT_NAME).keys)
    assert covered.coverage_time == pytest.approx(plan["coverage_time"], abs=1e-6)
    assert plan["unmatched_time"] < 0.005
    for kind in ("dgrad", "wgrad"):
        assert any(kind in name for name in names), f"no {kind} kernel: the backward pass is missing"


@pytest.mark.parametrize("path", QUALITIES, ids=lambda path: path.parents[1].name)
def test_quality_runs(path):
    cell = path.parents[1].relative_to(FOLDER).as_posix()
    read = read_quality(path, cell, load_architecture(ROOT / "config" / "architectures.yaml", cell))
    assert len(read["runs"]) >= 4
