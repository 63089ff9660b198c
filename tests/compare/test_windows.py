"""The recorded windows: figures that agree with NVIDIA's reader, and nothing that compares two windows."""

import shutil
from importlib import import_module

import pyarrow.parquet as pq
import pytest
from tests import studies

from gpuatlas.compare.run import TABLES, compare
from gpuatlas.compare.verdicts import write_claims
from gpuatlas.figures import FIGURES
from gpuatlas.figures.inputs import Inputs
from gpuatlas.figures.style import use_style

CLAIMS = studies.ROOT / "config" / "claims.yaml"
TARGETS = list(studies.RECORDED)


def rows(results, name):
    return pq.read_table(results / "compare" / f"{name}.parquet").to_pylist()


def whole(results, target):
    return {
        row["metric"]: row["value"]
        for row in rows(results, "summary")
        if (row["architecture"], row["target"], row["scope"]) == ("h200", target, "capture")
    }


@pytest.mark.parametrize("target", TARGETS)
def test_totals_of_the_recordings(recorded, target):
    launches, nanoseconds = studies.RECORDED[target]
    found = whole(recorded, target)
    assert found["launches"] == launches
    assert found["gpu_time"] == nanoseconds
    classes = [r for r in rows(recorded, "classes") if r["target"] == target]
    assert sum(r["value"] for r in classes if r["metric"] == "time_share") == pytest.approx(100)
    assert sum(r["value"] for r in classes if r["metric"] == "launches") == launches
    kernels = [r for r in rows(recorded, "kernels") if r["target"] == target]
    assert sum(r["value"] for r in kernels if r["metric"] == "gpu_time") == pytest.approx(nanoseconds)
    mix = [r for r in rows(recorded, "instructions") if r["target"] == target and r["scope"] == "capture"]
    shares = [r["value"] for r in mix if r["metric"].startswith("instruction_share_")]
    assert sum(shares) == pytest.approx(100)


@pytest.mark.parametrize("target", TARGETS)
def test_figures_agree_with_nvidias_reader(recorded, target):
    ncu_report = pytest.importorskip("ncu_report")
    report = ncu_report.load_report(str(studies.WINDOWS / target / "report.ncu-repz")).range_by_idx(0)
    actions = [report.action_by_idx(i) for i in range(report.num_actions())]

    def column(name):
        return [action[name].as_double() for action in actions]

    time = column("gpu__time_duration.sum")
    mean = {
        "tensor_pipe": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "fma_pipe": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
        "l2_hit_rate": "lts__t_sector_hit_rate.pct",
        "dram_throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    }
    found = whole(recorded, target)
    for name, metric in mean.items():
        expected = sum(v * t for v, t in zip(column(metric), time, strict=True)) / sum(time)
        assert found[name] == pytest.approx(expected, rel=1e-12), name
    executed = sum(column("smsp__inst_executed.sum"))
    assert found["instructions"] == executed
    assert found["ipc"] == pytest.approx(executed / sum(column("sm__cycles_active.sum")), rel=1e-12)
    moved = sum(column("dram__bytes_read.sum")) + sum(column("dram__bytes_write.sum"))
    assert found["dram_bandwidth"] == pytest.approx(moved / sum(time), rel=1e-12)
    issued = column("smsp__inst_issued.sum")
    name = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    expected = sum(v * n for v, n in zip(column(name), issued, strict=True)) / sum(issued)
    [stall] = [
        r["value"]
        for r in rows(recorded, "stalls")
        if (r["target"], r["scope"], r["metric"]) == (target, "capture", "stall_long_scoreboard")
    ]
    assert stall == pytest.approx(expected, rel=1e-12)


def test_what_is_absent_is_null_with_its_reason(recorded):
    absent = [r for r in rows(recorded, "summary") if r["architecture"] == "a100"]
    assert absent
    assert all(r["value"] is None and r["reason"].startswith("absent: ") for r in absent)


def test_no_row_of_a_window_passes_for_a_step(recorded):
    for name in TABLES:
        measured = [r for r in rows(recorded, name) if r["value"] is not None]
        assert measured
        assert all(r["window"] for r in measured)
        assert all(r["scope"] != "step" for r in measured)


def test_no_claim_is_judged_by_a_window(recorded):
    verdicts = pq.read_table(recorded / "claims" / "verdicts.parquet").to_pylist()
    assert len({v["claim"] for v in verdicts}) == 22
    for verdict in verdicts:
        assert verdict["status"] == "not_measured"
        assert verdict["measured"] is None
        if verdict["window"]:
            assert verdict["explanation"] == "window"
            assert any("report.ncu-repz@" in entry for entry in verdict["inputs"])
        elif (verdict["claim"], verdict["architecture"]) == ("opt1-quality", "h200"):  # no profile matters
            assert verdict["explanation"] == "no quality runs"
        else:
            assert verdict["explanation"].startswith("absent: ")
    checks = pq.read_table(recorded / "claims" / "checks.parquet").to_pylist()
    assert all(check["measured"] is None and check["value"] is None for check in checks)


def said(results):
    """Return everything that is written or drawn, place by place."""
    found = {name: rows(results, name) for name in TABLES}
    for name in ("verdicts", "checks", "reported"):
        found[f"claims {name}"] = pq.read_table(results / "claims" / f"{name}.parquet").to_pylist()
    for name in FIGURES:
        found[f"figure {name}"] = import_module(f"gpuatlas.figures.{name}").draw(Inputs(results))[1]
    for entry in [*found["claims verdicts"], *found["figure claims_overview"]]:
        entry.pop("inputs")  # they name the reference's files, whatever these hold
    return found


def test_what_is_said_of_a_window_depends_on_no_other_window(recorded, tmp_path):
    """A ratio between two captures would change when one of them changes."""
    use_style()
    results = tmp_path / "results"
    shutil.copytree(recorded, results)
    path = studies.table(results, "metrics", "h200", "baseline")
    table = pq.read_table(path, partitioning=None)
    pq.write_table(studies.scaled(table, dict.fromkeys(set(table["metric"].to_pylist()), 10.0)), path)
    launches = studies.table(results, "launches", "h200", "baseline")
    pq.write_table(studies.longer(pq.read_table(launches, partitioning=None), 10.0), launches)
    compare(results)
    write_claims(results, CLAIMS)
    before, after = said(recorded), said(results)
    changed = []
    for place, entries in after.items():
        others = [entry for entry in entries if entry["target"] != "baseline"]
        assert others == [entry for entry in before[place] if entry["target"] != "baseline"], place
        changed += [place] if entries != before[place] else []
    assert {"summary", "classes", "kernels", "roofline", "figure memory", "figure roofline"} <= set(changed)
