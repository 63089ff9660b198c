"""Verdicts: what the measurements say of a claim, cell by cell.

Nothing here compares a window with anything: a figure takes part only if it stands for a whole step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuatlas.compare import catalog
from gpuatlas.compare.claimfile import Check, Claim
from gpuatlas.compare.study import Cell, Study
from gpuatlas.compare.unprofiled import UNPROFILED

LEAST_COVERAGE = 0.8
"""Share of a step's GPU time that must have been profiled for a verdict to rest on the profile."""


@dataclass(frozen=True)
class Measurement:
    """A figure of one cell, with what the measurement was; or why there is none that a claim may use."""

    value: float | None
    note: str | None = None


@dataclass(frozen=True)
class Subject:
    """What a check is about: the claim's name, the check's number, the cell and its kind."""

    claim: str
    number: int
    cell: Cell
    kind: str
    check: Check


@dataclass(frozen=True)
class CheckResult:
    """What one check of a claim says of one cell; `measured` is a ratio for ratio, rises and falls.

    `explanation` is the result in a sentence, or the bare reason why there is none.
    """

    subject: Subject
    status: str
    value: float | None
    reference: float | None
    measured: float | None
    expected: float | None
    unit: str
    explanation: str


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a claim for one cell."""

    claim: Claim
    cell: Cell
    kind: str
    status: str
    explanation: str
    results: tuple[CheckResult, ...]
    cells: tuple[Cell, ...]

    @property
    def profiled(self) -> bool:
        """Whether any of its checks is about a profile."""
        return any(result.subject.check.metric not in UNPROFILED for result in self.results)

    @property
    def window(self) -> str | None:
        """The window that the cell's profile is limited to, where the verdict is about a profile."""
        return self.cell.window if self.profiled else None

    @property
    def coverage(self) -> float | None:
        """Least coverage of the profiles behind the verdict; None if none is known, or none is behind it."""
        if not self.profiled:
            return None
        return min((cell.coverage for cell in self.cells if cell.coverage is not None), default=None)


class Figures:
    """The figures of the comparison, by cell: only what stands for a whole step is handed out."""

    def __init__(self, study: Study, rows: Sequence[Mapping[str, Any]]) -> None:
        self.study = study
        self.whole: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self.by_class: dict[tuple[str, str, str], dict[str, float | None]] = {}
        for row in rows:
            key = (row["architecture"], row["target"], row["metric"])
            if row["scope"] == "class":
                self.by_class.setdefault(key, {})[row["name"]] = row["value"]
            elif row["scope"] in ("step", "capture") and not row["name"]:
                self.whole[key] = row

    def get(self, cell: Cell, metric: str, classes: tuple[str, ...] = ()) -> Measurement:
        """Return a figure of a cell: over the whole step, or summed over kernel classes."""
        key = (cell.architecture, cell.target, metric)
        row = self.whole.get(key)
        if metric in UNPROFILED:
            return Measurement(row["value"], row["reason"]) if row else Measurement(None, cell.absence)
        blocked = not_comparable(cell)
        if blocked is not None:
            return Measurement(None, blocked)
        if classes:
            parts = self.by_class.get(key)
            if not parts:
                return Measurement(None, "not collected")
            values = [parts[name] for name in classes if name in parts]
            known = [value for value in values if value is not None]
            # A class that does not occur has no row: it adds nothing. A null is unknown, and so is the sum.
            return (
                Measurement(sum(known)) if len(known) == len(values) else Measurement(None, "not collected")
            )
        if row is None or row["value"] is None:
            return Measurement(None, (row or {}).get("reason") or "not collected")
        return Measurement(float(row["value"]))


def not_comparable(cell: Cell) -> str | None:
    """Return why no verdict may rest on a cell's profile; None if it stands for a whole step."""
    if not cell.profiled:
        return cell.absence
    if cell.window is not None:
        return "window"
    if not cell.whole_step:
        return "coverage unknown" if cell.coverage is None else "not comparable, by the cell's manifest"
    if cell.coverage is not None and cell.coverage < LEAST_COVERAGE:
        return (
            f"{cell.coverage:.0%} of the step's GPU time was profiled; a verdict needs {LEAST_COVERAGE:.0%}"
        )
    return None


def missing_cell(architecture: str, target: str) -> Cell:
    """Return a cell that the study does not have."""
    return Cell(architecture, target, "absent", "not part of this study")


def judge(claims: Sequence[Claim], study: Study, figures: Figures) -> list[Verdict]:
    """Return a verdict for every claim and cell that it speaks of, analogues apart.

    Parameters
    ----------
    claims
        The claims.
    study
        The study; an architecture with ``analogue_of`` gets verdicts of its own, of kind ``analogue``.
    figures
        What was measured.
    """
    verdicts = []
    for claim in claims:
        for architecture in claim.architectures:
            names = [(architecture, "paper_cell")]
            names += [(name, "analogue") for name in study.analogues(architecture)]
            for name, kind in names:
                cell = study.cell(name, claim.target) or missing_cell(name, claim.target)
                verdicts.append(_verdict(claim, cell, kind, study, figures))
    return verdicts


def _verdict(claim: Claim, cell: Cell, kind: str, study: Study, figures: Figures) -> Verdict:
    used = {cell.name: cell}
    results = []
    for number, check in enumerate(claim.checks):
        measured = _cell(study, cell.architecture, check.target)
        reference = _cell(study, *check.reference(cell.architecture))
        used[measured.name] = measured
        if check.relative:
            used[reference.name] = reference
        subject = Subject(claim.name, number, cell, kind, check)
        results.append(_check(subject, measured, reference, figures))
    cells = tuple(used.values())
    if _idle(cell):
        text = f"{claim.target} did not take effect on {cell.architecture}, by evidence"
        return Verdict(claim, cell, kind, "not_in_effect", text, tuple(results), cells)
    idle = next((c for c in cells if c is not cell and _idle(c)), None)
    if idle is not None:
        text = f"{idle.name} did not take effect, by evidence"
        return Verdict(claim, cell, kind, "not_measured", text, tuple(results), cells)
    return Verdict(claim, cell, kind, *_combine(results), tuple(results), cells)


def _idle(cell: Cell) -> bool:
    """Whether evidence of a whole step says that the target had no effect; part of a step cannot."""
    return not cell.absent and not cell.unknown and cell.in_effect == "false"


def _cell(study: Study, architecture: str, target: str) -> Cell:
    return study.cell(architecture, target) or missing_cell(architecture, target)


def _combine(results: Sequence[CheckResult]) -> tuple[str, str]:
    """Return status and explanation of a claim from its checks."""
    measured = [r for r in results if r.status != "not_measured"]
    lost = [r for r in results if r.status == "not_measured"]
    reasons = list(dict.fromkeys(r.explanation for r in lost))
    if not measured:
        # What the cell itself lacks says it all; what its references lack would only repeat it.
        own = not_comparable(results[0].subject.cell)
        return "not_measured", own if own and own in reasons else "; ".join(reasons)
    text = "; ".join(r.explanation for r in measured)
    if results[0].status == "not_measured":  # the principal check: the others alone do not make a verdict
        return "not_measured", f"{results[0].explanation}; besides: {text}"
    if lost:
        text += f"; {len(lost)} of {len(results)} checks not measured: {'; '.join(reasons)}"
    found = {r.status for r in measured}
    if found == {"holds"} and not lost:
        return "holds", text
    if found == {"contradicted"}:
        return "contradicted", text
    return "partly", text


def _check(subject: Subject, measured: Cell, reference: Cell, figures: Figures) -> CheckResult:
    check = subject.check
    metric = catalog.load().known[check.metric]
    title = catalog.load().title(check.metric, check.classes)
    unit = "×" if check.kind in ("ratio", "rises", "falls") else metric.unit
    expected = 1.0 if check.kind in ("rises", "falls") else check.expected
    value = figures.get(measured, check.metric, check.classes)
    base = figures.get(reference, check.metric, check.classes) if check.relative else Measurement(None)
    needed = [(value, measured), *([(base, reference)] if check.relative else [])]
    lost = next((f"{m.note}{_whose(c, subject.cell)}" for m, c in needed if m.value is None), None)
    if lost is None and unit == "×" and base.value == 0:
        lost = f"{title} of {reference.name} is 0: no ratio"
    if lost is not None or value.value is None:
        return CheckResult(subject, "not_measured", None, None, None, expected, unit, str(lost))
    shown = value.value / base.value if unit == "×" and base.value else value.value
    if check.kind == "near":
        expected = base.value
    status = _status(check, shown, expected)
    text = f"{title} of {measured.name} is {_number(shown)} {unit}"
    if unit == "×":
        text = f"{title} of {measured.name} is {_number(shown)}× that of {reference.name}"
    text += f" ({_words(check, expected, unit)}): {status}" + (f" ({value.note})" if value.note else "")
    return CheckResult(subject, status, value.value, base.value, shown, expected, unit, text)


def _whose(found: Cell, cell: Cell) -> str:
    """Say whose figure is missing, where it is not the claim's own cell."""
    return "" if found.name == cell.name else f", {found.name}"


def _status(check: Check, measured: float, expected: float | None) -> str:
    """Return what one number says: holds, partly or contradicted."""
    goal, slack = expected or 0.0, check.tolerance
    upward = 1 if check.kind == "at_least" else -1
    holds = {
        "value": abs(measured - goal) <= slack,
        "near": abs(measured - goal) <= slack,
        "rises": measured > 1 + slack,
        "falls": measured < 1 - slack,
        "ratio": goal / (1 + slack) <= measured <= goal * (1 + slack),
        "at_least": measured >= goal - slack,
        "at_most": measured <= goal + slack,
    }[check.kind]
    if holds:
        return "holds"
    same_side = check.kind == "ratio" and (measured - 1) * (goal - 1) > 0
    short = check.partly is not None and upward * (measured - check.partly) >= 0
    return "partly" if same_side or short else "contradicted"


def _words(check: Check, expected: float | None, unit: str) -> str:
    """Return what a check expects, in words."""
    goal = "" if expected is None else f"{_number(expected)}{'×' if unit == '×' else ' ' + unit}"
    slack = _number(check.tolerance)
    by_more = f" by more than {_number(100 * check.tolerance)} %" if check.tolerance else ""
    return {
        "at_least": f"claim: at least {goal}",
        "at_most": f"claim: at most {goal}",
        "value": f"claim: {goal} ± {slack}",
        "near": f"claim: as the reference, {goal} ± {slack}",
        "ratio": f"claim: {goal}, within a factor of {_number(1 + check.tolerance)}",
        "rises": f"claim: rises{by_more}",
        "falls": f"claim: falls{by_more}",
    }[check.kind]


def _number(value: float) -> str:
    """Return a number with three significant digits, never in exponents for what people read easily."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.2e}"
