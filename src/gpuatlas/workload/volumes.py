"""From NIfTI pairs to what the network trains on; every bad file is one clear error."""

import gzip
import re
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuatlas.errors import ConfigError, InputRefused

LABELS = (1, 2)
"""Brain and tumour: the two channels of the condition."""

SUFFIXES = (".nii", ".nii.gz")


@dataclass(frozen=True)
class Pair:
    """An image and its mask, matched by the digits in their names."""

    digits: str
    image: Path
    mask: Path


@dataclass(frozen=True)
class Prepared:
    """One volume as the network takes it, in [−1, 1]: image (1, d, h, w) and mask (2, d, h, w)."""

    image: NDArray[np.float32]
    mask: NDArray[np.int8]

    def checksum(self) -> str:
        """Return the SHA-256 of both arrays' shapes and values."""
        digest = sha256(repr((self.image.shape, self.mask.shape)).encode())
        digest.update(np.ascontiguousarray(self.image).tobytes())
        digest.update(np.ascontiguousarray(self.mask).tobytes())
        return digest.hexdigest()


def find_pairs(images: Path, masks: Path) -> list[Pair]:
    """Return the pairs of two folders, sorted by their digits.

    Raises
    ------
    ConfigError
        A folder is missing or holds no NIfTI file.
    InputRefused
        A name has no digits, two names have the same, or a file has no partner.
    """
    of_images, of_masks = _by_digits(images), _by_digits(masks)
    for mine, other, folder in ((of_images, of_masks, masks), (of_masks, of_images, images)):
        for digits, path in mine.items():
            if digits not in other:
                raise InputRefused(f"{path} has no partner with the digits '{digits}' in {folder}.")
    return [Pair(digits, of_images[digits], of_masks[digits]) for digits in sorted(of_images)]


def _by_digits(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}; give the folder of NIfTI files.")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.name.endswith(SUFFIXES):
            continue
        digits = "-".join(re.findall(r"\d+", path.name.split(".nii")[0]))
        if not digits:
            raise InputRefused(f"{path} has no digits in its name, by which images and masks are matched.")
        if digits in found:
            raise InputRefused(
                f"{path} and {found[digits].name} have the same digits '{digits}': remove one."
            )
        found[digits] = path
    if not found:
        raise ConfigError(f"{folder} holds no NIfTI file ({' or '.join(SUFFIXES)}).")
    return found


def prepare(pair: Pair, size: int) -> Prepared:
    """Read, check, scale, resize and reorder one pair.

    The image is scaled to [0, 1] slice by slice along the last axis (a constant slice becomes 0), then to
    [−1, 1]; labels become one channel each, in {−1, 1}. Where the shape is not (size, size, size) the image
    is resized linearly and the mask to the nearest voxel. The last axis (depth) then comes first: (x, y, z)
    is stored as (z, y, x).

    Raises
    ------
    InputRefused
        A file is damaged or unfit; the message names it.
    """
    image = read_nifti(pair.image)
    labels = _read_labels(pair.mask)
    if image.shape != labels.shape:
        raise InputRefused(f"{pair.mask} has the shape {labels.shape}, but its image has {image.shape}.")
    return prepare_arrays(image, labels, size)


def prepare_arrays(image: NDArray[np.float64], labels: NDArray[np.float64], size: int) -> Prepared:
    """Scale, resize and reorder checked voxels (x, y, z) of one shape, as `prepare` says."""
    low, high = image.min(axis=(0, 1)), image.max(axis=(0, 1))
    scaled = resized((image - low) / np.where(high > low, high - low, 1.0), (size, size, size))
    return Prepared(
        np.ascontiguousarray((scaled * 2 - 1).transpose(2, 1, 0)[None], dtype=np.float32),
        _channels(labels, size),
    )


def prepare_mask(path: Path, size: int) -> NDArray[np.int8]:
    """Return the condition (2, d, h, w) of one mask file, as `prepare` does."""
    return _channels(_read_labels(path), size)


def _read_labels(path: Path) -> NDArray[np.float64]:
    labels = read_nifti(path)
    unknown = np.setdiff1d(labels, [0, *LABELS])
    if unknown.size:
        raise InputRefused(
            f"{path} holds the unknown label {unknown[0]:g}; known are 0 (outside), 1 (brain) and 2 (tumour)."
        )
    if not labels.any():
        raise InputRefused(f"{path} is empty: no voxel is labelled 1 (brain) or 2 (tumour).")
    return labels


def _channels(labels: NDArray[np.float64], size: int) -> NDArray[np.int8]:
    labels = nearest(labels, (size, size, size))
    channels = np.stack([np.where(labels == label, 1, -1) for label in LABELS])
    return np.ascontiguousarray(channels.transpose(0, 3, 2, 1), dtype=np.int8)


def read_nifti(path: Path) -> NDArray[np.float64]:
    """Return the voxels of a 3D NIfTI file, scaled as its header says.

    Raises
    ------
    InputRefused
        Not NIfTI, cut, not 3D, of size zero, or with NaN or infinite voxels.
    """
    import nibabel

    content = path.read_bytes()
    if not content:
        raise InputRefused(f"{path} is cut: it is empty.")
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if content[344:348] == b"n+1\0":
            kind = nibabel.Nifti1Image
        elif content[4:8] == b"n+2\0":
            kind = nibabel.Nifti2Image
        else:
            raise InputRefused(f"{path} is not a NIfTI file (or only the header of a pair).")
        stored: Any = kind.from_bytes(content)
        shape = stored.shape
        if len(shape) != 3:
            raise InputRefused(f"{path} is {len(shape)}D with the shape {shape}; give a 3D volume.")
        if 0 in shape:
            raise InputRefused(f"{path} has the shape {shape}: it holds no voxel.")
        voxels = np.asarray(stored.dataobj, dtype=np.float64)
    except (EOFError, OSError, ValueError, zlib.error, nibabel.spatialimages.HeaderDataError) as error:
        raise InputRefused(f"{path} is cut or damaged: {' '.join(str(error).split())}") from error
    if not np.isfinite(voxels).all():
        raise InputRefused(f"{path} holds voxels that are NaN or infinite.")
    return voxels


def resized(volume: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return `volume` interpolated linearly to `shape`, voxel centres aligned, edges repeated."""
    for axis, length in enumerate(shape):
        old = volume.shape[axis]
        if old == length:
            continue
        at = np.clip((np.arange(length) + 0.5) * old / length - 0.5, 0, old - 1)
        left = np.floor(at).astype(np.intp)
        right = np.minimum(left + 1, old - 1)
        weight = (at - left).reshape([-1 if i == axis else 1 for i in range(volume.ndim)])
        low, high = volume.take(left, axis), volume.take(right, axis)
        volume = low + (high - low) * weight
    return volume


def nearest(volume: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return `volume` with the nearest voxel taken for each of `shape`."""
    for axis, length in enumerate(shape):
        old = volume.shape[axis]
        if old != length:
            volume = volume.take(((np.arange(length) + 0.5) * old / length).astype(np.intp), axis)
    return volume
