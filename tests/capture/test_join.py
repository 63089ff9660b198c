import json
from pathlib import Path

import pytest
from tests.capture.conftest import key_of, write_timeline

from gpuatlas.capture.join import join, require_backward, require_order
from gpuatlas.capture.timeline import function_base, read_timeline, timeline_of
from gpuatlas.errors import GpuatlasError, InputRefused

DATA = Path(__file__).parent.parent / "data"
PAIRS = DATA / "ncurep" / "name_pairs.json"


def _step():
    return timeline_of(
        ["a", "b", "a", "c"],
        ["f", "g", "f", "h"],
        [10, 20, 30, 40],
        ["forward", "forward", "backward", "backward"],
    )


def test_base_names_are_those_that_ncu_stores(recording):
    assert [function_base(launch.demangled) for launch in recording.launches] == [
        launch.function for launch in recording.launches
    ]


def test_both_profilers_spellings_have_one_base_name():
    pairs = json.loads(PAIRS.read_text(encoding="utf-8"))
    assert len(pairs) > 50
    for pair in pairs:
        assert function_base(pair["ncu"]) == function_base(pair["cupti"])


def test_configurations_by_gpu_time():
    first, second, third = _step().configurations()
    assert (first.key, first.launches, first.time_ns, first.duration_ns) == ("a", 2, 40, 20)
    assert first.phases == {"forward", "backward"}
    assert (second.key, third.key) == ("c", "b")


def test_all_measured():
    covered = join(_step(), ["a", "b", "c"])
    assert (covered.configs_total, covered.configs_measured, covered.launches_total) == (3, 3, 4)
    assert (covered.coverage_time, covered.coverage_launches, covered.unmatched_time) == (1, 1, 0)
    assert covered.gpu_time_ns == 100
    assert covered.foreign == 0


def test_unmatched_is_not_what_the_budget_left_out():
    covered = join(_step(), ["a", "x"], left_out=["b"])
    assert (covered.coverage_time, covered.coverage_launches, covered.unmatched_time) == (0.4, 0.5, 0.4)
    assert covered.foreign == 1


def test_no_backward_kernels():
    with pytest.raises(GpuatlasError, match="backward"):
        require_backward(_step(), ["a", "b"])
    require_backward(_step(), ["a", "c"])
    require_backward(_step(), ["a", "b"], left_out=["c"])


def test_another_range():
    require_order(_step(), 1, ["b", "a"])
    with pytest.raises(GpuatlasError, match="2 of 2"):
        require_order(_step(), 0, ["b", "a"])
    with pytest.raises(GpuatlasError, match="1 of 3"):
        require_order(_step(), 2, ["a", "c", "a"])


def test_timelines_are_read_in_the_step_s_order(tmp_path, recording):
    path = tmp_path / "timeline.parquet"
    write_timeline(path, recording, [3, 1, 3])
    step = read_timeline(path)
    assert step.keys == (key_of(recording, 3), key_of(recording, 1), key_of(recording, 3))
    assert step.gpu_time_ns == 4000 + 2000 + 4000
    assert step.phases == ("forward", "backward", "backward")


def test_a_timeline_of_another_target():
    path = DATA / "measured" / "h200" / "opt1" / "timeline.parquet"
    assert read_timeline(path, "opt1").keys == read_timeline(path).keys
    with pytest.raises(InputRefused, match="is of target 'opt1' and not 'opt2'"):
        read_timeline(path, "opt2")


def test_no_timeline(tmp_path, recording):
    path = tmp_path / "timeline.parquet"
    with pytest.raises(InputRefused, match=r"no such file; give the folder that gpuatlas timeline wrote"):
        read_timeline(path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputRefused, match="timeline"):
        read_timeline(path)
    write_timeline(path, recording, [])
    with pytest.raises(InputRefused, match="no launch"):
        read_timeline(path)
