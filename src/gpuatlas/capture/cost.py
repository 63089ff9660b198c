"""What a capture costs: a model of Nsight Compute's time, from figures measured on an H200.

Kernel replay runs a launch once a pass, and before each pass restores what the launch overwrites and flushes
the caches. So a launch costs::

    rules_s + passes * (PASS_S + REPLAY * duration)

Measured with Nsight Compute 2025.3.1 on H200s: 0.8 to 1.2 s a launch for the default sections and a few
metrics (27 passes), 0.35 s for 12 metrics (11 passes), 0.03 to 0.06 s for up to five (one pass).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from gpuatlas.errors import ConfigError

PASS_S = 0.034
"""Seconds a pass costs beside the launch itself."""
RULES_S = 0.17
"""Seconds a launch costs beside its passes where sections are evaluated and their rules applied."""
REPLAY = 2.0
"""GPU time of a pass over that of the launch: the launch, and about as much to restore its memory."""
PROBE_S = 6.0
"""Seconds that a program of one kernel takes to start under the profiler, torch's import included.

4 to 7 on H200s; 7 to 10 where Python's packages have no bytecode, so that each start compiles them again.
"""
PROGRAM = 2.0
"""What the training program takes to start, over that: it also imports the optimiser and loads cuDNN."""
COMPILE_S = 20.0
"""Further seconds of a network that the timing has compiled, and that is taken from the compiler's cache."""
STEPS = 3.0
"""Warm-up, marked step and slack, in steps."""
PASSES_A_SECTION = 3.0
PASSES_A_METRIC = 0.9
ONE_PASS = 5
"""Metrics without sections that one pass takes, as with those of benchmarks/capture.md."""

_UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class CostModel:
    """Seconds of a part of a capture.

    Attributes
    ----------
    passes
        Passes a launch.
    startup_s
        Seconds of a part before its first launch is measured, and after its last.
    scale
        Measured over modelled seconds of the launches so far on this machine; 1 before any.
    rules_s
        Seconds a launch costs beside its passes.
    """

    passes: int
    startup_s: float
    scale: float = 1.0
    rules_s: float = 0.0

    def launch_s(self, duration_ns: float) -> float:
        """Return the seconds that measuring one launch of `duration_ns` takes."""
        return self.scale * (self.rules_s + self.passes * (PASS_S + REPLAY * duration_ns * 1e-9))

    def launches_s(self, durations_ns: Iterable[float]) -> float:
        """Return the seconds that measuring these launches takes, without the start-up."""
        return sum(self.launch_s(duration) for duration in durations_ns)


def estimate(
    sections: Sequence[str],
    metrics: Sequence[str],
    *,
    step_ns: float,
    compiled: bool,
    passes: int | None = None,
    probe_s: float = PROBE_S,
) -> CostModel:
    """Return the model before anything was measured.

    Parameters
    ----------
    sections, metrics
        What is collected; it decides about the passes where `passes` (of a probe) is not known.
    step_ns
        GPU time of a step, in ns.
    compiled
        Whether the network is compiled first.
    probe_s
        Seconds that the probe took to start on this machine.
    """
    guessed = PASSES_A_SECTION * len(sections)
    if not sections and len(metrics) > ONE_PASS:
        guessed = PASSES_A_METRIC * len(metrics)
    startup = PROGRAM * probe_s + (COMPILE_S if compiled else 0.0) + STEPS * step_ns * 1e-9
    return CostModel(passes or max(1, ceil(guessed)), startup, rules_s=RULES_S if sections else 0.0)


def seconds(text: str) -> float:
    """Return the seconds of a duration such as ``30m``, ``2h`` or ``90s``.

    Raises
    ------
    ConfigError
        If it is not written so.
    """
    match = re.fullmatch(r"([1-9]\d*)([smh])", text)
    if match is None:
        raise ConfigError(f"'{text}' is not a duration; write for instance 30m, 2h or 90s")
    return float(int(match[1]) * _UNITS[match[2]])


def too_small(budget_s: float | None, startup_s: float) -> str:
    """Return what to say of a budget that buys nothing."""
    return (
        f"A budget of {shown(budget_s or 0)} does not reach one part (about {shown(startup_s)} to start, and "
        "its launches); raise it"
    )


def shown(total: float) -> str:
    """Return a duration as people write it, for instance ``1 h 05 min``."""
    minutes = round(total / 60)
    if total < 60:
        return f"{total:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
