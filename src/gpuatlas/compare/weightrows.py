"""Rows that say what each measured launch of a step stands for, so that every total can be made again."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuatlas.compare.captures import Capture


def weight_rows(capture: Capture) -> Iterator[dict[str, Any]]:
    """Yield a row a measured launch, and one a configuration that was not measured.

    A capture of no whole step has no weights: it yields nothing. The columns are those of
    `gpuatlas.tables.schema.WEIGHTS`.
    """
    cell = capture.cell
    if not cell.whole_step:
        return
    of_cell = {"architecture": cell.architecture, "target": cell.target}
    launches, times = capture.own_launches, capture.own_time
    for place, key in enumerate(capture.keys):
        yield of_cell | {
            "launch_id": int(capture.ids[place]),
            "key": key,
            "class": str(capture.classes[place]),
            "measured": True,
            "launches": round(float(launches[place])),
            "gpu_time_ns": float(times[place]) if np.isfinite(times[place]) else None,
            "weight": float(capture.weight[place]),
        }
    for one in capture.step.unmeasured if capture.step is not None else ():
        yield of_cell | {
            "launch_id": None,
            "key": one.key,
            "class": one.kernel_class,
            "measured": False,
            "launches": one.launches,
            "gpu_time_ns": one.time,
            "weight": None,
        }
