"""A capture of configurations, weighted by the step's timeline, says the same as the capture of every launch."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import studies

from gpuatlas.compare.claims import not_comparable
from gpuatlas.compare.kernels import classify
from gpuatlas.compare.run import compare
from gpuatlas.compare.study import load_study
from gpuatlas.compare.weights import read_step, weigh
from gpuatlas.errors import InputRefused
from gpuatlas.names import normalise


def write_timeline(path, keys, times=None, names=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"key": keys, "name": names or keys, "duration_ns": times or [1.0] * len(keys)}
    pq.write_table(pa.table({"order": range(len(keys)), **columns}), path)


def stands(*arguments):
    return read_step(*arguments).stands


def amounts(*arguments):
    return stands(*arguments).amount.tolist()


def test_launches_of_one_duration_count_alike(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a", "x"])
    assert amounts(["a", "b", "c"], path, 0.8) == [3.0, 1.0, 0.0]
    assert amounts(["a", "a", "b"], path, 0.8) == [2.0, 1.0, 1.0]
    assert amounts(["a", "a", "a", "b"], path, 0.8) == [1.0, 1.0, 1.0, 1.0]
    assert read_step(["a", "b"], tmp_path / "none.parquet", 1.0) is None


def test_a_measured_launch_stands_for_others_by_their_gpu_time(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "a", "b", "a", "a"], [100.0, 10.0, 7.0, 10.0, 110.0])
    once = stands(["b", "a"], path, 1.0)
    assert once.amount.tolist() == pytest.approx([1.0, 2.3])
    assert once.launches.tolist() == [1, 4]
    assert once.scaled_time == pytest.approx(20 / 237)
    # The second measurement passed over two launches: it is the step's third, of 10 ns.
    twice = stands(["b", "a", "a"], path, 1.0, None, [0, 0, 2])
    assert twice.amount.tolist() == pytest.approx([1.0, 2.1, 2.0])
    assert twice.launches.tolist() == [1, 2, 2]
    assert twice.scaled_time == 0


def test_the_measured_launches_of_a_class_stand_for_the_rest_of_it(tmp_path):
    path = tmp_path / "timeline.parquet"
    names = {
        "g": "sgemm",
        "h": "sgemm_other",
        "s": "softmax_warp_forward",
        "e": "vectorized_elementwise_kernel",
    }
    keys = ["g", "g", "h", "e", "e", "s"]
    write_timeline(path, keys, [40.0, 20.0, 30.0, 4.0, 4.0, 2.0], [names[key] for key in keys])
    step = read_step(["g", "e"], path, 0.68)
    found = weigh(step, ["g", "e"], ["gemm", "elementwise"])
    assert found.own.amount.tolist() == [1.5, 2.0]
    assert found.weight.tolist() == pytest.approx([1.5 * 90 / 60, 2.0])
    assert found.time.tolist() == pytest.approx([90.0, 8.0])
    assert found.launches.tolist() == pytest.approx([3.0, 2.0])
    assert found.class_time == {"gemm": 90.0, "elementwise": 8.0, classify("softmax_warp_forward"): 2.0}
    assert found.class_launches["gemm"] == 3


def test_a_time_that_is_not_known_changes_no_weight_of_others(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a"], [1e6, 2e6, 0.0, 1e6], ["sgemm", "softmax", "sgemm", "sgemm"])
    step = read_step(["a", "b"], path, 1.0)
    found = weigh(step, ["a", "b"], ["gemm", "attention"])
    assert found.weight.tolist() == pytest.approx([3.0, 1.0])
    assert found.class_time == pytest.approx({"gemm": 3e6, "attention": 2e6})


def test_a_timeline_counts_by_its_order(tmp_path):
    path = tmp_path / "timeline.parquet"
    columns = {"key": ["a", "a"], "name": ["a", "a"], "duration_ns": [30.0, 10.0]}
    pq.write_table(pa.table({"order": [1, 0], **columns}), path)
    assert amounts(["a"], path, 1.0) == [4.0]


def test_second_measurements_reach_the_step_s_figures(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    launches = pq.read_table(studies.table(recorded, "launches", "h200", "opt1"), partitioning=None)
    keys, times = launches["key"].to_pylist(), [time or 1.0 for time in launches["duration_ns"].to_pylist()]
    whole = {"time": 1.0, "launches": 1.0}
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    found = []
    for second in ([], [*range(len(keys))]):
        parts = [{"launches": len(keys), "again": 2, "second": second}]
        studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage=whole, parts=parts)
        write_timeline(timeline, keys * 2, times + [4 * time for time in times])
        compare(tmp_path)
        rows = pq.read_table(tmp_path / "compare" / "summary.parquet").to_pylist()
        found.append(
            next(
                row["value"]
                for row in rows
                if (row["architecture"], row["target"], row["metric"]) == ("h100", "opt1", "sm_cycles")
            )
        )
    assert found[0] == pytest.approx(4 * found[1])


def test_totals_of_a_step_of_which_whole_classes_are_unmeasured_are_null(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    launches = pq.read_table(studies.table(recorded, "launches", "h200", "opt1"), partitioning=None)
    keys, times = launches["key"].to_pylist(), [time or 1.0 for time in launches["duration_ns"].to_pylist()]
    share = {"time": 0.5, "launches": 0.9}
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage=share)
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    names = ["known", *["known"] * (len(keys) - 1), "sm80_xmma_wgrad_implicit_gemm"]
    write_timeline(timeline, [*keys, "x"], [*times, sum(times)], names)
    compare(tmp_path)
    rows = {
        row["metric"]: row
        for row in pq.read_table(tmp_path / "compare" / "summary.parquet").to_pylist()
        if (row["architecture"], row["target"], row["scope"]) == ("h100", "opt1", "step")
    }
    assert rows["gpu_time"]["value"] == pytest.approx(2 * sum(times))
    assert rows["launches"]["value"] == len(keys) + 1
    assert rows["sm_cycles"]["value"] is None
    assert rows["sm_cycles"]["reason"] == "50.0% of GPU time is in classes of which nothing was measured"
    assert rows["ipc"]["value"] > 0
    (cell,) = [one for one in load_study(tmp_path).cells if one.name == "h100/opt1"]
    assert not_comparable(cell) == "50% of the step's GPU time was profiled; a verdict needs 80%"


def test_totals_can_be_made_again_from_the_weights(recorded, tmp_path):
    assert pq.read_table(recorded / "compare" / "weights.parquet").num_rows == 0, "windows weigh nothing"
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    launches = pq.read_table(studies.table(recorded, "launches", "h200", "opt1"), partitioning=None)
    keys, times = launches["key"].to_pylist(), [time or 1.0 for time in launches["duration_ns"].to_pylist()]
    # The step launches all three times, and twice an element-wise kernel that was not measured.
    left = [sum(times) / 20] * 2
    share = {"time": 3 * sum(times) / (3 * sum(times) + sum(left)), "launches": 0.99}
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage=share)
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    names = ["known"] * 3 * len(keys) + ["vectorized_elementwise_kernel"] * 2
    write_timeline(timeline, [*keys * 3, "x", "x"], [*times * 3, *left], names)
    compare(tmp_path)
    weights = pq.read_table(tmp_path / "compare" / "weights.parquet").to_pylist()
    assert {(row["architecture"], row["target"]) for row in weights} == {("h100", "opt1")}
    (unmeasured,) = [row for row in weights if not row["measured"]]
    assert (unmeasured["key"], unmeasured["class"]) == ("x", "elementwise")
    assert (unmeasured["launch_id"], unmeasured["launches"], unmeasured["weight"]) == (None, 2, None)
    summary = {
        row["metric"]: row["value"]
        for row in pq.read_table(tmp_path / "compare" / "summary.parquet").to_pylist()
        if (row["architecture"], row["target"], row["scope"]) == ("h100", "opt1", "step")
    }
    assert sum(row["launches"] for row in weights) == summary["launches"] == 3 * len(keys) + 2
    assert sum(row["gpu_time_ns"] for row in weights) == pytest.approx(summary["gpu_time"])
    metrics = pq.read_table(studies.table(tmp_path, "metrics", "h100", "opt1"), partitioning=None).to_pylist()
    counted = {
        row["launch_id"]: row["value"] for row in metrics if row["metric"] == "smsp__inst_executed.sum"
    }
    again = sum(row["weight"] * counted[row["launch_id"]] for row in weights if row["measured"])
    assert again == pytest.approx(summary["instructions"])
    assert again > 3 * sum(counted.values()), "those of its class stand for the unmeasured one"


def test_a_measured_configuration_without_gpu_time_adds_nothing(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    launches = pq.read_table(studies.table(recorded, "launches", "h200", "opt1"), partitioning=None)
    keys, times = launches["key"].to_pylist(), [time or 1.0 for time in launches["duration_ns"].to_pylist()]
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage={"time": 1.0, "launches": 1.0})
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    write_timeline(timeline, keys * 2, [0.0, *times[1:]] * 2, [None, *keys[1:]] * 2)
    compare(tmp_path)
    rows = pq.read_table(tmp_path / "compare" / "weights.parquet").to_pylist()
    assert rows[0]["gpu_time_ns"] == 0
    assert sum(row["gpu_time_ns"] for row in rows) == pytest.approx(2 * sum(times[1:]))


def test_every_launch_measured_counts_once_whatever_it_took(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a"], [5.0, 3.0, 5.0, 50.0])
    assert amounts(["a", "b", "a", "a"], path, 1.0) == [1.0, 1.0, 1.0, 1.0]


def test_launches_without_a_time_count_alike(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a"], [5.0, 3.0, 5.0, 0.0])
    assert amounts(["a", "b"], path, 1.0) == [3.0, 1.0]


def test_parts_that_tell_of_other_launches_are_refused(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    parts = [{"launches": 3}]
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", parts=parts)
    with pytest.raises(InputRefused, match=r"h100/opt1: cell\.json tells of 3 measured launches, but"):
        compare(tmp_path)


def test_a_damaged_timeline_is_refused(tmp_path):
    path = tmp_path / "timeline.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(InputRefused, match=r"timeline\.parquet: is not a readable Parquet table"):
        read_step(["a"], path, 1.0)


@pytest.mark.parametrize("stated", [0.9, 0.7, None])
def test_a_timeline_of_another_step_is_refused(tmp_path, stated):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a", "x"])
    with pytest.raises(InputRefused, match=r"holds 80\.0% of its GPU time, but plan\.json states"):
        read_step(["a", "b"], path, stated)


def test_a_timeline_cut_after_the_cell_was_described_is_refused(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b"])
    assert amounts(["a", "b"], path, 1.0, 2) == [1.0, 1.0]
    with pytest.raises(InputRefused, match=r"holds 2 launches, but cell\.json tells of 30"):
        read_step(["a", "b"], path, 1.0, 30)


def test_step_totals_follow_the_timeline(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage={"time": 1.0, "launches": 1.0})
    launches = pq.read_table(studies.table(tmp_path, "launches", "h100", "opt1"), partitioning=None)
    keys = launches["key"].to_pylist()
    assert len(set(keys)) == len(keys), "the recording holds each configuration once"
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    write_timeline(timeline, keys * 4, launches["duration_ns"].to_pylist() * 4)
    compare(tmp_path)
    found = {
        row["metric"]: row["value"]
        for row in pq.read_table(tmp_path / "compare" / "summary.parquet").to_pylist()
        if (row["architecture"], row["target"], row["scope"]) == ("h100", "opt1", "step")
    }
    assert found["gpu_time"] == 4 * studies.RECORDED["opt1"][1]
    assert found["launches"] == 4 * studies.RECORDED["opt1"][0]
    alone = {
        row["metric"]: row["value"]
        for row in pq.read_table(recorded / "compare" / "summary.parquet").to_pylist()
        if (row["architecture"], row["target"]) == ("h200", "opt1")
    }
    for name in ("tensor_pipe", "l2_hit_rate", "ipc", "dram_bandwidth"):
        assert found[name] == pytest.approx(alone[name])


def test_launches_that_the_step_has_not_gain_it_nothing(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage={"time": 1.0, "launches": 1.0})
    launches = pq.read_table(studies.table(tmp_path, "launches", "h100", "opt1"), partitioning=None)
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    write_timeline(timeline, launches["key"].to_pylist()[1:])
    compare(tmp_path)
    foreign = normalise(launches["demangled"][0].as_py())
    found = {
        (row["metric"], row["value"])
        for row in pq.read_table(tmp_path / "compare" / "priority.parquet").to_pylist()
        if row["name"] == foreign
    }
    assert found == {
        ("priority", None),
        ("time_share", 0.0),
        ("speedup_global", None),
        ("speedup_local", None),
    }


@pytest.mark.parametrize("name", ["metrics", "rules"])
def test_a_table_of_another_report_is_refused(recorded, tmp_path, name):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1")
    shutil.copy(
        studies.table(recorded, name, "h200", "baseline"), studies.table(tmp_path, name, "h100", "opt1")
    )
    with pytest.raises(InputRefused, match=rf"{name}/.*part\.parquet: is of another report than"):
        compare(tmp_path)
