"""Reports of other GPUs and older Nsight Compute versions: what they lack is null with a reason, nothing fails."""

import json
import lzma

import pyarrow.parquet as pq
import pytest
from tests import studies

from gpuatlas.compare.run import compare
from gpuatlas.tables.convert import convert

CORPUS = studies.ROOT.parent / "shared" / "corpus"
REPORTS = {
    "v100_ncu2022.2_fortran.ncu-rep": ("v100", "7.0", 80),
    "a100_ncu2021.2_nvtx.out.ncu-rep": ("a100", "8.0", 108),
    "a100_ncu2025.1_torch.ncu-rep": ("a100", "8.0", 108),
    "h100_ncu2025.1_torch.ncu-rep": ("h100", "9.0", 132),
    "a10_ncu2023.2_105kernels.ncu-rep": ("a100", "8.6", 72),
    "rtx5060_ncu2026.2.ncu-rep": ("h100", "12.0", 30),
}
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"needs the public reports in {CORPUS}")


@pytest.fixture
def compared(tmp_path):
    def run(name):
        architecture, capability, count = REPORTS[name]
        report = tmp_path / name
        report.write_bytes(lzma.decompress((CORPUS / f"{name}.xz").read_bytes()))
        results = tmp_path / "results"
        studies.write_study(results, {f"{architecture}/baseline": "imported"})
        convert([report], results / "tables", partition={"architecture": architecture, "target": "baseline"})
        manifest = {
            "cell": f"{architecture}/baseline",
            "comparable": False,
            "window": None,
            "coverage": None,
            "evidence": {"in_effect": "unknown", "checks": []},
            "device": {"name": name, "compute_capability": capability, "sm_count": count},
        }
        folder = results / "cells" / architecture / "baseline"
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(json.dumps(manifest))
        compare(results)
        return {
            table: [
                row
                for row in pq.read_table(results / "compare" / f"{table}.parquet").to_pylist()
                if (row["architecture"], row["target"]) == (architecture, "baseline")
            ]
            for table in ("summary", "classes", "instructions", "stalls", "roofline", "priority")
        }

    return run


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_report_lacks_is_null_with_a_reason(compared, name):
    tables = compared(name)
    for table, rows in tables.items():
        assert rows, table
        for row in rows:
            assert row["value"] is not None or row["reason"], (table, row)
            assert row["value"] is None or row["value"] == row["value"], "no NaN"
    whole = {row["metric"]: row for row in tables["summary"] if row["scope"] == "capture"}
    assert whole["gpu_time"]["value"] > 0


def test_older_reports_give_what_they_hold(compared):
    whole = {r["metric"]: r for r in compared("v100_ncu2022.2_fortran.ncu-rep")["summary"]}
    assert whole["ipc"]["value"] > 0
    assert whole["ipc"]["reason"] == "from smsp__inst_executed.sum"
    assert 0 < whole["l2_hit_rate"]["value"] <= 100
    assert whole["l2_hit_rate"]["reason"] is None, "a ratio of sector counts"
    assert whole["peak_fp32"]["value"] == pytest.approx(15.7e12, rel=0.25)
    assert whole["tensor_flop"]["value"] is None


def test_rules_of_old_versions_estimate_nothing(compared):
    [row] = [r for r in compared("v100_ncu2022.2_fortran.ncu-rep")["priority"] if r["scope"] == "capture"]
    assert (row["value"], row["reason"]) == (None, "no rule estimates a global speed-up")


def test_ceilings_follow_the_device(compared):
    whole = {r["metric"]: r["value"] for r in compared("a100_ncu2025.1_torch.ncu-rep")["summary"]}
    clock = whole["peak_tf32"] / (108 * 1024)
    assert whole["peak_fp32"] == pytest.approx(2 * 64 * 108 * clock)
    assert whole["peak_dram"] == pytest.approx(1.555e12, rel=0.05)
