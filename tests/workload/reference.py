"""The published configurations, their vectors, and weights and inputs by formula."""

import math
from pathlib import Path

import numpy as np
import torch

REFERENCE = Path(__file__).parents[1] / "data" / "reference"
REPOSITORY = Path(__file__).parents[2]


def formula_weights(shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """Weights by formula: reproducible anywhere, with no generator involved."""
    weights = {}
    for index, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        wave = np.sin(0.7 * np.arange(math.prod(shape), dtype=np.float64) + 1.3 * index + 0.1)
        if len(shape) >= 2:
            wave /= math.sqrt(math.prod(shape[1:]))
        elif name.endswith("weight"):
            wave = 1 + 0.1 * wave
        else:
            wave *= 0.02
        weights[name] = torch.from_numpy(wave.astype(np.float32)).reshape(shape)
    return weights


def wave(rate: float, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.sin(rate * np.arange(math.prod(shape))).astype(np.float32)).reshape(shape)
