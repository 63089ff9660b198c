"""The training set: prepared once, cached, checked by a checksum, served from a thread ahead of the GPU."""

import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpuatlas.files import whole
from gpuatlas.workload.volumes import Pair, Prepared, find_pairs, prepare

VERSION = 1
"""Raised when the preparation changes: older cached volumes are then prepared again."""


@dataclass(frozen=True)
class Dataset:
    """Prepared volumes on disk, in the order of their pairs' digits.

    Attributes
    ----------
    checksum
        SHA-256 over the volumes' own checksums: equal where the same data was prepared.
    """

    files: tuple[Path, ...]
    checksum: str

    def load(self, index: int) -> Prepared:
        """Return volume `index`."""
        with np.load(self.files[index]) as stored:
            return Prepared(stored["image"], stored["mask"])


def open_dataset(
    images: Path, masks: Path, cache: Path, size: int, on_volume: Callable[[int], object] | None = None
) -> Dataset:
    """Prepare what is not yet in `cache`, and return the data set.

    Parameters
    ----------
    cache
        Folder shared by runs; a volume's file is named by the content of its pair, so changed or new
        pairs are prepared and equal ones are found again. Safe with several runs at once.
    on_volume
        Called with the number of volumes after each one.

    Raises
    ------
    ConfigError, InputRefused
        As `find_pairs` and `prepare`.
    """
    pairs = find_pairs(images, masks)
    cache.mkdir(parents=True, exist_ok=True)
    files, checksums = [], sha256()
    for pair in pairs:
        path = cache / f"{_name(pair, size)}.npz"
        checksum = _stored_checksum(path) or _store(path, prepare(pair, size))
        files.append(path)
        checksums.update(checksum.encode())
        if on_volume:
            on_volume(len(pairs))
    return Dataset(tuple(files), checksums.hexdigest())


def _name(pair: Pair, size: int) -> str:
    digest = sha256(f"{VERSION} {size}".encode())
    for path in (pair.image, pair.mask):
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _stored_checksum(path: Path) -> str | None:
    """Return the checksum of a cached volume; None where there is none or it is cut."""
    try:
        with np.load(path) as stored:
            return str(stored["checksum"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _store(path: Path, volume: Prepared) -> str:
    checksum = volume.checksum()
    with whole(path) as partial, partial.open("wb") as file:
        np.savez(file, image=volume.image, mask=volume.mask, checksum=np.array(checksum))
    return checksum


def order(volumes: int, seed: int, epoch: int) -> list[int]:
    """Return the volumes of an epoch in their shuffled order, a function of seed and epoch alone."""
    return [int(i) for i in np.random.Generator(np.random.PCG64([seed, epoch])).permutation(volumes)]


def batches(
    dataset: Dataset, passes: Sequence[int], seed: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Yield the volume of each pass: image (1, 1, d, h, w), mask (1, 2, d, h, w), float32, on `device`.

    Pass p takes the volume at place p mod V of epoch p div V. A thread reads one volume ahead into pinned
    memory. The third value is the time in ms that the caller waited.
    """
    count = len(dataset.files)

    def read(position: int) -> tuple[Tensor, Tensor]:
        volume = dataset.load(order(count, seed, position // count)[position % count])
        image = torch.from_numpy(volume.image)[None]
        mask = torch.from_numpy(volume.mask)[None].float()
        if device.type == "cuda":
            return image.pin_memory(), mask.pin_memory()
        return image, mask

    with ThreadPoolExecutor(max_workers=1) as reader:
        ahead = reader.submit(read, passes[0]) if passes else None
        for position in passes:
            began = time.perf_counter()
            assert ahead is not None
            image, mask = ahead.result()
            waited = (time.perf_counter() - began) * 1e3
            following = position + 1
            ahead = reader.submit(read, following) if following in passes else None
            yield image.to(device, non_blocking=True), mask.to(device, non_blocking=True), waited
