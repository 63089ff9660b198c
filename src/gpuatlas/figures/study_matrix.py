"""The study at a glance: what each cell, architecture × target, is."""

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpuatlas.compare.study import Cell
from gpuatlas.figures.inputs import Inputs, Rows
from gpuatlas.figures.style import ABSENT_EDGE, ABSENT_HATCH, BLUE, DARK, ORANGE, PAGE, SKY

KINDS = {
    "whole step": (BLUE, ""),
    "window": (SKY, "..."),
    "coverage unknown": (ORANGE, "xx"),
    "absent": ("white", ABSENT_HATCH),
}


def kind_of(cell: Cell) -> str:
    """Return what a cell is: one of the words of the legend."""
    if cell.absent:
        return "absent"
    if cell.window is not None:
        return "window"
    return "whole step" if cell.whole_step else "coverage unknown"


def draw(inputs: Inputs) -> tuple[Figure, Rows]:
    """Draw a grid with one box a cell: whole step, window, coverage unknown or absent (hatched)."""
    study = inputs.study
    targets, architectures = list(study.targets), list(study.architectures)
    height = 0.54 * len(architectures) + 0.95
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    axes = figure.subplots()
    rows: Rows = []
    for cell in study.cells:
        x, y = targets.index(cell.target), architectures.index(cell.architecture)
        kind = kind_of(cell)
        colour, hatch = KINDS[kind]
        edge = ABSENT_EDGE if cell.absent else DARK
        axes.add_patch(Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, fc=colour, hatch=hatch, ec=edge, lw=0.6))
        axes.text(
            x, y, _text(cell, kind), ha="center", va="center", fontsize=6.5, linespacing=1.25,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.92},
        )  # fmt: skip
        rows.append(
            {
                "architecture": cell.architecture,
                "target": cell.target,
                "kind": kind,
                "origin": cell.origin,
                "window": cell.window,
                "coverage": cell.coverage,
                "launches": cell.manifest.get("launches"),
                "gpu_time_ns": cell.manifest.get("gpu_time_ns"),
                "in_effect": None if cell.absent else cell.in_effect,
                "reason": cell.reason,
            }
        )
    axes.set_xlim(-0.5, len(targets) - 0.5)
    axes.set_ylim(len(architectures) - 0.5, -0.5)
    axes.set_xticks(range(len(targets)), [_wrap(study.targets[t]["label"], t) for t in targets])
    axes.set_yticks(range(len(architectures)), [_row_label(inputs, a) for a in architectures])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, fc=c, hatch=h, ec=ABSENT_EDGE, label=k) for k, (c, h) in KINDS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=2.2, handleheight=1.1)
    return figure, rows


def _wrap(label: str, name: str) -> str:
    return f"{label}\n({name})"


def _row_label(inputs: Inputs, name: str) -> str:
    entry = inputs.study.architectures[name]
    analogue = entry.get("analogue_of")
    extra = (
        f"\nanalogue of {inputs.study.architectures.get(analogue, {}).get('label', analogue)}"
        if analogue
        else ""
    )
    return f"{entry['label']} ({entry['generation']}, cc {entry['compute_capability']}){extra}"


def _text(cell: Cell, kind: str) -> str:
    """Return what is written in a cell's box."""
    if cell.absent:
        return "absent" if cell.origin == "absent" else f"planned at {cell.site}"
    launches = f"{cell.manifest.get('launches', 0)} launches"
    if kind == "whole step" and cell.coverage is not None:
        launches = f"{cell.coverage:.1%} of GPU time"
    effect = {"true": "in effect", "false": "NOT in effect"}.get(cell.in_effect, "effect unknown")
    return f"{kind} ({cell.origin})\n{launches}\n{effect}"
