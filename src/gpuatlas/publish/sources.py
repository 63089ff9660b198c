"""What a study is made from, looked at before anything runs."""

from gpuatlas.capture.refused import refusal
from gpuatlas.config import Study
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.report import outline
from gpuatlas.publish.device import device_of, require_architecture


def check_sources(study: Study) -> None:
    """Check the reports of the recorded and imported cells: whole, and of the cell's architecture.

    Raises
    ------
    InputRefused
        If a report is damaged, holds no launch, or was measured on another architecture. A recording whose
        counters were refused has no report to look at.
    """
    for cell in study.present():
        if cell.source is None:
            continue
        report = study.root / cell.source
        if cell.origin == "recorded" and refusal(report.with_name("plan.json")) is not None:
            continue
        check(report)
        architecture = study.architectures[cell.architecture]
        require_architecture(device_of(outline(report)), architecture, cell.name, cell.source)
