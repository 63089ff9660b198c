"""What figures look like: colours, hatches and marks of the kernel classes, bars, numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath

STYLE = Path(__file__).with_name("gpuatlas.mplstyle")
NOT_REPORTED = "n/r"
SMALL = 6.0
"""Smallest type of a figure in points."""
LINE = 0.105
"""Height in inches of a line of text and of a bar with its number."""
DROP = 0.03
"""From the middle of a line of `SMALL` type down to its baseline, in inches."""

# Okabe and Ito's colours, told apart with every common colour vision.
BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, RED, PURPLE, GREY = "#E69F00", "#D55E00", "#CC79A7", "#999999"
DARK, ABSENT_EDGE = "#222222", "#8a8a8a"
ABSENT_HATCH = "/////"


@dataclass(frozen=True)
class Look:
    """How a kernel class is drawn: its short label, colour, hatch in bars and mark in plots."""

    label: str
    colour: str
    hatch: str
    marker: str


CLASSES = {
    "conv_fprop": Look("Conv. forward", BLUE, "", "v"),
    "conv_dgrad": Look("Conv. data grad.", BLUE, "////", "D"),
    "conv_wgrad": Look("Conv. weight grad.", BLUE, "xxxx", "^"),
    "conv_other": Look("Conv., other", BLUE, "....", "P"),
    "gemm": Look("Matrix product", SKY, "", "h"),
    "attention": Look("Attention, softmax", PURPLE, "", "X"),
    "normalisation": Look("Normalisation", GREEN, "", "<"),
    "resampling": Look("Resampling", YELLOW, "", ">"),
    "elementwise": Look("Elementwise", ORANGE, "", "o"),
    "reduction": Look("Reduction", ORANGE, "////", "d"),
    "layout_cudnn": Look("Layout (cuDNN)", RED, "", "s"),
    "layout_torch": Look("Layout (PyTorch)", RED, "////", "o"),
    "copy": Look("Copy, set", GREY, "", "o"),
    "random_fill": Look("Random, fill", GREY, "////", "*"),
    "optimizer": Look("Optimizer", GREY, "xxxx", "P"),
    "other": Look("Other", GREY, "....", "X"),
}


@dataclass(frozen=True)
class Bar:
    """A bar: None is drawn as a hatched stub that says why (`missing`); hollow bars are reported numbers.

    What a source does not report is no gap in what was measured: `NOT_REPORTED` stands without hatching.

    `reported` is a reported number beside a measured one, drawn as a hollow diamond.
    """

    label: str
    value: float | None
    colour: str
    hatch: str = ""
    text: str = ""
    hollow: bool = False
    reported: float | None = None
    missing: str = "n/c"


def use_style() -> None:
    """Apply the style file to matplotlib, without a display."""
    mpl.use("Agg")
    mpl.rcParams.update(mpl.rc_params_from_file(STYLE, use_default_template=False))


def short(value: float) -> str:
    """Return a number as written in a figure: three significant digits, two decimals at most."""
    if value == 0:
        return "0"
    if abs(value) < 0.005:
        return "<0.01"
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"


@cache
def inches(text: str) -> float:
    """Return how wide a text of `SMALL` type is."""
    return float(TextPath((0, 0), text, size=SMALL).get_extents().x1) / 72


def ink(colour: str) -> str:
    """Return white or black, whichever stands out more against a colour by WCAG's contrast ratio."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    light = 0.05 + 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "white" if 1.05 / light > light / 0.05 else "black"


def nice(value: float) -> float:
    """Return an end of an axis that is at least `value` and half of which is as round: 1, 2, 4, 6 × 10ⁿ."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * 0.9999)


def hatched(axes: Axes, x: float, y: float, width: float, height: float) -> None:
    """Draw the sign of what is absent: a hatched, unfilled box."""
    box = Rectangle((x, y), width, height, fill=False, hatch=ABSENT_HATCH, ec=ABSENT_EDGE, lw=0.4)
    axes.add_patch(box)


def bars(axes: Axes, entries: Sequence[Bar], limit: float, width: float) -> None:
    """Draw horizontal bars, the first on top, each with its number.

    Parameters
    ----------
    axes
        The panel.
    entries
        The bars.
    limit
        End of the axis.
    width
        Width of the panel in inches, to tell where a bar's number fits.
    """
    gap = 0.03 * limit / width
    for place, bar in enumerate(entries):
        if bar.value is None and bar.missing == NOT_REPORTED:
            axes.text(gap, place + DROP / LINE, bar.missing, color=ABSENT_EDGE)
            continue
        if bar.value is None:
            hatched(axes, 0, place - 0.4, limit, 0.8)
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.92}
            axes.text(limit / 2, place + DROP / LINE, bar.missing, ha="center", bbox=paper)
            continue
        face, edge, line = ("white", bar.colour, 0.9) if bar.hollow else (bar.colour, DARK, 0.3)
        outline: dict[str, Any] = {"edgecolor": edge, "linewidth": line}
        axes.barh(place, bar.value, 0.8, color="none" if bar.hollow else face, hatch=bar.hatch, **outline)
        text = bar.text or short(bar.value)
        length = inches(text) * limit / width
        start = _start(bar, length, gap, limit)
        inside = start < bar.value
        if inside:  # hatching would cross the number: where it stands the bar is plain, within its edge
            box = (start - gap / 2, place - 0.4), min(length + 1.5 * gap, bar.value - start + gap / 2), 0.8
            axes.add_patch(Rectangle(*box, fc=face, lw=0))
            axes.barh(place, bar.value, 0.8, fill=False, **outline)
        axes.text(start, place + DROP / LINE, text, color=ink(face) if inside else "black")
        if bar.reported is not None:
            axes.plot(
                min(bar.reported, limit),
                place,
                "D",
                mfc="white",
                mec=DARK,
                mew=0.7,
                ms=3.2,
                zorder=4,
                clip_on=False,
            )
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xlim(0, limit)


def _start(bar: Bar, length: float, gap: float, limit: float) -> float:
    """Return where a bar's number starts: behind the bar where it fits, else at the end within it.

    The mark of a reported number, about two gaps wide, is left free.
    """
    end = min(bar.value or 0.0, limit)
    marks = [] if bar.reported is None else [min(bar.reported, limit)]
    places = [end + gap, *(mark + 2 * gap for mark in marks)]
    places += [edge - gap - length for edge in (end, *(mark - gap for mark in marks))]
    for x in places:
        behind = x > end and x + length <= limit + gap  # beside the panel is a little room
        within = x >= 0 and x + length <= end
        if (behind or within) and not any(x - gap < mark < x + length + gap for mark in marks):
            return x
    return end + gap


def ends(axes: Axes, limit: float) -> None:
    """Label an axis at its ends and its middle, the ends' labels within the panel."""
    axes.set_xticks([0, limit / 2, limit], ["0", scale(limit / 2), scale(limit)])
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def scale(value: float) -> str:
    """Return a number as written at an axis: thousands and more with k, to be short."""
    return f"{value:g}" if value < 1000 else f"{value / 1000:g} k"
