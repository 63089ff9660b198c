"""Volumes for timing and captures, made in memory: phantoms, as training has them, with no file involved."""

import numpy as np
import torch
from torch import Tensor

from gpuatlas.workload.phantom import phantom
from gpuatlas.workload.volumes import prepare_arrays


def step_volumes(size: int, count: int, device: torch.device, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Return `count` (image, mask) pairs in the host's memory, pinned where `device` is a GPU.

    Returns
    -------
    list
        image (1, 1, size, size, size), mask (1, 2, size, size, size), float32 in [−1, 1].
    """
    volumes = []
    for index in range(count):
        image, labels = phantom(size, seed, index)
        ready = prepare_arrays(image.astype(np.float64), labels.astype(np.float64), size)
        pair = torch.from_numpy(ready.image)[None], torch.from_numpy(ready.mask)[None].float()
        volumes.append((pair[0].pin_memory(), pair[1].pin_memory()) if device.type == "cuda" else pair)
    return volumes
