"""A report against the step's timeline: what is covered, what is unmatched, may it be believed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np

from gpuatlas.capture.represent import places
from gpuatlas.capture.timeline import Timeline
from gpuatlas.errors import GpuatlasError, OtherLaunches
from gpuatlas.names import launch_key
from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline
from gpuatlas.tables.columns import DURATIONS

ORDER_TOLERANCE = 0.02
"""Share of a range's launches that may differ from the timeline's: allocator and cache states move a few."""

SECOND_TOLERANCE = 0.5
"""Share by which the ratio of two measured times may differ from that of the step's; clocks differ."""

UNMATCHED_MAX = 0.02
"""Share of a step's GPU time that may be without measured launches though it was asked for."""


@dataclass(frozen=True)
class Measured:
    """What a report holds; `keys` and `durations` in its order, in the report's unit, NaN where absent."""

    keys: tuple[str, ...]
    durations: tuple[float, ...]
    metrics: frozenset[str]
    ncu: str


@dataclass(frozen=True)
class Coverage:
    """The step's launches that a report speaks for.

    Attributes
    ----------
    coverage_time, coverage_launches
        Share 0..1 of the step's GPU time, and of its launches, whose configuration was measured.
    unmatched_time
        Share 0..1 of the step's GPU time whose configuration was to be measured and was not found.
    foreign
        Measured launches whose configuration the step does not have.
    """

    configs_total: int
    configs_measured: int
    launches_total: int
    gpu_time_ns: float
    coverage_time: float
    coverage_launches: float
    unmatched_time: float
    foreign: int


def read_measured(report: Path) -> Measured:
    """Check the whole of a report and read its launch keys.

    Raises
    ------
    InputRefused
        If the report is damaged or holds no launch.
    """
    head = outline(report)
    names = list(head.names)
    timed = [names.index(name) for name in DURATIONS if name in names]
    keys: list[str] = []
    durations: list[float] = []
    for chunk in decode_report(head, instances=True):
        keys += [launch_key(one.demangled, one.grid, one.block) for one in chunk.infos]
        found = np.full(len(chunk.infos), np.nan)
        rows = np.isin(chunk.metrics.name, timed)
        found[chunk.metrics.launch[rows]] = chunk.metrics.values.number[rows]
        durations += found.tolist()
    return Measured(tuple(keys), tuple(durations), frozenset(names), head.session.ncu_version)


def join(timeline: Timeline, keys: Collection[str], left_out: Collection[str] = ()) -> Coverage:
    """Join measured launch keys to the timeline.

    Parameters
    ----------
    keys
        Of the measured launches.
    left_out
        Keys that the plan did not ask for: they count as not covered, but not as unmatched.
    """
    measured, skipped = set(keys), set(left_out)
    total = timeline.gpu_time_ns
    covered = unmatched = 0.0
    launched = 0
    for key, duration in zip(timeline.keys, timeline.durations_ns, strict=True):
        if key in measured:
            covered += duration
            launched += 1
        elif key not in skipped:
            unmatched += duration
    known = set(timeline.keys)
    return Coverage(
        configs_total=len(known),
        configs_measured=len(known & measured),
        launches_total=len(timeline.keys),
        gpu_time_ns=total,
        coverage_time=covered / total if total else 0.0,
        coverage_launches=launched / len(timeline.keys),
        unmatched_time=unmatched / total if total else 0.0,
        foreign=sum(key not in known for key in keys),
    )


def require_backward(timeline: Timeline, keys: Collection[str], left_out: Collection[str] = ()) -> None:
    """Refuse a capture that holds no launch of the backward pass though the step has one.

    Raises
    ------
    GpuatlasError
        If no configuration that only the backward pass launches was measured.
    """
    phases: dict[str, set[str]] = {}
    for key, phase in zip(timeline.keys, timeline.phases, strict=True):
        phases.setdefault(key, set()).add(phase)
    backward = {key for key, found in phases.items() if found == {"backward"}} - set(left_out)
    if backward and backward.isdisjoint(keys):
        raise GpuatlasError(
            f"The report holds none of the {len(backward)} launch configurations of the backward pass: the "
            "range was lost, as with an NVTX filter; nothing was written."
        )


def require_matched(timeline: Timeline, keys: Collection[str], left_out: Collection[str] = ()) -> Coverage:
    """Return what measured launches cover; refuse those of another step than the timeline's.

    Raises
    ------
    GpuatlasError
        If more than `UNMATCHED_MAX` of the step's GPU time is without measured launches though it was asked
        for.
    """
    coverage = join(timeline, keys, left_out)
    if coverage.unmatched_time > UNMATCHED_MAX:
        require_backward(timeline, keys, left_out)
        raise GpuatlasError(
            f"{100 * coverage.unmatched_time:.1f} % of the step's GPU time has no measured launch: the "
            "timeline and the report are not of the same kernels; time the cell again, then capture"
        )
    return coverage


def require_second(timeline: Timeline, measured: Measured, again: int, second: Collection[int]) -> None:
    """Refuse second measurements of other launches than those that were asked for.

    How much longer or shorter a configuration's second measurement is than its first must be what the
    timeline says of these two launches.

    Parameters
    ----------
    measured
        A part that measured configurations twice.
    again, second
        Which launch of its configuration a second measurement is of, counted from 1, and which of `measured`
        are such.

    Raises
    ------
    OtherLaunches
        If for most configurations it is not, by more than `SECOND_TOLERANCE`.
    """
    step = places(timeline.keys, timeline.durations_ns)
    firsts: dict[str, float] = {}
    for place, (key, duration) in enumerate(zip(measured.keys, measured.durations, strict=True)):
        if place not in second:
            firsts.setdefault(key, duration)
    wrong = []
    for place in second:
        key, duration = measured.keys[place], measured.durations[place]
        times = step.get(key, np.zeros(0))
        if firsts.get(key, 0) > 0 and duration > 0 and len(times) >= again and times[0] > 0:
            expected = times[again - 1] / times[0]
            wrong.append(abs(log(duration / firsts[key] / expected)) > log(1 + SECOND_TOLERANCE))
    if wrong and 2 * sum(wrong) > len(wrong):
        raise OtherLaunches(
            f"{sum(wrong)} of {len(wrong)} second measurements took other times than the launches of the "
            "step that were asked for: this ncu counts invocations otherwise, or the kernels have changed"
        )


def require_order(timeline: Timeline, start: int, keys: Sequence[str]) -> None:
    """Refuse a range of launches that are not the step's launches from `start` on.

    Raises
    ------
    GpuatlasError
        If more than `ORDER_TOLERANCE` of them differ.
    """
    expected = timeline.keys[start : start + len(keys)]
    wrong = (
        sum(left != right for left, right in zip(expected, keys, strict=False)) + len(keys) - len(expected)
    )
    if wrong > ORDER_TOLERANCE * len(keys):
        raise GpuatlasError(
            f"{wrong} of {len(keys)} measured launches are not the step's launches {start} to "
            f"{start + len(keys) - 1}; time the cell again on this machine, then capture"
        )
