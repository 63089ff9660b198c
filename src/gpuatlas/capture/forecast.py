"""What a capture would measure and cost, from a timeline alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuatlas.capture.cost import estimate, too_small
from gpuatlas.capture.plan import Mode, charge, plan_first
from gpuatlas.capture.second import plan_step
from gpuatlas.capture.timeline import read_timeline
from gpuatlas.errors import ConfigError
from gpuatlas.workload.targets import load_target

SECTIONS = (
    *("C2CLink", "ComputeWorkloadAnalysis", "InstructionStats", "LaunchStats", "MemoryWorkloadAnalysis"),
    *("MemoryWorkloadAnalysis_Chart", "MemoryWorkloadAnalysis_Tables", "NumaAffinity", "Nvlink"),
    *("Nvlink_Tables", "Nvlink_Topology", "Occupancy", "PmSampling", "PmSampling_WarpStates"),
    *("SchedulerStats", "SourceCounters", "SpeedOfLight", "SpeedOfLight_HierarchicalDoubleRooflineChart"),
    *("SpeedOfLight_HierarchicalHalfRooflineChart", "SpeedOfLight_HierarchicalSingleRooflineChart"),
    *("SpeedOfLight_HierarchicalTensorRooflineChart", "SpeedOfLight_RooflineChart", "WarpStateStats"),
    "WorkloadDistribution",
)
"""Identifiers of the sections that Nsight Compute comes with; a machine may have more."""


@dataclass(frozen=True)
class Forecast:
    """The plan of a capture in figures.

    `launches` are all that are measured, `second_launches` those of configurations that are measured again;
    `window` says what a capture of only the first launches is.
    """

    mode: str
    configs_total: int
    configs_measured: int
    launches_total: int
    launches: int
    second_launches: int
    passes: int
    parts: int
    predicted_s: float
    coverage_time: float | None
    window: str | None
    gpu_hours: float | None
    service_units: float | None


def forecast(
    timeline: Path,
    targets: Path,
    target: str,
    *,
    mode: Mode,
    budget_s: float | None,
    sections: Sequence[str],
    metrics: Sequence[str],
    slurm: Mapping[str, Any] | None,
) -> Forecast:
    """Plan a capture without a GPU.

    Parameters
    ----------
    timeline
        ``timeline.parquet`` of the cell, or of the same target on another GPU for a first idea.
    slurm
        The site's `slurm` section, for GPU-hours and service units; None to leave them out.

    Raises
    ------
    InputRefused, ConfigError
        If the timeline or the targets cannot be read, the timeline is of another target, or the budget does
        not reach one part.
    """
    compiled = load_target(targets, target).compile != "none"
    step = read_timeline(timeline, target)
    cost = estimate(sections, metrics, step_ns=step.gpu_time_ns, compiled=compiled)
    if mode.first is None:
        plan = plan_step(step, cost, budget_s=budget_s)
    else:
        plan = plan_first(step, mode.first, cost, budget_s=budget_s)
    if not plan.parts:
        raise ConfigError(too_small(budget_s, cost.startup_s))
    total = len(step.keys)
    window = None
    if mode.first is not None and plan.launches < total:
        window = f"the first {plan.launches} of the {total} launches of a step"
    covered = sum(
        duration
        for key, duration in zip(step.keys, step.durations_ns, strict=True)
        if key not in plan.left_out
    )
    known = set(step.keys)
    charged = charge(plan.seconds, dict(slurm)) if slurm is not None else None
    return Forecast(
        mode=mode.text,
        configs_total=len(known),
        configs_measured=len(set(step.keys[: plan.launches]) if window else known - plan.left_out),
        launches_total=total,
        launches=plan.launches,
        second_launches=sum(part.second for part in plan.parts),
        passes=cost.passes,
        parts=len(plan.parts),
        predicted_s=plan.seconds,
        coverage_time=None if window else covered / step.gpu_time_ns,
        window=window,
        gpu_hours=charged.gpu_hours if charged else None,
        service_units=charged.service_units if charged else None,
    )
