"""Colours, hatches and the parts that every figure shares: panels, the strip of absent cells, notes."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from gpuatlas.compare.study import Cell, Study

STYLE = Path(__file__).with_name("gpuatlas.mplstyle")
PAGE = 7.2
"""Width of a figure in inches: both columns of a page."""
FOOTER = 0.5
"""Height in inches of the notes below the panels."""

# Okabe and Ito's colours, told apart with every common colour vision.
BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, RED, PURPLE, GREY = "#E69F00", "#D55E00", "#CC79A7", "#999999"
DARK, ABSENT_EDGE = "#222222", "#8a8a8a"
ABSENT_HATCH = "////"

CLASS_STYLE = {
    "conv_fprop": (BLUE, ""),
    "conv_dgrad": (BLUE, "///"),
    "conv_wgrad": (BLUE, "xxx"),
    "conv_other": (BLUE, "..."),
    "gemm": (SKY, ""),
    "attention": (PURPLE, ""),
    "normalisation": (GREEN, ""),
    "resampling": (YELLOW, ""),
    "elementwise": (ORANGE, ""),
    "reduction": (ORANGE, "///"),
    "layout_cudnn": (RED, ""),
    "layout_torch": (RED, "///"),
    "copy": (GREY, ""),
    "random_fill": (GREY, "///"),
    "optimizer": (GREY, "xxx"),
    "other": (GREY, "..."),
}


@dataclass(frozen=True)
class Bar:
    """A bar of a panel: None is drawn as a hatched stub that says why; hollow bars are reported numbers.

    `reported` is a reported number beside a measured one, drawn as a hollow diamond.
    """

    label: str
    value: float | None
    colour: str
    hatch: str = ""
    text: str = ""
    hollow: bool = False
    reported: float | None = None


def use_style() -> None:
    """Apply the style file to matplotlib, without a display."""
    mpl.use("Agg")
    mpl.rcParams.update(mpl.rc_params_from_file(STYLE, use_default_template=False))


def short(value: float) -> str:
    """Return a number as written on a bar: three significant digits at most."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2f}" if abs(value) >= 0.005 else "<0.01"


def title(axes: Axes, cell: Cell, width: int) -> None:
    """Write over a panel which cell it shows and what that capture is."""
    axes.set_title(textwrap.fill(f"{cell.name} — {cell.describe()}", width), fontsize=7, linespacing=1.25)


def sheet(above: float, below: float = FOOTER) -> tuple[Figure, SubFigure, SubFigure]:
    """Return a figure of page width with a part for panels and a part for notes, heights in inches."""
    figure = Figure(figsize=(PAGE, above + below), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[above, below]).ravel()
    return figure, upper, lower


def grid(
    count: int, row_height: float, *, xlabel: str = "", most: int = 3, footer: float = FOOTER
) -> tuple[Figure, list[Axes], Axes]:
    """Return a figure with `count` panels in rows of at most `most`, and an axes below for notes.

    Parameters
    ----------
    count
        Number of panels; with none, one empty panel is made.
    row_height
        Height of a row in inches.
    xlabel
        Label below all panels.
    most
        Panels in a row.
    footer
        Height of the notes in inches.
    """
    count = max(count, 1)
    columns = min(most, count)
    rows = -(-count // columns)
    figure, upper, lower = sheet(rows * row_height, footer)
    panels = upper.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in panels[count:]:
        spare.set_visible(False)
    if xlabel:
        upper.supxlabel(xlabel, fontsize=7.5)
    return figure, panels[:count], lower.subplots()


def bars(axes: Axes, entries: Sequence[Bar], limit: float | None, *, labels: bool = True) -> None:
    """Draw horizontal bars, the first on top, each with its number.

    Parameters
    ----------
    axes
        The panel.
    entries
        The bars.
    limit
        End of the axis; None: 1.25 times the longest bar.
    labels
        Whether to write the bars' names on the left.
    """
    longest = max((bar.value for bar in entries if bar.value is not None), default=1.0)
    limit = limit or (1.25 * longest if longest > 0 else 1.0)
    for place, bar in enumerate(entries):
        if bar.value is None:
            axes.add_patch(
                Rectangle(
                    (0, place - 0.36), limit, 0.72, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE, lw=0.4
                )
            )
            axes.text(
                limit / 2, place, bar.text or "not collected", ha="center", va="center", fontsize=6.5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )  # fmt: skip
            continue
        axes.barh(
            place,
            bar.value,
            0.72,
            color="none" if bar.hollow else bar.colour,
            hatch=bar.hatch,
            edgecolor=bar.colour if bar.hollow else DARK,
            linewidth=1.1 if bar.hollow else 0.4,
        )
        inside = bar.value > 0.72 * limit
        end = min(
            max(bar.value, 0.0 if bar.reported is None or inside else bar.reported + 0.02 * limit), limit
        )
        axes.text(
            end + (-0.015 if inside else 0.015) * limit,
            place,
            bar.text or short(bar.value),
            ha="right" if inside else "left",
            va="center",
            fontsize=6.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.9} if inside else None,
        )
        if bar.reported is not None:
            axes.plot(min(bar.reported, limit), place, "D", mfc="white", mec=DARK, mew=0.9, ms=4.5, zorder=4)
    axes.set_yticks(range(len(entries)), [bar.label for bar in entries] if labels else [""] * len(entries))
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.set_xlim(0, limit)


def empty(axes: Axes, text: str) -> None:
    """Hatch a panel and say on it that there is nothing to show."""
    axes.set_axis_off()
    axes.add_patch(
        Rectangle((0, 0), 1, 1, transform=axes.transAxes, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE)
    )
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 4},
    )  # fmt: skip


def notes(axes: Axes, study: Study, extra: str = "") -> None:
    """Write below the panels: that windows compare with nothing, and which cells are absent (hatched)."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    captured = study.captured()
    said = []
    if any(cell.window for cell in captured):
        said.append("Windows: not comparable with each other.")
    if len({tuple(sorted((c.manifest.get("versions") or {}).items(), key=str)) for c in captured}) > 1:
        said.append("The cells' software stacks differ.")
    if extra:
        said.append(extra)
    lines = textwrap.wrap(" ".join(said), 150)
    axes.text(0, 1, "\n".join(lines), va="top", fontsize=6.5, linespacing=1.3)
    absent = absent_cells(study)
    if absent:
        axes.add_patch(
            Rectangle((0.0, 0.04), 0.045, 0.34, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE, lw=0.5)
        )
        axes.text(0.055, 0.2, "\n".join(textwrap.wrap(absent, 140)), va="center", fontsize=6.5)


def absent_cells(study: Study) -> str:
    """Return which cells have no capture, by GPU."""
    parts = []
    for name, entry in study.architectures.items():
        missing = [cell.target for cell in study.cells if cell.architecture == name and cell.absent]
        if missing:
            parts.append(f"{entry['label']} {', '.join(missing)}")
    return "absent: " + " · ".join(parts) if parts else ""
