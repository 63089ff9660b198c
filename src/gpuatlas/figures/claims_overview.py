"""Every claim against every GPU: reported, measured, absent."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.style import (
    ABSENT_EDGE,
    ABSENT_HATCH,
    BLUE,
    DARK,
    GREY,
    ORANGE,
    PAGE,
    PURPLE,
    RED,
)

STATUS = {
    "holds": (BLUE, "o", "holds"),
    "partly": (ORANGE, "D", "partly"),
    "contradicted": (RED, "X", "contradicted"),
    "not_in_effect": (PURPLE, "v", "target not in effect"),
}


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw a row a claim, a column a GPU: ring = the paper reports it, filled = measured, hatch: absent."""
    study = inputs.study
    rows = inputs.claims("verdicts")
    rows = [{**row, "inputs": ";".join(row["inputs"] or [])} for row in rows]
    claims = list(dict.fromkeys(row["claim"] for row in rows))
    columns = list(dict.fromkeys([*study.architectures, *(row["architecture"] for row in rows)]))
    figure = Figure(figsize=(PAGE, 0.24 * len(claims) + 1.35), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        _mark(axes, columns.index(row["architecture"]), claims.index(row["claim"]), row)
    targets = {row["claim"]: row["target"] for row in rows}
    axes.set_yticks(range(len(claims)), [f"{claim}  ({targets[claim]})" for claim in claims])
    axes.set_xticks(range(len(columns)), [_column(inputs, name) for name in columns])
    axes.xaxis.tick_top()
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(claims) - 0.5, -0.6)
    axes.tick_params(length=0)
    axes.grid(visible=False, axis="x")
    axes.grid(visible=True, axis="y")
    for spine in axes.spines.values():
        spine.set_visible(False)
    handles = [
        Line2D([], [], ls="", marker="o", mfc="none", mec=DARK, ms=9, label="reported by the paper"),
        *(
            Line2D([], [], ls="", marker=m, color=c, mec=DARK, mew=0.4, ms=6, label=f"measured: {label}")
            for c, m, label in STATUS.values()
        ),
        Line2D([], [], ls="", marker="$\\mathrm{w}$", color=DARK, ms=6, label="window: not measured"),
        Line2D([], [], ls="", marker="$\\mathrm{?}$", color=DARK, ms=5, label="captured, not measured"),
        Rectangle((0, 0), 1, 1, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE, label="absent"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.2)
    return figure, rows


def _column(inputs: Inputs, name: str) -> str:
    entry = inputs.study.architectures.get(name)
    if entry is None:
        return f"{name}\n(not in this study)"
    analogue = entry.get("analogue_of")
    if not analogue:
        return str(entry["label"])
    label = inputs.study.architectures.get(analogue, {}).get("label", analogue)
    return "\n".join(textwrap.wrap(f"{entry['label']} (analogue of {label})", 18))


def _mark(axes: Axes, x: int, y: int, row: dict[str, object]) -> None:
    """Draw one verdict."""
    explanation = str(row["explanation"])
    if row["status"] == "not_measured" and explanation.startswith("not measured (absent"):
        axes.add_patch(
            Rectangle((x - 0.3, y - 0.4), 0.6, 0.8, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE, lw=0.3)
        )
    if row["kind"] == "paper_cell":
        axes.plot(x, y, "o", mfc="white", mec=DARK, mew=0.8, ms=9)
    if row["status"] in STATUS:
        colour, marker, _ = STATUS[str(row["status"])]
        axes.plot(x, y, marker, color=colour, mec=DARK, mew=0.4, ms=6)
    elif row["window"] is not None:
        axes.text(x, y, "w", ha="center", va="center", fontsize=7, color=DARK)
    elif not explanation.startswith("not measured (absent"):
        axes.text(x, y, "?", ha="center", va="center", fontsize=7, color=GREY)
