"""How much of a step each measured launch stands for.

A capture of launch configurations measures each configuration once or twice; the step's timeline says how
often the step launches it, and how long each launch takes. A figure over the step is then a sum over measured
launches, each times its weight.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpuatlas.capture.represent import Represented, represent
from gpuatlas.errors import InputRefused
from gpuatlas.tables.read import read_columns

COVERAGE_TOLERANCE = 0.005
"""How far the share that a report covers of the timeline may be from the share that the capture stated."""


def step_weights(
    keys: Sequence[str],
    timeline: Path,
    coverage: float | None,
    launched: int | None = None,
    skips: Sequence[int] | None = None,
) -> Represented:
    """Return what each measured launch of a whole-step capture stands for.

    Parameters
    ----------
    keys
        Launch configuration of each measured launch, shape (launches,).
    timeline
        ``timeline.parquet`` of the cell. Where there is none the capture holds every launch of the step, and
        each counts once.
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
        return Represented(np.ones(len(keys)), np.ones(len(keys)), 0.0)
    table = read_columns(timeline, ["order", "key", "duration_ns"], "time the cell again").sort_by("order")
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
    return represent(step, times.tolist(), keys, [0] * len(keys) if skips is None else skips)
