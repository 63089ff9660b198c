"""What a claim expects, in words: of the rows of results/claims/checks, for the pages that show verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuatlas.compare import catalog

SIGNS = (
    "≥ and ≤: at least, at most; ±: the allowed distance; > 1.05 × baseline: more than 1.05 times what "
    "baseline has, < accordingly less."
)
"""How the formulas of `Criterion.expected` are to be read."""


@dataclass(frozen=True)
class Criterion:
    """What a claim expects of metrics, as a short formula, and why that stands for the claim's words."""

    titles: tuple[str, ...]
    expected: str
    note: str | None


def criteria(checks: Sequence[Mapping[str, Any]], target: str) -> list[Criterion]:
    """Return what the checks of a claim expect; those that expect the same of several metrics are one.

    Parameters
    ----------
    checks
        The checks of one verdict: rows of results/claims/checks.
    target
        The claim's target; a check of another one says so.
    """
    found: dict[tuple[str, str | None], list[str]] = {}
    for check in checks:
        of = "" if check["target"] == target else f" of {check['target']}"
        found.setdefault((_expected(check), check["note"]), []).append(title(check) + of)
    return [Criterion(tuple(titles), expected, note) for (expected, note), titles in found.items()]


def title(check: Mapping[str, Any]) -> str:
    """Return what a check measures, in words."""
    return catalog.load().title(check["metric"], check["classes"].split(" + ") if check["classes"] else ())


def number(value: float | None, unit: str | None) -> str:
    """Return a figure with three significant digits and its unit; a dash where there is none."""
    return "–" if value is None else f"{value:.3g} {unit or ''}".strip()


def _expected(check: Mapping[str, Any]) -> str:
    unit, slack, reference = check["unit"], check["tolerance"], _reference(check)
    goal = number(check["expected"], unit)
    return {
        "at_least": f"≥ {goal}",
        "at_most": f"≤ {goal}",
        "value": f"{goal} ± {slack:.3g}",
        "near": f"as {reference}, ± {slack:.3g} {unit}",
        "ratio": f"{goal} {reference}, within a factor of {1 + slack:.3g}",
        "rises": f"> {_times(1 + slack)}{reference}",
        "falls": f"< {_times(1 - slack)}{reference}",
    }[check["rule"]]


def _times(factor: float) -> str:
    return "" if factor == 1 else f"{factor:.3g} × "


def _reference(check: Mapping[str, Any]) -> str:
    """Return the cell that a check compares with, by what sets it apart; empty where there is none."""
    if check["reference_cell"] is None:
        return ""
    architecture, target = check["reference_cell"].split("/")
    if architecture == check["architecture"]:
        return str(target)
    return str(architecture if target == check["target"] else check["reference_cell"])
