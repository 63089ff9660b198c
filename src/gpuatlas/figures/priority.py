"""Which kernels to look at first, capture by capture."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpuatlas.compare.kernels import classify, short_name
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.style import CLASS_STYLE, DARK, empty, notes, sheet, short

TOP, TOP_OF_MANY, MANY = 8, 5, 4


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw, for the kernels of highest priority, their share of GPU time (outline) and priority (filled)."""
    table = inputs.table("priority")
    cells = inputs.captured()
    top = TOP if len(cells) <= MANY else TOP_OF_MANY
    best = {cell.name: _best(of_cell(table, cell), top) for cell in cells}
    heights = [0.55 + 0.17 * max(len(best[cell.name]), 2) for cell in cells] or [1.5]
    figure, upper, lower = sheet(sum(heights))
    axes = upper.subplots(len(heights), 1, squeeze=False, height_ratios=heights).ravel().tolist()
    if not cells:
        empty(axes[0], "No data: every cell is absent")
    drawn: Rows = []
    for panel, cell in zip(axes, cells, strict=False):
        rows, scores = of_cell(table, cell), best[cell.name]
        panel.set_title(f"{cell.name} — {cell.describe()}", fontsize=7)
        if not scores:
            reason = next((r["reason"] for r in rows if r["metric"] == "priority"), "no estimate")
            empty(panel, reason)
            drawn += [r for r in rows if r["metric"] == "priority"]
            continue
        shares = {r["name"]: r["value"] for r in rows if r["metric"] == "time_share"}
        longest = max(shares[r["name"]] for r in scores)
        for place, row in enumerate(scores):
            colour, hatch = CLASS_STYLE[classify(row["name"])]
            panel.barh(place, shares[row["name"]], 0.74, fill=False, edgecolor=DARK, linewidth=0.6)
            panel.barh(place, row["value"], 0.5, color=colour, hatch=hatch, edgecolor=DARK, linewidth=0.4)
            panel.text(
                shares[row["name"]] + 0.012 * longest,
                place,
                f"{short(row['value'])} of {short(shares[row['name']])}",
                va="center",
                fontsize=6.5,
            )
        names = _labels([row["name"] for row in scores])
        panel.set_yticks(range(len(scores)), names)
        panel.set_ylim(max(len(scores), 2) - 0.5, -0.5)
        panel.set_xlim(0, 1.18 * longest)
        kept = {row["name"] for row in scores}
        drawn += [r for r in rows if r["name"] in kept]
    upper.supxlabel("share of the capture's GPU time (%)" if cells else "", fontsize=7.5)
    handles = [
        Rectangle((0, 0), 1, 1, fill=False, ec=DARK, label="share of GPU time"),
        Rectangle((0, 0), 1, 1, fc="#bbbbbb", ec=DARK, label="priority: share × estimated global speed-up"),
    ]
    upper.legend(handles=handles, loc="outside upper right", ncols=2)
    notes(
        lower.subplots(),
        inputs.study,
        "Colours: kernel classes as in the breakdown. Local estimates do not count.",
    )
    return figure, drawn


def _best(rows: Rows, top: int) -> Rows:
    """Return the scores of the kernels of highest priority, which come first in the table."""
    scores = [r for r in rows if r["metric"] == "priority" and r["scope"] == "kernel"]
    return [row for row in scores if row["value"] is not None][:top]


def _labels(kernels: Sequence[str]) -> list[str]:
    """Return a label a kernel, told apart by their last template argument where the short names are equal."""
    labels = [short_name(name) for name in kernels]
    return [
        f"{label} <…{name.rpartition(',')[2]}" if labels.count(label) > 1 and "," in name else label
        for label, name in zip(labels, kernels, strict=True)
    ]
