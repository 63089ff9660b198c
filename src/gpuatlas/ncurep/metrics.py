"""Metric values of many launches at once, read off the wire with numpy.

A metric entry is ``6a <size>``, then ``08 <name id> [12 <size> <value>] [1a <size> <instance>]* [20
<flag>]``; a value is one field: text (1), float (2), double (3), uint32 (4) or uint64 (5). The entries of a
launch stand one after the other, so where one begins depends on all before it; but the launches of a chunk
are independent, and one array operation takes a step in each of them. What is inside the entries is then
decoded for all of them together. Going value by value would take ten times as long.
"""

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuatlas.ncurep.wire import BYTES, VARINT, Content, WireError, decode_text, read_varint

NONE, TEXT, FLOAT, DOUBLE, UINT32, UINT64 = 0, 1, 2, 3, 4, 5
"""Kinds of a stored value; NONE where nothing is stored."""

METRIC_TAG = 0x6A
_NAME_TAG, _VALUE_TAG, _INSTANCE_TAG, _FLAG_TAG = 0x08, 0x12, 0x1A, 0x20
_TEXT_TAG, _FLOAT_TAG, _DOUBLE_TAG, _UINT32_TAG, _UINT64_TAG = 0x0A, 0x15, 0x19, 0x20, 0x28
PAD = 32
"""Zero bytes behind the last message of a buffer: looking that far ahead is harmless."""
_FEW = 32
"""So many metrics or fewer are searched for instances one by one."""
# By the size of a value, which is a tag and an integer of up to 5 bytes: where in 8 bytes from its own tag on
# the highest bits of the integer's bytes are, and which are set. Nothing matches for other sizes.
_HIGH_BITS, _SET_BITS = np.zeros(256, np.int64), np.ones(256, np.int64)
_HIGH_BITS[2:7] = np.frombuffer(
    b"".join((b"\0\0\0" + b"\x80" * n).ljust(8, b"\0") for n in range(1, 6)), "<i8"
)
_SET_BITS[2:7] = [0, *_HIGH_BITS[2:6]]
Ints = npt.NDArray[np.int64]


@dataclass
class Values:
    """Values of one kind of entry, a row an entry."""

    kind: npt.NDArray[np.uint8]
    number: npt.NDArray[np.float64]
    """The value as a double; 0 for NONE and TEXT."""
    integer: npt.NDArray[np.uint64]
    """The exact integer for UINT32 and UINT64; else 0."""
    text: dict[int, str]
    """Row -> text, for TEXT."""


@dataclass
class Metrics:
    """The metrics of a chunk of launches, launch by launch, each in the report's order."""

    launch: Ints
    """Row -> launch within the chunk."""
    counts: Ints
    """Launch -> number of its metrics."""
    name: Ints
    """Row -> name id."""
    values: Values
    buffer: "Buffer"
    """What the metrics were read from; the next chunk is read into the same memory."""
    with_instances: Ints
    """Rows that carry instances."""
    instances_start: Ints
    instances_end: Ints
    """Where in the buffer the encoded instances of those rows are."""


@dataclass
class Instances:
    """The instances of the rows of `Metrics.with_instances`."""

    owner: Ints
    """Instance -> row of the metrics."""
    index: Ints
    correlation: Values
    value: Values


class Buffer:
    """Messages in one buffer, a zero byte after each and `PAD` of them after the last.

    No tag is zero, so that a look at what follows a message's last field needs no bounds check.
    """

    def __init__(self, raw: bytearray, start: Ints, end: Ints) -> None:
        self.start, self.end = start, end
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
            if shift > 63:
                raise WireError("it holds an integer that is too long")
            # The pad ends in zeros: a cut integer ends there, and its message's end is checked by the caller.
            byte = self.byte[np.minimum(after[more], len(self.byte) - 1)]
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


def first_metric(raw: Content | bytearray, start: int, end: int) -> int:
    """Return where in a buffer the first metric of a launch stands; the launch is ``raw[start:end]``."""
    at = start
    while at < end and (tag := raw[at]) < METRIC_TAG:
        if tag & 7 == VARINT:
            _, at = read_varint(raw, at + 1)
        elif tag & 7 == BYTES:
            size, at = read_varint(raw, at + 1)
            at += size
        else:
            break
    if at >= end or raw[at] != METRIC_TAG:
        raise WireError("it has no metrics")
    return at


def metric_spans(buffer: Buffer, first: Ints, limit: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Find the metric entries of launches in a buffer, one in each of them at a time.

    Parameters
    ----------
    buffer
        The launches' messages.
    first, limit
        Where each launch's first metric entry stands, and where the launch ends.

    Returns
    -------
    launch, start, end
        Of each entry: its launch, and where its content begins and ends; those of a launch in their order.
    last
        Where each launch's last entry ends.

    Raises
    ------
    WireError
        If an entry reaches beyond its launch.
    """
    last = np.empty_like(first)
    active, position = np.arange(len(first)), first
    launches, starts, ends = [], [], []
    while active.size:
        start, end = buffer.sized(position + 1)
        if (end > limit).any():
            raise WireError("a metric is longer than its launch")
        launches.append(active)
        starts.append(start)
        ends.append(end)
        more = buffer.byte[end] == METRIC_TAG
        if more.all():
            position = end
        else:
            last[active[~more]] = end[~more]
            active, position, limit = active[more], end[more], limit[more]
    return np.concatenate(launches), np.concatenate(starts), np.concatenate(ends), last


def walk_metrics(launch: Content) -> tuple[Ints, Ints]:
    """Find the metric entries of one launch.

    Parameters
    ----------
    launch
        Its message.

    Returns
    -------
    start, end
        Where in it the content of each entry begins and ends.

    Raises
    ------
    WireError
        If it has no metrics, or an entry reaches beyond it.
    """
    size = len(launch)
    at = head = first_metric(launch, 0, size)
    ends = array("q")
    append = ends.append
    while at + 2 < size and launch[at] == METRIC_TAG:
        length = launch[at + 1]
        if length < 0x80:
            at += 2 + length
        elif (more := launch[at + 2]) < 0x80:
            at += 3 + (length & 0x7F | more << 7)
        else:
            length, at = read_varint(launch, at + 1)
            at = min(at + length, size + 1)  # a damaged length may be beyond what the array holds
        append(at)
    if at > size or not ends:
        raise WireError("a metric is longer than its launch")
    end = np.frombuffer(ends, np.int64)
    whole = np.diff(end, prepend=head)
    # The tag and the bytes of the size are 2 to 5. Of a size in more bytes than it needs, the last is taken
    # for content, and refused: it is no tag.
    return end - whole + 2 + (whole > 129) + (whole > 16386) + (whole > 2097155), end


def decode_metrics(buffer: Buffer, launch: Ints, start: Ints, end: Ints, names: int) -> Metrics:
    """Decode the metric entries that `metric_spans` found; `names` is how many name ids there are.

    Raises
    ------
    WireError
        If an entry is not exactly of the shape above, or its name id is beyond the string tables.
    """
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
    counts = np.bincount(launch, minlength=len(buffer.end))
    return Metrics(launch, counts, name.astype(np.int64), values, buffer, rest, at[rest], end[rest])


def decode_instances(metrics: Metrics) -> Instances:
    """Decode the instances of metrics.

    Raises
    ------
    WireError
        If an instance is not exactly ``[0a <size> <correlation id>] [12 <size> <value>]``, or what follows
        the instances of a metric is not its flag.
    """
    row, start, end = _instance_spans(metrics)
    # They were found in step with one another; a metric's own stand together, and in their order.
    order = np.argsort(row, kind="stable")
    row = row[order]
    counts = np.bincount(row, minlength=len(metrics.with_instances))
    index = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    correlation, value = _instance_values(metrics.buffer, start[order], end[order])
    return Instances(metrics.with_instances[row], index, correlation, value)


def check_instances(metrics: Metrics) -> None:
    """Refuse what `decode_instances` would refuse, in half its time.

    A damaged length or tag may have made instances of what follows it, so they are looked at even where
    nobody wants their values.
    """
    _, start, end = _instance_spans(metrics)
    odd = np.flatnonzero(~_usual(metrics.buffer, start, end))
    if odd.size:
        _instance_values(metrics.buffer, start[odd], end[odd])


def _instance_spans(metrics: Metrics) -> tuple[Ints, Ints, Ints]:
    """Find the instances; return of each the place of its row in `with_instances`, its begin and its end."""
    buffer = metrics.buffer
    active, position, limit = (
        np.arange(len(metrics.with_instances)),
        metrics.instances_start,
        metrics.instances_end,
    )
    rows, starts, ends = [active[:0]], [active[:0]], [active[:0]]
    behind = np.empty_like(position)
    while active.size:
        if active.size > _FEW:
            start, end = buffer.sized(position + 1)
            found, last = active, end
        else:
            # The few that have very many: a step in so small an array costs more than one in Python.
            found, start, end, last = _few_spans(buffer, active, position, limit)
        if (last > limit).any():
            raise WireError("an instance is longer than its metric")
        rows.append(found)
        starts.append(start)
        ends.append(end)
        more = (buffer.byte[last] == _INSTANCE_TAG) & (last < limit)
        if more.all():
            position = last
        else:
            behind[active[~more]] = last[~more]
            active, position, limit = active[more], last[more], limit[more]
    left = metrics.instances_end - behind
    flagged = (left == 2) & (buffer.byte[behind] == _FLAG_TAG) & (buffer.byte[behind + 1] <= 1)
    if not ((left == 0) | flagged).all():
        raise WireError("a metric holds an unknown field among its instances")
    return np.concatenate(rows), np.concatenate(starts), np.concatenate(ends)


def _few_spans(buffer: Buffer, rows: Ints, position: Ints, limit: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Find all instances of some rows; return of each its row, begin and end; of each row its last's end."""
    starts, ends, counts, last = array("q"), array("q"), [], []
    for begin, stop in zip(position.tolist(), limit.tolist(), strict=True):
        at, before = begin, len(ends)
        raw = buffer.view[:stop]
        while at < stop and raw[at] == _INSTANCE_TAG:
            size, at = read_varint(raw, at + 1)
            starts.append(at)
            at += min(size, len(buffer.byte))
            ends.append(at)
        counts.append(len(ends) - before)
        last.append(at)
    found = np.repeat(rows, counts)
    return found, np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64), np.array(last)


def _usual(buffer: Buffer, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
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


def _instance_values(buffer: Buffer, start: Ints, end: Ints) -> tuple[Values, Values]:
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


def _values(buffer: Buffer, rows: Ints, at: Ints, ends: Ints, count: int) -> tuple[Values, Ints]:
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
