"""Small multiples: a line of panels a GPU, a column a target, bars or points of one cell in each panel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from gpuatlas.compare.study import Cell, Study
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.sheet import COLUMN, MARGIN, Sheet
from gpuatlas.figures.style import LINE, NOT_REPORTED, Bar, bars, ends, hatched, nice

Drawn = tuple[Figure, Rows]

MOST = 4
"""Panels in a line: more targets continue in lines below, evenly."""
GAP = 0.07
LABELS = 0.97
"""Width in inches of the column of labels that the panels of a line share."""
AXIS = 0.15
"""Height in inches of an axis with its labels."""
TITLES = 2 * LINE + 0.04
"""Height in inches of the titles over a line of panels."""
NO_DATA = "No data: no cell has a profile"


@dataclass(frozen=True)
class Line:
    """A line of panels: the cells of one GPU, with the place and width of each in inches."""

    heading: str
    cells: Sequence[Cell]
    places: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Part:
    """Bars under an axis of their own: the unit of the axis, its end (None: that of the longest bar)."""

    unit: str
    limit: float | None
    entries: Callable[[Cell, Rows], Sequence[Bar]]


def grid(study: Study, shown: Sequence[Cell], left: float) -> list[Line]:
    """Return the lines of panels for the cells shown: a line a GPU, cells of a target below each other.

    Cells between them that have nothing to show keep their place.

    Parameters
    ----------
    study
        The study.
    shown
        Cells with something to show.
    left
        Where the panels begin, in inches.
    """
    names = {cell.name for cell in shown}
    targets = [t for t in study.targets if any(cell.target == t for cell in shown)]
    count = -(-len(targets) // -(-len(targets) // MOST)) if targets else 1
    width = (COLUMN - MARGIN - left - (count - 1) * GAP) / count
    places = [(left + number * (width + GAP), width) for number in range(count)]
    lines: list[Line] = []
    for architecture, entry in study.architectures.items():
        for first in range(0, len(targets), count):
            found = [study.cell(architecture, target) for target in targets[first : first + count]]
            cells = [cell for cell in found if cell is not None]
            if any(cell.name in names for cell in cells):
                lines.append(Line(entry["label"], cells, places))
    return lines


def kind(cell: Cell) -> str:
    """Return what a cell is, short enough for the title of a panel."""
    if cell.absent:
        return "absent"
    if cell.refused is not None:
        return "no counters"
    if cell.window is not None:
        return "window"
    if cell.whole_step:
        return "step" if cell.coverage is None else f"step {cell.coverage:.1%}"
    return cell.origin


def titles(sheet: Sheet, line: Line, reported: frozenset[str] = frozenset()) -> None:
    """Write the GPU at the left and over each panel which cell it shows, and move below."""
    sheet.heading(line.heading, line.places[0][0])
    for cell, (x, _) in zip(line.cells, line.places, strict=False):
        mark = "†" if cell.in_effect == "false" and not cell.absent else ""
        what = "reported" if cell.name in reported else kind(cell)
        sheet.text(x, sheet.y, f"{cell.target}{mark}\n{what}")
    sheet.y += TITLES


def small_multiples(
    inputs: Inputs,
    rows: Rows,
    parts: Sequence[Part],
    *,
    key: Sequence[Artist] = (),
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
    parts
        What each panel consists of, from the top.
    key
        What explains the colours where the bars' labels do not.
    note
        A sentence below the panels.
    reported
        Reported rows: a panel of hollow bars for each cell that has some and no profile.
    """
    study, sheet = inputs.study, Sheet()
    captured = inputs.captured()
    others = [cell for cell in study.cells if not cell.profiled and reported and of_cell(reported, cell)]
    made: dict[str, list[Sequence[Bar]]] = {}
    for cell in [*captured, *others]:
        found = of_cell(rows if cell in captured else reported or [], cell)
        made[cell.name] = [part.entries(cell, found) for part in parts]
    limits = [
        part.limit or nice(max((bar.value or 0.0 for drawn in made.values() for bar in drawn[at]), default=1))
        for at, part in enumerate(parts)
    ]
    count = sum(len(part) for part in next(iter(made.values()), []))
    height = TITLES + count * LINE + len(parts) * (AXIS + 0.03) + 0.02
    lines = grid(study, [*captured, *others], LABELS)
    sheet.balance([height] * len(lines))
    for line in lines:
        sheet.room(height)
        titles(sheet, line, frozenset(cell.name for cell in others))
        _panels(sheet, line, parts, limits, made)
    if not made:
        sheet.empty(NO_DATA)
    elif key:
        sheet.legend(key, len(key))
    stubs = {bar.missing for drawn in made.values() for part in drawn for bar in part if bar.value is None}
    meaning = {"n/c": "n/c: not collected.", NOT_REPORTED: "n/r: not reported."}
    sheet.notes(
        study,
        note if made else "",
        *(meaning[stub] for stub in sorted(stubs)),
        reported=[cell.name for cell in others],
    )
    return sheet.finish(), [*rows, *(row for cell in study.cells for row in of_cell(reported or [], cell))]


def _panels(
    sheet: Sheet,
    line: Line,
    parts: Sequence[Part],
    limits: Sequence[float],
    made: dict[str, list[Sequence[Bar]]],
) -> None:
    """Draw the panels of a line, their labels at the left, and move below."""
    for at, (part, limit) in enumerate(zip(parts, limits, strict=True)):
        labels = next([bar.label for bar in made[cell.name][at]] for cell in line.cells if cell.name in made)
        height = LINE * len(labels)
        sheet.text(LABELS - 0.04, sheet.y, "\n".join(labels), ha="right")
        sheet.text(LABELS - 0.04, sheet.y + height + 0.028, part.unit, ha="right", fontstyle="italic")
        for cell, (x, width) in zip(line.cells, line.places, strict=False):
            if cell.name not in made:
                hatched(sheet.page, x, sheet.y, width, height)
                continue
            axes = sheet.axes(x, sheet.y, width, height)
            bars(axes, made[cell.name][at], limit, width)
            ends(axes, limit)
        sheet.y += height + AXIS + 0.03
    sheet.y += 0.02


def by_metric(rows: Rows) -> dict[str, Any]:
    """Return rows by the name of their metric."""
    return {row["metric"]: row for row in rows}
