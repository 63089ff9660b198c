"""A report file as a stream of unpacked bytes: told by content, read in bounded memory, refused if unfit."""

import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any, NoReturn, Protocol

from gpuatlas.errors import InputRefused

MAGIC = b"NVR\0"
MAX_UNPACKED = 16 << 30
"""A packed report that unpacks to more bytes than this is refused."""
_PIECE = 1 << 20
_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"\x1f\x8b": "gzip",
}
_WINDOW = 64
_XZ_MEMORY = 128 << 20


class Damaged(InputRefused):
    """The file is no whole report."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        super().__init__(f"{path}: damaged report, at byte {offset} {reason}.")
        self._arguments = path, offset, reason

    def __reduce__(self) -> tuple[type["Damaged"], tuple[Path, int, str]]:
        return Damaged, self._arguments  # so that it comes back from a worker process


@dataclass(frozen=True)
class Source:
    """A file that may be a report."""

    path: Path
    packing: str
    """How it is packed: none, zstd, xz or gzip."""
    size: int
    """Bytes on disk."""

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it lies on disk."""
        with self.path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()


def identify(path: Path) -> Source:
    """Tell what `path` is by its content.

    Raises
    ------
    InputRefused
        If it is absent, not a regular file (checked before it is opened: a FIFO would block), unreadable,
        empty, or neither a report nor packed in a way that is known.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputRefused(f"{path}: not a regular file, so not opened; give the path of a report.")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputRefused(f"{path}: cannot be read ({reason}).") from error
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(8)
    if head.startswith(MAGIC):
        return Source(path, "none", status.st_size)
    for magic, packing in _PACKED.items():
        if head.startswith(magic):
            return Source(path, packing, status.st_size)
    what = "empty" if not head else "not an Nsight Compute report (it does not begin with NVR)"
    raise InputRefused(f"{path}: {what}; give a .ncu-rep, .ncu-repz or .nsight-cuprof-report file.")


class _Bytes(Protocol):
    def read(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class _Decompressor:
    """An xz or gzip file of exactly one stream, unpacked piece by piece."""

    def __init__(self, path: Path, packing: str) -> None:
        self._file = path.open("rb")
        self._codec: Any = (
            lzma.LZMADecompressor(memlimit=_XZ_MEMORY) if packing == "xz" else zlib.decompressobj(wbits=31)
        )
        self._packing = packing

    def read(self, size: int) -> bytes:
        while not self._codec.eof:
            if self._packing == "xz":
                packed = self._file.read(65536) if self._codec.needs_input else b""
                piece = self._codec.decompress(packed, size)
                hungry = self._codec.needs_input
            else:
                packed = self._codec.unconsumed_tail or self._file.read(65536)
                piece = self._codec.decompress(packed, size)
                hungry = not self._codec.unconsumed_tail
            if piece:
                return bytes(piece)
            if hungry and not packed and not self._codec.eof:
                raise EOFError("the packed stream is cut")
        if self._codec.unused_data or self._file.read(1):
            raise ValueError("something follows the packed stream")
        return b""

    def close(self) -> None:
        self._file.close()


def _open_packed(source: Source) -> _Bytes:
    if source.packing == "zstd":
        import pyarrow as pa

        stream: _Bytes = pa.CompressedInputStream(pa.OSFile(str(source.path)), "zstd")
        return stream
    return _Decompressor(source.path, source.packing)


class Reader:
    """Reads a report's unpacked bytes in order.

    A packed report is unpacked a piece ahead by a thread of its own, while the last piece is decoded.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offset = 0
        if source.packing == "none":
            self._descriptor = os.open(source.path, os.O_RDONLY)
            self._window, self._window_offset = b"", 0
        else:
            self._stream = _open_packed(source)
            self._thread = ThreadPoolExecutor(1, "unpack")
            self._next = self._thread.submit(self._stream.read, _PIECE)
            self._piece, self._at = b"", 0

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        if self.source.packing == "none":
            os.close(self._descriptor)
        else:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._stream.close()

    def refuse(self, reason: str, offset: int | None = None) -> NoReturn:
        """Raise `Damaged` for this file."""
        raise Damaged(self.source.path, self.offset if offset is None else offset, reason)

    def _unpacked(self) -> int:
        """Return how many bytes of the present piece are left, after fetching the next one if need be."""
        left = len(self._piece) - self._at
        if left:
            return left
        try:
            self._piece, self._at = self._next.result(), 0
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, MemoryError) as error:
            reason = str(error).rstrip(".") or "no memory"
            self.refuse(f"its {self.source.packing} packing is broken ({reason})")
        if self.offset + len(self._piece) > MAX_UNPACKED:
            self.refuse(f"it unpacks to more than {MAX_UNPACKED >> 30} GiB, the limit for packed reports")
        if self._piece:
            self._next = self._thread.submit(self._stream.read, _PIECE)
        return len(self._piece)

    def read(self, size: int, what: str) -> bytes:
        """Return exactly `size` bytes, or refuse the file because `what` is cut."""
        if self.source.packing == "none":
            return self._read_plain(size, what)
        pieces = []
        for begin, end in self._pass(size, what):
            pieces.append(self._piece[begin:end])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pass(self, size: int, what: str) -> Iterator[tuple[int, int]]:
        """Pass over `size` unpacked bytes; yield where in the present piece they are, piece by piece."""
        begin, missing = self.offset, size
        while missing:
            step = min(missing, self._unpacked())
            if not step:
                self.refuse(
                    f"{what} is cut: {size} bytes are announced and {size - missing} are there", begin
                )
            self._at += step
            self.offset += step
            missing -= step
            yield self._at - step, self._at

    def _read_plain(self, size: int, what: str) -> bytes:
        """Read from the file itself; small reads come from a window, so that a block costs two calls."""
        begin = self.offset - self._window_offset
        if 0 <= begin <= len(self._window) - size:
            self.offset += size
            return self._window[begin : begin + size]
        left = self.source.size - self.offset
        if size > left:
            self.refuse(f"{what} is cut: {size} bytes are announced and {left} are there")
        data = os.pread(self._descriptor, max(size, _WINDOW), self.offset)
        while len(data) < size:  # one call returns at most 2 GiB, and less when a signal comes
            more = os.pread(self._descriptor, size - len(data), self.offset + len(data))
            if not more:
                self.refuse(f"{what} is cut: the file became shorter while it was read")
            data += more
        if size < _WINDOW:
            self._window, self._window_offset = data, self.offset
            data = data[:size]
        self.offset += size
        return data

    def skip(self, size: int, what: str) -> None:
        """Pass over `size` bytes."""
        if self.source.packing != "none":
            for _ in self._pass(size, what):
                pass
            return
        left = self.source.size - self.offset
        if size > left:
            self.refuse(f"{what} is cut: {size} bytes are announced and {left} are there")
        self.offset += size

    def at_end(self) -> bool:
        """Tell whether every byte has been read."""
        if self.source.packing == "none":
            return self.offset >= self.source.size
        return not self._unpacked()
