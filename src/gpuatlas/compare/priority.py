"""Which kernels to look at first: share of GPU time times the speed-up that Nsight Compute's rules estimate."""

from collections.abc import Iterator

import numpy as np

from gpuatlas.compare.breakdown import share
from gpuatlas.compare.captures import Capture, Floats
from gpuatlas.compare.rows import Row, row

NOT_COLLECTED = "not collected: the report holds no rule results"


def _largest(capture: Capture, kind: str) -> Floats:
    """Return for each launch the largest estimate of one kind in percent of its time; NaN where there is none.

    Estimates of several rules for one launch overlap, so they are not added.
    """
    best = np.full(len(capture.kernels), np.nan)
    for estimate in capture.estimates:
        if estimate.kind == kind:
            best[estimate.launch] = np.fmax(best[estimate.launch], estimate.percent)
    return best


def priority_rows(capture: Capture) -> Iterator[Row]:
    """Yield for each kernel its priority and what it is made of.

    ``priority`` is the percentage of the capture's GPU time that the estimate says could go: the sum over the
    kernel's launches of GPU time times the launch's largest *global* estimate. Local estimates speak of one part
    of the SM only; they are listed apart (``speedup_local``, the time-weighted mean) and never enter the score.
    Without rule results there is no score, which is not the same as no advice.
    """
    cell = capture.cell
    if not capture.rules:
        yield row(cell, cell.scope, "", "priority", None, "%", NOT_COLLECTED)
        return
    whole = {kind: _largest(capture, kind) for kind in ("global", "local")}
    time = capture.time
    scores: dict[str, float] = {}
    for name in dict.fromkeys(capture.kernels.tolist()):
        where = (capture.kernels == name) & ~np.isnan(whole["global"])
        if where.any():
            scores[name] = float((time[where] * whole["global"][where]).sum() / time.sum())
    yield row(cell, cell.scope, "", "priority", sum(scores.values()), "%")
    for name in sorted(dict.fromkeys(capture.kernels.tolist()), key=lambda n: -scores.get(n, -1.0)):
        mask = capture.kernels == name
        yield row(
            cell, "kernel", name, "priority", scores.get(name), "%", None if name in scores else "no estimate"
        )
        yield row(cell, "kernel", name, "time_share", share(capture, mask), "%")
        for kind, best in whole.items():
            where = mask & ~np.isnan(best)
            value = float(np.average(best[where], weights=time[where])) if where.any() else None
            yield row(
                cell, "kernel", name, f"speedup_{kind}", value, "%", None if where.any() else "no estimate"
            )
