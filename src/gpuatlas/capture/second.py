"""The plan of a whole step, with second measurements where one launch does not speak for its configuration.

Launches of one configuration may do different work (see `gpuatlas.capture.represent`). The kernels for which
that matters, a few of a step's, are measured again, a fixed number of launches later: Nsight Compute's
``--launch-skip`` counts for each launch configuration by itself under ``--filter-mode per-launch-config``
(Nsight Compute, Training, Filter Options). One further part serves them all.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from gpuatlas.capture.cost import CostModel
from gpuatlas.capture.plan import Part, Plan, plan_configs
from gpuatlas.capture.represent import ALIKE, Floats, places
from gpuatlas.capture.timeline import Timeline, function_base

WORTH = 1e-3
"""A second measurement is made where it mends as much, as a share of the step's GPU time (see `_mended`)."""
MOST = 32
"""Launches of a configuration that are passed over at most."""


def plan_step(
    timeline: Timeline,
    cost: CostModel,
    *,
    budget_s: float | None = None,
    done: Collection[str] = (),
    first: bool = True,
    second: bool = True,
) -> Plan:
    """Plan the parts that measure each launch configuration once, and some of them twice.

    Parameters
    ----------
    budget_s
        Seconds that are left; second measurements take of it what first ones leave. None for no limit.
    done
        Base names that finished parts have measured.
    first, second
        Whether first and second measurements are still to be made.
    """
    plan = Plan((), frozenset(), cost)
    if first:
        plan = plan_configs(timeline.configurations(), cost, budget_s=budget_s, done=done)
    part = second_part(timeline, cost, plan.left_out) if second else None
    if part is None or (first and not plan.parts and not done):
        return plan
    if budget_s is not None and plan.seconds + part.modelled_s + cost.startup_s > budget_s + 1e-6:
        return plan
    return replace(plan, parts=(*plan.parts, part))


def second_part(timeline: Timeline, cost: CostModel, left_out: Collection[str] = ()) -> Part | None:
    """Return the part that measures some kernels a second time; None where that mends too little.

    Parameters
    ----------
    left_out
        Launch configurations that are not measured a first time.
    """
    names = dict(zip(timeline.keys, timeline.names, strict=True))
    functions = {key: function_base(name) for key, name in names.items()}
    every = places(timeline.keys, timeline.durations_ns)
    measured = {
        key: times for key, times in every.items() if key not in left_out and len(times) > 1 and times[0] > 0
    }
    best: tuple[float, int, tuple[str, ...]] = (0.0, 0, ())
    for skip in range(1, MOST + 1):
        mended: dict[str, float] = {}
        launches: dict[str, int] = {}
        for key, times in measured.items():
            if len(times) > skip:
                name = functions[key]
                mended[name] = mended.get(name, 0.0) + _mended(times, skip)
                launches[name] = launches.get(name, 0) + 1
        worth = WORTH * timeline.gpu_time_ns
        chosen = sorted(name for name in mended if mended[name] > worth * launches[name])
        found = (sum(mended[name] for name in chosen), skip, tuple(chosen))
        best = found if found[0] > best[0] else best
    _, skip, chosen_functions = best
    if not chosen_functions:
        return None
    asked = [
        float(times[skip])
        for key, times in every.items()
        if functions[key] in chosen_functions and len(times) > skip and key not in left_out
    ]
    return Part(chosen_functions, skip, None, len(asked), cost.launches_s(asked))


def _mended(times: Floats, skip: int) -> float:
    """Return by how much a second measurement brings the measured times nearer, in ns of GPU time.

    That is the sum over launches of their GPU time, times the logarithm of how much longer or shorter they
    are than the measured launch that stands for them: before, less after. Launches alike the first need none.
    """
    before = np.abs(np.log(times / times[0]))
    before[before < np.log(1 + ALIKE)] = 0.0
    after = np.minimum(before, np.abs(np.log(times / times[skip])))
    return float((times * (before - after)).sum())
