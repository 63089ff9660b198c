"""The roofline of each capture, one point a kernel class."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.panels import NO_DATA, TITLES, grid, titles
from gpuatlas.figures.sheet import COLUMN, MARGIN, Sheet
from gpuatlas.figures.style import CLASSES, DARK, LINE, Look, hatched, short

LEFT, HEIGHT = 0.42, 1.05
BLOCK = TITLES + HEIGHT + LINE + 0.07
"""Height in inches of a line of panels with its titles and the numbers of its axis."""
X_TICKS = {1e-2: "0.01", 1e1: "10", 1e4: "10 k"}
Y_TICKS = {1e9: "1 G", 1e11: "100 G", 1e13: "10 T", 1e15: "1 P"}
X_SPAN, Y_SPAN = (1e-2, 1e4), (1e9, 4e15)
CEILINGS = (
    ("peak_tf32", "TF32", "--", "TFLOP/s"),
    ("peak_fp32", "FP32", "-", "TFLOP/s"),
    ("peak_dram", "DRAM", ":", "TB/s"),
)


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw rate over intensity under the device's ceilings; classes below 1 GFLOP/s lie outside the axes."""
    rows, cells, sheet = inputs.table("roofline"), inputs.captured(), Sheet()
    lines = grid(inputs.study, cells, LEFT)
    sheet.balance([BLOCK] * len(lines), after=1.3)
    for line in lines:
        if not sheet.fits(BLOCK + LINE):
            _axis(sheet)
            sheet.column()
        titles(sheet, line)
        for cell, (x, width) in zip(line.cells, line.places, strict=False):
            if not cell.profiled:
                hatched(sheet.page, x, sheet.y, width, HEIGHT)
            else:
                _panel(sheet.axes(x, sheet.y, width, HEIGHT), of_cell(rows, cell))
        _rates(sheet)
        sheet.y += BLOCK - TITLES
    if cells:
        _axis(sheet)
        _legend(sheet, rows, cells)
    else:
        sheet.empty(NO_DATA)
    sheet.notes(inputs.study)
    return sheet.finish(), rows


def _axis(sheet: Sheet) -> None:
    """Write below the last line of panels of a column what their horizontal axes show."""
    middle = (LEFT + COLUMN - MARGIN) / 2
    sheet.text(middle, sheet.y - 0.03, "FLOP per byte of DRAM traffic", ha="center", fontstyle="italic")
    sheet.y += LINE


def _rates(sheet: Sheet) -> None:
    """Write the scale of rates at the left of a line of panels."""
    low, high = (math.log10(end) for end in Y_SPAN)
    for value, label in Y_TICKS.items():
        y = sheet.y + HEIGHT * (high - math.log10(value)) / (high - low)
        sheet.text(LEFT - 0.05, y - LINE / 2, label, ha="right")
    sheet.page.text(MARGIN, sheet.y + HEIGHT / 2, "FLOP/s", rotation=90, va="center", fontstyle="italic")


def _legend(sheet: Sheet, rows: Rows, cells: Sequence[Cell]) -> None:
    drawn = {name for cell in cells for name in _points(of_cell(rows, cell))}
    present = [look for name, look in CLASSES.items() if name in drawn]
    handles = [Line2D([], [], label=look.label, **_mark(look)) for look in present]
    # Four panels in a line have no room for units beside the numbers.
    handles += [
        Line2D([], [], ls=dash, color=DARK, label=f"{label} peak ({unit})")
        for _, label, dash, unit in CEILINGS
    ]
    sheet.legend(handles, 3)


def _mark(look: Look) -> dict[str, Any]:
    """Return how a class is marked: one that lies under another shines through."""
    face = to_rgba(look.colour, 0.75)
    return {
        "ls": "", "marker": look.marker, "color": look.colour, "mfc": face, "mec": DARK, "mew": 0.4, "ms": 3.6
    }  # fmt: skip


def _panel(axes: Axes, rows: Rows) -> None:
    """Draw the ceilings and the points of one capture."""
    whole = {row["metric"]: row["value"] for row in rows if row["scope"] != "class"}
    _ceilings(axes, whole)
    for name, (intensity, rate) in _points(rows).items():
        axes.plot(intensity, rate, **_mark(CLASSES[name]))
    if not any(row["value"] for row in rows if row["scope"] == "class" and row["metric"] == "flop_rate"):
        axes.text(0.5, 0.45, "n/c", transform=axes.transAxes, ha="center", backgroundcolor="white")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*X_SPAN)
    axes.set_ylim(*Y_SPAN)
    axes.minorticks_off()
    axes.set_xticks(list(X_TICKS), list(X_TICKS.values()))
    axes.set_yticks(list(Y_TICKS), [""] * len(Y_TICKS))
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axes.grid(visible=True, which="major", axis="both")


def _points(rows: Rows) -> dict[str, tuple[float, float]]:
    """Return intensity and rate of the kernel classes of a capture that lie within the axes."""
    classes: dict[str, dict[str, float | None]] = {}
    for row in rows:
        if row["scope"] == "class":
            classes.setdefault(row["name"], {})[row["metric"]] = row["value"]
    points = {name: (point.get("intensity"), point.get("flop_rate")) for name, point in classes.items()}
    return {
        name: (x, y)
        for name, (x, y) in points.items()
        if x and y and X_SPAN[0] <= x <= X_SPAN[1] and Y_SPAN[0] <= y <= Y_SPAN[1]
    }


def _ceilings(axes: Axes, whole: dict[str, float | None]) -> None:
    """Draw the peak rates of a device and write them at the lower right."""
    memory = whole.get("peak_dram")
    peaks = [(peak, dash) for name, _, dash, _ in CEILINGS[:2] if (peak := whole.get(name))]
    for peak, dash in peaks:
        start = max(peak / memory, X_SPAN[0]) if memory else X_SPAN[0]
        axes.plot([start, X_SPAN[1]], [peak, peak], dash, color=DARK)
    if memory:
        end = min(max((peak for peak, _ in peaks), default=Y_SPAN[1]) / memory, X_SPAN[1])
        axes.plot([X_SPAN[0], end], [X_SPAN[0] * memory, end * memory], ":", color=DARK)
    told = [f"{label} {short(value / 1e12)}" for name, label, *_ in CEILINGS if (value := whole.get(name))]
    axes.text(
        0.98, 0.02, "\n".join(told), transform=axes.transAxes, ha="right", va="bottom", linespacing=1.15
    )
