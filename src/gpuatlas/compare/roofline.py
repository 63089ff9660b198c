"""The roofline: operations per second against operations per DRAM byte, under the device's ceilings."""

from collections.abc import Iterator

from gpuatlas.compare import catalog
from gpuatlas.compare.breakdown import groups
from gpuatlas.compare.captures import Capture
from gpuatlas.compare.rollup import evaluate
from gpuatlas.compare.rows import Figure, Row, row

CEILINGS = ("peak_fp32", "peak_tf32", "peak_dram")


def roofline_rows(capture: Capture) -> Iterator[Row]:
    """Yield the ceilings and, for each class, rate (FLOP/s) and intensity (FLOP per DRAM byte).

    Ceilings are the report's own peak rates at the clocks that Nsight Compute set. Operations are those of
    the tensor cores and FP32 instructions; where the report counts no fused multiply-adds apart, an FP32
    instruction counts as two operations, an upper bound that the row's reason states. FP64 and FP16 outside
    the tensor cores do not count.
    """
    known = catalog.load().metrics
    cell = capture.cell
    for name in CEILINGS:
        yield row(cell, cell.scope, "", name, evaluate(known[name], capture, capture.everything()))
    everything = (cell.scope, "", capture.everything())
    for scope, name, where in (everything, *(("class", n, w) for n, w in groups(capture))):
        found = {
            m: evaluate(known[m], capture, where)
            for m in ("tensor_flop", "fp32_flop", "dram_bytes", "gpu_time")
        }
        lost = next((figure.note for figure in found.values() if figure.value is None), None)
        if lost is not None:
            rate = intensity = Figure(None, lost)
        else:
            flop = (found["tensor_flop"].value or 0.0) + (found["fp32_flop"].value or 0.0)
            rate = _over(1e9 * flop, found["gpu_time"].value, found["fp32_flop"].note)
            intensity = _over(flop, found["dram_bytes"].value, found["fp32_flop"].note)
        yield row(cell, scope, name, "flop_rate", rate)
        yield row(cell, scope, name, "intensity", intensity)


def _over(above: float, below: float | None, note: str | None) -> Figure:
    return Figure(above / below, note) if below else Figure(None, "undefined: nothing was counted (0/0)")
