"""Cache hit rates and DRAM throughput of each capture."""

from collections.abc import Sequence

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, Part, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREEN, SKY, Bar

SHARES = {
    "l1_hit_rate": ("L1 hit rate", SKY, ""),
    "l2_hit_rate": ("L2 hit rate", BLUE, ""),
    "dram_throughput": ("DRAM, of peak", GREEN, "////"),
}
BANDWIDTH = {"dram_bandwidth": ("DRAM bandwidth", GREEN, "////")}


def draw(inputs: Inputs) -> Drawn:
    """Draw L1 and L2 hit rates and DRAM throughput in percent, and the bandwidth in GB/s below."""
    rows = [row for row in inputs.table("summary") if row["metric"] in SHARES | BANDWIDTH]
    rows = inputs.of_captured(rows)

    def shares(_: Cell, found: Rows) -> Sequence[Bar]:
        values = by_metric(found)
        return [Bar(label, values[name]["value"], c, h) for name, (label, c, h) in SHARES.items()]

    def bandwidth(_: Cell, found: Rows) -> Sequence[Bar]:
        values = by_metric(found)
        return [Bar(label, values[name]["value"], c, h) for name, (label, c, h) in BANDWIDTH.items()]

    return small_multiples(
        inputs, rows, [Part("rate, share (%)", 100, shares), Part("GB/s", None, bandwidth)]
    )
