"""Sums, time-weighted means and ratios of sums, on captures small enough to compute by hand."""

import numpy as np
import pytest

from gpuatlas.compare import catalog
from gpuatlas.compare.breakdown import class_rows, tensor_time_share
from gpuatlas.compare.captures import Capture, Estimate
from gpuatlas.compare.instructions import mix
from gpuatlas.compare.priority import NOT_COLLECTED, priority_rows
from gpuatlas.compare.rollup import evaluate
from gpuatlas.compare.study import Cell

MANIFEST = {"device": {"compute_capability": "9.0"}, "window": "three launches"}
DURATION = [100.0, 300.0, 600.0]


def capture(columns=None, *, weight=None, classes=("gemm", "gemm", "elementwise"), rules=True, estimates=()):
    """Three launches; None in a column is a launch without the metric."""
    given = {"duration_ns": DURATION, "launches": [1.0, 1.0, 1.0], **(columns or {})}
    given["gpu_ns"] = given["duration_ns"]
    present = {name: np.array([v is not None for v in values]) for name, values in given.items()}
    arrays = {
        name: np.array([np.nan if v is None else v for v in values], float) for name, values in given.items()
    }
    return Capture(
        Cell("h200", "opt1", "recorded", manifest=MANIFEST),
        np.arange(3, dtype=np.int32),
        ("ka", "kb", "kc"),
        np.array(["a", "b", "c"]),
        np.array(classes),
        np.array([1.0, 1.0, 1.0] if weight is None else weight),
        arrays,
        present,
        rules,
        tuple(estimates),
    )


def value(metric, found, where=None):
    return evaluate(catalog.load().known[metric], found, found.everything() if where is None else where)


def test_a_sum_weights_each_launch_by_how_often_the_step_launches_it():
    found = capture({"smsp__inst_executed.sum": [10.0, 20.0, 40.0]}, weight=[5.0, 1.0, 0.0])
    assert value("instructions", found).value == 70.0
    assert value("gpu_time", found).value == 800.0
    assert value("launches", found).value == 6.0


def test_a_percentage_is_a_time_weighted_mean():
    found = capture({"sm__throughput.avg.pct_of_peak_sustained_elapsed": [90.0, 50.0, 10.0]})
    assert value("sm_throughput", found).value == pytest.approx((90 * 100 + 50 * 300 + 10 * 600) / 1000)


def test_a_ratio_is_a_ratio_of_sums_not_a_mean_of_ratios():
    columns = {"smsp__inst_executed.sum": [100.0, 10.0, 10.0], "sm__cycles_active.sum": [50.0, 100.0, 50.0]}
    found = capture(columns)
    assert value("ipc", found).value == pytest.approx(120 / 200)
    assert value("ipc", found).value != pytest.approx(np.mean([2.0, 0.1, 0.2]))


def test_hit_rates_use_sector_counts_where_there_are_any_and_say_so_where_not():
    rates = {"lts__t_sector_hit_rate.pct": [50.0, 50.0, 100.0]}
    assert value("l2_hit_rate", capture(rates)).value == pytest.approx(80.0)
    assert "time-weighted" in value("l2_hit_rate", capture(rates)).note
    counts = {"lts__t_sectors_lookup_hit.sum": [1.0, 0, 2], "lts__t_sectors_lookup_miss.sum": [9.0, 0, 0]}
    assert value("l2_hit_rate", capture({**rates, **counts})).value == pytest.approx(25.0)
    assert value("l2_hit_rate", capture({**rates, **counts})).note is None


def test_what_is_not_there_is_null_with_a_reason_and_never_zero():
    missing = value("instructions", capture())
    assert missing.value is None
    assert missing.note == "not collected: smsp__inst_executed.sum"
    partial = value("instructions", capture({"smsp__inst_executed.sum": [1.0, None, 1.0]}))
    assert partial.value is None
    assert partial.note == "stored for 2 of 3 launches (70.0% of GPU time)"
    assert value("instructions", capture({"smsp__inst_executed.sum": [0.0, 0.0, 0.0]})).value == 0.0


def test_nan_is_undefined_for_a_launch_and_takes_no_part_in_a_mean():
    rates = {"l1tex__t_sector_hit_rate.pct": [40.0, float("nan"), 10.0]}
    assert value("l1_hit_rate", capture(rates)).value == pytest.approx((40 * 100 + 10 * 600) / 700)
    nothing = {"lts__t_sectors_lookup_hit.sum": [0.0] * 3, "lts__t_sectors_lookup_miss.sum": [0.0] * 3}
    undefined = value("l2_hit_rate", capture(nothing))
    assert undefined.value is None
    assert "undefined" in undefined.note


def test_a_mean_may_lack_a_hundredth_of_the_time_and_says_so():
    name = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    found = capture({"duration_ns": [5.0, 395.0, 600.0], name: [None, 50.0, 10.0]})
    assert value("sm_throughput", found).value == pytest.approx((50 * 395 + 10 * 600) / 995)
    assert "without 1 launches" in value("sm_throughput", found).note


def test_another_candidate_is_used_and_named():
    found = capture({"sm__cycles_elapsed.avg": [1.0, 2.0, 3.0]})
    assert value("sm_cycles", found).value == 6.0
    assert value("sm_cycles", found).note == "from sm__cycles_elapsed.avg"


def test_tensor_time_share_is_over_convolution_and_gemm_only():
    metric = catalog.load().metrics["tensor_flop"].candidates[0].numerator
    columns = {name: [0.0, 0.0, 0.0] for name in metric.names()}
    columns["sm__ops_path_tensor_src_tf32_dst_fp32.sum"] = [8.0, 0.0, 8.0]
    assert tensor_time_share(capture(columns)).value == pytest.approx(25.0)
    assert tensor_time_share(capture()).value is None


def test_shares_of_classes():
    rows = {
        (row.name, row.metric): row.value
        for row in class_rows(capture(weight=[1.0, 1.0, 2.0]))
        if row.metric.endswith("_share")
    }
    assert rows["gemm", "time_share"] == pytest.approx(25.0)
    assert rows["elementwise", "time_share"] == pytest.approx(75.0)
    assert rows["elementwise", "launch_share"] == pytest.approx(50.0)


def test_the_instruction_mix_leaves_the_rest_to_other_and_is_null_without_a_kind():
    kinds = {f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum": [10.0] * 3 for kind in
             ("fp32", "integer", "memory", "control")}  # fmt: skip
    columns = {
        **kinds,
        "sm__inst_executed_pipe_tensor.sum": [1.0, 0.0, 0.0],
        "smsp__inst_executed.sum": [10.0] * 3,
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": [32.0, 16.0, 16.0],
    }
    found = capture(columns)
    assert mix(found, found.everything())["instructions_other"].value == pytest.approx(640 - 120 - 32)
    del columns["sm__inst_executed_pipe_tensor.sum"]
    found = capture(columns)
    other = mix(found, found.everything())["instructions_other"]
    assert other.value is None
    assert "sm__inst_executed_pipe_tensor.sum" in other.note


def test_priority_is_time_share_times_the_largest_global_estimate():
    estimates = [
        Estimate(2, "A", "", "global", 50.0),
        Estimate(2, "B", "", "global", 20.0),
        Estimate(1, "A", "", "global", 80.0),
        Estimate(0, "A", "", "local", 90.0),
    ]
    rows = list(priority_rows(capture(estimates=estimates)))
    scores = {row.name: row for row in rows if row.metric == "priority"}
    assert scores["c"].value == pytest.approx(30.0)
    assert scores["b"].value == pytest.approx(24.0)
    assert scores["a"].value is None
    assert scores["a"].reason == "no estimate"
    assert scores[""].value == pytest.approx(54.0)
    local = {row.name: row.value for row in rows if row.metric == "speedup_local"}
    assert local == {"a": 90.0, "b": None, "c": None}
    assert [row.name for row in rows if row.metric == "priority" and row.name] == ["c", "b", "a"]


def test_no_rules_is_not_no_advice():
    [row] = priority_rows(capture(rules=False))
    assert row.value is None
    assert row.reason == NOT_COLLECTED
