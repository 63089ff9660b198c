"""Does a target cost synthesis quality? Short runs that overfit four phantoms, judged alike.

Each run trains under its target for as many steps; what it learnt is then judged in IEEE float32, so that
only the training differs: the loss on a fixed set of (volume, timestep, noise), and the MS-SSIM of drawn
volumes with the phantoms they were conditioned on. The spread over baseline's seeds is the yardstick.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply, pick_device
from gpuatlas.workload.environment import environment_record
from gpuatlas.workload.files import write_json
from gpuatlas.workload.inputs import step_checksum, step_volumes
from gpuatlas.workload.pictures import write_midplanes, write_nifti
from gpuatlas.workload.precision import pin_precision
from gpuatlas.workload.similarity import gaussian_blur, ms_ssim
from gpuatlas.workload.step import ACCUMULATE, TrainingStep
from gpuatlas.workload.targets import Target

NETWORK = "small_64"
VOLUMES = 4
LEARNING_RATE = 1e-4
"""Ten times the published rate: a run of minutes has to overfit."""

TIMESTEPS = (5, 20, 50, 100, 150, 200, 245)
BLUR_SIGMA = 2.0
"""Of the blurred phantom that samples must beat before their similarity means anything."""

Pairs = Sequence[tuple[Tensor, Tensor]]


def train_and_judge(
    target: Target, seed: int, *, steps: int, folder: Path, size: int = 64, device: str = "auto"
) -> dict[str, Any]:
    """Train one run for `steps` steps, judge it, and write quality.json and a sample to `folder`.

    Returns
    -------
    dict
        What quality.json holds: `seconds` (of training), `loss` (validation), `ms_ssim` and `ms_ssim_blurred`
        (one a phantom).
    """
    torch.manual_seed(seed)
    where = pick_device(device)
    prepared = apply(target, build_network(NETWORK), where)
    environment = environment_record(prepared, data_sha256=step_checksum(size, VOLUMES))
    step = TrainingStep(prepared, seed)
    step.optimizer.param_groups[0]["lr"] = LEARNING_RATE
    volumes = [(image.to(where), mask.to(where)) for image, mask in step_volumes(size, VOLUMES, where)]
    began = time.monotonic()
    losses = _train(step, volumes, steps)
    seconds = time.monotonic() - began
    pin_precision("ieee")
    result = {
        "schema": 1,
        "target": target.name,
        "seed": seed,
        "network": NETWORK,
        "size": size,
        "volumes": VOLUMES,
        "learning_rate": LEARNING_RATE,
        "steps": steps,
        "seconds": round(seconds, 1),
        "training_loss": losses,
        "loss": validation_loss(step, volumes),
        **_samples(step, volumes, folder),
        "environment": environment,
    }
    write_json(folder / "quality.json", result)
    return result


def validation_loss(step: TrainingStep, volumes: Pairs) -> float:
    """Return the mean loss over every volume and `TIMESTEPS`, with noise that is the same in every run."""
    device = step.prepared.device
    losses = []
    with torch.no_grad():
        for index, (image, mask) in enumerate(volumes):
            for timestep in TIMESTEPS:
                generator = torch.Generator().manual_seed(1000 * index + timestep)
                noise = torch.randn(image.shape, generator=generator).to(device)
                at = torch.tensor([timestep], device=device)
                losses.append(step.diffusion.loss(step.prepared.network, image, mask, at, noise))
    return float(torch.stack(losses).mean())


def _train(step: TrainingStep, volumes: Pairs, steps: int) -> list[float]:
    """Take `steps` steps; return the mean loss of each tenth."""
    losses: list[Tensor] = []
    for taken in range(steps):
        pairs = [volumes[(taken * ACCUMULATE + place) % len(volumes)] for place in range(ACCUMULATE)]
        losses.append(step.run(pairs))
    read = torch.stack(losses).tolist()
    parts = [read[i * steps // 10 : (i + 1) * steps // 10] for i in range(10)]
    return [statistics.fmean(part) for part in parts if part]


def _samples(step: TrainingStep, volumes: Pairs, folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"ms_ssim": [], "ms_ssim_blurred": []}
    for index, (image, mask) in enumerate(volumes):
        generator = torch.Generator(step.prepared.device).manual_seed(index)
        drawn = step.diffusion.sample(step.prepared.network, mask, 1, generator)[0, 0].clamp(-1, 1)
        truth = image[0, 0]
        found["ms_ssim"].append(ms_ssim(drawn, truth))
        found["ms_ssim_blurred"].append(ms_ssim(gaussian_blur(truth, BLUR_SIGMA), truth))
        if index == 0:
            ready = drawn.cpu().numpy()
            write_nifti(folder / "sample.nii.gz", ready)
            write_midplanes(folder / "sample.png", ready, mask[0].cpu().numpy().astype("int8"))
    return found
