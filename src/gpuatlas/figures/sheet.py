"""The sheet that a figure is drawn on: a column of a paper wide, as tall as what is put on it.

What would be taller than a page goes on in a further column beside the first. Places are in inches from the
left of a column and from the top, so that a figure in print has the sizes written here.
"""

import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpuatlas.compare.study import Study
from gpuatlas.figures.style import DROP, LINE, hatched

COLUMN = 3.5
"""Width of a column in inches: that of an IEEE or ACM page, whose two columns are `GUTTER` apart."""
GUTTER = 0.16
TALLEST = 9.0
"""Height of a page in inches."""
MARGIN = 0.03
WRAP = 76
"""Characters of a line of notes."""


class Sheet:
    """A figure that grows downwards; `page` is the column at hand, `y` where its next part begins."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(COLUMN, 1))
        self.y = self._height = MARGIN
        self._columns, self._bottom = 1, TALLEST - MARGIN
        self._pages: list[Axes] = []
        self._placed: list[tuple[Axes, float, float, float, float]] = []
        self.column()

    def column(self) -> None:
        """Begin a column."""
        self._height = max(self._height, self.y)
        self.page = self.figure.add_axes((0, 0, 1, 1), label=f"column {len(self._pages)}")
        self.page.set_axis_off()
        self.page.set_xlim(0, COLUMN)
        self._pages.append(self.page)
        self.y = MARGIN

    def balance(self, heights: Sequence[float], after: float = 0.6) -> None:
        """Let the parts to come, of these heights, fill evenly as many columns as they need.

        What is written below them (`after`: its height, about) shares the last column.
        """
        heights = [*heights, after]
        self._columns = self._count(heights, self._bottom)
        if self._columns > 1:
            tenths = range(1, int(10 * TALLEST))
            even = (n / 10 for n in tenths if self._count(heights, n / 10) == self._columns)
            self._bottom = next(even, self._bottom)

    def _count(self, heights: Sequence[float], bottom: float) -> int:
        """Return how many columns, each down to `bottom`, parts of these heights need."""
        columns, y = 1, self.y
        for height in heights:
            if y > MARGIN and y + height > bottom:
                columns, y = columns + 1, MARGIN
            y += height
        return columns

    def fits(self, height: float) -> bool:
        """Tell whether a part of that height ends in the column at hand; its first always does."""
        last = len(self._pages) >= self._columns
        return self.y == MARGIN or self.y + height <= (TALLEST - MARGIN if last else self._bottom)

    def room(self, height: float) -> bool:
        """Begin a column if a part of that height does not fit into this one; tell whether that was so."""
        full = not self.fits(height)
        if full:
            self.column()
        return full

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Return axes in a box given by its upper left corner and its size."""
        axes = self.figure.add_axes((0, 0, 1, 1), label=str(len(self._placed)))
        left = (len(self._pages) - 1) * (COLUMN + GUTTER)
        self._placed.append((axes, left + x, y, width, height))
        return axes

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        """Write lines of text, the first one in the line whose top is at `y`."""
        for number, line in enumerate(text.split("\n")):
            self.page.text(x, y + (number + 0.5) * LINE + DROP, line, **how)

    def heading(self, text: str, room: float) -> int:
        """Write the name of a GPU at the left, in lines that fit into `room` inches; return their number."""
        wrapped = textwrap.wrap(text, max(5, int((room - MARGIN) / 0.068)))
        self.text(MARGIN, self.y, "\n".join(wrapped), fontsize=7.5, fontweight="bold")
        return len(wrapped)

    def lines(self, text: str, indent: float = 0.0) -> None:
        """Write wrapped text and move below it."""
        wrapped = textwrap.wrap(text, int(WRAP * (1 - indent / COLUMN)), break_on_hyphens=False)
        for line in wrapped:
            self.room(LINE)
            self.text(MARGIN + indent, self.y, line)
            self.y += LINE

    def empty(self, text: str) -> None:
        """Hatch a band and say on it that there is nothing to show."""
        hatched(self.page, MARGIN, self.y, COLUMN - 2 * MARGIN, 0.8)
        self.page.text(
            COLUMN / 2, self.y + 0.4, text, ha="center", va="center", fontsize=7,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 3},
        )  # fmt: skip
        self.y += 0.88

    def legend(self, handles: Sequence[Artist], columns: int) -> None:
        """Explain marks, in columns, and move below."""
        height = 0.03 + 0.109 * -(-len(handles) // columns)
        self.room(height)
        self.page.legend(
            handles=handles, ncols=columns, loc="upper left", bbox_to_anchor=(0, self.y),
            bbox_transform=self.page.transData, mode=None, borderpad=0.1, borderaxespad=0.2,
            labelspacing=0.3, columnspacing=0.9, handletextpad=0.4, handlelength=1.6, handleheight=0.8,
        )  # fmt: skip
        self.y += height

    def notes(self, study: Study, *extra: str, reported: Collection[str] = ()) -> None:
        """Write in a few words what holds for all panels, and which cells are absent.

        Parameters
        ----------
        study
            The study.
        *extra
            Sentences that this figure needs to be read; what explains it otherwise is its caption's.
        reported
            Names of absent cells for which the figure shows reported numbers.
        """
        self.y += 0.05
        captured = study.captured()
        told = list(filter(None, extra))
        if any(cell.window for cell in captured):
            told.append("Windows: first launches only, not comparable.")
        if any(cell.unknown for cell in captured):
            told.append("Imported: coverage unknown, not comparable.")
        if any(cell.whole_step and cell.coverage is not None for cell in captured):
            told.append("step N%: a whole step, N% of its GPU time measured.")
        if idle := [cell.name for cell in captured if cell.in_effect == "false"]:
            told.append(f"†: target NOT in effect ({', '.join(idle)}).")
        if len({tuple(sorted((c.manifest.get("versions") or {}).items(), key=str)) for c in captured}) > 1:
            told.append("The cells' software stacks differ.")
        if refused := [cell.name for cell in study.cells if cell.refused is not None]:
            told.append(f"Counters refused, not profiled: {', '.join(refused)}.")
        self.lines(" ".join(told))
        if absent := absent_cells(study, reported):
            self.room(LINE)
            hatched(self.page, MARGIN, self.y + 0.01, 0.2, 0.085)
            self.lines(absent, indent=0.25)

    def finish(self) -> Figure:
        """Give the figure its size and every part its place."""
        height = max(self._height, self.y) + MARGIN
        width = len(self._pages) * (COLUMN + GUTTER) - GUTTER
        self.figure.set_size_inches(width, height)
        for number, page in enumerate(self._pages):
            page.set_ylim(height, 0)
            page.set_position((number * (COLUMN + GUTTER) / width, 0, COLUMN / width, 1))
        for axes, x, y, wide, tall in self._placed:
            axes.set_position((x / width, 1 - (y + tall) / height, wide / width, tall / height))
        return self.figure


def absent_cells(study: Study, reported: Collection[str] = ()) -> str:
    """Return which cells have no capture, by GPU; 'all' where a GPU has none at all.

    Cells for which `reported` numbers are shown are left out.
    """
    parts = []
    for name, entry in study.architectures.items():
        own = [cell for cell in study.cells if cell.architecture == name]
        missing = [cell.target for cell in own if cell.absent and cell.name not in reported]
        if missing:
            parts.append(f"{entry['label']} {'(all)' if len(missing) == len(own) else ', '.join(missing)}")
    return "absent: " + " · ".join(parts) if parts else ""
