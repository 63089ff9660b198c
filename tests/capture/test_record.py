"""The scripts that make recordings and the benchmark's data, from end to end with the stand-in for ncu.

They run as on a machine that has torch, the GPU and Nsight Compute, and nothing of the workflow's environment.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.capture.conftest import calls, show_gpu, write_timeline
from tests.capture.stand_in import ROOT

from gpuatlas.capture.join import read_measured
from gpuatlas.config import RECORDING

STEP = [*range(60), *range(20, 60), *range(60, 105)]
SMALL = ("--network", "small_64", "--size", "16", "--device", "cpu")
MEASURED = ROOT / "tests" / "data" / "measured" / "h200" / "opt1"


@pytest.fixture
def gpu(stand_in, tmp_path, recording):
    """A machine with the stand-in, and finished times and a timeline of the step that it serves."""
    timing = tmp_path / "timing" / "opt1"
    shutil.copytree(MEASURED, timing)
    durations = [1000.0 * (number + 1) for number in STEP]
    write_timeline(timing / "timeline.parquet", recording, STEP, durations)

    def make(**script: object) -> Path:
        folder = stand_in(**({"step": STEP} | script))
        show_gpu(folder)
        return folder

    return make


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"src{os.pathsep}{ROOT / 'tests' / 'capture' / 'bare'}"}
    command = [sys.executable, f"benchmarks/{name}", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def record(tmp_path: Path, work: Path, *more: object) -> subprocess.CompletedProcess[str]:
    options = ("--timing", tmp_path / "timing", "--work", work, "--pack", tmp_path / "out.tar")
    return script("record.py", "--target", "opt1", *SMALL, *options, *more)


def unpack(tmp_path: Path, name: str) -> Path:
    with tarfile.open(tmp_path / "out.tar") as tar:
        tar.extractall(tmp_path / name, filter="data")
    return tmp_path / name


def test_a_recording_from_end_to_end(gpu, tmp_path):
    folder = gpu()
    done = record(tmp_path, tmp_path / "work")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NVIDIA H200" not in done.stderr
    assert "dgrad" in done.stdout
    assert "This ncu does not store" in done.stderr, "the recording that is served lacks a metric or two"
    assert "dram__bytes.sum" in done.stderr
    recording = unpack(tmp_path, "packed") / "recording" / "h200" / "opt1"
    assert {path.name for path in recording.iterdir()} == {*RECORDING, "timing"}
    plan = json.loads((recording / "plan.json").read_text())
    assert plan["coverage_time"] == 1.0
    assert "dram__bytes.sum" in plan["metrics"]
    assert len(plan["sections"]) > 5
    assert read_measured(recording / "report.ncu-repz").keys
    assert (recording / "timing" / "timings.parquet").read_bytes() == (
        MEASURED / "timings.parquet"
    ).read_bytes()
    assert len(calls(folder)) == 2, "a probe and a part"
    again = record(tmp_path, tmp_path / "packed")
    assert again.returncode == 0
    assert len(calls(folder)) == 2, "what is finished is not made again"


def test_a_recording_that_is_stopped_goes_on_from_the_archive(gpu, tmp_path):
    # By the model, launches of a minute make parts of a few kernels; the second one hangs until the time is over.
    timeline = tmp_path / "timing" / "opt1" / "timeline.parquet"
    rows = pq.read_table(timeline)
    slow = rows.set_column(
        rows.column_names.index("duration_ns"),
        rows.schema.field("duration_ns"),
        [[1e11 * (number + 1) / len(STEP) for number in STEP]],
    )
    pq.write_table(slow, timeline)
    folder = gpu(fails=[None, None, "hang"])
    done = record(tmp_path, tmp_path / "work", "--seconds", "110")
    assert done.returncode == 75, done.stdout + done.stderr
    measured = calls(folder)[1]["options"]["--kernel-name"]
    work = unpack(tmp_path, "packed")
    assert not (work / "recording").exists()
    assert list(work.glob("h200/opt1/.state/capture/part-000.ncu-repz"))
    folder = gpu()
    done = record(tmp_path, work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert measured not in [call["options"].get("--kernel-name") for call in calls(folder)[1:]]
    plan = json.loads((work / "recording" / "h200" / "opt1" / "plan.json").read_text())
    assert plan["coverage_time"] == 1.0
    assert len(plan["parts"]) > 1


def test_a_window_takes_the_few_metrics(gpu, tmp_path):
    gpu()
    done = record(tmp_path, tmp_path / "work", "--mode", "first:80")
    assert done.returncode == 0, done.stdout + done.stderr
    recording = tmp_path / "work" / "recording" / "h200" / "opt1_first80"
    plan = json.loads((recording / "plan.json").read_text())
    assert plan["window"] == f"the first 80 of the {len(STEP)} launches of a step"
    assert plan["sections"] == []
    assert len(plan["metrics"]) == 5


def test_refused_counters_end_the_call(gpu, tmp_path):
    folder = gpu(chips="ga100")
    done = record(tmp_path, tmp_path / "work", "--target", "baseline")
    assert done.returncode == 4
    assert "does not know the chip" in done.stderr
    assert not (folder / "calls.jsonl").exists()


def test_the_benchmark_measures_and_shows(gpu, tmp_path):
    gpu()
    work = tmp_path / "work"
    shutil.copytree(tmp_path / "timing" / "opt1", work / "opt1_16" / "timing")
    measure = ("measure", "--target", "opt1", *SMALL, "--work", work, "--pack", tmp_path / "out.tar")
    measure = (*measure, "--budget", "60s", "--note", "No GPU is here")
    done = script("bench_capture.py", *measure)
    assert done.returncode == 0, done.stdout + done.stderr
    packed = unpack(tmp_path, "packed") / "opt1_16"
    for name in ("configs", "budget", "every"):
        assert (packed / name / "report.ncu-repz").stat().st_size > 0
    assert json.loads((packed / "every" / "plan.json").read_text())["mode"] == "first:inf"
    page = tmp_path / "capture.md"
    done = script("bench_capture.py", "show", "--work", tmp_path / "packed", "--out", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert f"one step, {len(STEP)} launches" in text
    assert "No GPU is here." in text
    rows = [line for line in text.splitlines() if line.startswith("| within 60 s |")]
    assert len(rows) == 1
    assert float(rows[0].split("|")[-2]) > 0  # seconds of the whole command
