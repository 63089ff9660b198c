"""A capture of configurations, weighted by the step's timeline, says the same as the capture of every launch."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import studies

from gpuatlas.compare.run import compare
from gpuatlas.compare.weights import step_weights
from gpuatlas.errors import InputRefused
from gpuatlas.names import normalise


def write_timeline(path, keys):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"key": keys, "duration_ns": [1.0] * len(keys)}), path)


def test_weights_count_the_steps_launches(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a", "x"])
    assert step_weights(["a", "b", "c"], path, 0.8).tolist() == [3.0, 1.0, 0.0]
    assert step_weights(["a", "a", "b"], path, 0.8).tolist() == [1.5, 1.5, 1.0]
    assert step_weights(["a", "b"], tmp_path / "none.parquet", 1.0).tolist() == [1.0, 1.0]


def test_a_damaged_timeline_is_refused(tmp_path):
    path = tmp_path / "timeline.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(InputRefused, match=r"timeline\.parquet: is not a readable Parquet table"):
        step_weights(["a"], path, 1.0)


@pytest.mark.parametrize("stated", [0.9, 0.7, None])
def test_a_timeline_of_another_step_is_refused(tmp_path, stated):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b", "a", "a", "x"])
    with pytest.raises(InputRefused, match=r"holds 80\.0% of its GPU time, but plan\.json states"):
        step_weights(["a", "b"], path, stated)


def test_a_timeline_cut_after_the_cell_was_described_is_refused(tmp_path):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, ["a", "b"])
    assert step_weights(["a", "b"], path, 1.0, 2).tolist() == [1.0, 1.0]
    with pytest.raises(InputRefused, match=r"holds 2 launches, but cell\.json tells of 30"):
        step_weights(["a", "b"], path, 1.0, 30)


def test_step_totals_follow_the_timeline(recorded, tmp_path):
    studies.write_study(tmp_path, {"h100/opt1": "captured"})
    studies.add_step(tmp_path, recorded, "h100/opt1", like="opt1", coverage={"time": 1.0, "launches": 1.0})
    launches = pq.read_table(studies.table(tmp_path, "launches", "h100", "opt1"), partitioning=None)
    keys = launches["key"].to_pylist()
    assert len(set(keys)) == len(keys), "the recording holds each configuration once"
    timeline = tmp_path / "cells" / "h100" / "opt1" / "timing" / "timeline.parquet"
    write_timeline(timeline, keys * 4)
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
