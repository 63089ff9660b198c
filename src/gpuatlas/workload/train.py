"""The training loop: resumable at any moment, and never waiting for the GPU in between."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from gpuatlas.errors import InputRefused, Interrupted
from gpuatlas.lock import locked
from gpuatlas.tables import schema
from gpuatlas.workload import state
from gpuatlas.workload.apply import Prepared
from gpuatlas.workload.clock import Mark
from gpuatlas.workload.data import Dataset, batches
from gpuatlas.workload.environment import environment_record
from gpuatlas.workload.files import write_json, write_table
from gpuatlas.workload.memory import peak_bytes, reset_peak
from gpuatlas.workload.pictures import write_midplanes, write_nifti
from gpuatlas.workload.step import ACCUMULATE, LEARNING_RATE, TrainingStep

EMA_DECAY = 0.995
EMA_EVERY = 10
EMA_START = 2000
"""Steps before which the average is a plain copy of the weights."""

_FLUSH = 32
"""Steps whose losses and events are read from the device at once."""


@dataclass(frozen=True)
class Plan:
    """How long to train.

    Attributes
    ----------
    steps
        Optimiser steps in all.
    epochs
        What was asked for in true epochs over the volumes; None where `--iterations` counts steps.
    """

    steps: int
    epochs: int | None
    seed: int
    save_seconds: float

    @classmethod
    def of(
        cls, volumes: int, *, epochs: int, iterations: int | None, seed: int, save_seconds: float
    ) -> "Plan":
        """Plan `iterations` steps, or else as many as `epochs` over `volumes` need (rounded up)."""
        if iterations is not None:
            return cls(iterations, None, seed, save_seconds)
        return cls(-(-epochs * volumes // ACCUMULATE), epochs, seed, save_seconds)


@dataclass
class _Open:
    """A finished step whose numbers are still on the device."""

    epoch: int
    loss: Tensor
    begin: Mark
    end: Mark
    carried_ms: float
    data_ms: float
    peak: int


@dataclass(frozen=True)
class _Run:
    """What the parts of this module work on."""

    step: TrainingStep
    progress: state.Progress
    plan: Plan
    dataset: Dataset


class _Stop:
    """Remembers that SIGTERM or SIGINT came, so that the loop can stop between two passes."""

    def __init__(self) -> None:
        self.asked = False
        self._before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def train(
    prepared: Prepared,
    dataset: Dataset,
    plan: Plan,
    out: Path,
    folder: Path,
    *,
    on_step: Callable[[int], object],
) -> None:
    """Train, going on from the state in `folder`, and write what came of it to `out`.

    Parameters
    ----------
    prepared
        A network with its initial weights, under a target.
    out
        Receives steps.parquet, loss.json, sample.nii.gz, sample.png and environment.json, at the end.
    folder
        State that survives an interruption; see `gpuatlas.workload.state`.
    on_step
        Called with the number of finished steps, also once at the start.

    Raises
    ------
    InputRefused
        The state in `folder` is damaged, or has trained longer than `plan`.
    ConfigError
        The state in `folder` is of another run, or in use by one.
    Interrupted
        SIGTERM or SIGINT came; the state is saved and the same call goes on.
    """
    step = TrainingStep(prepared, plan.seed)
    identity = {
        "network": prepared.network.spec.name,
        "target": prepared.target.name,
        "settings": prepared.target.settings,
        "seed": plan.seed,
        "size": _size(dataset),
        "data": dataset.checksum,
        "accumulate": ACCUMULATE,
    }
    with locked(folder):
        progress = state.resume(folder, identity, step)
        _require_not_passed(progress, plan, folder)
        run = _Run(step, progress, plan, dataset)
        stop = _Stop()
        try:
            _loop(run, stop, lambda: state.save(folder, identity, step, progress), on_step)
            _draw(run, out, stop)
        finally:
            stop.restore()
        _write_log(run, out)
        state.finish(folder)


def _size(dataset: Dataset) -> int:
    """Return the edge of the volumes, in voxels."""
    return int(dataset.load(0).image.shape[-1])


def _require_not_passed(progress: state.Progress, plan: Plan, folder: Path) -> None:
    """Refuse a state that has trained longer than the plan: its weights are of no shorter run."""
    if progress.passes > plan.steps * ACCUMULATE:
        raise InputRefused(
            f"{folder / 'checkpoint.pt'} has trained {progress.passes / ACCUMULATE:g} steps and {plan.steps} "
            f"were asked for; ask for {-(-progress.passes // ACCUMULATE)} or more, or use another --state."
        )


def _loop(run: _Run, stop: _Stop, save: Callable[[], None], on_step: Callable[[int], object]) -> None:
    step, progress, plan, dataset = run.step, run.progress, run.plan, run.dataset
    device = step.prepared.device
    waiting: list[_Open] = []
    total = plan.steps * ACCUMULATE
    saved = time.monotonic()
    on_step(progress.passes // ACCUMULATE)
    begin = Mark(device)
    for image, mask, waited in batches(dataset, range(progress.passes, total), plan.seed, device):
        if progress.passes % ACCUMULATE == 0:
            reset_peak(device)
        loss = step.one_pass(image, mask)
        partial = progress.partial
        partial.loss = loss if partial.loss is None else partial.loss + loss
        partial.data_ms += waited
        epoch = progress.passes // len(dataset.files)
        progress.passes += 1
        if progress.passes % ACCUMULATE == 0:
            step.update()
            done = progress.passes // ACCUMULATE
            _average(progress, step, done)
            end = Mark(device)
            mean = partial.loss / ACCUMULATE
            waiting.append(
                _Open(epoch, mean, begin, end, partial.elapsed_ms, partial.data_ms, peak_bytes(device))
            )
            progress.partial, begin = state.Partial(), end
            on_step(done)
        overdue = time.monotonic() - saved >= plan.save_seconds
        if stop.asked or overdue or progress.passes == total:
            _flush(progress, waiting)
            if progress.passes % ACCUMULATE:
                now = Mark(device)
                progress.partial.elapsed_ms += begin.ms_until(now)
                begin = now
            save()
            saved = time.monotonic()
        elif len(waiting) >= _FLUSH:
            _flush(progress, waiting)
        if stop.asked:
            raise _interrupted(progress, plan)


def _average(progress: state.Progress, step: TrainingStep, done: int) -> None:
    if done % EMA_EVERY:
        return
    with torch.no_grad():
        for name, value in step.prepared.network.state_dict().items():
            if done < EMA_START:
                progress.ema[name].copy_(value)
            else:
                progress.ema[name].lerp_(value, 1 - EMA_DECAY)


def _flush(progress: state.Progress, waiting: list[_Open]) -> None:
    """Read the numbers of finished steps from the device: the only place that waits for it."""
    if not waiting:
        return
    losses = torch.stack([entry.loss for entry in waiting]).tolist()
    log = progress.log
    for entry, loss in zip(waiting, losses, strict=True):
        log.epoch.append(entry.epoch)
        log.loss.append(loss)
        log.step_ms.append(entry.carried_ms + entry.begin.ms_until(entry.end))
        log.data_ms.append(entry.data_ms)
        log.peak_bytes.append(entry.peak)
    waiting.clear()


def _interrupted(progress: state.Progress, plan: Plan) -> Interrupted:
    return Interrupted(
        f"Interrupted after {progress.passes} of {plan.steps * ACCUMULATE} passes; the state is saved: "
        "run the same command again to go on."
    )


def _draw(run: _Run, out: Path, stop: _Stop) -> None:
    """Sample a volume for the first mask and picture it."""
    step, progress, plan, dataset = run.step, run.progress, run.plan, run.dataset
    prepared = step.prepared
    if _sample_weights(plan) == "ema":
        prepared.network.load_state_dict(progress.ema)
    volume = dataset.load(0)
    mask = torch.from_numpy(volume.mask)[None].float().to(prepared.device)
    generator = torch.Generator(prepared.device).manual_seed(plan.seed)

    def check() -> None:
        if stop.asked:
            raise _interrupted(progress, plan)

    drawn = step.diffusion.sample(prepared.predict, mask, 1, generator, check)[0, 0].cpu().numpy()
    write_nifti(out / "sample.nii.gz", drawn)
    write_midplanes(out / "sample.png", drawn, volume.mask)


def _sample_weights(plan: Plan) -> str:
    """Name the weights to sample from: before the average begins it lags up to nine steps behind."""
    return "ema" if plan.steps >= EMA_START else "model"


def _write_log(run: _Run, out: Path) -> None:
    step, plan, dataset, log = run.step, run.plan, run.dataset, run.progress.log
    rows = {"step": list(range(len(log.loss))), **vars(log)}
    table = pa.table([pa.array(rows[f.name], f.type) for f in schema.STEPS], schema=schema.STEPS)
    environment = environment_record(step.prepared, data_sha256=dataset.checksum)
    summary: dict[str, Any] = {
        "schema": 1,
        "target": step.prepared.target.name,
        "network": step.prepared.network.spec.name,
        "size": _size(dataset),
        "volumes": len(dataset.files),
        "epochs": plan.epochs,
        "iterations": plan.steps,
        "counted_in": "epochs" if plan.epochs is not None else "iterations",
        "accumulate": ACCUMULATE,
        "learning_rate": LEARNING_RATE,
        "seed": plan.seed,
        "sample_weights": _sample_weights(plan),
        "loss_first": log.loss[0] if log.loss else None,
        "loss_last": log.loss[-1] if log.loss else None,
        "loss": log.loss,
    }
    write_json(out / "environment.json", environment)
    write_json(out / "loss.json", summary)
    write_table(out / "steps.parquet", table, {"target": summary["target"], "torch": torch.__version__})
