"""Where the GPU time of each capture goes, by kernel class."""

from collections.abc import Sequence

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, small_multiples
from gpuatlas.figures.style import CLASS_STYLE, Bar

NOTE = "–: no such kernel in the capture."


def draw(inputs: Inputs) -> Drawn:
    """Draw each class's share of a capture's GPU time; classes that occur nowhere are left out."""
    rows = [row for row in inputs.table("classes") if row["metric"] == "time_share"]
    present = {row["name"] for row in rows}
    order = [name for name in CLASS_STYLE if name in present]

    def entries(_: Cell, found: Rows) -> Sequence[Bar]:
        shares = {row["name"]: row["value"] for row in found}
        titles = {name: catalog.load().class_title(name) for name in order}
        return [
            Bar(titles[name], shares.get(name, 0.0), *CLASS_STYLE[name], text="" if name in shares else "–")
            for name in order
        ]

    return small_multiples(
        inputs, rows, entries, xlabel="share of the capture's GPU time (%)", limit=100, note=NOTE
    )
