"""The framing of a version-7 report: a file header, then blocks of a header and length-prefixed entries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from gpuatlas.ncurep.messages import BlockHeader, FileHeader
from gpuatlas.ncurep.source import MAGIC, Reader
from gpuatlas.ncurep.wire import Content, WireError, parse

VERSION = 7
MAX_HEADER = 128 << 20
MAX_ENTRY = 128 << 20
"""Limits of what is held in memory at once: a block's header, one entry of its payload."""
_LEAST_RESULT = 24
"""A launch has a name, a grid, a block and a metric, which take no fewer bytes."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload of a block: entries, each behind its length; sources (embedded code) come first."""

    offset: int
    """Where it begins in the unpacked report."""
    size: int
    sources: int
    results: int

    def result_entries(self, reader: Reader) -> Iterator[Content]:
        """Iterate over the results; the reader stands at the payload, and is left behind it."""
        left = self.size
        for number in range(self.sources + self.results):
            if left < 4:
                self._too_long(reader, "the length of an entry")
            size = int.from_bytes(reader.view(4, "the length of an entry"), "little")
            left -= 4
            if number < self.sources:
                if size > left:
                    self._too_long(reader, "a source")
                reader.skip(size, "a source")
            else:
                if size > MAX_ENTRY:
                    reader.refuse(f"a result of {size} bytes is announced, above {MAX_ENTRY >> 20} MiB")
                if size > left:
                    self._too_long(reader, "a result")
                yield reader.view(size, "a result")
            left -= size
        if left:
            reader.refuse(f"{left} bytes of a block belong to no entry")

    def _too_long(self, reader: Reader, what: str) -> NoReturn:
        reader.refuse(f"{what} is longer than its block")


@dataclass
class Block:
    """One block; its payload stands at the reader until `result_entries` or `skip` has passed it."""

    reader: Reader
    offset: int
    raw_header: bytes
    header: Any
    extended: bool
    """Whether the header holds fields of a newer writer."""
    payload: Payload

    def skip(self) -> None:
        """Pass over the payload."""
        self.reader.skip(self.payload.size, "a block's payload")

    def result_entries(self) -> Iterator[Content]:
        """Iterate over the results of the payload; sources stand first and are passed over."""
        return self.payload.result_entries(self.reader)


def walk(reader: Reader) -> Iterator[Block]:
    """Iterate over the blocks of a report; the caller passes each payload before the next block is asked for.

    Raises
    ------
    Damaged
        If the magic, the version, a length or a header is wrong, or if the blocks do not end with the file.
    """
    if reader.read(4, "the magic") != MAGIC:
        reader.refuse("it does not begin with NVR", 0)
    size = _length(reader, "the file header")
    try:
        header, _ = parse(FileHeader, reader.read(size, "the file header"))
    except WireError as error:
        reader.refuse(f"the file header is no message: {error}")
    if header.version != VERSION:
        reader.refuse(f"the format has version {header.version}, and only version {VERSION} is known")
    while not reader.at_end():
        offset = reader.offset
        size = _length(reader, "a block header")
        raw = reader.read(size, "a block header")
        try:
            block, extended = parse(BlockHeader, raw)
        except WireError as error:
            reader.refuse(f"a block header is no message: {error}", offset)
        if block.range_results or block.other_results:
            reader.refuse(
                "it holds results of range or graph replay, which are not read; profile kernels", offset
            )
        payload = Payload(reader.offset, int(block.payload), int(block.sources), int(block.results))
        if payload.size < 4 * (payload.sources + payload.results) + _LEAST_RESULT * payload.results:
            reader.refuse("a block announces more entries than its payload can hold", offset)
        yield Block(reader, offset, raw, block, extended, payload)


def _length(reader: Reader, what: str) -> int:
    size = int.from_bytes(reader.read(4, f"the length of {what}"), "little")
    if size > MAX_HEADER:
        reader.refuse(f"{what} of {size} bytes is announced, above {MAX_HEADER >> 20} MiB")
    return size
