"""The benchmark's comparison, on captures made with the stand-in for ncu: there, both ways must agree exactly."""

import importlib.util
import shutil
from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.capture.conftest import FAST, STEP, write_timeline
from tests.capture.stand_in import ROOT

from gpuatlas.capture import run
from gpuatlas.capture.ncu import Settings, Stop
from gpuatlas.capture.timeline import read_timeline


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("bench_capture", ROOT / "benchmarks" / "bench_capture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        spec.loader.exec_module(module)
        yield module


def test_configurations_weighted_are_every_launch(bench, stand_in, request_of, tmp_path):
    stand_in(step=STEP)
    metrics = ("gpu__time_duration.sum", "smsp__inst_executed.sum", "dram__bytes_read.sum")
    folder = tmp_path / "work" / "opt1_64"
    for name, mode in (("configs", "configs"), ("every", "first:inf")):
        request = request_of(mode, settings=Settings((), metrics, "kernel", "all", "none"))
        run.capture(request, FAST, Stop())
        shutil.copytree(request.out, folder / name)
        shutil.rmtree(request.out)
    shutil.copytree(tmp_path / "timing", folder / "timing")
    found = bench.compare(folder)
    assert found["launches"] == len(STEP)
    configs = found["chosen"]["configs"]
    assert configs["coverage"] == 1
    assert found["every"]["duration"] > 0
    assert configs["errors"]["duration"] == pytest.approx(0, abs=1e-12)
    assert configs["errors"]["instructions"] == pytest.approx(0, abs=1e-12)
    assert configs["errors"]["SM cycles"] is None
    text = bench.page({"opt1_64": found}, None, {}, {})
    assert "| duration |" in text
    assert "All configurations: 100.00 %" in text
    assert found["weights"]["number of launches"]["duration"] == pytest.approx(0, abs=1e-12)
    every = bench.read(folder / "every")
    every.values["duration"][STEP.index(STEP[0])] *= 2
    rows = bench.spread(read_timeline(folder / "timing" / "timeline.parquet"), every, 1e9)
    assert len(rows) == 8
    assert all(row["share"] == 0 for row in rows[1:])


def test_weights_by_gpu_time_mend_what_counts_miss(bench, stand_in, request_of, recording, tmp_path):
    step, times = [*range(40), *range(30, 40), *range(30, 40)], [1e5] * 50 + [9e5] * 10
    stand_in(step=step, times=times)
    folder = tmp_path / "work" / "opt1_64"
    for name, mode in (("configs", "configs"), ("every", "first:inf")):
        request = request_of(
            mode, settings=Settings((), ("gpu__time_duration.sum",), "kernel", "all", "none")
        )
        write_timeline(request.timeline, recording, step, times)
        run.capture(request, FAST, Stop())
        shutil.copytree(request.out, folder / name)
        shutil.rmtree(request.out)
    shutil.copytree(tmp_path / "timing", folder / "timing")
    found = bench.compare(folder)
    errors = {way: row["duration"] for way, row in found["weights"].items()}
    assert errors["number of launches"] < -0.5
    assert errors["GPU time"] == errors["GPU time, 10 second measurements"] == pytest.approx(0)
    assert found["chosen"]["configs"]["errors"]["duration"] == pytest.approx(0)
    assert found["chosen"]["configs"]["launches"] == 50


def test_the_page_is_what_its_data_say(bench, tmp_path, monkeypatch):
    page = tmp_path / "capture.md"
    monkeypatch.setattr("sys.argv", ["bench_capture.py", "show", "--out", str(page)])
    assert bench.main() == 0
    assert page.read_text() == (ROOT / "benchmarks" / "capture.md").read_text()


def test_second_measurements_of_a_real_step_change_its_counters_and_not_its_time(bench):
    missing = bench.second_measurements(ROOT / "benchmarks" / "data" / "second" / "opt2")
    assert abs(missing["duration"]) < 0.01
    assert missing["DRAM bytes"] > 0.1
