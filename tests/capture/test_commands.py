"""The commands as rules call them, with the real program on the CPU under the stand-in for ncu."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.capture.conftest import calls, key_of, show_gpu, write_timeline
from tests.capture.stand_in import ROOT

from gpuatlas.capture.join import read_measured
from gpuatlas.lock import locked
from gpuatlas.workload.inputs import step_checksum
from gpuatlas.workload.step import ACCUMULATE

STEP = [*range(105), *range(20, 60)]
SECTIONS = ["--section", "SpeedOfLight", "--section", "LaunchStats", "--metric", "dram__bytes_read.sum"]


@pytest.fixture
def gpu(stand_in, tmp_path, recording):
    """A machine with a GPU as far as nvidia-smi tells, the stand-in for ncu, and a timed cell."""
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, STEP)
    (tmp_path / "timing" / "environment.json").write_text('{"schema": 1, "stack": {"ncu": null}}')

    def make(**script: object) -> Path:
        folder = stand_in(**({"step": STEP} | script))
        show_gpu(folder)
        return folder

    return make


def _gpuatlas(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuatlas.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def _capture(tmp_path: Path, *more: str) -> list[str]:
    return [
        "capture",
        *("--targets", "config/targets.yaml", "--target", "opt1", "--network", "small_64", "--size", "16"),
        *(
            "--seed",
            "0",
            "--timing",
            str(tmp_path / "timing"),
            "--mode",
            "configs",
            "--clock-control",
            "none",
        ),
        *("--cache-control", "all", "--replay", "kernel", "--device", "cpu", *SECTIONS),
        *("--state", str(tmp_path / ".state"), "--out", str(tmp_path / "capture"), *more),
    ]


@pytest.mark.parametrize(
    ("other", "words"),
    [(("--size", "12"), "Size 12 does not fit"), (("--network", "nosuch"), "There is no network 'nosuch'")],
)
def test_a_network_or_size_that_there_is_not(gpu, tmp_path, other, words):
    folder = gpu()
    done = _gpuatlas(*_capture(tmp_path, *other))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (folder / "calls.jsonl").exists(), "not even probed"


def test_two_captures_in_one_state_folder(gpu, tmp_path):
    folder = gpu()
    with locked(tmp_path / ".state" / "capture"):
        done = _gpuatlas(*_capture(tmp_path))
    assert done.returncode == 2, done.stderr
    assert ".state/capture is in use by another run; wait for its end" in done.stderr
    assert not (tmp_path / "capture").exists()
    assert not (folder / "calls.jsonl").exists(), "not even probed"


def test_a_capture_of_the_real_program(gpu, tmp_path, recording):
    folder = gpu(before=[1, 2], after=[3])
    done = _gpuatlas(*_capture(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "coverage 100.00 %" in done.stdout
    assert sorted(path.name for path in (tmp_path / "capture").iterdir()) == [
        "environment.json",
        "plan.json",
        "report.ncu-repz",
    ]
    assert set(read_measured(tmp_path / "capture" / "report.ncu-repz").keys) == {
        key_of(recording, number) for number in STEP
    }
    record = json.loads((tmp_path / "capture" / "environment.json").read_text())
    assert record["target"] == "opt1"
    assert record["flags"]["fp32_precision"]
    assert record["stack"]["torch"]
    assert record["stack"]["ncu"] == "2025.3.1.0"
    assert record["data_sha256"] == step_checksum(16, ACCUMULATE), "the volumes that the cell is timed with"
    probe, part = calls(folder)
    assert "gpuatlas.capture.probe" in probe["command"]
    assert probe["options"]["--section"] == part["options"]["--section"] == ["SpeedOfLight", "LaunchStats"]
    assert part["options"]["--profile-from-start"] == ["off"]
    for call in (probe, part):
        assert call["tmpdir"].startswith(f"{tmp_path}/gpuatlas-"), "a temporary folder of the job's own"
        assert not Path(call["tmpdir"]).exists()
    assert "27 passes each" in done.stderr


@pytest.mark.parametrize(
    ("fail", "words"), [("permission", "NVreg_Restrict"), ("busy", "dcgmi profile --pause")]
)
def test_refused_counters_stop_before_anything_is_measured(gpu, tmp_path, fail, words):
    folder = gpu(fails=[fail])
    done = _gpuatlas(*_capture(tmp_path))
    assert done.returncode == 4
    assert words in done.stderr
    assert len(calls(folder)) == 1
    assert not (tmp_path / "capture").exists()


def test_refused_counters_leave_timing_and_timeline(gpu, tmp_path):
    gpu(fails=["permission"])
    done = _gpuatlas(*_capture(tmp_path, "--if-refused", "degrade"))
    assert done.returncode == 0, done.stderr
    assert "keeps its timing and timeline" in done.stderr
    plan = json.loads((tmp_path / "capture" / "plan.json").read_text())
    assert plan["mode"] == "refused"
    assert plan["refused"] == "the driver lets administrators alone read performance counters"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in plan["flags"][0]
    assert plan["coverage_time"] is None
    assert (tmp_path / "capture" / "report.ncu-repz").read_bytes() == b""
    assert json.loads((tmp_path / "capture" / "environment.json").read_text())["schema"] == 1


@pytest.mark.parametrize("broken", ["ncu", "TMPDIR"])
def test_what_the_job_can_change_is_no_refusal(gpu, tmp_path, monkeypatch, broken):
    folder = gpu(chips="ga100")  # the chip is unknown too
    if broken == "ncu":
        (folder / "ncu").write_text("#!/bin/sh\nexit 1\n")
    else:
        monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    done = _gpuatlas(*_capture(tmp_path, "--if-refused", "degrade"))
    assert done.returncode == 4, done.stderr
    assert not (tmp_path / "capture").exists()


def test_an_unknown_chip_is_refused_counters(gpu, tmp_path):
    gpu(chips="ga100")
    assert _gpuatlas(*_capture(tmp_path)).returncode == 4
    done = _gpuatlas(*_capture(tmp_path, "--if-refused", "degrade"))
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "capture" / "plan.json").read_text())
    assert "does not know the chip of compute capability 9.0" in plan["refused"]


def test_a_machine_without_a_gpu(tmp_path):
    done = _gpuatlas(*_capture(tmp_path))
    assert done.returncode == 4
    assert "nvidia-smi shows no GPU" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--mode", "all"), ("--budget", "30"), ("--replay", "range"), ("--clock-control", "locked")],
)
def test_wrong_options(tmp_path, option, value):
    done = _gpuatlas(*_capture(tmp_path), option, value)
    assert done.returncode == 2
    assert value in done.stderr


def test_nothing_to_measure(tmp_path):
    arguments = [argument for argument in _capture(tmp_path) if argument not in SECTIONS]
    done = _gpuatlas(*arguments)
    assert done.returncode == 2
    assert "--section" in done.stderr


def _plan(tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    cell = ["--targets", "config/targets.yaml", "--target", "opt1", "--timing", str(tmp_path / "timing")]
    return _gpuatlas("plan", *cell, *SECTIONS, *more)


def test_plan(tmp_path, recording):
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, STEP)
    done = _plan(tmp_path, "--site", "stampede3")
    assert done.returncode == 0, done.stderr
    assert "105 of 105 launch configurations, 145 launches a step" in done.stdout
    assert re.search(r"in 1 part$", done.stdout, re.MULTILINE)
    assert "GPU-hours" in done.stdout
    assert "service units" in done.stdout
    told = json.loads(_plan(tmp_path, "--site", "stampede3", "--json").stdout)
    assert told["service_units"] == pytest.approx(4 * told["predicted_s"] / 3600)
    assert told["coverage_time"] == 1
    window = json.loads(_plan(tmp_path, "--mode", "first:10", "--json").stdout)
    assert window["window"] == "the first 10 of the 145 launches of a step"
    assert window["coverage_time"] is None
    assert (window["gpu_hours"], window["configs_measured"]) == (None, 10)


def test_plan_measures_what_the_configuration_names(tmp_path, recording):
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, STEP)
    cell = [
        "--targets",
        str(ROOT / "config/targets.yaml"),
        "--target",
        "opt1",
        "--timing",
        str(tmp_path / "timing"),
    ]
    done = _gpuatlas("plan", *cell, "--site", "expanse")
    assert done.returncode == 0, done.stderr
    assert re.search(r"passes a launch +about 27$", done.stdout, re.MULTILINE)
    assert "opt1 takes no effect on V100 (compute capability 7.0)" in " ".join(done.stderr.split())
    for part in ("config", "workflow/schemas"):
        shutil.copytree(ROOT / part, tmp_path / "study" / part)
    configuration = tmp_path / "study" / "config" / "config.yaml"
    text = configuration.read_text().replace("mode: configs", "mode: first:90\n  budget: 1m")
    configuration.write_text(text)
    told = json.loads(_gpuatlas("plan", *cell, "--json", cwd=configuration.parents[1]).stdout)
    assert (told["mode"], told["passes"]) == ("first:90", 27)
    assert told["predicted_s"] <= 60
    assert 0 < told["launches"] < 90
    elsewhere = _gpuatlas("plan", *cell, cwd=tmp_path)
    assert elsewhere.returncode == 2
    assert "give --section or --metric, or run this where a config/config.yaml names some" in elsewhere.stderr


def test_plan_with_a_budget(tmp_path, recording):
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, STEP)
    told = json.loads(_plan(tmp_path, "--budget", "40s", "--json").stdout)
    assert told["predicted_s"] <= 40
    assert 0 < told["coverage_time"] < 1
    assert 0 < told["configs_measured"] < told["configs_total"]


def test_plan_with_a_section_that_nsight_compute_lacks(tmp_path, recording):
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, STEP)
    done = _plan(tmp_path, "--section", "SpeedOfLigth")
    assert done.returncode == 0
    assert "section 'SpeedOfLigth'; did you mean 'SpeedOfLight'?" in " ".join(done.stderr.split())
    assert "LaunchStats" not in done.stderr


def test_plan_by_the_timeline_of_another_target(tmp_path):
    shutil.copytree(ROOT / "tests/data/measured/h200/opt2", tmp_path / "timing")
    done = _plan(tmp_path)
    assert done.returncode == 3
    assert "timing/timeline.parquet: is of target 'opt2' and not 'opt1'" in done.stderr


def test_plan_without_a_timeline(tmp_path):
    done = _plan(tmp_path)
    assert done.returncode == 3
    assert "gpuatlas timeline" in done.stderr


def test_doctor(gpu, tmp_path):
    folder = gpu()
    done = _gpuatlas("doctor", "--no-probe", "--json")
    assert done.returncode == 0, done.stderr
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert found["ncu"]["level"] == found["gpu"]["level"] == "ok"
    assert not (folder / "calls.jsonl").exists()
    (folder / "nvidia-smi").unlink()
    done = _gpuatlas("doctor", "--site", "expanse")
    assert done.returncode == 4
    assert "✗  gpu" in done.stdout
    assert "ask: " in done.stdout
    assert os.linesep not in done.stderr.strip()
    assert _gpuatlas("doctor", "--site", "nowhere").returncode == 2
