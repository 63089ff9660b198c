"""How full the SMs are, and what they issue."""

from matplotlib.figure import Figure

from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.panels import by_metric
from gpuatlas.figures.style import BLUE, GREEN, PURPLE, SKY, Bar, bars, empty, notes, sheet, title

OCCUPANCY = {
    "occupancy": ("Achieved occupancy", BLUE, ""),
    "occupancy_limit": ("Theoretical occupancy", SKY, "///"),
    "issue_slots": ("Issue slots used", GREEN, ""),
}
MOST = 3
# Four schedulers an SM, one instruction each a cycle: the limit of every architecture since Volta.
IPC_LIMIT = 4.0


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw occupancy and issue slots in percent, and instructions per cycle below, for each capture."""
    rows = [row for row in inputs.table("summary") if row["metric"] in (*OCCUPANCY, "ipc")]
    rows = [row for row in rows if not (row["reason"] or "").startswith("absent")]
    cells = inputs.captured()
    columns = min(MOST, max(len(cells), 1))
    blocks = -(-max(len(cells), 1) // columns)
    figure, upper, lower = sheet(2.35 * blocks)
    axes = upper.subplots(2 * blocks, columns, squeeze=False, height_ratios=[3, 1] * blocks)
    if not cells:
        axes[1][0].set_visible(False)
        empty(axes[0][0], "No data: every cell is absent")
    for number in range(len(cells), blocks * columns):
        if cells:
            axes[2 * (number // columns)][number % columns].set_visible(False)
            axes[2 * (number // columns) + 1][number % columns].set_visible(False)
    for number, cell in enumerate(cells):
        line, column = 2 * (number // columns), number % columns
        values = by_metric(of_cell(rows, cell))
        entries = [Bar(label, values[name]["value"], c, h) for name, (label, c, h) in OCCUPANCY.items()]
        bars(axes[line][column], entries, 100, labels=column == 0)
        title(axes[line][column], cell, 34)
        axes[line][column].set_xlabel("of the maximum (%)")
        bars(
            axes[line + 1][column],
            [Bar("IPC", values["ipc"]["value"], PURPLE)],
            IPC_LIMIT,
            labels=column == 0,
        )
        axes[line + 1][column].set_xlabel("instructions per active SM cycle")
    notes(lower.subplots(), inputs.study, "Occupancy: time-weighted means. IPC: ratio of sums.")
    return figure, rows
