"""How much of a step each measured launch stands for.

A capture of launch configurations measures each configuration once or twice; the step's timeline says how
often the step launches it, and how long each launch takes. A figure over the step is then a sum over measured
launches, each times its weight. Launches whose configuration was not measured are stood for by the measured
ones of their kernel class, in proportion to GPU time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpuatlas.capture.represent import Floats, Represented, known_times, represent
from gpuatlas.compare.kernels import classify
from gpuatlas.errors import InputRefused
from gpuatlas.names import normalise
from gpuatlas.tables.read import read_columns

COVERAGE_TOLERANCE = 0.005
"""How far the share that a report covers of the timeline may be from the share that the capture stated."""


@dataclass(frozen=True)
class Step:
    """The launches of a step in order, and what the measured launches stand for of them.

    `keys`, `names` and `times` (unprofiled, in ns) have one element a launch of the step.
    """

    keys: Sequence[str]
    names: Sequence[str]
    times: Floats
    stands: Represented


@dataclass(frozen=True)
class Unmeasured:
    """A launch configuration that a capture left out: its kernel class, launches and GPU time in ns."""

    key: str
    kernel_class: str
    launches: int
    time: float


@dataclass(frozen=True)
class Weights:
    """What a step's figures are made with.

    Attributes
    ----------
    weight
        What to multiply a measured launch's counters by for the step's totals, shape (launches,).
    time, launches
        Unprofiled GPU time in ns, and number, of the step's launches that each measured launch stands for,
        shape (launches,).
    own
        The same, of launches of its own configuration alone.
    class_time, class_launches
        GPU time and number of all of the step's launches, by kernel class.
    unmeasured
        The configurations of which nothing was measured.
    """

    weight: Floats
    time: Floats
    launches: Floats
    own: Represented
    class_time: dict[str, float]
    class_launches: dict[str, int]
    unmeasured: tuple[Unmeasured, ...]


def read_step(
    keys: Sequence[str],
    timeline: Path,
    coverage: float | None,
    launched: int | None = None,
    skips: Sequence[int] | None = None,
) -> Step | None:
    """Read a whole-step capture's timeline; None where there is none, and every launch was measured.

    Parameters
    ----------
    keys
        Launch configuration of each measured launch, shape (launches,).
    timeline
        ``timeline.parquet`` of the cell.
    coverage
        Share 0..1 of the step's GPU time that the capture states to have measured.
    launched
        Launches of the step by the cell's manifest; None where it does not tell.
    skips
        Launches of its configuration that were passed over before each measured one; None for none.

    Raises
    ------
    InputRefused
        If the timeline cannot be read, or is not the one that the capture was planned with.
    """
    if not timeline.is_file():
        return None
    columns = ["order", "key", "name", "duration_ns"]
    table = read_columns(timeline, columns, "time the cell again").sort_by("order")
    if launched not in (None, table.num_rows):
        raise InputRefused(
            f"{timeline}: holds {table.num_rows} launches, but cell.json tells of {launched}; describe the "
            "cell again"
        )
    step, measured = table["key"].to_pylist(), set(keys)
    times = np.asarray([time or 0.0 for time in table["duration_ns"].to_pylist()])
    covered = float(times[[key in measured for key in step]].sum() / times.sum()) if times.sum() > 0 else 0.0
    if coverage is None or abs(covered - coverage) > COVERAGE_TOLERANCE:
        stated = "no coverage" if coverage is None else f"{coverage:.1%}"
        raise InputRefused(
            f"{timeline}: the report holds {covered:.1%} of its GPU time, but plan.json states {stated}: "
            "they are not of one step; capture the cell again"
        )
    stands = represent(step, times.tolist(), keys, [0] * len(keys) if skips is None else skips)
    return Step(step, table["name"].to_pylist(), known_times(step, times.tolist()), stands)


def weigh(step: Step, keys: Sequence[str], classes: Sequence[str]) -> Weights:
    """Return the weights of measured launches.

    Parameters
    ----------
    keys, classes
        Launch configuration and kernel class of each measured launch, shape (launches,).
    """
    known = dict(zip(keys, classes, strict=True))
    of_step = [
        known.get(key) or classify(normalise(name or ""))
        for key, name in zip(step.keys, step.names, strict=True)
    ]
    class_time: dict[str, float] = {}
    class_launches: dict[str, int] = {}
    for name, time in zip(of_step, step.times.tolist(), strict=True):
        class_time[name] = class_time.get(name, 0.0) + time
        class_launches[name] = class_launches.get(name, 0) + 1
    own = step.stands
    weight, time, launches = own.amount.copy(), own.time.copy(), own.launches.copy()
    for name in set(classes):
        where = np.asarray(classes) == name
        if own.time[where].sum() > 0:
            by_time = class_time[name] / own.time[where].sum()
            weight[where] *= by_time
            time[where] *= by_time
            launches[where] *= class_launches[name] / own.launches[where].sum()
    return Weights(weight, time, launches, own, class_time, class_launches, _unmeasured(step, keys, of_step))


def _unmeasured(step: Step, keys: Sequence[str], classes: Sequence[str]) -> tuple[Unmeasured, ...]:
    """Return the configurations of a step that are not among `keys`, in the order of their first launches."""
    found: dict[str, Unmeasured] = {}
    measured = set(keys)
    for key, kernel_class, time in zip(step.keys, classes, step.times.tolist(), strict=True):
        if key not in measured:
            before = found.get(key, Unmeasured(key, kernel_class, 0, 0.0))
            found[key] = replace(before, launches=before.launches + 1, time=before.time + time)
    return tuple(found.values())
