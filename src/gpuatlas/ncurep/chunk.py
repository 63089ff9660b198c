"""Launches decoded many at a time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuatlas.ncurep.launch import LaunchInfo, launch_info
from gpuatlas.ncurep.messages import Result
from gpuatlas.ncurep.metrics import METRIC_TAG, Buffer, Metrics, decode_metrics, metric_spans
from gpuatlas.ncurep.report import RawLaunch
from gpuatlas.ncurep.rules import RuleResult, rule_results
from gpuatlas.ncurep.wire import WireError, fields, parse

_CHUNK_BYTES = 16 << 20
"""Launches are decoded together until they have this many bytes; it bounds the memory."""
_METRICS_FIELD = METRIC_TAG >> 3


@dataclass
class Chunk:
    """Some successive launches of a report, decoded."""

    infos: list[LaunchInfo]
    rules: list[list[RuleResult]]
    metrics: Metrics
    extended: int
    """How many launches hold fields that this version does not know."""


def chunks(stream: Iterable[RawLaunch]) -> Iterator[list[RawLaunch]]:
    """Group launches so that the decoding of a group fits in memory."""
    group: list[RawLaunch] = []
    size = 0
    for launch in stream:
        group.append(launch)
        size += len(launch.data)
        if size >= _CHUNK_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def decode(launches: Sequence[RawLaunch]) -> Chunk:
    """Decode launches.

    Raises
    ------
    WireError
        If one of them does not parse strictly, has no name or has no metrics.
    """
    buffer = Buffer([launch.data for launch in launches])
    heads = [_first_metric(launch.data) for launch in launches]
    launch, start, end, last = metric_spans(buffer, buffer.start + np.array(heads, np.int64))
    infos, rules, extended = [], [], 0
    for raw, head, tail in zip(launches, heads, (last - buffer.start).tolist(), strict=True):
        message, unknown = parse(Result, raw.data[:head] + raw.data[tail:])
        if message.metrics:
            raise WireError("its metrics do not stand together")
        infos.append(launch_info(message))
        rules.append(rule_results(message))
        extended += unknown
    return Chunk(infos, rules, decode_metrics(buffer, launch, start, end), extended)


def _first_metric(data: bytes) -> int:
    """Return where the first metric of a launch stands."""
    for field in fields(data):
        if field.number >= _METRICS_FIELD:
            if data[field.start] != METRIC_TAG:
                break
            return field.start
    raise WireError("it has no metrics")
