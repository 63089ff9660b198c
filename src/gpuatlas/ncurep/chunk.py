"""Launches decoded many at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from gpuatlas.ncurep.launch import LaunchInfo, launch_info
from gpuatlas.ncurep.messages import Result
from gpuatlas.ncurep.metrics import (
    Buffer,
    Instances,
    Ints,
    Metrics,
    Spans,
    decode_instances,
    decode_metrics,
    first_metric,
    metric_spans,
    spans_of_sizes,
)
from gpuatlas.ncurep.report import Loss, Outline, RawLaunch, launches
from gpuatlas.ncurep.rules import RuleResult, rule_results
from gpuatlas.ncurep.source import Damaged
from gpuatlas.ncurep.wire import WireError, parse

_CHUNK_BYTES = 8 << 20
"""Launches are decoded together until they have this many bytes; it bounds the memory."""
_FEW = 64
"""From so many launches on, going through them in step is faster than having each parsed."""


class Group:
    """Successive launches of a report, not yet decoded, in one buffer with a zero byte after each."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.start: list[int] = []
        self.end: list[int] = []
        self.offset: list[int] = []
        """Where each launch begins in the unpacked report."""

    def add(self, launch: RawLaunch) -> None:
        """Append a launch."""
        self.start.append(len(self.raw))
        self.raw += launch.data
        self.end.append(len(self.raw))
        self.raw.append(0)
        self.offset.append(launch.offset)

    def launch(self, number: int) -> RawLaunch:
        """Return one of the launches."""
        return RawLaunch(bytes(self.raw[self.start[number] : self.end[number]]), self.offset[number])


def group_of(launch: RawLaunch) -> Group:
    """Return a group of a single launch."""
    group = Group()
    group.add(launch)
    return group


@dataclass
class Chunk:
    """Some successive launches of a report, decoded."""

    infos: list[LaunchInfo]
    rules: list[list[RuleResult]]
    metrics: Metrics
    instances: Instances | None
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
        group.add(launch)
        if len(group.raw) >= _CHUNK_BYTES:
            yield from _decoded(group, report, loss, instances)
            group = Group()
    if group.start:
        yield from _decoded(group, report, loss, instances)


def _decoded(group: Group, report: Outline, loss: Loss | None, instances: bool) -> Iterator[Chunk]:
    """Decode a group of launches; a damaged one is found and refused, or left out and counted."""
    try:
        chunk = decode(group, len(report.names), instances=instances)
    except WireError as error:
        if len(group.start) > 1:
            for number in range(len(group.start)):
                yield from _decoded(group_of(group.launch(number)), report, loss, instances)
            return
        damage = Damaged(report.source.path, group.offset[0], f"a launch is damaged: {error}")
        if loss is None:
            raise damage from error
        loss.launches += 1
        loss.reasons.append(str(damage))
        return
    yield chunk


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
    buffer = Buffer(group.raw, np.array(group.start, np.int64), np.array(group.end, np.int64))
    heads = np.array(list(map(first_metric, repeat(group.raw), group.start, group.end)), np.int64)
    find = _spans_by_parsing if len(group.start) < _FEW else _spans_in_step
    messages, (launch, start, end) = find(group, buffer, heads)
    infos, rules, extended = [], [], 0
    for message, unknown in messages:
        info = launch_info(message)
        results, unknown_rules = rule_results(message)
        infos.append(info)
        rules.append(results)
        extended += unknown or info.extended or unknown_rules
    metrics = decode_metrics(buffer, launch, start, end, names)
    return Chunk(infos, rules, metrics, decode_instances(metrics) if instances else None, extended)


_Found = tuple[list[tuple[Any, bool]], Spans]


def _spans_in_step(group: Group, buffer: Buffer, heads: Ints) -> _Found:
    """Find the metrics of all launches in step, and parse what stands around them."""
    launch, start, end, last = metric_spans(buffer, heads)
    messages = []
    for begin, head, tail, stop in zip(group.start, heads.tolist(), last.tolist(), group.end, strict=True):
        message, unknown = parse(Result, buffer.slice(begin, head) + buffer.slice(tail, stop))
        if message.metrics:
            raise WireError("its metrics do not stand together")
        messages.append((message, unknown))
    return messages, (launch, start, end)


def _spans_by_parsing(group: Group, buffer: Buffer, heads: Ints) -> _Found:
    """Have protobuf find the metrics of each launch: the faster way for a few launches of many bytes each."""
    messages, sizes = [], []
    for begin, stop in zip(group.start, group.end, strict=True):
        message, unknown = parse(Result, buffer.slice(begin, stop))
        messages.append((message, unknown))
        sizes.append(list(map(len, message.metrics)))
    return messages, spans_of_sizes(buffer, heads, sizes)
