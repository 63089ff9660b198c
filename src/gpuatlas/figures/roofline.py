"""The roofline of each capture, one point a kernel class."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpuatlas.compare import catalog
from gpuatlas.figures.inputs import Inputs, Rows, of_cell
from gpuatlas.figures.style import CLASS_STYLE, DARK, empty, notes, sheet, title

MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8", "H", "o"]
MOST = 3
SPAN = (1e-2, 1e4)
FLOOR = 1e9


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw rate over intensity under the device's ceilings; classes below 1 GFLOP/s lie outside the axes."""
    rows = inputs.table("roofline")
    cells = inputs.captured()
    columns = min(MOST, max(len(cells), 1))
    lines = -(-max(len(cells), 1) // columns)
    present = [c for c in catalog.load().classes if any(row["name"] == c.name for row in rows)]
    style = {
        c.name: (CLASS_STYLE[c.name][0], MARKERS[number]) for number, c in enumerate(catalog.load().classes)
    }
    figure, upper, lower = sheet(2.6 * lines, 1.15)
    axes = upper.subplots(lines, columns, squeeze=False).ravel().tolist()
    if not cells:
        empty(axes[0], "No data: every cell is absent")
    for spare in axes[max(len(cells), 1) :]:
        spare.set_visible(False)
    for panel, cell in zip(axes, cells, strict=False):
        _panel(panel, of_cell(rows, cell), style)
        title(panel, cell, 34)
    below = lower.subplots(2, 1, height_ratios=[2, 1.6])
    below[0].set_axis_off()
    handles = [
        Line2D(
            [],
            [],
            ls="",
            marker=style[c.name][1],
            color=style[c.name][0],
            mec=DARK,
            mew=0.4,
            ms=5,
            label=c.title,
        )
        for c in present
    ]
    below[0].legend(handles=handles, loc="center", ncols=4, columnspacing=1.0, handletextpad=0.2)
    bound = any("upper bound" in (row["reason"] or "") for row in rows)
    note = (
        "FP32 instructions count as 2 operations, an upper bound: multiply-adds were not counted apart."
        if bound
        else ""
    )
    notes(below[1], inputs.study, note)
    return figure, rows


def _panel(axes: Axes, rows: Rows, style: dict[str, tuple[str, str]]) -> None:
    """Draw the ceilings and the points of one capture."""
    whole = {row["metric"]: row["value"] for row in rows if row["scope"] != "class"}
    top = FLOOR
    memory = whole.get("peak_dram")
    for name, label, dash in (("peak_tf32", "TF32", "--"), ("peak_fp32", "FP32", "-")):
        peak = whole.get(name)
        if peak is None:
            continue
        top = max(top, peak)
        start = max(peak / memory, SPAN[0]) if memory else SPAN[0]
        axes.plot(
            [start, SPAN[1]], [peak, peak], dash, color=DARK, label=f"{label} {peak / 1e12:.0f} TFLOP/s"
        )
    if memory is not None:
        end = min(top / memory, SPAN[1])
        edge = [SPAN[0] * memory, end * memory]
        axes.plot([SPAN[0], end], edge, ":", color=DARK, label=f"DRAM {memory / 1e12:.1f} TB/s")
    classes: dict[str, dict[str, float | None]] = {}
    for row in rows:
        if row["scope"] == "class":
            classes.setdefault(row["name"], {})[row["metric"]] = row["value"]
    for name, point in classes.items():
        rate, intensity = point.get("flop_rate"), point.get("intensity")
        if rate and intensity:
            colour, marker = style[name]
            axes.plot(intensity, rate, marker, color=colour, mec=DARK, mew=0.4, ms=5)
    if not any(p.get("flop_rate") for p in classes.values()):
        axes.text(
            0.5,
            0.4,
            "operations or traffic\nnot collected",
            transform=axes.transAxes,
            ha="center",
            backgroundcolor="white",
        )
    if any(whole.get(name) for name in ("peak_tf32", "peak_fp32", "peak_dram")):
        axes.legend(loc="lower right", fontsize=6.5, handlelength=2, borderaxespad=0.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*SPAN)
    axes.set_ylim(FLOOR, 10 ** math.ceil(math.log10(top * 1.5)))
    axes.grid(visible=True, which="major", axis="both")
    axes.set_xlabel("FLOP per byte of DRAM traffic")
    axes.set_ylabel("FLOP/s")
