"""How far a target's quality lies from baseline's, in the spread over baseline's seeds; needs no torch."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

SEEDS = 3
"""Baseline runs that a spread needs."""


def compare(runs: Sequence[dict[str, Any]], target: str = "opt1") -> dict[str, Any]:
    """Return how far `target` lies from baseline, in the spread over baseline's seeds.

    Parameters
    ----------
    runs
        Results of `gpuatlas.workload.quality.train_and_judge`, of any targets and seeds.

    Returns
    -------
    dict
        For `loss` and `ms_ssim`: `status` (`measured` or `not measured`), `reason`, the means, baseline's
        standard deviation over seeds, and `distance`: |difference of means| / standard deviation.
    """
    mine = [run for run in runs if run["target"] == target]
    base = [run for run in runs if run["target"] == "baseline"]
    convinced = all(
        statistics.fmean(run["ms_ssim"]) > statistics.fmean(run["ms_ssim_blurred"]) for run in base
    )
    reason = None
    if not mine:
        reason = f"no run of {target}"
    elif len({run["seed"] for run in base}) < SEEDS:
        reason = f"baseline has {len({run['seed'] for run in base})} seeds; a spread needs {SEEDS}"
    similarity = reason
    if reason is None and not convinced:
        similarity = "baseline's samples do not beat a blurred phantom: the runs are too short"
    return {
        "target": target,
        "loss": _distance(mine, base, lambda run: float(run["loss"]), reason),
        "ms_ssim": _distance(mine, base, lambda run: statistics.fmean(run["ms_ssim"]), similarity),
    }


def _distance(
    mine: Sequence[dict[str, Any]],
    base: Sequence[dict[str, Any]],
    value: Callable[[dict[str, Any]], float],
    reason: str | None,
) -> dict[str, Any]:
    if reason is not None:
        return {"status": "not measured", "reason": reason}
    centre = statistics.fmean(map(value, base))
    spread = statistics.stdev(map(value, base))
    found = statistics.fmean(map(value, mine))
    return {
        "status": "measured",
        "reason": None,
        "mean": found,
        "baseline_mean": centre,
        "baseline_sd": spread,
        "distance": abs(found - centre) / spread if spread else None,
    }
