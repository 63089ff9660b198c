"""What a capture measures, in which order and in which parts, within which time.

A capture runs as parts, each its own run of Nsight Compute of a few minutes: what an interruption loses is
one part. In mode ``configs`` a part is a set of kernels by base name, of which every launch configuration is
measured once (instances of a template are kernels of their own). Kernels with the most GPU time come first,
so that a budget buys the most coverage. In mode ``first:N`` a part is a range of the step's launches.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuatlas.capture.cost import CostModel
from gpuatlas.capture.timeline import Configuration, Timeline
from gpuatlas.errors import ConfigError

PART_S = 180.0
"""Aimed-at seconds of a part without its start-up, which each repeats; an interruption loses one."""
_UNITS = 2000


@dataclass(frozen=True)
class Mode:
    """``configs`` (`first` is None), or the first `first` launches (0: all)."""

    first: int | None

    @property
    def text(self) -> str:
        """The mode as it is written on the command line."""
        if self.first is None:
            return "configs"
        return f"first:{self.first or 'inf'}"


@dataclass(frozen=True)
class Part:
    """One run of the profiler.

    Attributes
    ----------
    functions
        Base names of the kernels to measure; None for every kernel.
    skip, count
        Range of the step's launches; None where each configuration is measured.
    launches
        Launches that will be measured.
    modelled_s
        Seconds that the launches should take, without the start-up.
    again
        Which launch of each configuration is measured besides the first, counted from 1; None for none.
    second
        How many of `launches` these are.
    """

    functions: tuple[str, ...] | None
    skip: int | None
    count: int | None
    launches: int
    modelled_s: float
    again: int | None = None
    second: int = 0

    def asks(self, configuration: Configuration) -> bool:
        """Whether a part that measures configurations measures this one."""
        return self.functions is None or configuration.function in self.functions

    def twice(self, configuration: Configuration) -> bool:
        """Whether it measures this one a second time."""
        return self.again is not None and self.asks(configuration) and configuration.launches >= self.again


@dataclass(frozen=True)
class Plan:
    """The parts that are still to run, and the keys that the budget leaves out."""

    parts: tuple[Part, ...]
    left_out: frozenset[str]
    cost: CostModel

    @property
    def seconds(self) -> float:
        """Seconds that the parts should take."""
        return sum(part.modelled_s + self.cost.startup_s for part in self.parts)

    @property
    def launches(self) -> int:
        """Launches that the parts measure."""
        return sum(part.launches for part in self.parts)


def parse_mode(text: str) -> Mode:
    """Read ``configs`` or ``first:N``.

    Raises
    ------
    ConfigError
        If it is neither.
    """
    if text == "configs":
        return Mode(None)
    match = re.fullmatch(r"first:([1-9]\d*|inf)", text)
    if match is None:
        raise ConfigError(f"--mode {text}: write configs, first:N (for instance first:500) or first:inf")
    return Mode(0 if match[1] == "inf" else int(match[1]))


def plan_configs(
    configurations: Sequence[Configuration],
    cost: CostModel,
    *,
    budget_s: float | None = None,
    done: Iterable[str] = (),
) -> Plan:
    """Plan the parts that measure each launch configuration once.

    Parameters
    ----------
    configurations
        Of the step, in any order.
    budget_s
        Seconds that are left; those kernels are taken that cover the most GPU time within. None for no limit.
    done
        Base names that finished parts have measured.
    """
    finished = set(done)
    groups: dict[str, list[Configuration]] = {}
    for one in configurations:
        if one.function not in finished:
            groups.setdefault(one.function, []).append(one)
    times = {name: sum(one.time_ns for one in own) for name, own in groups.items()}
    costs = {name: cost.launches_s(one.duration_ns for one in own) for name, own in groups.items()}
    order = sorted(groups, key=lambda name: -times[name])
    dense = sorted(groups, key=lambda name: -times[name] / max(costs[name], 1e-9))
    if budget_s is None:
        plans = [_fill(names, costs, cost.startup_s, math.inf, len(order)) for names in (order, dense)]
        parts = min(plans, key=len)
    else:
        # A further part costs a start-up, a kernel of many configurations many measurements: other kernels
        # may be worth more. What covers most is taken.
        most = max(1, min(len(order), int(budget_s // max(cost.startup_s, 1.0))))
        plans = []
        for number in range(1, most + 1):
            best = _best(order, times, costs, budget_s - number * cost.startup_s)
            filled = [*best, *(name for name in order if name not in best)]
            plans += [
                _fill(names, costs, cost.startup_s, budget_s, number) for names in (order, dense, filled)
            ]
        parts = max(plans, key=lambda plan: sum(times[name] for names, _ in plan for name in names))
    taken = {name for names, _ in parts for name in names}
    left_out = {one.key for name in order if name not in taken for one in groups[name]}
    unfiltered = len(parts) == 1 and not left_out and not finished
    planned = tuple(
        Part(
            None if unfiltered else tuple(names),
            None,
            None,
            sum(len(groups[name]) for name in names),
            modelled,
        )
        for names, modelled in parts
    )
    return Plan(planned, frozenset(left_out), cost)


def _best(
    order: Sequence[str], times: Mapping[str, float], costs: Mapping[str, float], room_s: float
) -> list[str]:
    """Return the kernels, in `order`, that cover the most GPU time in `room_s` seconds (a 0/1 knapsack).

    Seconds are counted in `_UNITS`-ths of the room, rounded up.
    """
    if room_s <= 0:
        return []
    sizes = {name: math.ceil(costs[name] * _UNITS / room_s) for name in order}
    most, takes = np.zeros(_UNITS + 1), {}
    for name, size in sizes.items():
        without = most.copy()
        if size <= _UNITS:
            most[size:] = np.maximum(most[size:], without[: _UNITS + 1 - size] + times[name])
        takes[name] = most > without
    chosen, left = [], _UNITS
    for name in reversed(order):
        if takes[name][left]:
            chosen.append(name)
            left -= sizes[name]
    return chosen[::-1]


def _fill(
    order: Sequence[str], costs: Mapping[str, float], startup_s: float, budget_s: float, most: int
) -> list[tuple[list[str], float]]:
    """Take kernels in `order` while budget and `most` parts allow; return the parts and their seconds."""
    parts: list[tuple[list[str], float]] = []
    total = 0.0
    for name in order:
        own = costs[name]
        fits = bool(parts) and parts[-1][1] + own <= PART_S
        added = own if fits else own + startup_s
        if total + added > budget_s or (not fits and len(parts) == most):
            continue
        total += added
        if fits:
            parts[-1] = ([*parts[-1][0], name], parts[-1][1] + own)
        else:
            parts.append(([name], own))
    return parts


def plan_first(
    timeline: Timeline,
    first: int,
    cost: CostModel,
    *,
    budget_s: float | None = None,
    done: int = 0,
) -> Plan:
    """Plan the parts that measure the first `first` launches (0: all) of the step.

    Parameters
    ----------
    done
        Launches from the start that finished parts have measured.
    """
    total = len(timeline.keys)
    end = min(first or total, total)
    parts: list[Part] = []
    spent = 0.0
    at = done
    while at < end:
        start, modelled = at, 0.0
        while at < end:
            own = cost.launch_s(timeline.durations_ns[at])
            over = modelled and modelled + own > PART_S
            broke = budget_s is not None and spent + modelled + own + cost.startup_s > budget_s
            if over or broke:
                break
            modelled += own
            at += 1
        if at == start:
            break
        spent += modelled + cost.startup_s
        parts.append(Part(None, start, at - start, at - start, modelled))
    return Plan(tuple(parts), frozenset(timeline.keys[at:end]), cost)


@dataclass(frozen=True)
class Charge:
    """What a capture costs at a Slurm site."""

    gpu_hours: float
    service_units: float | None


def charge(total_s: float, slurm: dict[str, object]) -> Charge:
    """Return GPU-hours and service units of `total_s` seconds of a job as the site's `slurm` section asks."""
    hours = total_s / 3600
    rate, gpus = slurm.get("service_units_per_hour"), slurm.get("gpus", 1)
    return Charge(
        hours * (gpus if isinstance(gpus, int) else 1),
        hours * float(rate) if isinstance(rate, int | float) else None,
    )
