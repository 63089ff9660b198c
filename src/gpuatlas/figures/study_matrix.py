"""The study at a glance: what each cell, architecture × target, is."""

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.panels import grid
from gpuatlas.figures.sheet import MARGIN, Sheet
from gpuatlas.figures.style import (
    ABSENT_EDGE,
    ABSENT_HATCH,
    BLUE,
    DARK,
    LINE,
    ORANGE,
    SKY,
    YELLOW,
    hatched,
    short,
)

KINDS = {
    "whole step": (BLUE, ""),
    "window": (SKY, "...."),
    "coverage unknown": (ORANGE, "xxxx"),
    "not comparable": (YELLOW, "...."),
    "counters refused": ("white", "||||"),
    "absent": ("white", ABSENT_HATCH),
}
UNKNOWN = "in effect: ?"
LABELS, STRIP = 0.74, 0.1
HEIGHT = STRIP + 4 * LINE + 0.04
HEADS = 5 * LINE + 0.05


def kind_of(cell: Cell) -> str:
    """Return what a cell is: one of the words of the legend."""
    if cell.absent:
        return "absent"
    if cell.refused is not None:
        return "counters refused"
    if cell.window is not None:
        return "window"
    if cell.whole_step:
        return "whole step"
    return "coverage unknown" if cell.unknown else "not comparable"


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw a grid with one box a cell: the legend says what it can be; an absent one is hatched."""
    study, sheet = inputs.study, Sheet()
    above: list[str] = []
    lines = grid(study, study.cells, LABELS)
    sheet.balance([HEADS + HEIGHT + 0.06] * len(lines))
    for line in lines:
        targets = [cell.target for cell in line.cells]
        if sheet.room(HEADS + HEIGHT + 0.06) or targets != above:
            _heads(sheet, inputs, line.cells, line.places)
        above = targets
        entry = study.architectures[line.cells[0].architecture]
        analogue = entry.get("analogue_of")
        told = [entry["generation"], f"cc {entry['compute_capability']}"]
        if analogue:
            told += ["analogue", f"of {study.architectures.get(analogue, {}).get('label', analogue)}"]
        below = sheet.heading(line.heading, LABELS) * LINE + 0.015
        sheet.text(MARGIN, sheet.y + below, "\n".join(told))
        for cell, (x, width) in zip(line.cells, line.places, strict=False):
            _box(sheet, cell, x, width)
        sheet.y += HEIGHT + 0.06
    shown = {kind_of(cell) for cell in study.cells}
    handles = [
        Rectangle((0, 0), 1, 1, fc=c, hatch=h, ec=ABSENT_EDGE, label=k)
        for k, (c, h) in KINDS.items()
        if k in shown
    ]
    sheet.legend(handles, 3)
    if any(not cell.absent and _effect(cell) == UNKNOWN for cell in study.cells):
        sheet.lines(f"{UNKNOWN} = the evidence does not tell whether the target took effect.")
    return sheet.finish(), [_row(cell) for cell in study.cells]


def _heads(
    sheet: Sheet, inputs: Inputs, cells: Sequence[Cell], places: Sequence[tuple[float, float]]
) -> None:
    """Write over the columns what each target is, and move below."""
    heads = []
    characters = int(places[0][1] / 0.052)
    for cell in cells:
        label = str(inputs.study.targets[cell.target]["label"])
        known = label.lower() == cell.target
        heads.append(
            [cell.target, *([] if known else textwrap.wrap(label, characters, break_long_words=False))]
        )
    for head, (x, width) in zip(heads, places, strict=False):
        sheet.text(x + width / 2, sheet.y, head[0], ha="center", fontweight="bold")
        sheet.text(x + width / 2, sheet.y + LINE, "\n".join(head[1:]), ha="center")
    sheet.y += LINE * max(len(head) for head in heads) + 0.05


def _box(sheet: Sheet, cell: Cell, x: float, width: float) -> None:
    """Draw a cell: a strip of its kind's colour above what is known of it, or all hatched where absent."""
    kind = kind_of(cell)
    if cell.absent:
        hatched(sheet.page, x, sheet.y, width, HEIGHT)
        sheet.page.text(
            x + width / 2, sheet.y + HEIGHT / 2, kind, ha="center", va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
        return
    colour, hatch = KINDS[kind]
    sheet.page.add_patch(Rectangle((x, sheet.y), width, HEIGHT, fill=False, ec=DARK))
    sheet.page.add_patch(Rectangle((x, sheet.y), width, STRIP, fc=colour, hatch=hatch, ec=DARK))
    sheet.text(x + width / 2, sheet.y + STRIP + 0.02, _text(cell, kind), ha="center")


def _row(cell: Cell) -> dict[str, object]:
    return {
        "architecture": cell.architecture,
        "target": cell.target,
        "kind": kind_of(cell),
        "origin": cell.origin,
        "window": cell.window,
        "coverage": cell.coverage,
        "launches": cell.manifest.get("launches"),
        "gpu_time_ns": cell.manifest.get("gpu_time_ns"),
        "in_effect": None if cell.absent else cell.in_effect,
        "reason": cell.refused or cell.reason,
    }


def _text(cell: Cell, kind: str) -> str:
    """Return what is known of a cell that has a capture, in four short lines."""
    much = "timing only" if cell.refused else f"{cell.manifest.get('launches', 0)} launches"
    if cell.whole_step and cell.coverage is not None:
        much = f"{short(100 * cell.coverage)}% of time"
    what = "coverage ?" if cell.unknown else kind.removeprefix("counters ")
    return "\n".join([what, cell.origin, much, _effect(cell)])


def _effect(cell: Cell) -> str:
    """Return whether a cell's target took effect, by evidence."""
    return {"true": "in effect", "false": "NOT in effect"}.get(cell.in_effect, UNKNOWN)
