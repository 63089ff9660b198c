"""Step times without a profiler: the only numbers that speed claims rest on.

Each variant is timed in a process of its own: PyTorch keeps the plan that it first chose for a convolution,
by heuristic or by search, and does not search again when `torch.backends.cudnn.benchmark` is turned on later.
"""

import hashlib
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from gpuatlas import console
from gpuatlas.tables import schema
from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply, pick_device
from gpuatlas.workload.clock import Mark, synchronize
from gpuatlas.workload.environment import environment_record, query_gpu
from gpuatlas.workload.inputs import step_checksum, step_volumes
from gpuatlas.workload.memory import out_of_memory_explained
from gpuatlas.workload.report import StepReporter
from gpuatlas.workload.step import ACCUMULATE, TrainingStep
from gpuatlas.workload.targets import Target

VARIANTS = {"autotune_off": False, "autotune_on": True}
"""cuDNN's heuristic, and its search for the fastest algorithm."""

THROTTLE_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of NVML's clock event reasons that mean a clock held down; idle and clock settings are none."""

Pairs = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Job:
    """What to time; plain values, so that it reaches another process."""

    target: Target
    network: str
    size: int
    variant: str
    repeats: int
    steps: int
    warmup: int
    seed: int
    device: str
    force: bool
    quiet: bool


def time_apart(job: Job) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run `time_variant` in a fresh process, whose errors are raised here."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(time_variant, job).result()


def time_variant(job: Job) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Build, warm up and time one variant in this process.

    Returns
    -------
    rows, environment
        Rows of the timings table, and what environment.json holds.
    """
    console.settings.quiet = job.quiet
    device = pick_device(job.device)
    torch.manual_seed(job.seed)
    target = replace(job.target, autotune=VARIANTS[job.variant])
    prepared = apply(target, build_network(job.network), device, force=job.force)
    environment = environment_record(prepared, data_sha256=step_checksum(job.size, ACCUMULATE))
    what = f"timing {job.network} at {job.size}³ under {target.name}, {job.variant}"
    with StepReporter(job.variant, job.repeats) as reporter, out_of_memory_explained(device, what):
        step, volumes = TrainingStep(prepared, job.seed), step_volumes(job.size, ACCUMULATE, device)
        reporter.update(0)
        rows = measure(
            step,
            volumes,
            repeats=job.repeats,
            steps=job.steps,
            warmup=job.warmup,
            on_repeat=reporter.update,
        )
    return [{"variant": job.variant, **row} for row in rows], environment


def measure(
    step: TrainingStep,
    volumes: Pairs,
    *,
    repeats: int,
    steps: int,
    warmup: int,
    on_repeat: Callable[[int], object] = lambda done: None,  # noqa: ARG005
) -> list[dict[str, Any]]:
    """Time `repeats` runs of `steps` optimiser steps.

    Parameters
    ----------
    volumes
        The pairs of one step, in the host's memory; copied to the device in every step, as in training.
    warmup
        Untimed steps before: allocation, compilation, and cuDNN's search.
    on_repeat
        Called with the number of finished repeats.

    Returns
    -------
    list
        A row of the timings table for each repeat, but for `variant`; clocks are null where there is no GPU.
    """
    for _ in range(warmup):
        _run(step, volumes)
    synchronize(step.prepared.device)
    rows = []
    for repeat in range(repeats):
        rows.append({"repeat": repeat, **_timed(step, volumes, steps)})
        on_repeat(len(rows))
    return rows


def _timed(step: TrainingStep, volumes: Pairs, steps: int) -> dict[str, Any]:
    device = step.prepared.device
    before = _sm_mhz(device)
    reasons = _ThrottleProbe(device)
    begin, waited = Mark(device), 0.0
    for _ in range(steps):
        waited += _run(step, volumes)
    elapsed = begin.ms_until(Mark(device))
    return {
        "steps": steps,
        "step_ms": elapsed / steps,
        "data_ms": waited / steps,
        "sm_mhz_before": before,
        "sm_mhz_after": _sm_mhz(device),
        "throttle": reasons.result(),
        "host_hash": host_hash(),
    }


def timings_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows of `measure` as the timings table."""
    return pa.Table.from_pylist(rows, schema=schema.TIMINGS)


def summary(rows: list[dict[str, Any]], variant: str) -> dict[str, float]:
    """Return median, least and greatest `step_ms` of a variant's repeats, and their spread in percent."""
    values = sorted(row["step_ms"] for row in rows if row["variant"] == variant)
    middle = len(values) // 2
    median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
    spread = (values[-1] - values[0]) / median * 100
    return {"median_ms": median, "min_ms": values[0], "max_ms": values[-1], "spread_percent": spread}


def host_hash() -> str:
    """Return 12 hex digits that tell hosts apart without naming them."""
    return hashlib.blake2b(platform.node().encode(), digest_size=6).hexdigest()


def throttle_names(mask: int) -> str:
    """Name the reasons in NVML's bit mask that hold clocks down, comma-separated; empty for none."""
    return ", ".join(name for bit, name in THROTTLE_REASONS.items() if mask & bit)


def _run(step: TrainingStep, volumes: Pairs) -> float:
    """Run one step; return the milliseconds that the host spent on its inputs."""
    device = step.prepared.device
    began = time.perf_counter()
    ready = [
        (image.to(device, non_blocking=True), mask.to(device, non_blocking=True)) for image, mask in volumes
    ]
    waited = (time.perf_counter() - began) * 1e3
    step.run(ready)
    return waited


def _sm_mhz(device: torch.device) -> float | None:
    text = query_gpu("clocks.sm") if device.type == "cuda" else None
    return float(text) if text else None


class _ThrottleProbe:
    """Asks for the throttle reasons while the GPU works: nvidia-smi answers from a thread of its own."""

    def __init__(self, device: torch.device):
        self._mask = 0
        self._known = device.type == "cuda"
        self._thread = threading.Thread(target=self._ask, daemon=True)
        if self._known:
            self._thread.start()

    def _ask(self) -> None:
        # Newer drivers speak of events, older ones of throttling.
        text = query_gpu("clocks_event_reasons.active") or query_gpu("clocks_throttle_reasons.active")
        if text and text.startswith("0x"):
            self._mask = int(text, 16)
        else:
            self._known = False

    def result(self) -> str | None:
        """Return the reasons seen, empty if none, None if they cannot be told."""
        if self._thread.ident is not None:
            self._thread.join()
        return throttle_names(self._mask) if self._known else None
