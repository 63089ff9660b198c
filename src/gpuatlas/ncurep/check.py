"""Is a report whole? Everything in it is decoded strictly, the instances of metrics too."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline


@dataclass(frozen=True)
class Checked:
    """A report that is whole."""

    path: Path
    launches: int
    metrics: int
    """Metrics of all launches; one that a launch stores twice counts once, as when it is converted."""
    instances: int
    ncu_version: str
    device: str
    extended: int
    """Blocks and launches with fields that this version does not know: of a newer Nsight Compute."""


def check(path: Path) -> Checked:
    """Decode a report in full and say what it holds.

    The format has no checksum: a bit that flips within a number cannot be seen, and neither can a cut exactly
    between two blocks of a report that does not state its number of launches (slim reports do).

    Raises
    ------
    InputRefused
        If the file is no report, or any part of it is damaged.
    """
    report = outline(path, keep=True)
    metrics = instances = 0
    extended = report.extended
    first: dict[str, int] = {}
    same = np.array([first.setdefault(name, number) for number, name in enumerate(report.names)], np.int64)
    for chunk in decode_report(report):
        metrics += len(np.unique(chunk.metrics.launch * len(same) + same[chunk.metrics.name]))
        instances += chunk.instance_count
        extended += chunk.extended
    report.source.require_unchanged()
    session = report.session
    return Checked(
        path, report.launches, metrics, instances, session.ncu_version, session.device_name, extended
    )
