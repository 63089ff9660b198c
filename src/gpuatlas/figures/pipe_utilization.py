"""How busy the arithmetic pipes are: tensor, FMA, ALU, load/store."""

from collections.abc import Sequence

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.panels import Drawn, Part, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREEN, NOT_REPORTED, ORANGE, SKY, Bar

STYLE = {
    "tensor_pipe": (SKY, "////"),
    "fma_pipe": (BLUE, ""),
    "alu_pipe": (ORANGE, ""),
    "lsu_pipe": (GREEN, ""),
}
NOTE = "Hollow: reported, not measured."


def draw(inputs: Inputs) -> Drawn:
    """Draw time-weighted pipe utilisation; numbers that a claim reports are hollow."""
    rows = [row for row in inputs.table("summary") if row["metric"] in STYLE]
    rows = inputs.of_captured(rows)
    reported = [row for row in inputs.claims("reported") if row["metric"] in STYLE]

    def entries(cell: Cell, found: Rows) -> Sequence[Bar]:
        values, printed = by_metric(found), by_metric(of_cell(reported, cell))
        made = []
        for name, (colour, hatch) in STYLE.items():
            label = catalog.load().metrics[name].title.removesuffix(" utilisation")
            row = values.get(name)
            if row is None:
                made.append(Bar(label, None, colour, missing=NOT_REPORTED))
            else:
                hollow = row["source"] == "reported"
                beside = None if hollow or name not in printed else printed[name]["value"]
                made.append(Bar(label, row["value"], colour, hatch, hollow=hollow, reported=beside))
        return made

    return small_multiples(inputs, rows, [Part("of peak (%)", 100, entries)], note=NOTE, reported=reported)
