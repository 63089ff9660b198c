"""Brain-like phantoms with tumours: the default data, the same bits on every machine.

Only sums, products and comparisons of IEEE doubles on uniform random numbers are used (no library whose
results differ in the last bit), and files carry no time stamp.
"""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuatlas.errors import ConfigError
from gpuatlas.workload.files import write_bytes, write_json
from gpuatlas.workload.volumes import resized

VERSION = 1
"""Raised when the same seed gives other volumes."""

Volume = NDArray[np.float64]


def phantom(size: int, seed: int, index: int) -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
    """Return one head: image intensities and labels (0 outside, 1 brain, 2 tumour).

    Parameters
    ----------
    size
        Edge in voxels, at least 8.
    seed, index
        Which data set, and which volume of it.

    Returns
    -------
    image, mask
        (size, size, size) each, the last axis running from neck to crown; intensities 0 to 1000.
    """
    random = np.random.Generator(np.random.PCG64([seed, index])).random
    axis = (np.arange(size) + 0.5) / size * 2 - 1
    x, y, z = np.meshgrid(axis, axis, axis, indexing="ij", sparse=True)

    def ellipsoid(centre: Volume, radii: Volume) -> Volume:
        scaled = [(a - c) / r for a, c, r in zip((x, y, z), centre, radii, strict=True)]
        return np.asarray(scaled[0] * scaled[0] + scaled[1] * scaled[1] + scaled[2] * scaled[2])

    def texture(cells: int) -> Volume:
        return resized(random((cells, cells, cells)), (size, size, size))

    centre = 0.08 * (random(3) - 0.5)
    radii = np.array([0.68, 0.84, 0.74]) * (0.92 + 0.14 * random(3))
    # Folds: the brain's surface and the border of grey and white matter wander with a coarse texture.
    distance = ellipsoid(centre, radii)
    folded = distance + 0.22 * (texture(9) - 0.5)
    head = distance < 1.30
    skull = head & (distance > 1.14)
    brain = folded < 1.0
    white = folded + 0.5 * (texture(6) - 0.5) < 0.62
    ventricles = np.zeros_like(brain)
    for side in (-1, 1):
        at = centre + np.array([side * 0.13, 0.0, 0.05])
        ventricles |= ellipsoid(at, np.array([0.07, 0.30, 0.15])) < 1

    tumour = np.zeros_like(brain)
    for _ in range(1 + int(random() * 2)):
        offset = (random(3) - 0.5) * radii
        # Never below two voxels across, so that a small volume has its tumour too.
        extent = np.maximum(0.13 + 0.15 * random(3), 2.2 / size)
        tumour |= ellipsoid(centre + offset, extent) + 0.5 * (texture(7) - 0.5) < 1
    middle = tuple(int(c) for c in (centre + 1) / 2 * size)
    tumour[middle] = True  # at least one voxel, whatever the folds
    brain |= tumour

    image = np.zeros((size, size, size))
    image[head] = 260.0
    image[skull] = 90.0
    image[brain] = 520.0
    image[brain & white] = 740.0
    image[brain & ventricles] = 160.0
    image[tumour] = 900.0
    image = image * (0.9 + 0.2 * texture(4))
    image[head] += 60.0 * (random(image.shape)[head] - 0.5)
    labels = brain.astype(np.uint8) + tumour.astype(np.uint8)
    return np.clip(np.rint(image), 0, 1000).astype(np.int16), labels


def write_phantoms(
    folder: Path, volumes: int, size: int, seed: int, on_volume: Callable[[], object] = lambda: None
) -> None:
    """Write `volumes` NIfTI pairs to `folder`/images and /masks, and dataset.json last.

    Raises
    ------
    ConfigError
        `volumes` or `size` is too small.
    """
    import nibabel

    if volumes < 1 or size < 8:
        raise ConfigError(f"Phantoms need at least 1 volume of 8 voxels; asked for {volumes} of {size}.")
    # Voxels keep the head at about 240 mm, whatever the resolution.
    affine = np.diag([240 / size] * 3 + [1])
    for index in range(volumes):
        for kind, array in zip(("image", "mask"), phantom(size, seed, index), strict=True):
            stored = nibabel.Nifti1Image(array, affine)  # type: ignore[no-untyped-call]
            content = gzip.compress(stored.to_bytes(), compresslevel=4, mtime=0)
            write_bytes(folder / f"{kind}s" / f"{kind}_{index:04d}.nii.gz", content)
        on_volume()
    about = {"phantom": VERSION, "volumes": volumes, "size": size, "seed": seed}
    write_json(folder / "dataset.json", about)
