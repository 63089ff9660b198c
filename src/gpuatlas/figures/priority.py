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
from gpuatlas.figures.style import CLASSES, DARK, DROP, LINE, ends, hatched, inches, nice, scale, short

TOP, TOP_OF_MANY, MANY = 8, 3, 4
KEY_COLUMNS = 3
NOTE = "Outline: share of GPU time. Filled: priority, this share × the estimated global speed-up."
LABELS, CHARACTERS = 1.75, 34
ROOM = LABELS - MARGIN - 0.04
"""Width in inches of the longest label."""
GAP = 0.03
"""Between a bar and its numbers, in inches."""
WIDTH = COLUMN - MARGIN - LABELS - GAP - inches("88.8 of 88.8")
"""Width in inches of a panel, with room behind it for the numbers of the longest bar."""
# Parts of kernel names that tell nothing apart in a figure.
NOISE = re.compile(r"(?<=elementwise)_kernel|CUDAKernel|_kernel(_cuda)?\b|KernelImplInternal|Kernel\b")

# The layout in the short name of a convolution, behind its precision: what a long label can do without.
LAYOUT = re.compile(r"^(sm\d+ \w+ \w+) (nhwc|nchw)\b")


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw, for the kernels of highest priority, their share of GPU time (outline) and priority (filled)."""
    table, cells, sheet = inputs.table("priority"), inputs.captured(), Sheet()
    top = TOP if len(cells) <= MANY else TOP_OF_MANY
    best = {cell.name: _best(of_cell(table, cell), top) for cell in cells}
    shares = {key(row): row["value"] for row in table if row["metric"] == "time_share"}
    largest = max((shares[key(row)] for rows in best.values() for row in rows), default=1.0)
    limit = nice(largest)
    drawn: Rows = []
    if not cells:
        sheet.empty(NO_DATA)
    classes = {classify(row["name"]) for rows in best.values() for row in rows}
    key_height = LINE * -(-len(classes) // KEY_COLUMNS)
    sheet.balance([_height(rows) for rows in best.values()], after=0.5 + key_height)
    for cell in cells:
        rows, scores = of_cell(table, cell), best[cell.name]
        if not sheet.fits(_height(scores) + LINE):
            _axis(sheet, limit)
            sheet.column()
        mark = "†" if cell.in_effect == "false" else ""
        sheet.heading(inputs.study.architectures[cell.architecture]["label"], LABELS)
        sheet.text(LABELS, sheet.y, f"{cell.target}{mark} · {kind(cell)}")
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
        sheet.y += 0.04
        patches = [
            Rectangle((0, 0), 1, 1, fc=look.colour, hatch=look.hatch, ec=DARK, lw=0.3, label=look.label)
            for name, look in CLASSES.items()
            if name in classes
        ]
        sheet.legend(patches, KEY_COLUMNS)
    sheet.notes(inputs.study, NOTE if cells else "")
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
    sheet.text(LABELS - 0.04, sheet.y, "\n".join(told_apart([name for name, _, _ in found])), ha="right")
    panel = sheet.axes(LABELS, sheet.y, WIDTH, height)
    for place, (name, share, priority) in enumerate(found):
        look = CLASSES[classify(name)]
        panel.barh(place, share, 0.8, fill=False, edgecolor=DARK, linewidth=0.5)
        panel.barh(place, priority, 0.5, color=look.colour, hatch=look.hatch, edgecolor=DARK, linewidth=0.3)
        text = f"{short(priority)} of {short(share)}"
        panel.text(share + GAP * limit / WIDTH, place + DROP / LINE, text)
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


def told_apart(kernels: Sequence[str]) -> list[str]:
    """Return a short label a kernel; kernels of the same one are told apart.

    Their template arguments tell them apart, or where these are too long the words that differ; their lines
    in the panel where even those are.
    """
    labels = [brief(name) for name in kernels]
    for tell in (_arguments, _differences):
        for label in {label for label in labels if labels.count(label) > 1}:
            same = [at for at, other in enumerate(labels) if other == label]
            told = tell(label, [kernels[at] for at in same])
            if all(inches(text) <= ROOM for text in told):
                labels = [told[same.index(at)] if at in same else other for at, other in enumerate(labels)]
    return [
        f"{label[: CHARACTERS - 4]} ({at + 1})" if labels.count(label) > 1 else label
        for at, label in enumerate(labels)
    ]


def _arguments(label: str, kernels: Sequence[str]) -> list[str]:
    """Return a label with each kernel's template arguments, in full."""
    return [label.partition("<")[0] + "".join(name.partition("<")[1:]) for name in kernels]


def _differences(label: str, kernels: Sequence[str]) -> list[str]:
    """Return a label, its front cut as far as needed, with the words of each name that not all have there."""
    words = [re.findall(r"[^\W_]+", name) for name in kernels]
    common = [at for at, column in enumerate(zip(*words, strict=False)) if len(set(column)) == 1]
    ends = [" …" + " ".join(word for at, word in enumerate(own) if at not in common) for own in words]
    while len(label) > CHARACTERS // 3 and any(inches(label + end) > ROOM for end in ends):
        label = "…" + label[2:]
    return [label + end for end in ends]


def brief(kernel: str) -> str:
    """Return a kernel's short name without words that all share; without its layout, or cut, where long."""
    name = NOISE.sub("", short_name(kernel, 100)).replace(" segment_k_off", "").replace("_", " ")
    name = name.replace("segment k on", "seg-k").replace("split k", "split-k")
    if len(name) > CHARACTERS:
        name = LAYOUT.sub(r"\1", name)
    if len(name) <= CHARACTERS:
        return name
    tail = CHARACTERS // 3
    return f"{name[: CHARACTERS - 1 - tail]}…{name[-tail:]}"
