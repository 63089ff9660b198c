"""The metrics of many launches, read with numpy: what ``_native.c`` does, where that could not be built.

The entries of a launch stand one after the other, so where one begins depends on all before it; but the
launches of a chunk are independent, and one array operation takes a step in each of them. What is inside the
entries is then decoded for all of them together. Going value by value would take ten times as long.
"""

from array import array
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from gpuatlas.ncurep.metrics import (
    DOUBLE,
    FLOAT,
    MOST_METRICS,
    TEXT,
    UINT32,
    UINT64,
    Decoded,
    Instances,
    Ints,
    Metrics,
    Values,
)
from gpuatlas.ncurep.wire import BYTES, VARINT, Content, WireError, decode_text, read_varint

_METRIC_TAG = 0x6A
_NAME_TAG, _VALUE_TAG, _INSTANCE_TAG, _FLAG_TAG = 0x08, 0x12, 0x1A, 0x20
_TEXT_TAG, _FLOAT_TAG, _DOUBLE_TAG, _UINT32_TAG, _UINT64_TAG = 0x0A, 0x15, 0x19, 0x20, 0x28
_TOO_MANY = "it has more metrics than any launch has"
_FEW = 32
"""So many launches or fewer are searched for metrics one by one, and so many metrics for instances."""
# By the size of a value, which is a tag and an integer of up to 5 bytes: where in 8 bytes from its own tag on
# the highest bits of the integer's bytes are, and which are set. Nothing matches for other sizes.
_HIGH_BITS, _SET_BITS = np.zeros(256, np.int64), np.ones(256, np.int64)
_HIGH_BITS[2:7] = np.frombuffer(
    b"".join((b"\0\0\0" + b"\x80" * n).ljust(8, b"\0") for n in range(1, 6)), "<i8"
)
_SET_BITS[2:7] = [0, *_HIGH_BITS[2:6]]


@dataclass
class _Entries:
    """The entries of metrics, decoded but for their instances."""

    name: Ints
    values: Values
    with_instances: Ints
    """Entries that carry instances."""
    start: Ints
    end: Ints
    """Where in the buffer the encoded instances of those entries are."""


def decode(raw: bytearray, start: Ints, end: Ints, names: int, *, instances: bool) -> Decoded:
    """Decode the metrics of launches: see `metrics.decode_metrics`."""
    buffer = _Buffer(raw)
    firsts = map(_first_metric, repeat(raw), start.tolist(), end.tolist())
    heads = np.fromiter(firsts, np.int64, len(start))
    launch, begin, stop, tails = _metric_spans(buffer, heads, end)
    entries = _decode_entries(buffer, begin, stop, names)
    metrics = Metrics(launch, np.bincount(launch, minlength=len(start)), entries.name, entries.values)
    if instances:
        found = _decode_instances(buffer, entries)
        return Decoded(heads, tails, metrics, len(found.owner), found)
    return Decoded(heads, tails, metrics, _check_instances(buffer, entries), None)


def metrics_end(launch: Content) -> int:
    """Return where in a launch's message its metrics end: see `metrics.metrics_end`."""
    size = len(launch)
    at = _first_metric(launch, 0, size)
    while at < size and launch[at] == _METRIC_TAG:
        length, begin = read_varint(launch, at + 1)
        if begin - at != 1 + _size_bytes(length):
            raise WireError("the length of a metric is encoded oddly")
        at = begin + length
    if at > size:
        raise WireError("a metric is longer than its launch")
    return at


def _size_bytes(length: int) -> int:
    """Return how many bytes a length takes."""
    return max(length.bit_length() + 6, 7) // 7


class _Buffer:
    """Messages in one buffer, a zero byte after each and `PAD` of them after the last.

    No tag is zero, so that a look at what follows a message's last field needs no bounds check.
    """

    def __init__(self, raw: bytearray) -> None:
        self.view = memoryview(raw)
        self.byte = np.frombuffer(raw, np.uint8)
        # Every offset as the start of an 8-byte number: one gather reads unaligned values.
        count = len(raw) - 7
        self.double = np.ndarray(count, "<f8", raw, strides=(1,))
        self.single = np.ndarray(count, "<f4", raw, strides=(1,))
        self.word: Ints = np.ndarray(count, "<i8", raw, strides=(1,))

    def slice(self, start: int, end: int) -> bytes:
        """Return a part of the buffer."""
        return self.view[start:end].tobytes()

    def varint(self, at: Ints) -> tuple[npt.NDArray[np.uint64], Ints]:
        """Return the integers at `at` and the positions behind them."""
        first = self.byte[at]
        after = at + 1
        more = np.flatnonzero(first >= 0x80)
        if not more.size:
            return first.astype(np.uint64), after
        value = (first & 0x7F).astype(np.uint64)
        shift = 7
        while more.size:
            # The pad ends in zeros: a cut integer ends there, and its message's end is checked by the caller.
            byte = self.byte[np.minimum(after[more], len(self.byte) - 1)]
            if shift == 63 and (byte > 1).any():
                raise WireError("it holds an integer that is too long")
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        return value, after

    def sized(self, at: Ints) -> tuple[Ints, Ints]:
        """Return where the length-delimited contents announced at `at` begin and end."""
        first = self.byte[at]
        if first.max(initial=0) < 0x80:
            begin = at + 1
            return begin, begin + first
        size, begin = self.varint(at)
        # A size beyond the buffer would wrap as a signed number; any such size is beyond its message too.
        return begin, begin + np.minimum(size, np.uint64(len(self.byte))).astype(np.int64)


def _first_metric(raw: Content | bytearray, start: int, end: int) -> int:
    """Return where in a buffer the first metric of a launch stands; the launch is ``raw[start:end]``."""
    at = start
    while at < end and (tag := raw[at]) < _METRIC_TAG:
        if tag & 7 == VARINT:
            _, at = read_varint(raw, at + 1)
        elif tag & 7 == BYTES:
            size, at = read_varint(raw, at + 1)
            at += size
        else:
            break
    if at >= end or raw[at] != _METRIC_TAG:
        raise WireError("it has no metrics")
    return at


def _metric_spans(buffer: _Buffer, first: Ints, limit: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Find the metric entries of launches in a buffer, one in each of them at a time.

    Return of each entry its launch, and where its content begins and ends, sorted by launch; and where each
    launch's last entry ends. `first` says where its first entry stands, `limit` where it ends itself.
    """
    beyond = "a metric is longer than its launch"
    launch, tag, start, end, last = _spans(buffer, _METRIC_TAG, first, limit, beyond)
    if np.bincount(launch).max() > MOST_METRICS:
        raise WireError(_TOO_MANY)
    length = end - start
    # The tag and the bytes of the size; a launch is no larger than what four of those can say.
    if (start - tag != 2 + (length > 127) + (length > 16383) + (length > 2097151)).any():
        raise WireError("the length of a metric is encoded oddly")
    # A stable sort of small integers is a radix sort, and linear.
    order = np.argsort(launch.astype(np.uint16 if len(first) < 1 << 16 else np.int64), kind="stable")
    return launch[order], start[order], end[order], last


def _decode_entries(buffer: _Buffer, start: Ints, end: Ints, names: int) -> _Entries:
    """Decode the metric entries that `_metric_spans` found; `names` is how many name ids there are."""
    byte = buffer.byte
    if not (byte[start] == _NAME_TAG).all():
        raise WireError("a metric has no name id")
    name, at = buffer.varint(start + 1)
    if (name >= np.uint64(names)).any():
        raise WireError(f"a metric has the name id {name.max()}, and there are {names} names")
    stored = np.flatnonzero((byte[at] == _VALUE_TAG) & (at < end))
    values, after = _values(buffer, stored, at[stored] + 1, end, len(start))
    at[stored] = after
    # What is left: nothing, the flag, instances, or instances and the flag.
    left = end - at
    if (left < 0).any():
        raise WireError("a metric is cut")
    flagged = (left == 2) & (byte[at] == _FLAG_TAG) & (byte[at + 1] <= 1)
    rest = np.flatnonzero((left != 0) & ~flagged)
    if not (byte[at[rest]] == _INSTANCE_TAG).all():
        raise WireError("a metric holds an unknown field")
    return _Entries(name.astype(np.int64), values, rest, at[rest], end[rest])


def _decode_instances(buffer: _Buffer, entries: _Entries) -> Instances:
    row, start, end = _instance_spans(buffer, entries)
    # They were found in step with one another; a metric's own stand together, and in their order.
    order = np.argsort(row, kind="stable")
    row = row[order]
    counts = np.bincount(row, minlength=len(entries.with_instances))
    index = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    correlation, value = _instance_values(buffer, start[order], end[order])
    return Instances(entries.with_instances[row], index, correlation, value)


def _check_instances(buffer: _Buffer, entries: _Entries) -> int:
    """Refuse what `_decode_instances` would refuse, in half its time; return how many there are."""
    _, start, end = _instance_spans(buffer, entries)
    odd = np.flatnonzero(~_usual(buffer, start, end))
    if odd.size:
        _instance_values(buffer, start[odd], end[odd])
    return len(start)


def _instance_spans(buffer: _Buffer, entries: _Entries) -> tuple[Ints, Ints, Ints]:
    """Find the instances; return of each the place of its row in `with_instances`, its begin and its end."""
    beyond = "an instance is longer than its metric"
    row, _, start, end, behind = _spans(buffer, _INSTANCE_TAG, entries.start, entries.end, beyond)
    left = entries.end - behind
    flagged = (left == 2) & (buffer.byte[behind] == _FLAG_TAG) & (buffer.byte[behind + 1] <= 1)
    if not ((left == 0) | flagged).all():
        raise WireError("a metric holds an unknown field among its instances")
    return row, start, end


def _spans(
    buffer: _Buffer, tag: int, first: Ints, limit: Ints, beyond: str
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Find the entries of rows, step by step in all of them; return the same as `_next_spans`.

    A row's entries stand between `first` and `limit`, and the first stands at `first`. `beyond` is what is
    wrong where one is longer.
    """
    active, position, last = np.arange(len(first)), first, np.empty_like(first)
    parts: list[tuple[Ints, ...]] = [(active[:0],) * 4]
    while active.size:
        *found, behind = _next_spans(buffer, tag, active, position, limit)
        if (behind > limit).any():
            raise WireError(beyond)
        parts.append(tuple(found))
        more = (buffer.byte[behind] == tag) & (behind < limit)
        if more.all():
            position = behind
        else:
            last[active[~more]] = behind[~more]
            active, position, limit = active[more], behind[more], limit[more]
    row, tags, start, end = map(np.concatenate, zip(*parts, strict=True))
    return row, tags, start, end, last


def _next_spans(
    buffer: _Buffer, tag: int, rows: Ints, position: Ints, limit: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Find the next entry of each row or, where the rows are few, all their entries: those at `position` on.

    Return of each entry its row, where its tag stands, and where its content begins and ends; and of each row
    where the last entry found ends.
    """
    if len(rows) > _FEW:
        start, end = buffer.sized(position + 1)
        return rows, position, start, end, end
    # The few that have very many: a step in so small an array costs more than one in Python.
    tags, starts, ends, counts, last = array("q"), array("q"), array("q"), [], []
    for begin, stop in zip(position.tolist(), limit.tolist(), strict=True):
        at, before = begin, len(ends)
        raw = buffer.view[:stop]
        while at < stop and raw[at] == tag:
            tags.append(at)
            size, at = read_varint(raw, at + 1)
            starts.append(at)
            at += min(size, len(buffer.byte))
            ends.append(at)
            if tag == _METRIC_TAG and len(ends) - before > MOST_METRICS:
                raise WireError(_TOO_MANY)
        counts.append(len(ends) - before)
        last.append(at)
    found = np.repeat(rows, counts)
    tag_at, start, end = (np.frombuffer(column, np.int64) for column in (tags, starts, ends))
    return found, tag_at, start, end, np.array(last, np.int64)


def _usual(buffer: _Buffer, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Tell which instances are exactly a uint64 as correlation id and a double or a uint64 as value.

    Integers above 35 bits are told as unusual: an 8-byte look at them would not show their end.
    """
    head = buffer.word[start]
    size = head >> 8 & 0xFF
    usual: npt.NDArray[np.bool_] = head & 0xFF00FF == _UINT64_TAG << 16 | _TEXT_TAG
    usual &= _one_integer(head, size)
    value = np.minimum(start + size + 2, end)
    head = buffer.word[value]
    size = head >> 8 & 0xFF
    usual &= value + size + 2 == end
    form = head & 0xFFFFFF
    integer = form & 0xFF00FF == _UINT64_TAG << 16 | _VALUE_TAG
    integer &= _one_integer(head, size)
    usual &= integer | (form == _DOUBLE_TAG << 16 | 9 << 8 | _VALUE_TAG)
    return usual


def _one_integer(head: Ints, size: Ints) -> npt.NDArray[np.bool_]:
    """Tell of which values of `size` bytes, whose first bytes are `head`, the integer ends with the value."""
    found: npt.NDArray[np.bool_] = head & _HIGH_BITS.take(size) == _SET_BITS.take(size)
    return found


def _instance_values(buffer: _Buffer, start: Ints, end: Ints) -> tuple[Values, Values]:
    """Decode instances; return their correlation ids and their values."""
    at, count = start.copy(), len(start)
    correlated = np.flatnonzero((buffer.byte[at] == _TEXT_TAG) & (at < end))
    correlation, after = _values(buffer, correlated, at[correlated] + 1, end, count)
    at[correlated] = after
    stored = np.flatnonzero((buffer.byte[at] == _VALUE_TAG) & (at < end))
    value, after = _values(buffer, stored, at[stored] + 1, end, count)
    at[stored] = after
    if (at != end).any():
        raise WireError("an instance holds an unknown field or is cut")
    return correlation, value


def _values(buffer: _Buffer, rows: Ints, at: Ints, ends: Ints, count: int) -> tuple[Values, Ints]:
    """Decode the values at `at`, whose entries are `rows` of `count`; return columns and the values' ends."""
    begin, stop = buffer.sized(at)
    if (stop > ends[rows]).any():
        raise WireError("a value is longer than its metric")
    tag = np.where(stop > begin, buffer.byte[begin], 0)
    begin = begin + 1
    values = Values(np.zeros(count, np.uint8), np.zeros(count), np.zeros(count, np.uint64), {})
    known = stop < begin  # an empty value: nothing is stored

    for wanted, kind, view, size in (
        (_DOUBLE_TAG, DOUBLE, buffer.double, 8),
        (_FLOAT_TAG, FLOAT, buffer.single, 4),
    ):
        chosen = np.flatnonzero(tag == wanted)
        known[chosen] = stop[chosen] == begin[chosen] + size
        values.kind[rows[chosen]] = kind
        with np.errstate(invalid="ignore"):  # a signalling NaN
            values.number[rows[chosen]] = view[begin[chosen]]
    for wanted, kind in ((_UINT32_TAG, UINT32), (_UINT64_TAG, UINT64)):
        chosen = np.flatnonzero(tag == wanted)
        integer, after = buffer.varint(begin[chosen])
        known[chosen] = after == stop[chosen]
        values.kind[rows[chosen]] = kind
        values.integer[rows[chosen]] = integer
        values.number[rows[chosen]] = integer.astype(np.float64)
    chosen = np.flatnonzero(tag == _TEXT_TAG)
    start, end = buffer.sized(begin[chosen])
    known[chosen] = end == stop[chosen]
    values.kind[rows[chosen]] = TEXT
    if not known.all():
        raise WireError("a metric's value is malformed")
    for row, first, last in zip(rows[chosen].tolist(), start.tolist(), end.tolist(), strict=True):
        values.text[row] = decode_text(buffer.slice(first, last), "a metric's text")
    return values, stop
