"""Why warps wait: stall cycles per issued instruction, as ratios of sums."""

from collections.abc import Iterator

from gpuatlas.compare import catalog
from gpuatlas.compare.breakdown import groups
from gpuatlas.compare.captures import Capture
from gpuatlas.compare.rollup import evaluate
from gpuatlas.compare.rows import Row, row


def stall_rows(capture: Capture) -> Iterator[Row]:
    """Yield the stall reasons of the whole capture and of each kernel class.

    A launch's figure is a ratio over its issued instructions, so each launch is weighted by those: the result
    is the ratio of all stall cycles to all issued instructions.
    """
    everything = (capture.cell.scope, "", capture.everything())
    for scope, name, where in (everything, *(("class", n, w) for n, w in groups(capture))):
        for metric in catalog.load().stalls.values():
            figure = evaluate(metric, capture, where)
            yield row(capture.cell, scope, name, metric.name, figure)
