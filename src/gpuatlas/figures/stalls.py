"""Why the warps of each capture wait."""

from collections.abc import Sequence

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, Part, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREY, ORANGE, Bar

# The two reasons that the paper's claims speak of stand out.
NAMED = {"stall_long_scoreboard": (BLUE, ""), "stall_math_pipe_throttle": (ORANGE, "////")}
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
                *NAMED.get(name, (GREY, "")),
            )
            for name in catalog.load().stalls
            if name in large
        ]

    return small_multiples(inputs, rows, [Part("cycles/inst.", None, entries)])
