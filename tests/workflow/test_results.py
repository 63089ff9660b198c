"""What the study's results say follows from the recordings, and changes with them."""

import json
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from tests.reports import scale_metric
from tests.workflow.conftest import ROOT, edit

RECORDINGS = {"baseline": (109, 44.786208), "opt1": (105, 1.996512), "opt12": (102, 8.359168)}


def part(project: Path, table: str, target: str) -> Path:
    return project / "results/tables" / table / "architecture=h200" / f"target={target}" / "part.parquet"


def figure_csv(project: Path, name: str) -> bytes:
    return (project / "results/figures" / f"{name}.csv").read_bytes()


@pytest.mark.parametrize("target", RECORDINGS)
def test_launches_and_durations(full_run, target):
    launches, milliseconds = RECORDINGS[target]
    table = pd.read_parquet(part(full_run, "launches", target))
    assert len(table) == launches
    assert table["duration_ns"].sum() / 1e6 == pytest.approx(milliseconds, abs=1e-9)
    cell = json.loads((full_run / f"results/cells/h200/{target}/cell.json").read_text())
    assert cell["launches"] == launches
    assert cell["gpu_time_ns"] / 1e6 == pytest.approx(milliseconds, abs=1e-9)
    assert cell["window"]
    assert not cell["comparable"]


def test_every_result_is_there_and_every_claim_has_a_verdict(full_run):
    results = full_run / "results"
    figures = {path.stem for path in (results / "figures").glob("*.svg")}
    assert len(figures) >= 6
    for name in figures:
        for kind in ("png", "pdf", "csv"):
            assert (results / "figures" / f"{name}.{kind}").stat().st_size > 0
    verdicts = pd.read_parquet(results / "claims/verdicts.parquet")
    claims = {"kernel-mix", "causes", "opt1-cycles", "opt2-cycles", "opt12-a100", "migration", "fusion"}
    assert claims <= set(verdicts["claim"])
    assert verdicts["claim"].nunique() == 22
    assert set(verdicts["status"]) == {"not_measured"}
    assert (results / "report.html").stat().st_size > 10_000
    assert (results / "workflow-report.zip").stat().st_size > 10_000


def test_a_deleted_recording_is_absent_everywhere(finished, snakemake):
    before = figure_csv(finished, "kernel_breakdown")
    shutil.rmtree(finished / "recordings/h200/opt1")
    snakemake(finished, "--profile", "profiles/local")
    study = json.loads((finished / "results/study.json").read_text())
    [cell] = [cell for cell in study["cells"] if cell["cell"] == "h200/opt1"]
    assert cell["origin"] == "absent"
    assert cell["reason"]
    breakdown = figure_csv(finished, "kernel_breakdown")
    assert breakdown != before
    measured = pd.read_parquet(finished / "results/compare/classes.parquet").dropna(subset=["value"])
    assert "opt1" not in set(measured.query("architecture == 'h200'")["target"])
    assert "absent" in (finished / "results/report.html").read_text()


def test_what_is_packed_is_what_the_report_shows(finished, snakemake):
    """A captured cell that left the study is kept and not packed, by the command that docs/publish.md gives."""
    text = (ROOT / "docs/publish.md").read_text()
    [command] = re.findall(r"^tar .*$", text, re.MULTILINE)
    cells = finished / "results/cells"
    (cells / "h200/opt12/.state").mkdir()
    (cells / "h200/opt12/.state/checkpoint.pt").write_bytes(b"weights")
    edit(finished / "config/config.yaml", "[baseline, opt1, opt2, opt12]", "[baseline, opt2, opt12]")
    shutil.rmtree(finished / "recordings/h200/baseline")
    snakemake(finished, "--profile", "profiles/local")
    subprocess.run(shlex.split(command), cwd=finished, check=True)
    with tarfile.open(finished / "results.tar.gz") as archive:
        packed = {path for path in archive.getnames() if path.startswith("results/cells/") and "." in path}
    manifest = json.loads((cells / "h200/opt12/cell.json").read_text())
    files = [f"results/cells/h200/opt12/{name}" for name in ("cell.json", *manifest["files"])]
    assert packed == set(files)
    for target in ("baseline", "opt1"):
        assert (cells / f"h200/{target}/capture/report.ncu-repz").is_file()


def test_a_cell_of_another_run_is_not_packed(finished, snakemake):
    """One cell by a configuration of its own, then the study as it stands in the file."""
    shutil.copy(finished / "recordings/h200/opt12/report.ncu-repz", finished / "mine.ncu-repz")
    cell = "results/cells/h200/opt2"
    snakemake(
        finished,
        f"{cell}/cell.json",
        "--profile",
        "profiles/local",
        "--config",
        "recordings={h200/opt2: mine.ncu-repz}",
    )
    assert part(finished, "launches", "opt2").is_file()
    snakemake(finished, "--profile", "profiles/local")
    assert (finished / cell / "capture/report.ncu-repz").is_file()
    assert f"{cell}/capture" in (finished / "results/unpacked.txt").read_text().split("\n")
    assert not part(finished, "launches", "opt2").exists()
    done = snakemake(finished, "--profile", "profiles/local")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_swapped_recordings_swap_the_tables(finished, snakemake):
    folder = finished / "recordings/h200"
    (folder / "opt1").rename(folder / "swap")
    (folder / "opt12").rename(folder / "opt1")
    (folder / "swap").rename(folder / "opt12")
    before = figure_csv(finished, "kernel_breakdown")
    page = (finished / "results/report.html").read_text()
    snakemake(finished, "--profile", "profiles/local")
    assert len(pd.read_parquet(part(finished, "launches", "opt1"))) == RECORDINGS["opt12"][0]
    assert len(pd.read_parquet(part(finished, "launches", "opt12"))) == RECORDINGS["opt1"][0]
    assert figure_csv(finished, "kernel_breakdown") != before
    assert (finished / "results/report.html").read_text() != page


def test_a_metric_times_ten_changes_table_figure_and_page(finished, snakemake):
    report = finished / "recordings/h200/opt1/report.ncu-repz"
    raw = pa.CompressedInputStream(pa.BufferReader(report.read_bytes()), "zstd").read()
    changed, count = scale_metric(raw, "dram__bytes_read.sum", 10.0)
    assert count == RECORDINGS["opt1"][0]
    report.write_bytes(pa.Codec("zstd").compress(changed, asbytes=True))

    def total() -> float:
        metrics = pd.read_parquet(part(finished, "metrics", "opt1"))
        return metrics.loc[metrics["metric"] == "dram__bytes_read.sum", "value"].sum()

    old, figure, page = (
        total(),
        figure_csv(finished, "memory"),
        (finished / "results/report.html").read_text(),
    )
    snakemake(finished, "--profile", "profiles/local")
    assert total() == pytest.approx(10 * old, rel=1e-12)
    assert figure_csv(finished, "memory") != figure
    assert (finished / "results/report.html").read_text() != page
