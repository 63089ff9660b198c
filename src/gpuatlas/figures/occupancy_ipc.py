"""How full the SMs are, and what they issue."""

from collections.abc import Sequence

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import Drawn, Part, by_metric, small_multiples
from gpuatlas.figures.style import BLUE, GREEN, PURPLE, SKY, Bar

SHARES = {
    "occupancy": ("Achieved occup.", BLUE, ""),
    "occupancy_limit": ("Theoretical occup.", SKY, "////"),
    "issue_slots": ("Issue slots used", GREEN, ""),
}
# Four schedulers an SM, one instruction each a cycle: the limit of every architecture since Volta.
IPC_LIMIT = 4.0


def draw(inputs: Inputs) -> Drawn:
    """Draw occupancy and issue slots in percent, and instructions per cycle below, for each capture."""
    rows = [row for row in inputs.table("summary") if row["metric"] in (*SHARES, "ipc")]
    rows = inputs.of_captured(rows)

    def shares(_: Cell, found: Rows) -> Sequence[Bar]:
        values = by_metric(found)
        return [Bar(label, values[name]["value"], c, h) for name, (label, c, h) in SHARES.items()]

    def ipc(_: Cell, found: Rows) -> Sequence[Bar]:
        return [Bar("IPC", by_metric(found)["ipc"]["value"], PURPLE)]

    parts = [Part("of maximum (%)", 100, shares), Part("inst./cycle", IPC_LIMIT, ipc)]
    return small_multiples(inputs, rows, parts)
