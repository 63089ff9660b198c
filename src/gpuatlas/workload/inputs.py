"""Volumes for timing and captures, made in memory: phantoms, as training has them, with no file involved."""

from functools import lru_cache
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from gpuatlas.workload.phantom import phantom
from gpuatlas.workload.volumes import Prepared, prepare_arrays


def step_volumes(size: int, count: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Return `count` (image, mask) pairs in the host's memory, pinned where `device` is a GPU.

    Returns
    -------
    list
        image (1, 1, size, size, size), mask (1, 2, size, size, size), float32 in [−1, 1].
    """
    volumes = []
    for ready in _prepared(size, count):
        pair = torch.from_numpy(ready.image)[None], torch.from_numpy(ready.mask)[None].float()
        volumes.append((pair[0].pin_memory(), pair[1].pin_memory()) if device.type == "cuda" else pair)
    return volumes


def step_checksum(size: int, count: int) -> str:
    """Return the SHA-256 over the volumes' checksums, as a data set of them has it."""
    return sha256("".join(volume.checksum() for volume in _prepared(size, count)).encode()).hexdigest()


@lru_cache(maxsize=1)
def _prepared(size: int, count: int) -> tuple[Prepared, ...]:
    arrays = (phantom(size, 0, index) for index in range(count))
    return tuple(prepare_arrays(i.astype(np.float64), m.astype(np.float64), size) for i, m in arrays)
