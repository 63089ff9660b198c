"""Every claim against every GPU: reported, measured, absent."""

import textwrap

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from gpuatlas.compare.study import REFUSED
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.sheet import COLUMN, MARGIN, Sheet
from gpuatlas.figures.style import (
    ABSENT_EDGE,
    ABSENT_HATCH,
    BLUE,
    DARK,
    LINE,
    ORANGE,
    PURPLE,
    RED,
    hatched,
)

STATUS = {
    "holds": (BLUE, "o", "holds"),
    "partly": (ORANGE, "D", "partly"),
    "contradicted": (RED, "X", "contradicted"),
    "not_in_effect": (PURPLE, "v", "target not in effect"),
}
LETTERS = (
    ("w", 4.5, "window: it gives no verdict"),
    ("?", 4, "captured, but the claim needs more"),
    ("r", 4, "counters refused: no profile"),
)
"""Why nothing was measured of a cell that is not absent: letter, its size in the legend, and its meaning."""
LABELS, TARGETS, ROW = 0.95, 0.5, 0.125
"""Width of the claims' names and of their targets, height of a row, in inches."""


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw a row a claim, a column a GPU: ring = the paper reports it, filled = measured, hatch: absent."""
    study, sheet = inputs.study, Sheet()
    rows = [{**row, "inputs": ";".join(row["inputs"] or [])} for row in inputs.claims("verdicts")]
    columns = list(dict.fromkeys([*study.architectures, *(row["architecture"] for row in rows)]))
    width = (COLUMN - MARGIN - LABELS - TARGETS) / max(len(columns), 1)
    heads = [_column(inputs, name, int(width / 0.065)) for name in columns]
    sheet.text(MARGIN, sheet.y, "claim", fontstyle="italic")
    sheet.text(LABELS, sheet.y, "target", fontstyle="italic")
    for number, head in enumerate(heads):
        x = LABELS + TARGETS + (number + 0.5) * width
        for place, (text, weight) in enumerate(head):
            sheet.text(x, sheet.y + place * LINE, text, ha="center", fontweight=weight)
    sheet.y += LINE * max(len(head) for head in heads) + 0.05
    captured = {(cell.architecture, cell.target) for cell in study.captured()}
    for claim in dict.fromkeys(row["claim"] for row in rows):
        own = [row for row in rows if row["claim"] == claim]
        sheet.page.plot([MARGIN, COLUMN - MARGIN], [sheet.y] * 2, color="#d0d0d0", lw=0.3)
        sheet.text(MARGIN, sheet.y + (ROW - LINE) / 2, claim)
        sheet.text(LABELS, sheet.y + (ROW - LINE) / 2, own[0]["target"])
        for row in own:
            x = LABELS + TARGETS + columns.index(row["architecture"]) * width
            _mark(sheet, x, width, row, captured=(row["architecture"], row["target"]) in captured)
        sheet.y += ROW
    sheet.y += 0.04
    sheet.legend(_handles(), 2)
    return sheet.finish(), rows


def _handles() -> list[Line2D | Rectangle]:
    return [
        Line2D([], [], ls="", marker="o", mfc="none", mec=DARK, mew=0.7, ms=5.5, label="named by the claim"),
        *(
            Line2D([], [], ls="", marker=m, color=c, mec=DARK, mew=0.3, ms=3.6, label=f"measured: {label}")
            for c, m, label in STATUS.values()
        ),
        *(
            Line2D([], [], ls="", marker=f"$\\mathrm{{{letter}}}$", color=DARK, mew=0.1, ms=size, label=label)
            for letter, size, label in LETTERS
        ),
        Rectangle((0, 0), 1, 1, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE, label="absent"),
    ]


def _column(inputs: Inputs, name: str, characters: int) -> list[tuple[str, str]]:
    """Return the lines over a column, each with its weight."""
    entry = inputs.study.architectures.get(name)
    if entry is None:
        return [(name, "bold"), ("not in", "normal"), ("this study", "normal")]
    label = [(line, "bold") for line in textwrap.wrap(str(entry["label"]), characters)]
    analogue = entry.get("analogue_of")
    if not analogue:
        return label
    other = inputs.study.architectures.get(analogue, {}).get("label", analogue)
    return [*label, ("analogue", "normal"), (f"of {other}", "normal")]


def _mark(sheet: Sheet, x: float, width: float, row: dict[str, object], *, captured: bool) -> None:
    """Draw one verdict; of a captured cell what is absent is another one, which the claim needs too."""
    not_measured = row["status"] == "not_measured"
    absent = not_measured and not captured and str(row["explanation"]).startswith("absent")
    centre, y = x + width / 2, sheet.y + ROW / 2
    if absent:
        hatched(sheet.page, x + 0.06 * width, sheet.y + 0.015, 0.88 * width, ROW - 0.03)
    if row["kind"] == "paper_cell":
        sheet.page.plot(centre, y, "o", mfc="white", mec=DARK, mew=0.7, ms=5.5)
    if row["status"] in STATUS:
        colour, marker, _ = STATUS[str(row["status"])]
        sheet.page.plot(centre, y, marker, color=colour, mec=DARK, mew=0.3, ms=3.6)
    elif not absent:
        refused = str(row["explanation"]).startswith(REFUSED)
        letter = "r" if refused else "w" if row["window"] is not None else "?"
        sheet.text(centre, y - LINE / 2, letter, ha="center")
