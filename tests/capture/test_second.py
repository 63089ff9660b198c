"""Second measurements: what they are planned for, that they are made, and what they are worth."""

import json

import numpy as np
import pytest
from tests.capture.conftest import FAST, calls, key_of, write_timeline
from tests.capture.stand_in import ROOT

from gpuatlas.capture import run
from gpuatlas.capture.cost import CostModel, estimate
from gpuatlas.capture.join import Measured, read_measured, require_second
from gpuatlas.capture.ncu import Stop
from gpuatlas.capture.represent import known_times, represent
from gpuatlas.capture.second import plan_step, second_part
from gpuatlas.capture.timeline import read_timeline, timeline_of
from gpuatlas.errors import GpuatlasError, OtherLaunches

TIMELINES = sorted((ROOT / "tests" / "data" / "measured" / "h200").glob("*/timeline.parquet"))
COST = CostModel(27, 30)


def step_of(times: dict[str, list[float]], names: dict[str, str] | None = None):
    """Return a step that launches each configuration with these times."""
    keys = [key for key, own in times.items() for _ in own]
    durations = [time for own in times.values() for time in own]
    named = [(names or {}).get(key, f"kernel_{key}") for key in keys]
    return timeline_of(keys, named, durations, ["forward"] * len(keys))


def test_configurations_that_always_take_as_long_are_not_measured_again():
    assert second_part(step_of({"a": [5.0] * 9, "b": [7.0]}), COST) is None
    assert second_part(step_of({"a": [100.0, 101.0, 99.0], "b": [7.0]}), COST) is None


def test_the_launch_that_mends_most_is_measured():
    step = step_of({"a": [1.0, 1.0, 1.0, 90.0, 90.0], "b": [4.0, 4.0], "c": [50.0]})
    part = second_part(step, COST)
    assert (part.functions, part.skip, part.count, part.launches) == (("kernel_a",), 3, None, 1)
    assert part.modelled_s == pytest.approx(COST.launch_s(90.0))
    assert second_part(step, COST, left_out={"a"}) is None


def test_the_other_configurations_of_a_kernel_cost_too():
    times = {"a": [1.0, 90.0], "b": [4.0, 4.0], "c": [3.0]}
    part = second_part(step_of(times, dict.fromkeys("abc", "void one<float>(int)")), COST)
    assert (part.functions, part.skip, part.launches) == (("one",), 1, 2)
    every = step_of(times, dict.fromkeys("abc", "void one<float>(int)")).configurations()
    assert {one.key for one in every if part.asks(one)} == {"a", "b"}


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.parent.name)
def test_a_few_second_measurements_speak_for_most_of_a_real_step(path):
    step = read_timeline(path)
    cost = estimate(["a section"] * 9, [], step_ns=step.gpu_time_ns, compiled=False)
    plan = plan_step(step, cost)
    *first, second = plan.parts
    assert second.launches < 0.2 * sum(part.launches for part in first)
    assert plan == plan_step(step, cost), "a plan made again is the same"
    once = list(dict.fromkeys(step.keys))
    twice = [one.key for one in step.configurations() if second.asks(one)]
    before = represent(step.keys, step.durations_ns, once, [0] * len(once)).scaled_time
    skips = [0] * len(once) + [second.skip] * len(twice)
    after = represent(step.keys, step.durations_ns, once + twice, skips).scaled_time
    assert len(twice) == second.launches
    assert after < 0.65 * before


def test_what_is_done_is_not_planned_again():
    step = step_of({"a": [1.0, 90.0], "b": [4.0, 4.0]})
    assert [part.skip for part in plan_step(step, COST).parts] == [None, 1]
    assert [part.skip for part in plan_step(step, COST, second=False).parts] == [None]
    assert [part.skip for part in plan_step(step, COST, first=False).parts] == [1]
    assert not plan_step(step, COST, first=False, second=False).parts


def test_a_budget_goes_to_first_measurements():
    step = step_of({"a": [1.0, 90.0], "b": [4.0, 4.0]})
    whole = plan_step(step, COST).seconds
    assert len(plan_step(step, COST, budget_s=whole).parts) == 2
    (only,) = plan_step(step, COST, budget_s=whole - 1).parts
    assert only.skip is None
    assert not plan_step(step, COST, budget_s=10).parts


def test_every_launch_of_a_step_is_represented_once():
    rng = np.random.default_rng(5)
    keys = [f"k{number}" for number in rng.integers(0, 30, 400)]
    times = rng.lognormal(3, 1, 400).tolist()
    once = list(dict.fromkeys(keys))
    stands = represent(keys, times, [*once, "foreign", *once], [0] * (len(once) + 1) + [2] * len(once))
    assert stands.launches.sum() == 400
    assert stands.launches[len(once)] == stands.amount[len(once)] == 0
    # Amounts times the measured launches' own times are the step's GPU time.
    own = {key: [t for k, t in zip(keys, times, strict=True) if k == key] for key in once}
    first = [own[key][0] for key in once]
    second = [own[key][min(2, len(own[key]) - 1)] for key in once]
    assert (stands.amount * np.array([*first, 0, *second])).sum() == pytest.approx(sum(times))


STEP = [*range(40), *range(30, 40), *range(30, 40)]
TIMES = [1e5] * 50 + [9e5] * 10


def capture(stand_in, request_of, recording, **script):
    folder = stand_in(step=STEP, times=TIMES, **script)
    request = request_of()
    write_timeline(request.timeline, recording, STEP, TIMES)
    return folder, request, run.capture(request, FAST, Stop())


def test_a_capture_measures_them_in_a_part_of_their_own(stand_in, request_of, recording):
    folder, request, content = capture(stand_in, request_of, recording)
    options = [call["options"] for call in calls(folder)]
    assert [one["--launch-skip"] for one in options] == [["0"], ["2"]]
    assert [(part["launches"], part["skip"]) for part in content["parts"]] == [(40, None), (10, 2)]
    assert content["launches_measured"] == 50
    assert content["configs_measured"] == content["configs_total"] == 40
    assert content["scaled_time"] == 0
    measured = read_measured(request.out / "report.ncu-repz")
    assert measured.keys[40:] == tuple(key_of(recording, number) for number in range(30, 40))
    assert measured.durations == (*[1e5] * 40, *[9e5] * 10)
    assert json.loads((request.out / "plan.json").read_text()) == content


def test_an_interrupted_capture_goes_on_with_them(stand_in, request_of, recording):
    with pytest.raises(GpuatlasError, match="killed"):
        capture(stand_in, request_of, recording, fails=[None, "kill:3"])
    folder, _, content = capture(stand_in, request_of, recording)
    assert [one["options"]["--launch-skip"] for one in calls(folder)] == [["2"]]
    assert [(part["launches"], part["skip"]) for part in content["parts"]] == [(40, None), (10, 2)]


def test_a_profiler_that_counts_otherwise_goes_without_them(stand_in, request_of, recording):
    _, request, content = capture(stand_in, request_of, recording, skips=False)
    assert [(part["launches"], part["skip"]) for part in content["parts"]] == [(40, None)]
    assert "no second measurements: 10 of 10 second measurements took other times" in content["flags"][0]
    assert content["scaled_time"] > 0.5
    assert len(read_measured(request.out / "report.ncu-repz").keys) == 40


def test_configurations_that_the_profiler_tells_apart_further_go_without_them(
    stand_in, request_of, recording
):
    """Nsight Compute also goes by shared memory, which no timeline tells: nothing may be left to profile."""
    folder = stand_in(step=STEP, times=TIMES, fails=[None, "nothing"])
    request = request_of()
    write_timeline(request.timeline, recording, STEP, TIMES)
    content = run.capture(request, FAST, Stop())
    assert len(calls(folder)) == 2
    assert "no second measurements: Nsight Compute says that no kernel was profiled" in content["flags"][0]
    assert content["launches_measured"] == 40


def test_second_measurements_must_be_of_their_launches():
    step = step_of({"a": [1.0, 90.0], "b": [4.0, 8.0], "c": [1.0, 1.0]})

    def judge(*durations: float) -> None:
        first, second = (Measured(("a", "b"), own, frozenset(), "") for own in (durations[:2], durations[2:]))
        require_second(step, [first], second, 1)

    judge(1.1, 5.0, 80.0, 9.0)
    judge(1.1, 5.0, 80.0, 30.0)  # one of two: no majority
    judge(1.1, float("nan"), 80.0, 9.0)
    with pytest.raises(OtherLaunches, match="2 of 2 second measurements"):
        judge(1.1, 5.0, 1.2, 30.0)


def test_times_that_are_not_known_are_their_configuration_s_mean():
    keys = ["a", "b", "a", "a", "c"]
    assert known_times(keys, [4.0, 3.0, 0.0, 8.0, float("nan")]).tolist() == [4.0, 3.0, 6.0, 8.0, 0.0]
    stands = represent(keys, [4.0, 3.0, 0.0, 8.0, 0.0], ["a", "b", "c"], [0, 0, 0])
    assert stands.amount.tolist() == pytest.approx([4.5, 1.0, 1.0])
    assert stands.time.tolist() == [18.0, 3.0, 0.0]
    assert stands.scaled_time == pytest.approx(14 / 21)


def test_measurements_at_one_place_are_of_one_launch():
    stands = represent(["a"] * 4, [1.0, 1.0, 5.0, 5.0], ["a", "a"], [0, 0])
    assert stands.amount.sum() == 12.0
    assert stands.scaled_time == pytest.approx(10 / 12)
