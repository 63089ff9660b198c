"""Launches decoded many at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuatlas.ncurep.launch import LaunchInfo, launch_info
from gpuatlas.ncurep.messages import Result
from gpuatlas.ncurep.metrics import PAD, Instances, Metrics, decode_metrics, metrics_end
from gpuatlas.ncurep.report import Loss, Outline, RawLaunch, launches
from gpuatlas.ncurep.rules import RuleResult, rule_results
from gpuatlas.ncurep.source import Damaged
from gpuatlas.ncurep.wire import BYTES, Content, WireError, fields, parse, write_bytes, write_varint

_CHUNK_BYTES = 8 << 20
"""Launches are decoded together until they have this many bytes; it bounds the memory."""
_CHUNK_LAUNCHES = 8192
"""And no more launches than this: very small ones take more memory decoded than encoded."""
_LARGE = 64 << 10
"""A launch of so many bytes is mostly bodies of sections, which nothing here needs: it pays to leave them out
before it is copied."""
_MOST_DAMAGED = 10_000
"""So many damaged launches are left out where damage is borne; a report with more is no cut one."""
_SECTIONS, _SECTION_TAG = 17, 2
"""The field of the sections, and how many bytes its tag has."""
_SECTION_HEAD = 512
"""What is kept of a section: more than its identifier and its name take."""


class Group:
    """Successive launches of a report, not yet decoded, in one buffer with a zero byte after each.

    The buffer is used again for the next launches: memory that is new to the process is slow to write.
    """

    def __init__(self) -> None:
        self.raw = bytearray(PAD)
        self.clear()

    def clear(self) -> None:
        """Forget the launches, to add others."""
        self.used = 0
        self.start: list[int] = []
        self.end: list[int] = []
        self.offset: list[int] = []
        """Where each launch begins in the unpacked report."""

    def add(self, launch: RawLaunch) -> None:
        """Append a launch; raise `WireError` if it is large and its fields do not follow one another."""
        data = launch.data
        if len(data) >= _LARGE:
            data = _without_bodies(memoryview(data), metrics_end(data))
        self._append(data, launch.offset)

    def _append(self, data: Content, offset: int) -> None:
        start, end = self.used, self.used + len(data)
        if end + 1 + PAD > len(self.raw):
            old, self.raw = self.raw, bytearray(2 * end + 1 + PAD)
            memoryview(self.raw)[:start] = memoryview(old)[:start]
        with memoryview(self.raw) as view:
            view[start:end] = data
            view[end : end + 1 + PAD] = bytes(1 + PAD)
        self.used = end + 1
        self.start.append(start)
        self.end.append(end)
        self.offset.append(offset)

    def only(self, number: int) -> "Group":
        """Return one of the launches as a group of its own."""
        group = Group()
        group._append(bytes(self.raw[self.start[number] : self.end[number]]), self.offset[number])
        return group


def _without_bodies(launch: memoryview, behind_metrics: int) -> bytes:
    """Return a launch in which every section is cut down to its head."""
    tail = launch[behind_metrics:]
    kept: list[Content] = [launch[:behind_metrics]]
    for field in fields(tail):
        if field.number == _SECTIONS and field.wire == BYTES:
            section = tail[field.content : field.end]
            if field.content - field.start != _SECTION_TAG + len(write_varint(len(section))):
                raise WireError("the length of a section is encoded oddly")
            kept.append(write_bytes(_SECTIONS, bytes(section[:_SECTION_HEAD])))
        else:
            kept.append(tail[field.start : field.end])
    return b"".join(kept)


@dataclass
class Chunk:
    """Some successive launches of a report, decoded."""

    infos: list[LaunchInfo]
    rules: list[list[RuleResult]]
    metrics: Metrics
    instance_count: int
    instances: Instances | None
    """None unless asked for."""
    extended: int
    """How many launches hold fields that this version does not know."""


def decode_report(report: Outline, loss: Loss | None = None, *, instances: bool = False) -> Iterator[Chunk]:
    """Iterate over a report's launches, decoded, some at a time so that they fit in memory.

    Parameters
    ----------
    report
        Its outline.
    loss
        Given for a damaged report: launches that are not whole are left out and counted here.
    instances
        Decode the metrics' instances too.

    Raises
    ------
    Damaged
        At the first launch that is not whole, without `loss`.
    """
    group = Group()
    for launch in launches(report, loss):
        try:
            group.add(launch)
        except WireError as error:
            yield from _decoded(group, report, loss, instances)  # what stands before it comes first
            group.clear()
            _leave_out(launch.offset, error, report, loss)
        if group.used >= _CHUNK_BYTES or len(group.start) >= _CHUNK_LAUNCHES:
            yield from _decoded(group, report, loss, instances)
            group.clear()
    yield from _decoded(group, report, loss, instances)


def _decoded(group: Group, report: Outline, loss: Loss | None, instances: bool) -> Iterator[Chunk]:
    """Decode a group of launches; a damaged one is found and refused, or left out and counted."""
    if not group.start:
        return
    try:
        chunk = decode(group, len(report.names), instances=instances)
    except WireError as error:
        if len(group.start) > 1:
            for number in range(len(group.start)):
                yield from _decoded(group.only(number), report, loss, instances)
            return
        _leave_out(group.offset[0], error, report, loss)
        return
    yield chunk


def _leave_out(offset: int, error: WireError, report: Outline, loss: Loss | None) -> None:
    """Refuse the report for a damaged launch or, where damage is borne, count the launch as lost."""
    damage = Damaged(report.source, offset, f"a launch is damaged: {error}")
    if loss is None:
        raise damage from error
    loss.launches += 1
    loss.tell(damage.reason)
    if loss.launches > _MOST_DAMAGED:
        raise Damaged(report.source, offset, f"more than {_MOST_DAMAGED} launches are damaged") from error


def decode(group: Group, names: int, *, instances: bool = False) -> Chunk:
    """Decode launches.

    Parameters
    ----------
    group
        Some launches of a report.
    names
        How many metric names the report's string tables hold.
    instances
        Decode the metrics' instances too.

    Raises
    ------
    WireError
        If one of them does not parse strictly, has no name or no metrics, or names a metric that there is
        not.
    """
    found = decode_metrics(group.raw, group.start, group.end, names, instances=instances)
    heads, tails = found.heads.tolist(), found.tails.tolist()
    infos, rules, extended = [], [], 0
    view = memoryview(group.raw)
    for begin, head, tail, stop in zip(group.start, heads, tails, group.end, strict=True):
        message, unknown = parse(Result, b"".join((view[begin:head], view[tail:stop])))
        if message.metrics:
            raise WireError("its metrics do not stand together")
        info = launch_info(message)
        results, unknown_rules = rule_results(message)
        infos.append(info)
        rules.append(results)
        extended += unknown or info.extended or unknown_rules
    return Chunk(infos, rules, found.metrics, found.instance_count, found.instances, extended)
