"""What the threads of each capture execute."""

from collections.abc import Sequence

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, Part, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, Bar

STYLE = {
    "fp32": (BLUE, ""),
    "integer": (ORANGE, ""),
    "memory": (GREEN, ""),
    "control": (PURPLE, ""),
    "tensor": (SKY, "////"),
    "other": (GREY, "...."),
}


def draw(inputs: Inputs) -> Drawn:
    """Draw the shares of thread instructions by kind, over each whole capture."""
    rows = [
        row
        for row in inputs.table("instructions")
        if row["scope"] != "class" and row["metric"].startswith("instruction_share_")
    ]

    def entries(_: Cell, found: Rows) -> Sequence[Bar]:
        shares = by_metric(found)
        return [
            Bar(metric.title, shares[name]["value"], *STYLE[kind])
            for kind, name, metric in (
                (key.removeprefix("instructions_"), key.replace("instructions_", "instruction_share_"), m)
                for key, m in catalog.load().instructions.items()
            )
        ]

    return small_multiples(inputs, rows, [Part("instructions (%)", 100, entries)])
