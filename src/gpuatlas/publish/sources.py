"""What a study is made from, looked at before anything runs."""

from gpuatlas.capture.refused import refusal
from gpuatlas.config import Study
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
    """
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
