"""Cache hit rates and DRAM throughput of each capture."""

from collections.abc import Sequence

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREEN, SKY, Bar, short

BARS = {
    "l1_hit_rate": ("L1 hit rate", SKY, ""),
    "l2_hit_rate": ("L2 hit rate", BLUE, ""),
    "dram_throughput": ("DRAM throughput", GREEN, "///"),
}


def draw(inputs: Inputs) -> Drawn:
    """Draw L1 and L2 hit rates and DRAM throughput, with the bandwidth in GB/s beside it."""
    wanted = (*BARS, "dram_bandwidth")
    rows = [row for row in inputs.table("summary") if row["metric"] in wanted]
    rows = [row for row in rows if not (row["reason"] or "").startswith("absent")]

    def entries(_: Cell, found: Rows) -> Sequence[Bar]:
        values = by_metric(found)
        made = []
        for name, (label, colour, hatch) in BARS.items():
            value, text = values[name]["value"], ""
            bandwidth = values["dram_bandwidth"]["value"]
            if name == "dram_throughput" and value is not None and bandwidth is not None:
                text = f"{short(value)} ({bandwidth:,.0f} GB/s)"
            made.append(Bar(label, value, colour, hatch, text))
        return made

    means = [r for r in rows if r["metric"].endswith("hit_rate") and "time-weighted" in (r["reason"] or "")]
    note = "Hit rates are time-weighted means of launches: sector counts were not collected." if means else ""
    return small_multiples(
        inputs,
        rows,
        entries,
        xlabel="hit rate; throughput of peak (%)",
        limit=100,
        bar_height=0.22,
        note=note,
    )
