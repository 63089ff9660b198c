"""Metric values of many launches at once, read off the wire with numpy.

A metric entry is ``08 <name id> [12 <size> <value>] [1a <size> <instance>]* [20 <flag>]``, and a value is one
field: text (1), float (2), double (3), uint32 (4) or uint64 (5). Python's protobuf gives each entry's bytes; what
is inside is decoded for a whole chunk of launches by array operations, each of which looks at one place of every
entry. Reading value by value would take ten times as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuatlas.ncurep.messages import InstanceList
from gpuatlas.ncurep.wire import WireError, parse

NONE, TEXT, FLOAT, DOUBLE, UINT32, UINT64 = 0, 1, 2, 3, 4, 5
"""Kinds of a stored value; NONE where nothing is stored."""

_PAD = bytes(32)
_Ints = npt.NDArray[np.int64]


@dataclass
class Values:
    """Values of one kind of entry, a row an entry."""

    kind: npt.NDArray[np.uint8]
    number: npt.NDArray[np.float64]
    """The value as a double; for NONE and TEXT 0."""
    integer: npt.NDArray[np.uint64]
    """The exact integer for UINT32 and UINT64; else 0."""
    text: dict[int, bytes]
    """Row -> text, for TEXT."""


@dataclass
class Metrics:
    """The metrics of a chunk of launches, in the report's order."""

    launch: _Ints
    """Row -> launch within the chunk."""
    name: _Ints
    """Row -> name id."""
    values: Values
    with_instances: _Ints
    """Rows that carry instances."""
    instances: list[bytes]
    """The encoded instances of those rows."""


@dataclass
class Instances:
    """The instances of the rows of `Metrics.with_instances`."""

    owner: _Ints
    """Instance -> row of the metrics."""
    index: _Ints
    correlation: Values
    value: Values


class _Buffer:
    """Entries joined in one buffer, padded so that looking a little past an entry is harmless."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        sizes = np.fromiter(map(len, entries), np.int64, len(entries))
        self.end = np.cumsum(sizes)
        self.start = self.end - sizes
        self.raw = b"".join((*entries, _PAD))
        self.byte = np.frombuffer(self.raw, np.uint8)
        # Every offset as the start of an 8-byte number: one gather reads unaligned values.
        count = len(self.raw) - 7
        self.double = np.ndarray(count, "<f8", self.raw, strides=(1,))
        self.single = np.ndarray(count, "<f4", self.raw, strides=(1,))

    def varint(self, at: _Ints) -> tuple[npt.NDArray[np.uint64], _Ints]:
        """Return the integers at `at` and the positions behind them."""
        first = self.byte[at]
        value = (first & 0x7F).astype(np.uint64)
        after = at + 1
        more = np.flatnonzero(first & 0x80)
        shift = 7
        while more.size:
            if shift > 63:
                raise WireError("a metric holds an integer that is too long")
            # The pad ends in zeros, so that a cut integer ends there and its entry's end is checked later.
            byte = self.byte[np.minimum(after[more], len(self.byte) - 1)]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        return value, after


def decode_metrics(entries: Sequence[bytes], counts: Sequence[int]) -> Metrics:
    """Decode the metric entries of a chunk of launches.

    Parameters
    ----------
    entries
        The entries of all the launches, one after the other.
    counts
        How many entries each launch has; their sum is ``len(entries)``.

    Raises
    ------
    WireError
        If an entry is not exactly of the shape above.
    """
    buffer = _Buffer(entries)
    byte, end = buffer.byte, buffer.end
    if not (byte[buffer.start] == 0x08).all():
        raise WireError("a metric has no name id")
    name, at = buffer.varint(buffer.start + 1)
    stored = np.flatnonzero((byte[at] == 0x12) & (at < end))
    values, after = _values(buffer, stored, at[stored] + 1, end, len(entries))
    at[stored] = after
    # What is left: nothing, the flag, instances, or instances and the flag.
    left = end - at
    if (left < 0).any():
        raise WireError("a metric is cut")
    flagged = (left >= 2) & (byte[end - 2] == 0x20) & (byte[end - 1] <= 1)
    plain = (left == 0) | (flagged & (left == 2))
    rest = np.flatnonzero(~plain)
    if not (byte[at[rest]] == 0x1A).all():
        raise WireError("a metric holds an unknown field")
    instances = [
        buffer.raw[begin:stop] for begin, stop in zip(at[rest].tolist(), end[rest].tolist(), strict=True)
    ]
    launch = np.repeat(np.arange(len(counts)), np.asarray(counts))
    return Metrics(launch, name.astype(np.int64), values, rest, instances)


def decode_instances(metrics: Metrics) -> Instances:
    """Decode the instances of metrics.

    Raises
    ------
    WireError
        If an instance is not exactly ``[0a <size> <correlation id>] 12 <size> <value>``.
    """
    entries: list[bytes] = []
    counts = []
    for raw in metrics.instances:
        found = list(parse(InstanceList, raw)[0].instances)
        entries.extend(found)
        counts.append(len(found))
    sizes = np.asarray(counts, np.int64)
    owner = np.repeat(metrics.with_instances, sizes)
    index = np.arange(len(entries)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    buffer = _Buffer(entries)
    at = buffer.start.copy()
    correlated = np.flatnonzero(buffer.byte[at] == 0x0A)
    correlation, after = _values(buffer, correlated, at[correlated] + 1, buffer.end, len(entries))
    at[correlated] = after
    stored = np.flatnonzero((buffer.byte[at] == 0x12) & (at < buffer.end))
    value, after = _values(buffer, stored, at[stored] + 1, buffer.end, len(entries))
    at[stored] = after
    if (at != buffer.end).any():
        raise WireError("an instance holds an unknown field or is cut")
    return Instances(owner, index, correlation, value)


def _values(buffer: _Buffer, rows: _Ints, at: _Ints, ends: _Ints, count: int) -> tuple[Values, _Ints]:
    """Decode the values at `at`, whose entries are `rows`; return them as columns of `count` rows, and their ends."""
    size, begin = buffer.varint(at)
    # A size beyond the buffer would wrap as a signed number; any such size is beyond its entry too.
    stop = begin + np.minimum(size, np.uint64(len(buffer.raw))).astype(np.int64)
    if (stop > ends[rows]).any():
        raise WireError("a value is longer than its metric")
    tag = np.where(stop > begin, buffer.byte[begin], 0)
    values = Values(np.zeros(count, np.uint8), np.zeros(count, np.float64), np.zeros(count, np.uint64), {})
    begin = begin + 1
    known = stop == begin - 1  # an empty value: nothing is stored

    chosen = np.flatnonzero(tag == 0x19)
    known[chosen] = stop[chosen] == begin[chosen] + 8
    values.kind[rows[chosen]] = DOUBLE
    values.number[rows[chosen]] = buffer.double[np.minimum(begin[chosen], len(buffer.double) - 1)]

    chosen = np.flatnonzero(tag == 0x15)
    known[chosen] = stop[chosen] == begin[chosen] + 4
    values.kind[rows[chosen]] = FLOAT
    values.number[rows[chosen]] = buffer.single[np.minimum(begin[chosen], len(buffer.single) - 1)]

    for wanted, kind in ((0x20, UINT32), (0x28, UINT64)):
        chosen = np.flatnonzero(tag == wanted)
        integer, after = buffer.varint(begin[chosen])
        known[chosen] = after == stop[chosen]
        values.kind[rows[chosen]] = kind
        values.integer[rows[chosen]] = integer
        values.number[rows[chosen]] = integer.astype(np.float64)

    chosen = np.flatnonzero(tag == 0x0A)
    size, after = buffer.varint(begin[chosen])
    known[chosen] = after.astype(np.uint64) + size == stop[chosen].astype(np.uint64)
    values.kind[rows[chosen]] = TEXT
    if not known.all():
        raise WireError("a metric's value is malformed")
    for row, start, end in zip(rows[chosen].tolist(), after.tolist(), stop[chosen].tolist(), strict=True):
        values.text[row] = buffer.raw[start:end]
    return values, stop
