"""The study as the workflow describes it: results/study.json and the cells' manifests."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuatlas.config import violation
from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.files import read_json

REMEDY = "delete it and run the workflow again"

_SHARES = {"type": ["object", "null"], "properties": {"time": {"type": ["number", "null"]}}}
_MANIFEST = {
    "type": "object",
    "required": ["cell", "comparable", "window", "coverage", "evidence", "device"],
    "properties": {
        "cell": {"type": "string"},
        "comparable": {"type": "boolean"},
        "window": {"type": ["string", "null"]},
        "coverage": _SHARES,
        "step": {"type": ["object", "null"]},
        "parts": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["launches"],
                "properties": {
                    "launches": {"type": "integer", "minimum": 1},
                    "again": {"type": ["integer", "null"], "minimum": 2},
                    "second": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                },
            },
        },
        "evidence": {"type": "object", "required": ["in_effect", "checks"]},
        "device": {"type": "object"},
    },
}

REFUSED = "counters refused"
"""How a cell without permitted counters is called in tables, verdicts and figures."""


@dataclass(frozen=True)
class Cell:
    """One architecture × target: where its capture comes from and what may be said of it.

    `manifest` is cell.json as read (empty where the cell is absent).
    """

    architecture: str
    target: str
    origin: str
    reason: str | None = None
    site: str | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cell as it is written everywhere, for instance ``a100/opt1``."""
        return f"{self.architecture}/{self.target}"

    @property
    def absent(self) -> bool:
        """Whether nothing is known of the cell."""
        return not self.manifest

    @property
    def refused(self) -> str | None:
        """Why the counters could not be read: the cell then has times and a timeline, and no profile."""
        reason = self.manifest.get("refused")
        return str(reason) if reason else None

    @property
    def profiled(self) -> bool:
        """Whether the cell has a profile, of whatever extent."""
        return not self.absent and self.refused is None

    @property
    def window(self) -> str | None:
        """The window that the capture is limited to; None for anything else."""
        window = self.manifest.get("window")
        return str(window) if window else None

    @property
    def whole_step(self) -> bool:
        """Whether the capture stands for a whole step: only such cells may be compared with each other."""
        return bool(self.manifest.get("comparable")) and self.window is None

    @property
    def coverage(self) -> float | None:
        """Share 0..1 of the step's GPU time whose launch configurations were measured; None if unknown."""
        share = (self.manifest.get("coverage") or {}).get("time")
        return None if share is None else float(share)

    @property
    def unknown(self) -> bool:
        """Whether it is unknown how much of a step the cell's profile covers."""
        return self.profiled and self.window is None and not self.whole_step and self.coverage is None

    @property
    def in_effect(self) -> str:
        """Whether the target took effect, by evidence: ``true``, ``false`` or ``unknown``."""
        return str((self.manifest.get("evidence") or {}).get("in_effect", "unknown")).lower()

    @property
    def scope(self) -> str:
        """How rows over the whole capture are marked: ``step``, or ``capture`` where it is not a step."""
        return "step" if self.whole_step else "capture"

    @property
    def absence(self) -> str:
        """Why there is no profile, as a reason for tables."""
        if self.refused is not None:
            return f"{REFUSED}: {self.refused}"
        return f"absent: {self.reason or 'no capture'}"

    def describe(self) -> str:
        """Return what the cell is, in a few words."""
        idle = "; target NOT in effect" if self.in_effect == "false" else ""
        return self._kind() + idle

    def _kind(self) -> str:
        if self.absent:
            return "absent"
        if self.refused is not None:
            return f"{REFUSED}; unprofiled times and timeline only"
        if self.window is not None:
            return f"window: {self.window}"
        if self.whole_step:
            share = "" if self.coverage is None else f", {self.coverage:.1%} of GPU time measured"
            return f"whole step{share}"
        return f"{self.origin}, {'coverage unknown' if self.coverage is None else 'comparable with nothing'}"


@dataclass(frozen=True)
class Study:
    """The study as configured, with every cell in display order."""

    workload: dict[str, Any]
    site: str
    architectures: dict[str, dict[str, Any]]
    targets: dict[str, dict[str, Any]]
    cells: tuple[Cell, ...]

    def cell(self, architecture: str, target: str) -> Cell | None:
        """Return a cell, or None if the study has none of this name."""
        return next((c for c in self.cells if (c.architecture, c.target) == (architecture, target)), None)

    def captured(self) -> list[Cell]:
        """Return the cells that have a profile."""
        return [cell for cell in self.cells if cell.profiled]

    def analogues(self, architecture: str) -> list[str]:
        """Return the architectures that stand in for `architecture`, each with verdicts of its own."""
        return [
            name for name, entry in self.architectures.items() if entry.get("analogue_of") == architecture
        ]


def load_study(results: Path) -> Study:
    """Read ``study.json`` and every ``cells/*/*/cell.json`` under a results folder.

    Raises
    ------
    ConfigError
        If there is no study.json, or a key is missing in it.
    InputRefused
        If a file is damaged, or the manifest of a cell that is not absent is missing.
    """
    path = results / "study.json"
    if not path.is_file():
        raise ConfigError(
            f"{path}: there is no such file; give --results the folder that the workflow writes"
        )
    raw = read_json(path, REMEDY)
    try:
        cells = tuple(_cell(results, entry) for entry in raw["cells"])
        return Study(raw["workload"], raw["site"], raw["architectures"], raw["targets"], cells)
    except KeyError as error:
        raise ConfigError(f"{path}: key {error} is missing; let the workflow write the file again") from error


def _cell(results: Path, entry: dict[str, Any]) -> Cell:
    architecture, target, origin = entry["architecture"], entry["target"], entry["origin"]
    path = results / "cells" / architecture / target / "cell.json"
    manifest: dict[str, Any] = {}
    if origin != "absent":
        if not path.is_file():
            raise InputRefused(f"{path}: is missing though the cell is {origin}; run the workflow for it")
        manifest = read_json(path, REMEDY)
        wrong = violation(manifest, _MANIFEST)
        if wrong is not None:
            raise InputRefused(f"{path}: {wrong}; {REMEDY}")
        if manifest["cell"] != f"{architecture}/{target}":
            raise InputRefused(f"{path}: is of cell {manifest['cell']!r}; {REMEDY}")
    return Cell(architecture, target, origin, entry.get("reason"), entry.get("site"), manifest)
