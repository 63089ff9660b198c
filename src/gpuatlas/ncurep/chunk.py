"""Launches decoded many at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuatlas.ncurep.launch import LaunchInfo, launch_info
from gpuatlas.ncurep.messages import Result
from gpuatlas.ncurep.metrics import (
    METRIC_TAG,
    Buffer,
    Instances,
    Metrics,
    decode_instances,
    decode_metrics,
    metric_spans,
)
from gpuatlas.ncurep.report import Loss, Outline, RawLaunch, launches
from gpuatlas.ncurep.rules import RuleResult, rule_results
from gpuatlas.ncurep.source import Damaged
from gpuatlas.ncurep.wire import WireError, fields, parse

_CHUNK_BYTES = 8 << 20
"""Launches are decoded together until they have this many bytes; it bounds the memory."""
_METRICS_FIELD = METRIC_TAG >> 3


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
    group: list[RawLaunch] = []
    size = 0
    for launch in launches(report, loss):
        group.append(launch)
        size += len(launch.data)
        if size >= _CHUNK_BYTES:
            yield from _decoded(group, report, loss, instances)
            group, size = [], 0
    if group:
        yield from _decoded(group, report, loss, instances)


def _decoded(group: list[RawLaunch], report: Outline, loss: Loss | None, instances: bool) -> Iterator[Chunk]:
    """Decode a group of launches; a damaged one is found and refused, or left out and counted."""
    try:
        chunk = decode(group, len(report.names), instances=instances)
    except WireError as error:
        if len(group) > 1:
            for launch in group:
                yield from _decoded([launch], report, loss, instances)
            return
        damage = Damaged(report.source.path, group[0].offset, f"a launch is damaged: {error}")
        if loss is None:
            raise damage from error
        loss.launches += 1
        loss.reasons.append(str(damage))
        return
    yield chunk


def decode(group: Sequence[RawLaunch], names: int, *, instances: bool = False) -> Chunk:
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
    buffer = Buffer([launch.data for launch in group])
    heads = [_first_metric(launch.data) for launch in group]
    launch, start, end, last = metric_spans(buffer, buffer.start + np.array(heads, np.int64))
    infos, rules, extended = [], [], 0
    for raw, head, tail in zip(group, heads, (last - buffer.start).tolist(), strict=True):
        message, unknown = parse(Result, raw.data[:head] + raw.data[tail:])
        if message.metrics:
            raise WireError("its metrics do not stand together")
        info = launch_info(message)
        results, unknown_rules = rule_results(message)
        infos.append(info)
        rules.append(results)
        extended += unknown or info.extended or unknown_rules
    metrics = decode_metrics(buffer, launch, start, end, names)
    return Chunk(infos, rules, metrics, decode_instances(metrics) if instances else None, extended)


def _first_metric(data: bytes) -> int:
    """Return where the first metric of a launch stands."""
    for field in fields(data):
        if field.number >= _METRICS_FIELD:
            if data[field.start] != METRIC_TAG:
                break
            return field.start
    raise WireError("it has no metrics")
