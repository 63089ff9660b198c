"""What a study is made from, looked at before anything runs."""

from gpuatlas.capture.refused import refusal
from gpuatlas.config import Study
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.report import outline
from gpuatlas.publish.device import device_of, require_architecture
from gpuatlas.publish.quality import read_quality


def check_sources(study: Study) -> None:
    """Check reports and comparisons of quality that the study is given: whole, and of their cells.

    Raises
    ------
    InputRefused
        If a report is damaged, holds no launch, or was measured on another architecture; or a comparison of
        quality is damaged or of another cell. A recording whose counters were refused has no report to look
        at.
    """
    for cell in study.cells:
        if cell.quality is not None:
            read_quality(study.root / cell.quality, cell.name, study.architectures[cell.architecture])
    for cell in study.present():
        if cell.source is None:
            continue
        report = study.root / cell.source
        if cell.origin == "recorded" and refusal(report.with_name("plan.json")) is not None:
            continue
        check(report)
        architecture = study.architectures[cell.architecture]
        require_architecture(device_of(outline(report)), architecture, cell.name, cell.source)
