"""One warmed-up step on the GPU: its timeline, and the evidence drawn from it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from gpuatlas.errors import InputRefused
from gpuatlas.workload.evidence import judge, observe_formats
from gpuatlas.workload.inputs import step_volumes
from gpuatlas.workload.step import ACCUMULATE, TrainingStep
from gpuatlas.workload.timeline import record, timeline_table


def observe(
    step: TrainingStep, size: int, *, warmup: int, against: Path | None = None
) -> tuple[pa.Table, dict[str, Any]]:
    """Return the timeline of one step and the evidence record.

    Parameters
    ----------
    step
        On a GPU.
    size
        Edge of the volumes.
    warmup
        Steps before: compilation and cuDNN's search are no part of a step.
    against
        A timeline.parquet without the layout, for the check on layout-conversion time.
    """
    reference = None
    if against is not None:
        try:
            reference = pq.read_table(against)
        except (OSError, pa.ArrowInvalid) as error:
            raise InputRefused(f"{against} is no readable timeline: {error}") from error
    prepared, device = step.prepared, step.prepared.device
    volumes = [(image.to(device), mask.to(device)) for image, mask in step_volumes(size, ACCUMULATE, device)]
    for _ in range(warmup):
        step.run(volumes)
    timeline = timeline_table(record(step, volumes))
    formats = observe_formats(prepared, volumes[0]) if prepared.target.compile == "none" else None
    capability = torch.cuda.get_device_capability(device)
    return timeline, judge(prepared.target, formats, timeline, reference, capability)
