"""What a training run must carry over an interruption, in one atomic file.

`checkpoint.pt` exists while a run is unfinished; a finished run leaves `final.pt`, the weights alone. Both
hold `model` and `ema` in the published form, so that `gpuatlas sample` reads either.
"""

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.files import whole
from gpuatlas.workload.diffusion import PREFIX, read_checkpoint
from gpuatlas.workload.memory import is_out_of_memory
from gpuatlas.workload.step import ACCUMULATE, TrainingStep

SCHEMA = 2


@dataclass
class Log:
    """The finished steps: one entry a step in each list."""

    epoch: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    data_ms: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)


@dataclass
class Partial:
    """What the unfinished step has gathered from its passes so far."""

    loss: Tensor | None = None
    elapsed_ms: float = 0.0
    data_ms: float = 0.0


@dataclass
class Progress:
    """How far a run is: passes done, its finished steps, the unfinished one, and the averaged weights."""

    passes: int
    ema: dict[str, Tensor]
    log: Log = field(default_factory=Log)
    partial: Partial = field(default_factory=Partial)


def save(folder: Path, identity: dict[str, Any], step: TrainingStep, progress: Progress) -> None:
    """Write `checkpoint.pt`: complete, or not at all.

    Parameters
    ----------
    identity
        What the run is; `resume` refuses to go on with another one.
    """
    network = step.prepared.network
    gradients = {
        name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None
    }
    content = {
        "model": {PREFIX + name: value for name, value in network.state_dict().items()},
        "ema": {PREFIX + name: value for name, value in progress.ema.items()},
        "training": {
            "schema": SCHEMA,
            "identity": identity,
            "passes": progress.passes,
            "optimizer": step.optimizer.state_dict(),
            "gradients": gradients,
            "random": _random_states(step),
            "log": vars(progress.log),
            "partial": vars(progress.partial),
        },
    }
    _write(folder / "checkpoint.pt", content)


def finish(folder: Path) -> None:
    """Replace the state of a run, whose outputs are written, by its weights: `final.pt`."""
    held = read_checkpoint(folder / "checkpoint.pt")
    _write(folder / "final.pt", {"model": held["model"], "ema": held["ema"]})
    (folder / "checkpoint.pt").unlink()


def _write(path: Path, content: dict[str, Any]) -> None:
    with whole(path) as partial, partial.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            # On a full disk torch fails in closing its archive; why it could not write comes before.
            raise error.__context__ or error from None
        file.flush()
        os.fsync(file.fileno())  # before the rename: a machine that fails keeps the old state or has the new


def resume(folder: Path, identity: dict[str, Any], step: TrainingStep) -> Progress:
    """Return where the run in `folder` stands, its state put into `step`; a new run if there is none.

    Raises
    ------
    ConfigError
        The state is of another run; the message names the first difference.
    InputRefused
        The state is damaged or of another version.
    """
    network = step.prepared.network
    for left in folder.glob(".*.pt.*"):
        left.unlink(missing_ok=True)  # a write that was killed
    path = folder / "checkpoint.pt"
    if not path.exists():
        return Progress(0, {name: value.clone() for name, value in network.state_dict().items()})
    held = read_checkpoint(path)
    try:
        _require_same(path, held["training"]["identity"], identity)
        return _restore(held, step)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise InputRefused(
            f"{path} is not the state of a training run of this version; remove it."
        ) from error


def _require_same(path: Path, found: dict[str, Any], identity: dict[str, Any]) -> None:
    for key, value in identity.items():
        if found[key] != value:
            raise ConfigError(
                f"{path} belongs to another run: its {key} is {found[key]!r} and not {value!r}; use another "
                "--state, or remove it."
            )


def _restore(held: dict[str, Any], step: TrainingStep) -> Progress:
    """Put what `save` wrote into `step`.

    What is not as `save` wrote it raises one of the errors that `resume` takes for damage.
    """
    network, device, training = step.prepared.network, step.prepared.device, held["training"]
    passes, log, partial = training["passes"], Log(**training["log"]), Partial(**training["partial"])
    if training["schema"] != SCHEMA or not isinstance(passes, int) or passes < 0:
        raise ValueError
    # `save` is called with all finished steps in the log, and between passes.
    if any(len(entries) != passes // ACCUMULATE for entries in vars(log).values()):
        raise ValueError
    if (partial.loss is not None) != bool(passes % ACCUMULATE):
        raise ValueError
    network.load_state_dict({name.removeprefix(PREFIX): value for name, value in held["model"].items()})
    step.optimizer.load_state_dict(training["optimizer"])
    for name, parameter in network.named_parameters():
        gradient = training["gradients"].get(name)
        parameter.grad = None if gradient is None else torch.empty_like(parameter).copy_(gradient)
    _restore_random_states(step, training["random"])
    if partial.loss is not None:
        partial.loss = partial.loss.to(device)
    ema = {name: held["ema"][PREFIX + name].to(device) for name in network.state_dict()}
    return Progress(passes, ema, log, partial)


def _random_states(step: TrainingStep) -> dict[str, Any]:
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "noise": step.generator.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": (kind, [int(k) for k in keys], int(position), int(has_gauss), float(gauss)),
    }


def _restore_random_states(step: TrainingStep, states: dict[str, Any]) -> None:
    step.generator.set_state(states["noise"])
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
