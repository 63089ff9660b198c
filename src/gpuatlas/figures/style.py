"""What figures look like: colours, hatches and marks of the kernel classes, bars, numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

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
    "reduction": Look("Reduction", ORANGE, "////", "s"),
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
    """Return a number as written on a bar: three significant digits, two decimals at most."""
    if value == 0:
        return "0"
    if abs(value) < 0.005:
        return "<0.01"
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


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


def bars(axes: Axes, entries: Sequence[Bar], limit: float, inches: float) -> None:
    """Draw horizontal bars, the first on top, each with its number.

    Parameters
    ----------
    axes
        The panel.
    entries
        The bars.
    limit
        End of the axis.
    inches
        Width of the panel, to tell on which side of a bar's end its number fits.
    """
    character = limit * 0.6 * SMALL / 72 / inches
    gap = limit * 0.03 / inches
    for place, bar in enumerate(entries):
        if bar.value is None and bar.missing == NOT_REPORTED:
            axes.text(gap, place + DROP / LINE, bar.missing, color=ABSENT_EDGE)
            continue
        if bar.value is None:
            hatched(axes, 0, place - 0.4, limit, 0.8)
            axes.text(limit / 2, place + DROP / LINE, bar.missing, ha="center", bbox=_paper(0.5))
            continue
        hollow: dict[str, Any] = {"color": "none", "edgecolor": bar.colour, "linewidth": 0.9}
        filled: dict[str, Any] = {"color": bar.colour, "edgecolor": DARK, "linewidth": 0.3}
        axes.barh(place, bar.value, 0.8, hatch=bar.hatch, **(hollow if bar.hollow else filled))
        text = bar.text or short(bar.value)
        end = bar.value if bar.reported is None else max(bar.value, bar.reported + 2 * gap)
        inside = end + gap + len(text) * character > limit
        axes.text(
            min(bar.value, limit) - gap if inside else end + gap, place + DROP / LINE, text,
            ha="right" if inside else "left", bbox=_paper(0.3) if inside else None,
        )  # fmt: skip
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


def ends(axes: Axes, limit: float) -> None:
    """Label an axis at its ends and its middle, the ends' labels within the panel."""
    axes.set_xticks([0, limit / 2, limit], ["0", scale(limit / 2), scale(limit)])
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def scale(value: float) -> str:
    """Return a number as written at an axis: thousands and more with k, to be short."""
    return f"{value:g}" if value < 1000 else f"{value / 1000:g} k"


def _paper(pad: float) -> dict[str, object]:
    return {"facecolor": "white", "edgecolor": "none", "pad": pad, "alpha": 0.92}
