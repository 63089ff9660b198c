"""Why the warps of each capture wait."""

from collections.abc import Sequence

from matplotlib.patches import Rectangle

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, Part, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, DARK, GREY, Bar

# The two reasons that the paper's claims speak of stand out.
NAMED = ("stall_long_scoreboard", "stall_math_pipe_throttle")
LEAST = 0.05


def draw(inputs: Inputs) -> Drawn:
    """Draw stall cycles per issued instruction by Nsight Compute's names of the reasons."""
    rows = [row for row in inputs.table("stalls") if row["scope"] != "class"]
    large = {row["metric"] for row in rows if row["value"] is None or row["value"] >= LEAST}

    def entries(_: Cell, found: Rows) -> Sequence[Bar]:
        values = by_metric(found)
        return [
            Bar(
                name.removeprefix("stall_").replace("_", " "),
                values[name]["value"],
                BLUE if name in NAMED else GREY,
            )
            for name in catalog.load().stalls
            if name in large
        ]

    key = [
        Rectangle((0, 0), 1, 1, fc=BLUE, ec=DARK, lw=0.3, label="named by a claim"),
        Rectangle((0, 0), 1, 1, fc=GREY, ec=DARK, lw=0.3, label="other reasons"),
    ]
    return small_multiples(inputs, rows, [Part("cycles/inst.", None, entries)], key=key)
