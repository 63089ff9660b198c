"""What a cell may be, through the whole workflow: a whole step, part of its time, or without permitted counters.

One run holds them all. The steps and the refused recording are synthetic test input (see `recordings`); the cell
that is captured here meets a stand-in for ncu that does not know the GPU.
"""

import html
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.capture.conftest import install, show_gpu
from tests.studies import RECORDED
from tests.workflow.conftest import copy_project, edit, run_snakemake, without_smoke
from tests.workflow.recordings import MEASURED, SYNTHETIC, add_refused, add_step

from gpuatlas.compare import catalog

TIMES = {"baseline": 3, "opt1": 20}
LEFT_OUT_NS = 2e6
REFUSED = {
    "opt12": "the driver lets administrators alone read performance counters",
    "opt2": "ncu 2025.3.1.0 does not know the chip of compute capability 9.0",
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    project = without_smoke(copy_project(folder / "project"))
    recordings = project / "recordings" / "h200"
    shutil.rmtree(recordings)
    add_step(recordings / "baseline", "baseline", times=TIMES["baseline"])
    add_step(recordings / "opt1", "opt1", times=TIMES["opt1"], left_out_ns=LEFT_OUT_NS)
    add_refused(recordings / "opt12", "opt12")
    config = project / "config" / "config.yaml"
    config.write_text(re.sub(r"train:\n  epochs: 25\n", "train: false\n", config.read_text()))
    edit(project / "config" / "sites" / "local.yaml", "architectures: []", "architectures: [h200]")
    # Times and timeline, as the GPU would have left them.
    shutil.copytree(
        MEASURED / "opt2", project / "results/cells/h200/opt2/timing", copy_function=shutil.copyfile
    )
    (folder / "bin").mkdir()
    install(folder / "bin", chips="ga100, ga102")
    show_gpu(folder / "bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        run_snakemake(project, "--profile", "profiles/local")
    return project


def manifest(study: Path, target: str) -> dict:
    return json.loads((study / f"results/cells/h200/{target}/cell.json").read_text())


def table(study: Path, path: str) -> pd.DataFrame:
    rows = pd.read_parquet(study / "results" / f"{path}.parquet")
    return rows[rows["architecture"] == "h200"]


def page(study: Path) -> str:
    return (study / "results/report.html").read_text()


@pytest.mark.parametrize("target", TIMES)
def test_a_step_has_its_totals_and_its_coverage(study, target):
    launches, duration = RECORDED[target]
    found = manifest(study, target)
    assert found["comparable"]
    assert SYNTHETIC in found["notes"]
    left_out = LEFT_OUT_NS if target == "opt1" else 0
    measured = TIMES[target] * duration
    assert found["coverage"]["time"] == pytest.approx(measured / (measured + left_out))
    assert found["step"]["gpu_time_ns"] == pytest.approx(measured + left_out)
    rows = table(study, "compare/summary").query("target == @target and scope == 'step' and name == ''")
    values = rows.set_index("metric")
    assert values.loc["gpu_time", "value"] == pytest.approx(measured + left_out)
    assert values.loc["launches", "value"] == TIMES[target] * launches + (left_out > 0)
    assert values.loc["gpu_time", "coverage"] == pytest.approx(found["coverage"]["time"])
    timings = pd.read_parquet(MEASURED / target / "timings.parquet").query("variant == 'autotune_off'")
    assert values.loc["step_ms", "value"] == pytest.approx(timings["step_ms"].median())


def test_ratios_and_verdicts_over_steps(study):
    verdicts = table(study, "claims/verdicts").set_index("claim")
    cycles = table(study, "compare/summary").query("metric == 'sm_cycles' and scope == 'step' and name == ''")
    by_target = cycles.set_index("target")["value"]
    verdict = verdicts.loc["opt1-cycles"]
    assert verdict["status"] in {"holds", "partly", "contradicted"}
    assert verdict["measured"] == pytest.approx(by_target["opt1"] / by_target["baseline"])
    assert verdict["coverage"] == pytest.approx(manifest(study, "opt1")["coverage"]["time"])
    assert "× that of h200/baseline" in verdict["explanation"]
    assert Counter(verdicts["status"])["not_measured"] < len(verdicts)


def test_figures_of_steps_say_how_much_they_cover(study):
    figure = pd.read_csv(study / "results/figures/study_matrix.csv").query("architecture == 'h200'")
    kinds = dict(zip(figure["target"], figure["kind"], strict=True))
    assert kinds == {
        "baseline": "whole step",
        "opt1": "whole step",
        "opt2": "counters refused",
        "opt12": "counters refused",
    }
    assert "step 95.2%" in (study / "results/figures/kernel_breakdown.svg").read_text()


@pytest.mark.parametrize("target", REFUSED)
def test_refused_counters_leave_times_timeline_and_evidence(study, target):
    found = manifest(study, target)
    assert found["refused"] == REFUSED[target]
    assert not found["comparable"]
    assert found["coverage"] is None
    assert found["launches"] is None
    assert found["evidence"]["in_effect"] == "true"
    timeline = pd.read_parquet(MEASURED / target / "timeline.parquet")
    assert found["step"]["launches"] == len(timeline)
    assert f"{len(timeline)} launches" in page(study)
    rows = table(study, "compare/summary").query("target == @target and name == ''").set_index("metric")
    assert rows.loc["step_ms", "value"] > 0
    profile = rows.loc[list(catalog.load().metrics)]
    assert profile["value"].isna().all()
    assert set(profile["reason"]) == {f"counters refused: {REFUSED[target]}"}


@pytest.mark.parametrize("target", REFUSED)
def test_refused_counters_leave_empty_tables(study, target):
    partition = f"architecture=h200/target={target}/part.parquet"
    for name in ("launches", "metrics", "rules"):
        path = study / "results/tables" / name / partition
        whole = study / "results/tables" / name / "architecture=h200/target=baseline/part.parquet"
        assert pq.read_metadata(path).num_rows == 0
        assert pq.read_schema(path).equals(pq.read_schema(whole))
    session = pd.read_parquet(study / "results/tables/session" / partition).set_index("key")["value"]
    assert session["counters_refused"] == REFUSED[target]
    for name in ("classes", "kernels", "instructions", "stalls", "roofline", "priority"):
        assert target not in set(table(study, f"compare/{name}")["target"])


def test_refused_counters_are_said_and_claims_not_measured(study):
    verdicts = table(study, "claims/verdicts").query("target in ['opt2', 'opt12']").set_index("claim")
    timed = verdicts.loc["fusion"]
    assert timed["status"] != "not_measured"
    assert timed["explanation"].startswith("Step time, unprofiled (median) of h200/opt2")
    assert "1 of 2 checks not measured" in timed["explanation"]
    assert f"counters refused: {REFUSED['opt2']}" in timed["explanation"]
    verdicts = verdicts.drop("fusion")
    assert len(verdicts) > 5
    assert set(verdicts["status"]) == {"not_measured"}
    assert verdicts["explanation"].str.startswith("counters refused: ").all()
    assert "<strong>Counters refused.</strong>" in page(study)
    for name in ("kernel_breakdown", "memory", "roofline", "stalls"):
        svg = (study / f"results/figures/{name}.svg").read_text()
        text = " ".join(html.unescape(" ".join(re.findall(r"<!-- (.*?) -->", svg))).split())
        assert "Counters refused, not profiled: h200/opt2, h200/opt12." in text, name
    assert "counters refused" in (study / "results/figures/claims_overview.svg").read_text()


def test_nothing_is_left_to_do(study):
    done = run_snakemake(study, "-n", "--profile", "profiles/local")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_an_empty_report_without_a_refusal_is_refused(study, tmp_path):
    project = tmp_path / "project"
    shutil.copytree(study, project, symlinks=True)
    plan = project / "recordings/h200/opt12/plan.json"
    plan.write_text(json.dumps({"mode": "configs", "window": None, "coverage_time": 1.0}))
    done = run_snakemake(project, "--profile", "profiles/local", check=False)
    assert done.returncode == 3
    assert "recordings/h200/opt12/report.ncu-repz" in done.stderr
