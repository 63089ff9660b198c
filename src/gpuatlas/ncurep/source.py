"""A report file as a stream of unpacked bytes: told by content, read in bounded memory, refused if unfit."""

import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gpuatlas.errors import InputRefused
from gpuatlas.files import sha256
from gpuatlas.ncurep.wire import Content

MAGIC = b"NVR\0"
MAX_UNPACKED = 16 << 30
"""A packed report that unpacks to more bytes than this is refused."""
MAX_AT_ONCE = 96 << 20
"""A zstd-packed report that unpacks to no more bytes than this is unpacked at once and held in memory."""
_PIECE, _SMALL_PIECE = 1 << 20, 1 << 16
_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"\x1f\x8b": "gzip",
}
_LONGEST_ZSTD_HEAD = 18
_LEAST_AHEAD, _MOST_AHEAD = 64, 1 << 18
_XZ_MEMORY = 128 << 20


@dataclass(frozen=True)
class Source:
    """A file that may be a report."""

    path: Path
    packing: str
    """How it is packed: none, zstd, xz or gzip."""
    size: int
    """Bytes on disk."""
    identity: tuple[int, int, int, int]
    """Its device, inode, size and time of change when it was identified."""

    def require_unchanged(self) -> None:
        """Refuse the file if it is not the one that was identified: it is read several times, by name."""
        try:
            same = _identity(self.path.stat()) == self.identity
        except OSError:
            same = False
        if not same:
            raise InputRefused(f"{self.path}: changed while it was read; try again when it is complete.")

    @property
    def name(self) -> str:
        """The file's name as text; bytes that are not UTF-8 are escaped."""
        return os.fsencode(self.path.name).decode(errors="backslashreplace")

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it lies on disk."""
        return sha256(self.path)


class Damaged(InputRefused):
    """The file is no whole report.

    Parameters
    ----------
    source
        The file.
    offset
        Where, in bytes of the unpacked report.
    reason
        What is wrong there, without a full stop.
    """

    def __init__(self, source: Source, offset: int, reason: str) -> None:
        where = f"at byte {offset}" + (" of the unpacked report" if source.packing != "none" else "")
        self.offset = offset
        self.reason = f"{where}: {reason}"
        super().__init__(f"{source.path}: damaged report, {self.reason}.")
        self._arguments = source, offset, reason

    def __reduce__(self) -> tuple[type["Damaged"], tuple[Source, int, str]]:
        return Damaged, self._arguments  # so that it comes back from a worker process


def _unreadable(path: Path, error: Exception) -> InputRefused:
    reason = getattr(error, "strerror", None) or error
    return InputRefused(f"{path}: cannot be read ({reason}).")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Refuse a file that the system cannot read, for instance on a broken disk."""
    try:
        yield
    except OSError as error:
        raise _unreadable(path, error) from error


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


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
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            head = file.read(8)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    for magic, packing in {MAGIC: "none", **_PACKED}.items():
        if head.startswith(magic):
            return Source(path, packing, status.st_size, _identity(status))
    what = "empty" if not head else "not an Nsight Compute report (it does not begin with NVR)"
    raise InputRefused(f"{path}: {what}; give a .ncu-rep, .ncu-repz or .nsight-cuprof-report file.")


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


def _open_packed(source: Source) -> Any:
    if source.packing == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.OSFile(str(source.path)), "zstd")
    return _Decompressor(source.path, source.packing)


def _stated_size(source: Source) -> int | None:
    """Return the size that the first frame of a zstd file states (RFC 8878), or None if it states none."""
    with _readable(source.path), source.path.open("rb") as file:
        head = file.read(_LONGEST_ZSTD_HEAD)
    if len(head) < 5:
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    at = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if not size_bytes or len(head) < at + size_bytes:
        return None
    return int.from_bytes(head[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)


def unpack_at_once(source: Source) -> memoryview | None:
    """Return the whole unpacked report, or None if it must be read as a stream.

    It must if it is not packed with zstd, is large, or is damaged: what is wrong with it, and what it holds
    up to there, the stream tells.
    """
    if source.packing != "zstd" or source.size > MAX_AT_ONCE:
        return None
    import pyarrow as pa

    size = _stated_size(source)
    if size is None or size > MAX_AT_ONCE:
        return None
    with _readable(source.path):
        packed = source.path.read_bytes()
    try:
        return memoryview(pa.Codec("zstd").decompress(packed, size)).cast("B")
    except OSError:
        return None


class _File:
    """A plain report, read ahead: further and further while it is read in order, a little after a skip."""

    def __init__(self, source: Source) -> None:
        self.offset = 0
        self._size = source.size
        self._path = source.path
        with _readable(self._path):
            self._descriptor = os.open(self._path, os.O_RDONLY)
        self._window, self._window_offset = memoryview(b""), 0
        self._ahead = _LEAST_AHEAD

    def view(self, size: int) -> memoryview:
        size = min(size, self._size - self.offset)
        begin = self.offset - self._window_offset
        if begin + size > len(self._window):
            self._window, self._window_offset, begin = self._read(max(size, self._ahead)), self.offset, 0
            self._ahead = min(4 * self._ahead, _MOST_AHEAD)
        data = self._window[begin : begin + size]
        self.offset += len(data)
        return data

    def _read(self, size: int) -> memoryview:
        with _readable(self._path):
            data = os.pread(self._descriptor, size, self.offset)
            # One call returns at most 2 GiB, and less when a signal comes or at the end of the file.
            while len(data) < size and (
                more := os.pread(self._descriptor, size - len(data), self.offset + len(data))
            ):
                data += more
        return memoryview(data)

    def skip(self, size: int) -> int:
        size = min(size, self._size - self.offset)
        self.offset += size
        if self.offset > self._window_offset + len(self._window):
            self._window, self._window_offset = memoryview(b""), self.offset
            self._ahead = _LEAST_AHEAD
        return size

    def at_end(self) -> bool:
        return self.offset >= self._size

    def close(self) -> None:
        os.close(self._descriptor)


class _Held:
    """An unpacked report in memory."""

    def __init__(self, content: memoryview) -> None:
        self.offset = 0
        self._content = content

    def view(self, size: int) -> memoryview:
        data = self._content[self.offset : self.offset + size]
        self.offset += len(data)
        return data

    def skip(self, size: int) -> int:
        return len(self.view(size))

    def at_end(self) -> bool:
        return self.offset >= len(self._content)

    def close(self) -> None:
        pass


class _Stream:
    """A packed report, unpacked a piece ahead by a thread of its own, while the last piece is decoded.

    A zstd piece in which the damage is gives nothing of what stands before it, so pieces are small where
    `unpack_at_once` has found some.
    """

    def __init__(self, source: Source, piece: int) -> None:
        self.offset = 0
        self._source = source
        self._stream = _open_packed(source)
        self._thread = ThreadPoolExecutor(1, "unpack")
        self._size = piece
        self._next = self._thread.submit(self._stream.read, piece)
        self._piece, self._at = b"", 0

    def _left(self) -> int:
        """Return how many bytes of the present piece are left, after fetching the next one if need be."""
        left = len(self._piece) - self._at
        if left:
            return left
        try:
            self._piece, self._at = self._next.result(), 0
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, MemoryError) as error:
            reason = str(error).rstrip(".") or "no memory"
            raise Damaged(
                self._source, self.offset, f"its {self._source.packing} packing is broken ({reason})"
            ) from error
        if self.offset + len(self._piece) > MAX_UNPACKED:
            limit = f"{MAX_UNPACKED >> 30} GiB, the limit for packed reports"
            raise Damaged(self._source, self.offset, f"it unpacks to more than {limit}")
        if self._piece:
            self._next = self._thread.submit(self._stream.read, self._size)
        return len(self._piece)

    def _pass(self, size: int) -> Iterator[tuple[int, int]]:
        """Pass over `size` bytes; yield where in the present piece they are, piece by piece."""
        while size and (step := min(size, self._left())):
            self._at += step
            self.offset += step
            size -= step
            yield self._at - step, self._at

    def view(self, size: int) -> bytes:
        pieces = [self._piece[begin:end] for begin, end in self._pass(size)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, size: int) -> int:
        return sum(end - begin for begin, end in self._pass(size))

    def at_end(self) -> bool:
        return not self._left()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._stream.close()


def _piece(source: Source) -> int:
    if source.packing != "zstd":
        return _PIECE
    size = _stated_size(source)
    return _SMALL_PIECE if size is not None and size <= MAX_AT_ONCE else _PIECE


class Reader:
    """Reads a report's unpacked bytes in order.

    Parameters
    ----------
    source
        The report.
    content
        Its unpacked bytes, where an earlier reader has kept them.
    """

    def __init__(self, source: Source, content: memoryview | None = None) -> None:
        self.source = source
        self.content = unpack_at_once(source) if content is None else content
        """The whole unpacked report, if it is held in memory."""
        self._bytes: _File | _Held | _Stream
        if self.content is not None:
            self._bytes = _Held(self.content)
        else:
            self._bytes = _File(source) if source.packing == "none" else _Stream(source, _piece(source))

    @property
    def offset(self) -> int:
        """How many bytes have been read."""
        return self._bytes.offset

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes.close()

    def refuse(self, reason: str, offset: int | None = None) -> NoReturn:
        """Raise `Damaged` for this file."""
        raise Damaged(self.source, self.offset if offset is None else offset, reason)

    def view(self, size: int, what: str) -> Content:
        """Return exactly `size` bytes, uncopied if they are held; refuse the file because `what` is cut."""
        begin = self.offset
        data = self._bytes.view(size)
        if len(data) < size:
            self._cut(size, len(data), what, begin)
        return data

    def read(self, size: int, what: str) -> bytes:
        """Return exactly `size` bytes as an object of their own, or refuse the file because `what` is cut."""
        return bytes(self.view(size, what))

    def skip(self, size: int, what: str) -> None:
        """Pass over `size` bytes."""
        begin = self.offset
        there = self._bytes.skip(size)
        if there < size:
            self._cut(size, there, what, begin)

    def _cut(self, size: int, there: int, what: str, begin: int) -> NoReturn:
        self.refuse(f"{what} is cut: {size} bytes are announced and {there} are there", begin)

    def at_end(self) -> bool:
        """Tell whether every byte has been read."""
        return self._bytes.at_end()
