"""Where the GPU time of each capture goes, by kernel class."""

from collections.abc import Sequence

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, Part, small_multiples
from gpuatlas.figures.style import CLASSES, Bar

NOTE = "–: no such kernel."


def draw(inputs: Inputs) -> Drawn:
    """Draw each class's share of a capture's GPU time; classes that occur nowhere are left out."""
    rows = [row for row in inputs.table("classes") if row["metric"] == "time_share"]
    present = {row["name"] for row in rows}
    order = [(name, look) for name, look in CLASSES.items() if name in present]

    def entries(_: Cell, found: Rows) -> Sequence[Bar]:
        shares = {row["name"]: row["value"] for row in found}
        return [
            Bar(look.label, shares.get(name, 0.0), look.colour, look.hatch, "" if name in shares else "–")
            for name, look in order
        ]

    return small_multiples(inputs, rows, [Part("GPU time (%)", 100, entries)], note=NOTE)
