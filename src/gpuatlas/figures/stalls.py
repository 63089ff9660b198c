"""Why the warps of each capture wait."""

from collections.abc import Sequence

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREY, ORANGE, Bar

# The two reasons that the paper's claims speak of stand out.
NAMED = {"stall_long_scoreboard": BLUE, "stall_math_pipe_throttle": ORANGE}


def draw(inputs: Inputs) -> Drawn:
    """Draw stall cycles per issued instruction; each panel has an axis of its own."""
    rows = [row for row in inputs.table("stalls") if row["scope"] != "class"]

    def entries(_: Cell, found: Rows) -> Sequence[Bar]:
        values = by_metric(found)
        return [
            Bar(metric.title, values[name]["value"], NAMED.get(name, GREY))
            for name, metric in catalog.load().stalls.items()
        ]

    note = "Axes differ from panel to panel. Ratio of sums: all stall cycles over all issued instructions."
    return small_multiples(
        inputs,
        rows,
        entries,
        xlabel="stall cycles per issued instruction",
        limit=None,
        bar_height=0.15,
        note=note,
    )
