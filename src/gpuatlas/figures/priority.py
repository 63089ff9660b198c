"""Which kernels to look at first, capture by capture."""

import re
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpuatlas.compare.kernels import classify, short_name
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.panels import NO_DATA, kind
from gpuatlas.figures.sheet import COLUMN, MARGIN, Sheet
from gpuatlas.figures.style import CLASSES, DARK, DROP, LINE, SMALL, ends, hatched, nice, scale, short

TOP, TOP_OF_MANY, MANY = 8, 3, 4
LABELS, CHARACTERS = 1.75, 34
WIDTH = COLUMN - MARGIN - LABELS
# Parts of kernel names that tell nothing apart in a figure.
NOISE = re.compile(r"(?<=elementwise)_kernel|CUDAKernel|_kernel(_cuda)?\b|KernelImplInternal|Kernel\b")


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw, for the kernels of highest priority, their share of GPU time (outline) and priority (filled)."""
    table, cells, sheet = inputs.table("priority"), inputs.captured(), Sheet()
    top = TOP if len(cells) <= MANY else TOP_OF_MANY
    best = {cell.name: _best(of_cell(table, cell), top) for cell in cells}
    shares = {key(row): row["value"] for row in table if row["metric"] == "time_share"}
    largest = max((shares[key(row)] for rows in best.values() for row in rows), default=1.0)
    limit = min(100.0, nice(1.6 * largest))  # with room for the numbers beside the longest bar
    handles = [
        Rectangle((0, 0), 1, 1, fill=False, ec=DARK, label="share of GPU time"),
        Rectangle((0, 0), 1, 1, fc="#bbbbbb", ec=DARK, label="priority: share × estimated global speed-up"),
    ]
    drawn: Rows = []
    if cells:
        sheet.legend(handles, 2)
    else:
        sheet.empty(NO_DATA)
    sheet.balance([_height(rows) for rows in best.values()])
    for cell in cells:
        rows, scores = of_cell(table, cell), best[cell.name]
        if not sheet.fits(_height(scores) + LINE):
            _axis(sheet, limit)
            sheet.column()
        mark = "†" if cell.in_effect == "false" else ""
        sheet.text(LABELS, sheet.y, f"{cell.name}{mark} · {kind(cell)}", fontweight="bold")
        sheet.y += LINE + 0.03
        if scores:
            kept = {row["name"] for row in scores}
            drawn += [row for row in rows if row["name"] in kept]
            _panel(sheet, [(row["name"], shares[key(row)], row["value"]) for row in scores], limit)
        else:
            reasons = [row for row in rows if row["metric"] == "priority"]
            drawn += reasons
            hatched(sheet.page, LABELS, sheet.y, WIDTH, LINE)
            sheet.text(MARGIN, sheet.y, next((row["reason"] for row in reasons), "no estimate"))
            sheet.y += LINE + 0.05
    if cells:
        _axis(sheet, limit)
    sheet.notes(inputs.study)
    return sheet.finish(), drawn


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return what a row is about: architecture, target, kernel."""
    return row["architecture"], row["target"], row["name"]


def _height(scores: Rows) -> float:
    """Return the height in inches of a capture's panel with its title."""
    return (1 + max(len(scores), 1)) * LINE + 0.08


def _axis(sheet: Sheet, limit: float) -> None:
    """Write below the last panel the numbers and the unit of the axis that all share."""
    for share, side in ((0.0, "left"), (0.5, "center"), (1.0, "right")):
        sheet.text(LABELS + share * WIDTH, sheet.y, scale(share * limit), ha=side)
    sheet.text(LABELS - 0.04, sheet.y, "share of GPU time (%)", ha="right", fontstyle="italic")
    sheet.y += LINE


def _panel(sheet: Sheet, found: Sequence[tuple[str, float, float]], limit: float) -> None:
    """Draw the kernels of a capture, given by name, share and priority, and move below."""
    height = LINE * len(found)
    sheet.text(LABELS - 0.04, sheet.y, "\n".join(_labels([name for name, _, _ in found])), ha="right")
    panel = sheet.axes(LABELS, sheet.y, WIDTH, height)
    room = limit * 0.6 * SMALL / 72 / WIDTH
    for place, (name, share, priority) in enumerate(found):
        look = CLASSES[classify(name)]
        panel.barh(place, share, 0.8, fill=False, edgecolor=DARK, linewidth=0.5)
        panel.barh(place, priority, 0.5, color=look.colour, hatch=look.hatch, edgecolor=DARK, linewidth=0.3)
        text = f"{short(priority)} of {short(share)}"
        inside = share + (len(text) + 1) * room > limit
        panel.text(
            share + (-0.5 if inside else 0.5) * room, place + DROP / LINE, text,
            ha="right" if inside else "left",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3} if inside else None,
        )  # fmt: skip
    panel.set_ylim(len(found) - 0.5, -0.5)
    panel.set_xlim(0, limit)
    panel.set_yticks([])
    ends(panel, limit)
    panel.tick_params(labelbottom=False)
    sheet.y += height + 0.05


def _best(rows: Rows, top: int) -> Rows:
    """Return the scores of the kernels of highest priority, which come first in the table."""
    scores = [r for r in rows if r["metric"] == "priority" and r["scope"] == "kernel"]
    return [row for row in scores if row["value"] is not None][:top]


def _labels(kernels: Sequence[str]) -> list[str]:
    """Return a short label a kernel, told apart by their last template argument where they are equal."""
    labels = [brief(name) for name in kernels]
    return [
        f"{label} <…{name.rpartition(',')[2]}" if labels.count(label) > 1 and "," in name else label
        for label, name in zip(labels, kernels, strict=True)
    ]


def brief(kernel: str) -> str:
    """Return a kernel's short name without words that all kernels share, cut in its middle where long."""
    name = NOISE.sub("", short_name(kernel, 100)).replace(" segment_k_off", "").replace("_", " ")
    name = name.replace("segment k on", "segment-k").replace("split k", "split-k")
    if len(name) <= CHARACTERS:
        return name
    tail = CHARACTERS // 3
    return f"{name[: CHARACTERS - 1 - tail]}…{name[-tail:]}"
