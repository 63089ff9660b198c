"""The commands as people type them: what they print, and one sentence and its status when something is wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import studies

GPUATLAS = Path(sys.executable).parent / "gpuatlas"
CLAIMS = studies.ROOT / "config" / "claims.yaml"


def gpuatlas(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(GPUATLAS), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=studies.ROOT)


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


@pytest.fixture
def results(recorded, tmp_path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "results"))


def test_compare_and_claims_say_what_they_wrote(results):
    done = gpuatlas("compare", "--results", results, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["kernels"] > 100
    done = gpuatlas("claims", "--results", results, "--claims", CLAIMS, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdicts"]["not_measured"] == 63


def test_no_study(tmp_path):
    refused(gpuatlas("compare", "--results", tmp_path), 2, "study.json", "--results")


def test_a_claim_with_an_unknown_metric(results, tmp_path):
    claims = tmp_path / "claims.yaml"
    claims.write_text(CLAIMS.read_text().replace("metric: ipc", "metric: icp"))
    done = gpuatlas("claims", "--results", results, "--claims", claims)
    refused(done, 2, str(claims), "claim 'opt1-ipc'", "checks[0].metric", "did you mean 'ipc'?")


def test_an_unknown_figure(results):
    done = gpuatlas("figures", "--results", results, "--figure", "rofline")
    refused(done, 2, "--figure 'rofline'", "did you mean 'roofline'?")


def test_a_table_that_is_missing_or_damaged(results):
    path = studies.table(results, "metrics", "h200", "opt1")
    path.write_bytes(path.read_bytes()[:1000])
    refused(gpuatlas("compare", "--results", results), 3, str(path), "not a readable Parquet table")
    path.unlink()
    refused(gpuatlas("compare", "--results", results), 3, str(path), "is missing")


def test_a_manifest_that_is_missing_or_damaged(results):
    path = results / "cells" / "h200" / "opt1" / "cell.json"
    whole = json.loads(path.read_text())
    for content, says in (
        ("{", "not valid JSON"),
        ("{}", "'cell' is a required property"),
        (json.dumps(whole | {"coverage": {"time": "x"}}), "key 'coverage.time': 'x' is not of type"),
        (json.dumps(whole | {"cell": "h200/baseline"}), "is of cell 'h200/baseline'"),
    ):
        path.write_text(content)
        refused(gpuatlas("compare", "--results", results), 3, str(path), says, "delete it and run")
    path.unlink()
    refused(gpuatlas("compare", "--results", results), 3, str(path), "is missing")


def test_claims_before_the_comparison(results):
    shutil.rmtree(results / "compare")
    done = gpuatlas("claims", "--results", results, "--claims", CLAIMS)
    refused(done, 3, "summary.parquet: is missing")


def test_an_output_folder_that_cannot_be_written(results):
    shutil.rmtree(results / "compare")
    (results / "compare").write_text("in the way")
    refused(gpuatlas("compare", "--results", results), 1, str(results / "compare"))
