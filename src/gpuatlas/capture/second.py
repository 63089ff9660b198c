"""The plan of a whole step, with second measurements where one launch does not speak for its configuration.

Launches of one configuration may do different work (see `gpuatlas.capture.represent`). So a part may measure
two launches of each of its configurations: the first, and one further on, the same for the whole part. Nsight
Compute's ``--kernel-id`` counts invocations for each launch configuration by itself under
``--filter-mode per-launch-config`` (Nsight Compute CLI, Command Line Options, Profile).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuatlas.capture.cost import CostModel
from gpuatlas.capture.plan import Part, Plan, plan_configs
from gpuatlas.capture.represent import ALIKE, Floats, places
from gpuatlas.capture.timeline import Configuration, Timeline

WORTH = 1e-3
"""Share of the step's GPU time for which a second measurement must speak where the first does not."""
FURTHEST = 32
"""A second measurement is at most of this launch of a configuration, counted from 1."""
TAKEN = 0.01
"""Share of the step's GPU time that second measurements may take from first ones, where a budget is short."""
_RESERVES = 8


@dataclass(frozen=True)
class Second:
    """A second measurement of a configuration: what it mends, and the time of the launch that it is of."""

    mended_ns: float
    duration_ns: float


def plan_step(
    timeline: Timeline,
    cost: CostModel,
    *,
    budget_s: float | None = None,
    done: Collection[str] = (),
    second: bool = True,
) -> Plan:
    """Plan the parts that measure each launch configuration once, and some of them twice.

    Parameters
    ----------
    budget_s
        Seconds that are left; None for no limit. Second measurements take of it what first ones leave, or
        would spend on the last hundredth of GPU time that they reach.
    done
        Base names that finished parts have measured.
    second
        Whether second measurements are made.
    """
    every = timeline.configurations()
    plan = plan_configs(every, cost, budget_s=budget_s, done=done)
    if not second:
        return plan
    found = _possible(timeline)
    price = WORTH * timeline.gpu_time_ns
    whole, _ = _with_second(plan, every, found, price, math.inf)
    if budget_s is None or whole.seconds <= budget_s:
        return whole
    time = {one.key: one.time_ns for one in every}
    most = sum(time[key] for key in plan.left_out) + TAKEN * timeline.gpu_time_ns
    chosen, best = _with_second(plan, every, found, price, budget_s - plan.seconds)
    for eighths in range(1, _RESERVES + 1):
        reserve = (whole.seconds - plan.seconds) * eighths / _RESERVES
        less = plan_configs(every, cost, budget_s=budget_s - reserve, done=done)
        if sum(time[key] for key in less.left_out) <= most:
            twice, mended = _with_second(less, every, found, price, budget_s - less.seconds)
            chosen, best = (twice, mended) if mended > best else (chosen, best)
    return chosen


def _possible(timeline: Timeline) -> dict[str, dict[int, Second]]:
    """Return the second measurements that could be made: of each configuration, by the launch's number."""
    return {
        key: {
            skip + 1: Second(_mended(times, skip), float(times[skip]))
            for skip in range(1, min(len(times), FURTHEST))
        }
        for key, times in places(timeline.keys, timeline.durations_ns).items()
        if times[0] > 0
    }


def _with_second(
    plan: Plan,
    every: Sequence[Configuration],
    found: Mapping[str, Mapping[int, Second]],
    price_ns: float,
    room_s: float,
) -> tuple[Plan, float]:
    """Return the plan with the second measurements that are worth it and fit, and what they mend in ns.

    Parameters
    ----------
    every
        The step's launch configurations.
    found
        Second measurements that could be made (see `_possible`).
    price_ns
        What a second measurement has to mend, in ns of GPU time.
    room_s
        Seconds that second measurements may take.
    """
    parts: list[Part] = []
    total = 0.0
    for part in plan.parts:
        own = [found.get(one.key, {}) for one in every if part.asks(one)]
        best, best_net = part, 0.0
        for again in range(2, FURTHEST + 1):
            chosen = [possible[again] for possible in own if again in possible]
            net = sum(one.mended_ns for one in chosen) - price_ns * len(chosen)
            seconds = plan.cost.launches_s(one.duration_ns for one in chosen)
            if net > best_net and seconds <= room_s:
                best_net = net
                best = replace(
                    part,
                    launches=part.launches + len(chosen),
                    modelled_s=part.modelled_s + seconds,
                    again=again,
                    second=len(chosen),
                )
        room_s -= best.modelled_s - part.modelled_s
        total += best_net + price_ns * best.second
        parts.append(best)
    return replace(plan, parts=tuple(parts)), total


def _mended(times: Floats, skip: int) -> float:
    """Return the GPU time in ns of the launches that are alike the second measured one, but not the first."""
    first, second = (times / times[place] for place in (0, skip))
    nearer = np.where(np.abs(np.log(second)) < np.abs(np.log(first)), second, first)
    unlike = (np.abs(ratio - 1) > ALIKE for ratio in (first, nearer))
    before, after = (float(times[launches].sum()) for launches in unlike)
    return before - after
