"""The claims as one step: the comparison's tables in, results/claims/ out."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpuatlas.compare import catalog
from gpuatlas.compare.captures import table_path
from gpuatlas.compare.claimfile import Claim, load_claims
from gpuatlas.compare.claims import LEAST_COVERAGE, CheckResult, Figures, Verdict, judge
from gpuatlas.compare.criteria import SIGNS, criteria
from gpuatlas.compare.rows import Row, read_rows, sources_of, write_rows, write_table
from gpuatlas.compare.study import Cell, load_study
from gpuatlas.compare.unprofiled import quality_path, timing_path
from gpuatlas.files import write_text
from gpuatlas.tables import schema

STATUSES = ("holds", "partly", "contradicted", "not_in_effect", "not_measured")
WORDS = {
    "holds": "holds",
    "partly": "partly",
    "contradicted": "contradicted",
    "not_in_effect": "not in effect",
    "not_measured": "not measured",
}
INPUTS = ("summary", "classes", "instructions", "stalls")

# What Markdown would not show as it stands: everywhere, and at the beginning of a line.
MARKUP = re.compile(r"[\\`*\[\]<>|#~&$]|(?<![^\W_])_|_(?![^\W_])")
LEADING = re.compile(r"^(\d*)([-+=.)])")

CHECKS = pa.schema(
    [
        pa.field(name, kind, metadata={"description": text})
        for name, kind, text in (
            ("claim", pa.string(), "identifier of the claim"),
            ("text", pa.string(), "the claim in a sentence"),
            ("claimed_in", pa.string(), "where the claim was made"),
            ("check", pa.int16(), "number of the check, from 0; the first is the claim's principal one"),
            ("architecture", pa.string(), "GPU of the cell"),
            ("target", pa.string(), "optimisation target of the cell that is measured"),
            ("kind", pa.string(), "paper_cell or analogue"),
            ("reference_cell", pa.string(), "cell that it is compared with; null if the check needs none"),
            ("metric", pa.string(), "metric of the catalogue"),
            ("classes", pa.string(), "kernel classes that are added; empty: the whole step"),
            ("rule", pa.string(), "at_least, at_most, value, near, ratio, rises or falls"),
            ("status", pa.string(), "holds, partly, contradicted or not_measured"),
            ("value", pa.float64(), "figure of the measured cell"),
            ("reference", pa.float64(), "figure of the reference cell; null if the check needs none"),
            ("measured", pa.float64(), "what is held against expected: the figure, or its ratio"),
            ("expected", pa.float64(), "what the claim says"),
            ("tolerance", pa.float64(), "allowed distance"),
            ("unit", pa.string(), "unit of measured and expected"),
            ("explanation", pa.string(), "the result in a sentence"),
            ("note", pa.string(), "why the check stands for the claim's words"),
        )
    ]
)


def write_claims(results: Path, claims_file: Path) -> dict[str, int]:
    """Write verdicts, the checks behind them, and the reported numbers.

    Parameters
    ----------
    results
        The results folder, after the comparison.
    claims_file
        ``config/claims.yaml``.

    Returns
    -------
    dict
        Number of verdicts by status.

    Raises
    ------
    ConfigError, InputRefused
        If the claims, the study or a table are missing or wrong.
    OSError
        If ``results/claims`` cannot be written.
    """
    claims = load_claims(claims_file)
    study = load_study(results)
    rows = [row for name in INPUTS for row in read_rows(results / "compare" / f"{name}.parquet")]
    verdicts = judge(claims, study, Figures(study, rows))
    folder = results / "claims"
    used = sources_of(results, [results / "compare" / f"{name}.parquet" for name in INPUTS])
    entries = [_entry(verdict, results) for verdict in verdicts]
    kind = schema.with_metadata(
        schema.VERDICTS, {"sources": "\n".join(f"{path}@{value}" for path, value in sorted(used.items()))}
    )
    write_table(folder, "verdicts", pa.Table.from_pylist(entries, schema=kind))
    checks = [_check_entry(result, v.claim) for v in verdicts for result in v.results]
    write_table(folder, "checks", pa.Table.from_pylist(checks, schema=schema.with_metadata(CHECKS, {})))
    write_rows(folder, "reported", map(asdict, _reported(claims)), {})
    write_text(folder / "verdicts.md", markdown(claims, verdicts))
    counts = Counter(verdict.status for verdict in verdicts)
    return {status: counts.get(status, 0) for status in STATUSES}


def _reported(claims: Sequence[Claim]) -> list[Row]:
    known = catalog.load().known
    return [
        Row(r.architecture, r.target, "step", "", r.metric, r.value, known[r.metric].unit, source="reported")
        for claim in claims
        for r in claim.reported
    ]


def _inputs(cells: Sequence[Cell], results: Path) -> list[str]:
    """Return the tables and reports behind a verdict, as path@sha256."""
    found: dict[str, str] = {}
    for cell in cells:
        found.update(
            sources_of(results, [table_path(results, name, cell) for name in ("launches", "metrics")])
        )
        found.update(sources_of(results, [timing_path(results, cell), quality_path(results, cell)]))
        for path, value in (cell.manifest.get("files") or {}).items():
            if path.startswith("capture/report"):
                found[f"cells/{cell.name}/{path}"] = value
    return [f"{path}@{value}" for path, value in sorted(found.items())]


def _evidence(cell: Cell) -> str | None:
    """Return what shows that the target was in effect, in words."""
    if cell.absent:
        return None
    evidence = cell.manifest.get("evidence") or {}
    seen = "; ".join(_observed(check) for check in evidence.get("checks") or [])
    source = f", from {', '.join(evidence['source'])}" if evidence.get("source") else ""
    return f"in effect: {cell.in_effect}{source}" + (f" ({seen})" if seen else "")


def _observed(check: Mapping[str, Any]) -> str:
    if check["ok"] is None:
        return f"{check['name']} not observed"
    value = check["observed"]
    shown = f"{value:.3g}" if isinstance(value, float) else value
    return f"{check['name']} {shown} against {check['threshold']}: {'ok' if check['ok'] else 'fails'}"


def _entry(verdict: Verdict, results: Path) -> dict[str, Any]:
    principal = verdict.results[0]
    return {
        "claim": verdict.claim.name,
        "architecture": verdict.cell.architecture,
        "target": verdict.cell.target,
        "kind": verdict.kind,
        "status": verdict.status,
        "measured": principal.measured,
        "expected": principal.expected,
        "tolerance": principal.subject.check.tolerance,
        "unit": principal.unit,
        "coverage": verdict.coverage,
        "window": verdict.window,
        "evidence": _evidence(verdict.cell),
        "explanation": verdict.explanation,
        "inputs": _inputs(verdict.cells, results),
    }


def _check_entry(result: CheckResult, claim: Claim) -> dict[str, Any]:
    subject, check = result.subject, result.subject.check
    return {
        "claim": subject.claim,
        "text": claim.text,
        "claimed_in": claim.source,
        "check": subject.number,
        "architecture": subject.cell.architecture,
        "target": check.target,
        "kind": subject.kind,
        "reference_cell": "/".join(check.reference(subject.cell.architecture)) if check.relative else None,
        "metric": check.metric,
        "classes": " + ".join(check.classes),
        "rule": check.kind,
        "status": result.status,
        "value": result.value,
        "reference": result.reference,
        "measured": result.measured,
        "expected": result.expected,
        "tolerance": check.tolerance,
        "unit": result.unit,
        "explanation": result.explanation,
        "note": check.note,
    }


def markdown(claims: Sequence[Claim], verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a page to read."""
    counts = Counter(verdict.status for verdict in verdicts)
    lines = [
        "# Verdicts",
        "",
        f"{len(claims)} claims, {len(verdicts)} verdicts: "
        + ", ".join(f"{counts.get(status, 0)} {WORDS[status]}" for status in STATUSES)
        + ".",
        "",
        "A claim that speaks of one GPU may be tested on an analogue (another GPU of its generation): that",
        "verdict is listed as *analogue* and never merged with the other. Only whole steps are judged: a",
        "window covers the first launches of a run and is comparable with nothing.",
        "",
        "Partly: a number changes the way that the claim says, but by another amount; or some of a claim's",
        "checks hold and others do not, or could not be measured. No verdict rests on a profile of less than",
        f"{LEAST_COVERAGE:.0%} of a step's GPU time.",
        "",
        "Coverage: how much of a step's GPU time was profiled; of two cells that are compared, the lesser.",
        "",
        SIGNS,
        "",
    ]
    for claim in claims:
        own = [verdict for verdict in verdicts if verdict.claim is claim]
        lines += [f"## {claim.name}", "", f"> {plain(f'{claim.text} ({claim.source})')}", "", "Expected:", ""]
        checks = [_check_entry(result, claim) for result in own[0].results]
        for criterion in criteria(checks, claim.target):
            text = f"{'; '.join(criterion.titles)}: {criterion.expected}"
            lines.append(f"- {plain(text + (f' ({criterion.note})' if criterion.note else ''))}")
        lines += ["", "| cell | kind | verdict | coverage | why |", "|---|---|---|---|---|"]
        for verdict in own:
            cells = (
                verdict.cell.name,
                "analogue" if verdict.kind == "analogue" else plain(f"as in {claim.source}"),
                f"**{WORDS[verdict.status]}**",
                "–" if verdict.coverage is None else f"{verdict.coverage:.1%}",
                plain(verdict.explanation),
            )
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return a text as one line of Markdown that shows it as it is, in a table too."""
    escaped = MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
    return LEADING.sub(r"\1\\\2", escaped)
