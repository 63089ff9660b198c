"""Which kernels to look at first: share of GPU time times the speed-up that the report's rules estimate."""

from collections.abc import Iterator

import numpy as np

from gpuatlas.compare.breakdown import share
from gpuatlas.compare.captures import Capture, Floats
from gpuatlas.compare.rows import Figure, Row, row

NOT_COLLECTED = "not collected: the report holds no rule results"
NO_ESTIMATE = Figure(None, "no estimate")


def _largest(capture: Capture, kind: str) -> Floats:
    """Return for each launch the largest estimate of one kind in percent of its time; NaN if none.

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
    kernel's launches of GPU time times the launch's largest *global* estimate. Local estimates speak of one
    part of the SM only; they are listed apart (``speedup_local``, a time-weighted mean) and never enter the
    score. Without rule results there is no score, which is not the same as no advice.
    """
    cell = capture.cell
    if not capture.rules:
        yield row(cell, cell.scope, "", "priority", Figure(None, NOT_COLLECTED))
        return
    estimates = {kind: _largest(capture, kind) for kind in ("global", "local")}
    time = capture.own_time
    kernels = list(dict.fromkeys(capture.kernels.tolist()))
    scores: dict[str, float] = {}
    for name in kernels:
        where = (capture.kernels == name) & ~np.isnan(estimates["global"])
        if where.any():
            scores[name] = float((time[where] * estimates["global"][where]).sum() / capture.whole_time)
    total = Figure(sum(scores.values())) if scores else Figure(None, "no rule estimates a global speed-up")
    yield row(cell, cell.scope, "", "priority", total)
    for name in sorted(kernels, key=lambda kernel: -scores.get(kernel, -1.0)):
        mask = capture.kernels == name
        score = Figure(scores[name]) if name in scores else NO_ESTIMATE
        yield row(cell, "kernel", name, "priority", score)
        yield row(cell, "kernel", name, "time_share", Figure(share(capture, mask)))
        for kind, percent in estimates.items():
            where = mask & ~np.isnan(percent)
            timed = time[where].sum() > 0
            mean = Figure(float(np.average(percent[where], weights=time[where]))) if timed else NO_ESTIMATE
            yield row(cell, "kernel", name, f"speedup_{kind}", mean)
