"""Writing reports: framing, packing, and what slim reports leave out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from gpuatlas.files import whole
from gpuatlas.ncurep.report import LAUNCHES_ENTRY
from gpuatlas.ncurep.source import MAGIC
from gpuatlas.ncurep.wire import Content, fields, read_varint, write_bytes, write_integer

_FILE_HEADER = write_integer(1, 7)
_LEVEL, _HIGHEST_LEVEL = 17, 22
# Field numbers of the block header.
SOURCES, RESULTS, SESSION, STRINGS, PAYLOAD = 1, 2, 3, 4, 5
_KEPT_HEADER = {SOURCES, RESULTS, SESSION, STRINGS, PAYLOAD, 7, 10}
"""Without the process, and without what a newer writer may tell of it."""
_VERSIONS = 8
_KEPT_SESSION = {2, 6, _VERSIONS}
"""Creation time, devices, versions; the rest tells of host, user, process, environment, command line."""
_METRICS, _INSTANCES = 13, 3


@contextmanager
def report_file(path: Path, *, below: int | None = None) -> Iterator[BinaryIO]:
    """Open a report for writing, whole or absent.

    Parameters
    ----------
    path
        Packed with zstd if its name ends in .ncu-repz.
    below
        Pack it harder, which takes several times as long, if it does not get smaller than so many bytes.
    """
    with whole(path) as temporary:
        with temporary.open("wb") as file:
            yield file
        if path.suffix == ".ncu-repz":
            _pack(temporary, below)


def _pack(report: Path, below: int | None) -> None:
    """Compress a file to one zstd frame, which is what NVIDIA's reader expects."""
    import pyarrow as pa

    with report.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as view:
        content = pa.py_buffer(view)
        packed = pa.Codec("zstd", compression_level=_LEVEL).compress(content)
        if below is not None and packed.size >= below:
            packed = pa.Codec("zstd", compression_level=_HIGHEST_LEVEL).compress(content)
        del content
    report.write_bytes(packed)


def write_start(out: BinaryIO) -> None:
    """Write the magic and the file header."""
    out.write(MAGIC + len(_FILE_HEADER).to_bytes(4, "little") + _FILE_HEADER)


def write_block(out: BinaryIO, header: bytes, results: Sequence[Content]) -> None:
    """Write a block; `header` has no sources, and its counts are replaced by what `results` has."""
    payload = sum(4 + len(result) for result in results)
    counts = {SOURCES: 0, RESULTS: len(results), PAYLOAD: payload}
    raw = b"".join(
        write_integer(field.number, counts[field.number])
        if field.number in counts
        else header[field.start : field.end]
        for field in fields(header)
    )
    out.write(len(raw).to_bytes(4, "little") + raw)
    for result in results:
        out.write(len(result).to_bytes(4, "little") + result)


def new_header(strings: Sequence[str] = ()) -> bytes:
    """Return the header of a further block, with metric names that are added to those before."""
    table = b"".join(write_bytes(1, name.encode()) for name in strings)
    return (
        write_integer(SOURCES, 0)
        + write_integer(RESULTS, 0)
        + write_bytes(STRINGS, table)
        + write_integer(PAYLOAD, 0)
    )


def with_launches(header: bytes, launches: int) -> bytes:
    """Return a block header whose session tells the number of launches."""
    entry = write_bytes(
        _VERSIONS, write_bytes(1, LAUNCHES_ENTRY.encode()) + write_bytes(2, str(launches).encode())
    )
    out = []
    done = False
    for field in fields(header):
        if field.number == SESSION:
            out.append(write_bytes(SESSION, header[field.content : field.end] + entry))
            done = True
        elif field.number > SESSION and not done:
            out.append(write_bytes(SESSION, entry))
            done = True
            out.append(header[field.start : field.end])
        else:
            out.append(header[field.start : field.end])
    return b"".join(out)


def plain_header(header: bytes, *, redact: bool) -> bytes:
    """Return a block header without an older count of launches and, if to `redact`, without the host."""
    out = []
    for field in fields(header):
        if field.number == SESSION:
            out.append(write_bytes(SESSION, _session(header[field.content : field.end], redact)))
        elif field.number in _KEPT_HEADER or not redact:
            out.append(header[field.start : field.end])
    return b"".join(out)


def _session(session: bytes, redact: bool) -> bytes:
    mark = write_bytes(1, LAUNCHES_ENTRY.encode())
    out = []
    for field in fields(session):
        counted = field.number == _VERSIONS and session.startswith(mark, field.content)
        if not counted and (field.number in _KEPT_SESSION or not redact):
            out.append(session[field.start : field.end])
    return b"".join(out)


def without_instances(result: Content) -> bytes:
    """Return a result without the instances of its metrics."""
    return b"".join(
        write_bytes(_METRICS, _without_instances(result[field.content : field.end]))
        if field.number == _METRICS
        else result[field.start : field.end]
        for field in fields(result)
    )


def _without_instances(metric: Content) -> bytes:
    return b"".join(metric[field.start : field.end] for field in fields(metric) if field.number != _INSTANCES)


def renumber(result: Content, ids: Sequence[int]) -> Content:
    """Return a result whose metrics have other name ids: ``ids[old]``."""
    out: list[Content] = []
    for field in fields(result):
        if field.number == _METRICS:
            metric = result[field.content : field.end]
            old, rest = read_varint(metric, 1)  # behind the tag of the name id, which stands first
            out.append(write_bytes(_METRICS, write_integer(1, ids[old]) + metric[rest:]))
        else:
            out.append(result[field.start : field.end])
    return b"".join(out)
