"""Volumes as files that people open: NIfTI, and a grey PNG of the mid-planes."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuatlas.workload.files import write_bytes

EDGE = 160
"""Pixels that a plane is enlarged to, at least, by repeating pixels."""


def write_nifti(path: Path, volume: NDArray[np.float32]) -> None:
    """Write one volume (d, h, w) to a .nii.gz file, its axes put back to (x, y, z)."""
    import nibabel

    voxels = np.ascontiguousarray(volume.transpose(2, 1, 0), dtype=np.float32)
    stored = nibabel.Nifti1Image(voxels, np.diag([240 / volume.shape[0]] * 3 + [1]))  # type: ignore[no-untyped-call]
    write_bytes(path, gzip.compress(stored.to_bytes(), compresslevel=6, mtime=0))


def write_midplanes(path: Path, volume: NDArray[np.float32], mask: NDArray[np.int8]) -> None:
    """Draw the three mid-planes of a volume in [−1, 1], above those of its condition.

    Parameters
    ----------
    volume
        (d, h, w).
    mask
        (2, d, h, w) in {−1, 1}: brain grey, tumour white.
    """
    condition = ((mask[0] > 0) * 0.5 + (mask[1] > 0) * 1.0).astype(np.float32) * 2 - 1
    rows = [np.concatenate([_square(plane) for plane in _midplanes(v)], axis=1) for v in (volume, condition)]
    write_bytes(path, _png(np.concatenate(rows, axis=0)))


def _midplanes(volume: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    depth, height, width = (edge // 2 for edge in volume.shape)
    return [volume[depth], volume[::-1, height], volume[::-1, :, width]]


def _square(plane: NDArray[np.float32]) -> NDArray[np.uint8]:
    factor = max(1, -(-EDGE // min(plane.shape)))
    grey = np.rint((np.clip(plane, -1, 1) + 1) * 127.5).astype(np.uint8)
    return np.pad(grey.repeat(factor, 0).repeat(factor, 1), 2)


def _png(grey: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit grey PNG of (height, width) pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = grey.shape
    # Each line begins with its filter: 0, none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), grey], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
