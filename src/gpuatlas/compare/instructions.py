"""The instruction mix: thread instructions by kind, as counts and as shares of all."""

from collections.abc import Iterator

from gpuatlas.compare import catalog
from gpuatlas.compare.breakdown import groups
from gpuatlas.compare.captures import Capture, Mask
from gpuatlas.compare.rollup import evaluate
from gpuatlas.compare.rows import Figure, Row, row


def mix(capture: Capture, where: Mask) -> dict[str, Figure]:
    """Return the number of thread instructions by kind over some launches.

    `other` is the total less the kinds that are counted, so it is there only if all of them are.
    """
    known = catalog.load()
    total = evaluate(known.metrics["thread_instructions"], capture, where)
    kinds = {
        name: evaluate(metric, capture, where)
        for name, metric in known.instructions.items()
        if metric.candidates
    }
    missing = next((f.note for f in (total, *kinds.values()) if f.value is None), None)
    rest = None
    if total.value is not None and missing is None:
        rest = max(total.value - sum(f.value or 0.0 for f in kinds.values()), 0.0)
    return {**kinds, "instructions_other": Figure(rest, missing), "total": total}


def instruction_rows(capture: Capture) -> Iterator[Row]:
    """Yield the instruction mix of the whole capture and of each kernel class."""
    everything = (capture.cell.scope, "", capture.everything())
    for scope, name, where in (everything, *(("class", n, w) for n, w in groups(capture))):
        figures = mix(capture, where)
        total = figures.pop("total")
        for kind, figure in figures.items():
            yield row(capture.cell, scope, name, kind, figure)
        for kind, figure in figures.items():
            part = kind.removeprefix("instructions_")
            value, reason = None, figure.note or total.note
            if figure.value is not None and total.value:
                value, reason = 100.0 * figure.value / total.value, None
            yield row(capture.cell, scope, name, f"instruction_share_{part}", Figure(value, reason))
