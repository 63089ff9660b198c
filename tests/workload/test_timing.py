"""Step times: what a repeat holds, and what the command writes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from gpuatlas.tables import schema
from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply
from gpuatlas.workload.inputs import step_volumes
from gpuatlas.workload.step import TrainingStep
from gpuatlas.workload.targets import load_target
from gpuatlas.workload.timing import host_hash, measure, summary, throttle_names, timings_table

TARGETS = Path(__file__).parents[2] / "config" / "targets.yaml"
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def test_rows_and_their_time():
    device = torch.device("cpu")
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), device)
    step, volumes = TrainingStep(prepared, 0), step_volumes(8, 2, device)
    autotune, done = [], []
    run = step.run
    step.run = lambda pairs: autotune.append(torch.backends.cudnn.benchmark) or run(pairs)
    began = time.perf_counter()
    rows = measure(step, volumes, repeats=2, steps=2, warmup=1, on_repeat=done.append)
    elapsed = (time.perf_counter() - began) * 1e3
    assert autotune == [False] * 5 + [True] * 5, "warm-up and repeats of each variant"
    assert done == [1, 2, 3, 4]
    assert [(row["variant"], row["repeat"]) for row in rows] == [
        ("autotune_off", 0),
        ("autotune_off", 1),
        ("autotune_on", 0),
        ("autotune_on", 1),
    ]
    timed = sum(row["step_ms"] * row["steps"] for row in rows)
    assert 0.3 * elapsed < timed < elapsed, "eight of ten steps are timed"
    assert all(row["sm_mhz_before"] is None and row["throttle"] is None for row in rows), "no GPU, no clock"
    assert timings_table(rows).schema.equals(schema.TIMINGS)
    assert len(host_hash()) == 12


def test_summary_is_median_and_spread():
    rows = [{"variant": "autotune_on", "step_ms": value} for value in (5.0, 3.0, 4.0, 10.0, 4.5)]
    rows.append({"variant": "autotune_off", "step_ms": 99.0})
    found = summary(rows, "autotune_on")
    assert (found["median_ms"], found["min_ms"], found["max_ms"]) == (4.5, 3.0, 10.0)
    assert found["spread_percent"] == pytest.approx(700 / 4.5)


def test_throttle_reasons():
    assert throttle_names(0x0) == ""
    assert throttle_names(0x1) == "", "idle is no throttling"
    assert throttle_names(0x4 | 0x40 | 0x2) == "software power cap, hardware thermal slowdown"


def call(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "gpuatlas.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )


COMMON = ("--targets", TARGETS, "--network", "small_64", "--size", 8)


def test_command(tmp_path):
    done = call("timing", *COMMON, "--target", "opt1", "--steps", 1, "--warmup", 1, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "opt1 autotune_off:" in done.stdout
    assert "opt1 autotune_on:" in done.stdout
    table = pq.read_table(tmp_path / "timings.parquet")
    assert table.schema.equals(schema.TIMINGS)
    assert table["repeat"].to_pylist() == [0, 1, 2, 3, 4] * 2
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["flags"]["fp32_precision"] == {"matmul": "tf32", "convolution": "tf32"}
    assert environment["data_sha256"] is None


def test_fewer_than_five_repeats_are_refused(tmp_path):
    done = call("timing", *COMMON, "--target", "opt1", "--repeats", 4, "--out", tmp_path)
    assert done.returncode == 2
    assert "x>=5" in done.stderr


def test_a_timeline_needs_a_gpu(tmp_path):
    done = call("timeline", *COMMON, "--target", "opt1", "--out", tmp_path)
    assert done.returncode == 4
    assert "sees no CUDA GPU" in done.stderr
    assert not list(tmp_path.iterdir())
