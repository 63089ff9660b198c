"""Step times: what a repeat holds, and what the command writes."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from gpuatlas.errors import ConfigError
from gpuatlas.tables import schema
from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply
from gpuatlas.workload.data import open_dataset
from gpuatlas.workload.inputs import step_volumes
from gpuatlas.workload.phantom import write_phantoms
from gpuatlas.workload.step import TrainingStep
from gpuatlas.workload.targets import load_target
from gpuatlas.workload.timing import (
    Job,
    host_hash,
    measure,
    summary,
    throttle_names,
    time_apart,
    timings_table,
)

TARGETS = Path(__file__).parents[2] / "config" / "targets.yaml"
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def test_rows_and_their_time():
    device = torch.device("cpu")
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), device)
    step, volumes = TrainingStep(prepared, 0), step_volumes(8, 2, device)
    done = []
    began = time.perf_counter()
    rows = measure(step, volumes, repeats=2, steps=4, warmup=2, on_repeat=done.append)
    elapsed = (time.perf_counter() - began) * 1e3
    assert done == [1, 2]
    assert [row["repeat"] for row in rows] == [0, 1]
    timed = sum(row["step_ms"] * row["steps"] for row in rows)
    assert 0.3 * elapsed < timed < elapsed, "eight of ten steps are timed"
    assert all(row["sm_mhz_before"] is None and row["throttle"] is None for row in rows), "no GPU, no clock"
    assert timings_table([{"variant": "autotune_on", **row} for row in rows]).schema.equals(schema.TIMINGS)
    assert len(host_hash()) == 12


def test_a_variant_is_timed_in_a_process_of_its_own():
    """PyTorch keeps a convolution's first plan: the flag must stand before the first one, in each variant."""
    job = Job(
        target=load_target(TARGETS, "opt1"),
        network="small_64",
        size=8,
        variant="autotune_on",
        repeats=1,
        steps=1,
        warmup=1,
        seed=0,
        device="cpu",
        force=False,
        quiet=True,
    )
    torch.backends.cudnn.benchmark = False
    rows, environment = time_apart(job)
    assert [row["variant"] for row in rows] == ["autotune_on"]
    assert environment["flags"]["cudnn_autotune"] is True
    assert torch.backends.cudnn.benchmark is False, "this process is left alone"
    with pytest.raises(ConfigError, match="choose auto, cuda or cpu"):
        time_apart(replace(job, device="tpu"))


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
    write_phantoms(tmp_path, volumes=2, size=8, seed=0)
    stored = open_dataset(tmp_path / "images", tmp_path / "masks", tmp_path / "cache", 8)
    assert environment["data_sha256"] == stored.checksum, "the first two phantoms, as training has them"


def test_fewer_than_five_repeats_are_refused(tmp_path):
    done = call("timing", *COMMON, "--target", "opt1", "--repeats", 4, "--out", tmp_path)
    assert done.returncode == 2
    assert "'--repeats'" in done.stderr


def test_a_timeline_needs_a_gpu(tmp_path):
    done = call("timeline", *COMMON, "--target", "opt1", "--out", tmp_path)
    assert done.returncode == 4
    assert "sees no CUDA GPU" in done.stderr
    assert not list(tmp_path.iterdir())
