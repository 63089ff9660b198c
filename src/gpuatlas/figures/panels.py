"""Small multiples: a panel of bars for each capture, and for each cell of which numbers are only reported."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.style import Bar, bars, empty, grid, notes, title

Drawn = tuple[Figure, Rows]


def small_multiples(
    inputs: Inputs,
    rows: Rows,
    entries: Callable[[Cell, Rows], Sequence[Bar]],
    *,
    xlabel: str,
    limit: float | None,
    bar_height: float = 0.17,
    note: str = "",
    reported: Rows | None = None,
) -> Drawn:
    """Draw one panel of bars a capture.

    Parameters
    ----------
    inputs
        The results.
    rows
        The rows to draw; they are also what the figure's CSV holds.
    entries
        Makes the bars of a cell from its rows.
    xlabel
        Label of the axis, with its unit.
    limit
        End of the axis; None lets each panel have its own.
    bar_height
        Height of a bar in inches.
    note
        A sentence below the panels.
    reported
        Reported rows: a panel of hollow bars for each cell that has some and no capture.
    """
    study = inputs.study
    captured = inputs.captured()
    others = [cell for cell in study.cells if cell.absent and reported and of_cell(reported, cell)]
    made: list[tuple[Cell, Sequence[Bar]]] = [(cell, entries(cell, of_cell(rows, cell))) for cell in captured]
    made += [(cell, entries(cell, of_cell(reported or [], cell))) for cell in others]
    tallest = max((len(found) for _, found in made), default=4)
    figure, axes, footer = grid(len(made), 0.75 + bar_height * tallest, xlabel=xlabel if made else "")
    if not made:
        empty(axes[0], "No data: every cell is absent")
    for number, (panel, (cell, found)) in enumerate(zip(axes, made, strict=False)):
        bars(panel, found, limit, labels=number % 3 == 0)
        title(panel, cell, 34)
        if cell.absent:
            panel.set_title(
                f"{cell.name} — reported in the paper,\nno capture here", fontsize=7, linespacing=1.25
            )
    notes(footer, study, note)
    return figure, [*rows, *(row for cell in study.cells for row in of_cell(reported or [], cell))]


def by_metric(rows: Rows) -> dict[str, Any]:
    """Return rows by the name of their metric."""
    return {row["metric"]: row for row in rows}
