"""What a study is made from, looked at before anything runs."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuatlas import console
from gpuatlas.capture.refused import refusal
from gpuatlas.config import Study, nearest
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.report import outline
from gpuatlas.publish.device import device_of, require_architecture
from gpuatlas.publish.quality import read_quality
from gpuatlas.publish.recording import check_beside


def check_sources(study: Study) -> None:
    """Check the reports, recordings and comparisons of quality of a study: whole, and of their cells.

    Raises
    ------
    InputRefused
        If a report is damaged, holds no launch, or was measured on another architecture; or a file beside
        it, or a comparison of quality, is damaged or of another cell. A recording whose counters were refused
        has no report to look at.

    Notes
    -----
    What lies among the recordings under a name that no cell can have is no error, and is told.
    """
    for line in _strays(study):
        console.note(line)
    for cell in study.cells:
        if cell.quality is not None:
            read_quality(study.root / cell.quality, cell.name, study.architectures[cell.architecture])
    for cell in study.present():
        if cell.source is None:
            continue
        report = study.root / cell.source
        architecture, launches = study.architectures[cell.architecture], 0
        if cell.origin != "recorded" or refusal(report.with_name("plan.json")) is None:
            launches = check(report).launches
            require_architecture(device_of(outline(report)), architecture, cell.name, cell.source)
        if cell.origin == "recorded":
            check_beside(
                report.parent,
                report.parent / "timing",
                cell.name,
                architecture,
                keys=launches,
                network=study.config["workload"]["network"],
            )


def _strays(study: Study) -> Iterator[str]:
    """Yield a sentence for each folder of recordings that is named for no known architecture or target."""
    folder = Path(study.config["recordings_dir"])
    for architecture in _folders(study, folder):
        if architecture not in study.architectures:
            yield _stray(folder / architecture, "architecture", study.architectures)
            continue
        for target in _folders(study, folder / architecture):
            if target not in study.targets:
                yield _stray(folder / architecture / target, "target", study.targets)


def _folders(study: Study, folder: Path) -> list[str]:
    return sorted(
        path.name for path in (study.root / folder).iterdir() if path.is_dir() and path.name[0] != "."
    )


def _stray(path: Path, kind: str, known: Iterable[str]) -> str:
    return f"{path}: not used, for there is no {kind} of this name{nearest(path.name, known)}"
