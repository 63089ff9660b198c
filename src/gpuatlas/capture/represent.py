"""Which measured launch stands for which launches of the step, and how much of each.

A launch configuration does not always do the same work: GroupNorm launches a block a group whatever the
volume, and cuDNN's persistent kernels a block a multiprocessor. So a measured launch stands for the other
launches of its configuration in proportion to their unprofiled GPU time. Where a configuration was measured
at several places of the step, that one stands for a launch whose time is nearest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ALIKE = 0.2
"""Share by which the time of a launch may differ from that of the launch that stands for it, to be alike."""


@dataclass(frozen=True)
class Represented:
    """What the measured launches stand for.

    Attributes
    ----------
    amount
        What to multiply a measured launch's counters by for the step's total, shape (measured launches,): GPU
        time of the launches that it stands for over its own, both unprofiled. 0 for what the step has not.
    launches, time
        How many launches of the step each stands for, and their GPU time in ns, shape (measured launches,).
    scaled_time
        Share 0..1 of the step's GPU time in launches that are not alike the launch that stands for them.
    """

    amount: Floats
    launches: Floats
    time: Floats
    scaled_time: float


def skips_of(parts: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return for each measured launch how many of its configuration were passed over before it.

    Parameters
    ----------
    parts
        Of a capture, in report order, as plan.json and cell.json have them: `launches`, and where it has
        second measurements `again`, which launch they are of, and `second`, their places in the part.
    """
    skips = []
    for part in parts:
        second, passed = set(part.get("second") or ()), int(part.get("again") or 1) - 1
        skips += [passed if place in second else 0 for place in range(int(part["launches"]))]
    return skips


def known_times(keys: Sequence[str], durations_ns: Sequence[float]) -> Floats:
    """Return the GPU time of each launch of a step, in order; an unknown one is its configuration's mean.

    A configuration of which no time is known has zeros.
    """
    times = np.asarray(durations_ns, dtype=np.float64)
    unknown = ~(np.isfinite(times) & (times > 0))
    if unknown.any():
        named = np.asarray(keys)
        for key in set(named[unknown].tolist()):
            own = named == key
            known = times[own & ~unknown]
            times = np.where(own & unknown, known.mean() if len(known) else 0.0, times)
    return times


def places(keys: Sequence[str], durations_ns: Sequence[float]) -> dict[str, Floats]:
    """Return the GPU times of each configuration's launches, in the step's order (see `known_times`)."""
    found: dict[str, list[float]] = {}
    for key, duration in zip(keys, known_times(keys, durations_ns).tolist(), strict=True):
        found.setdefault(key, []).append(duration)
    return {key: np.asarray(own) for key, own in found.items()}


def represent(
    keys: Sequence[str], durations_ns: Sequence[float], measured: Sequence[str], skips: Sequence[int]
) -> Represented:
    """Find what each measured launch stands for.

    Parameters
    ----------
    keys, durations_ns
        Launch configuration and unprofiled GPU time in ns of each launch of the step, in order.
    measured
        Launch configuration of each measured launch, in report order.
    skips
        Launches of its configuration that were passed over before each measured one, shape as `measured`.
    """
    step = places(keys, durations_ns)
    owners: dict[str, list[int]] = {}
    for number, key in enumerate(measured):
        owners.setdefault(key, []).append(number)
    amount, launches, time = (np.zeros(len(measured)) for _ in range(3))
    scaled = 0.0
    for key, own in owners.items():
        times = step.get(key)
        if times is None:
            continue
        at = _measured_places([skips[number] for number in own], len(times))
        lengths = times if times[0] > 0 else np.ones(len(times))
        apart = np.abs(np.log(lengths[:, None] / lengths[at][None, :]))
        nearest = apart.argmin(axis=1)
        nearest[at] = range(len(own))
        ratio = lengths / lengths[at][nearest]
        np.add.at(amount, np.asarray(own)[nearest], ratio)
        np.add.at(launches, np.asarray(own)[nearest], 1.0)
        np.add.at(time, np.asarray(own)[nearest], times)
        scaled += float(times[np.abs(ratio - 1) > ALIKE].sum())
    total = sum(float(times.sum()) for times in step.values())
    return Represented(amount, launches, time, scaled / total if total > 0 else 0.0)


def _measured_places(skips: Sequence[int], count: int) -> list[int]:
    """Return which launch of its configuration, of `count`, each measurement was.

    As many measurements as launches are all of them, in order. Otherwise each is the first after those that
    were passed over; several with the same number are of one launch.
    """
    if len(skips) == count and not any(skips):
        return list(range(count))
    return [min(skip, count - 1) for skip in skips]
