"""MS-SSIM of volumes, as Wang, Simoncelli and Bovik defined it (Asilomar 2003), in three dimensions."""

import torch
from torch import Tensor
from torch.nn import functional

SIGMA = 1.5
RADIUS = 5
"""The published window: a Gaussian of 11 voxels."""

WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Published exponents of the scales, finest first; fewer scales take the first ones, rescaled to sum 1."""


def ms_ssim(first: Tensor, second: Tensor, data_range: float = 2.0) -> float:
    """Return the multi-scale structural similarity of two volumes: 1 for equal ones.

    As many of the five scales are used as leave the window room: 64³ volumes have three.

    Parameters
    ----------
    first, second
        (d, h, w), values within `data_range` of each other.

    Raises
    ------
    ValueError
        The shapes differ, or an edge is below the window's 11 voxels.
    """
    window = 2 * RADIUS + 1
    edge = min(first.shape)
    if first.shape != second.shape or edge < window:
        raise ValueError(f"MS-SSIM needs equal shapes of at least {window} voxels, not {tuple(first.shape)}.")
    scales = 1
    while scales < len(WEIGHTS) and edge // 2**scales >= window:
        scales += 1
    weights = [weight / sum(WEIGHTS[:scales]) for weight in WEIGHTS[:scales]]
    a, b = first.double()[None, None], second.double()[None, None]
    result = 1.0
    for scale, weight in enumerate(weights):
        luminance, structure = _terms(a, b, data_range)
        # Luminance counts at the coarsest scale only; negative structure has no real power.
        value = luminance * structure if scale == scales - 1 else structure
        result *= max(float(value), 0.0) ** weight
        a, b = functional.avg_pool3d(a, 2), functional.avg_pool3d(b, 2)
    return result


def gaussian_blur(volume: Tensor, sigma: float) -> Tensor:
    """Return `volume` (d, h, w) smoothed by a Gaussian, edges repeated."""
    radius = int(3 * sigma + 0.5)
    padded = functional.pad(volume.double()[None, None], [radius] * 6, mode="replicate")
    return _filtered(padded, _kernel(sigma, radius))[0, 0].to(volume.dtype)


def _terms(a: Tensor, b: Tensor, data_range: float) -> tuple[Tensor, Tensor]:
    """Return the means over the volume of luminance and of contrast times structure."""
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    kernel = _kernel(SIGMA, RADIUS)
    mean_a, mean_b = _filtered(a, kernel), _filtered(b, kernel)
    variance_a = _filtered(a * a, kernel) - mean_a**2
    variance_b = _filtered(b * b, kernel) - mean_b**2
    covariance = _filtered(a * b, kernel) - mean_a * mean_b
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * covariance + c2) / (variance_a + variance_b + c2)
    return luminance.mean(), structure.mean()


def _kernel(sigma: float, radius: int) -> Tensor:
    at = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-(at**2) / (2 * sigma**2))
    return weights / weights.sum()


def _filtered(volume: Tensor, kernel: Tensor) -> Tensor:
    """Filter (1, 1, d, h, w) along each axis, without padding."""
    for axis in range(3):
        shape = [1, 1, 1, 1, 1]
        shape[2 + axis] = len(kernel)
        volume = functional.conv3d(volume, kernel.to(volume.device).view(shape))
    return volume
