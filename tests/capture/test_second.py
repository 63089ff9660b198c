"""Second measurements: what they are planned for, that they are made, and what they are worth."""

import json

import numpy as np
import pytest
from tests.capture.conftest import FAST, SLOW, calls, key_of, write_timeline
from tests.capture.stand_in import ROOT

from gpuatlas.capture import run
from gpuatlas.capture.cost import CostModel, estimate
from gpuatlas.capture.join import Measured, read_measured, require_second
from gpuatlas.capture.ncu import Stop
from gpuatlas.capture.plan import plan_configs
from gpuatlas.capture.represent import known_times, represent, skips_of
from gpuatlas.capture.second import FURTHEST, plan_step
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


def second_of(plan) -> list[tuple[int | None, int]]:
    return [(part.again, part.second) for part in plan.parts]


def test_configurations_that_always_take_as_long_are_not_measured_again():
    assert second_of(plan_step(step_of({"a": [5.0] * 9, "b": [7.0]}), COST)) == [(None, 0)]
    assert second_of(plan_step(step_of({"a": [100.0, 101.0, 99.0], "b": [7.0]}), COST)) == [(None, 0)]


def test_the_launch_that_speaks_for_most_is_measured():
    step = step_of({"a": [1.0, 1.0, 1.0, 90.0, 90.0], "b": [4.0, 4.0], "c": [50.0]})
    (part,) = plan_step(step, COST).parts
    assert (part.functions, part.skip, part.count) == (None, None, None)
    assert (part.launches, part.again, part.second) == (4, 4, 1)
    assert part.modelled_s == pytest.approx(COST.launches_s([182 / 5, 4.0, 50.0, 90.0]))
    assert second_of(plan_step(step, COST, second=False)) == [(None, 0)]


def test_the_other_configurations_cost_too():
    # A second measurement must speak for a thousandth of the step: here for more than 0.103.
    def times(short: float) -> dict[str, list[float]]:
        return {"a": [1.0, short], **{f"b{number}": [1.0, 1.0] for number in range(50)}}

    assert second_of(plan_step(step_of(times(5.5)), COST)) == [(2, 51)]
    assert second_of(plan_step(step_of(times(5.3)), COST)) == [(None, 0)]


def test_each_part_has_a_number_of_its_own():
    times = {f"a{number}": [1e9, 3e9, 1e9] for number in range(5)}
    times |= {f"b{number}": [1e9, 1e9, 3e9] for number in range(5)}
    names = {key: f"kernel_{key[0]}" for key in times}
    first, second = plan_step(step_of(times, names), CostModel(9, 30)).parts
    assert {first.functions, second.functions} == {("kernel_a",), ("kernel_b",)}
    assert {(part.functions[0], part.again, part.second) for part in (first, second)} == {
        ("kernel_a", 2, 5),
        ("kernel_b", 3, 5),
    }


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.parent.name)
def test_a_few_second_measurements_speak_for_most_of_a_real_step(path):
    step = read_timeline(path)
    cost = estimate(["a section"] * 9, [], step_ns=step.gpu_time_ns, compiled=False)
    plan = plan_step(step, cost)
    assert plan == plan_step(step, cost), "a plan made again is the same"
    once = list(dict.fromkeys(step.keys))
    again = {
        one.key: part.again - 1 for part in plan.parts for one in step.configurations() if part.twice(one)
    }
    assert len(again) == sum(part.second for part in plan.parts) < 0.2 * len(once)
    assert plan.launches == len(once) + len(again)
    before = represent(step.keys, step.durations_ns, once, [0] * len(once)).scaled_time
    skips = [0] * len(once) + list(again.values())
    after = represent(step.keys, step.durations_ns, [*once, *again], skips).scaled_time
    assert after < 0.65 * before


def test_what_is_done_is_not_planned_again():
    step = step_of({"a": [1.0, 90.0], "b": [4.0, 4.0]})
    assert second_of(plan_step(step, COST)) == [(2, 2)]
    assert second_of(plan_step(step, COST, done={"kernel_a"})) == [(None, 0)]
    assert not plan_step(step, COST, done={"kernel_a", "kernel_b"}).parts


def test_second_measurements_get_what_a_budget_leaves_or_its_last_hundredth():
    def chosen(last: float, budget_s: float | None) -> tuple[set[str], list[tuple[int | None, int]]]:
        step = step_of({"a": [10.0, 90.0], "b": [200.0], "c": [last]})
        plan = plan_step(step, COST, budget_s=budget_s)
        assert budget_s is None or plan.seconds <= budget_s
        return set(plan.left_out), second_of(plan)

    whole = plan_step(step_of({"a": [10.0, 90.0], "b": [200.0], "c": [1.0]}), COST).seconds
    assert chosen(1.0, None) == chosen(1.0, whole) == (set(), [(2, 1)])
    # One launch less: c, which is less or more than a hundredth of the step, or the second measurement.
    assert chosen(2.0, whole - 0.1) == ({"c"}, [(2, 1)])
    assert chosen(4.0, whole - 0.1) == (set(), [(None, 0)])
    assert chosen(1.0, 10.0) == ({"a", "b", "c"}, [])


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.parent.name)
def test_a_budget_buys_as_much_of_a_real_step_as_without_second_measurements(path):
    step = read_timeline(path)
    every = step.configurations()
    time = {one.key: one.time_ns / step.gpu_time_ns for one in every}
    compiled = path.parent.name.startswith("compile")
    cost = estimate(["a section"] * 9, [], step_ns=step.gpu_time_ns, compiled=compiled)
    for budget_s in range(40, 700, 15):
        plan = plan_step(step, cost, budget_s=budget_s)
        once = plan_configs(every, cost, budget_s=budget_s)
        assert plan.seconds <= budget_s + 1e-6
        assert sum(time[key] for key in plan.left_out) <= sum(time[key] for key in once.left_out) + 0.01
        named = [name for part in plan.parts for name in part.functions or ()]
        assert len(named) == len(set(named))
        for part in plan.parts:
            asked = [one for one in every if part.asks(one)]
            twice = sum(one.launches >= (part.again or 10**9) for one in asked)
            assert (part.launches, part.second) == (len(asked) + twice, twice)


def test_rooms_of_several_parts_add_up():
    times = {f"a{number}": [1e9, 3e9, 1e9] for number in range(5)}
    times |= {f"b{number}": [1e9, 1e9, 3e9] for number in range(5)}
    step = step_of(times, {key: f"kernel_{key[0]}" for key in times})
    cost = CostModel(9, 30)
    whole = plan_step(step, cost)
    short = plan_step(step, cost, budget_s=whole.seconds - 1)
    assert sorted(part.second for part in whole.parts) == [5, 5]
    assert sorted(part.second for part in short.parts) == [0, 5]
    assert short.left_out == frozenset()


def test_the_furthest_launch_that_is_measured():
    for place, number in ((FURTHEST, FURTHEST), (FURTHEST + 1, None)):
        step = step_of({"a": [1.0] * (place - 1) + [90.0]})
        assert second_of(plan_step(step, COST))[0][0] == number


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


def capture(stand_in, request_of, recording, probed=FAST, step=STEP, times=TIMES, **script):
    folder = stand_in(step=step, times=times, **script)
    request = request_of()
    write_timeline(request.timeline, recording, step, times)
    return folder, request, run.capture(request, probed, Stop())


def test_a_part_measures_the_first_launch_and_a_later_one(stand_in, request_of, recording):
    folder, request, content = capture(stand_in, request_of, recording)
    (call,) = calls(folder)
    assert call["options"]["--kernel-id"] == ["::regex:.*:^(1|3)$"]
    assert "--launch-count" not in call["options"]
    (part,) = content["parts"]
    assert (part["launches"], part["again"], part["second"]) == (50, 3, [*range(40, 50)])
    assert content["launches_measured"] == 50
    assert content["configs_measured"] == content["configs_total"] == 40
    assert content["scaled_time"] == 0
    measured = read_measured(request.out / "report.ncu-repz")
    assert measured.keys[40:] == tuple(key_of(recording, number) for number in range(30, 40))
    assert measured.durations == (*[1e5] * 40, *[9e5] * 10)
    assert json.loads((request.out / "plan.json").read_text()) == content


def test_an_interrupted_capture_measures_them_again(stand_in, request_of, recording):
    with pytest.raises(GpuatlasError, match="killed"):
        capture(stand_in, request_of, recording, fails=["kill:43"])
    _, _, content = capture(stand_in, request_of, recording)
    assert [(part["launches"], part["again"]) for part in content["parts"]] == [(50, 3)]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ({"counts": "kernel"}, "of the step's GPU time has no measured launch"),
        ({"fails": ["nothing", None]}, "no kernel was profiled"),
        ({"fails": ["identifier", None]}, "it cannot select launches by their number"),
        ({"numbers": "1|2|3"}, "other launches of a configuration than those asked for"),
        ({"numbers": "1|2", "named": "3"}, "10 of 10 second measurements took other times"),
        ({"numbers": "1|3", "named": None}, "other launches of a configuration than those asked for"),
    ],
)
def test_a_profiler_that_counts_otherwise_goes_without_them(stand_in, request_of, recording, script, why):
    folder, request, content = capture(stand_in, request_of, recording, **script)
    once, plain = (call["options"] for call in calls(folder))
    assert "--kernel-id" in once
    log, replaced = ((request.state / name).read_text() for name in ("part-000.log", "no-second.log"))
    assert log.count("- 27 passes") == 40
    assert replaced != log
    assert content["spent_s"] > sum(part["startup_s"] + part["profile_s"] for part in content["parts"]) + 0.1
    assert plain["--launch-count"] == ["1"]
    assert [(part["launches"], part["again"]) for part in content["parts"]] == [(40, None)]
    assert "no second measurements" in content["flags"][0]
    assert why in content["flags"][0]
    assert str(request.state) not in content["flags"][0]
    assert content["scaled_time"] > 0.5
    assert len(read_measured(request.out / "report.ncu-repz").keys) == 40


def test_what_fails_without_them_too_is_not_given_up(stand_in, request_of, recording):
    with pytest.raises(GpuatlasError, match="no kernel was profiled"):
        capture(stand_in, request_of, recording, fails=["nothing"])
    folder, _, content = capture(stand_in, request_of, recording)
    assert len(calls(folder)) == 1
    assert [(part["launches"], part["again"]) for part in content["parts"]] == [(50, 3)]
    assert content["flags"] == []


def test_a_capture_that_gave_them_up_goes_on_without(stand_in, request_of, recording):
    with pytest.raises(GpuatlasError, match="killed"):
        capture(stand_in, request_of, recording, SLOW, fails=["nothing", None, "kill:1"])
    folder, _, content = capture(stand_in, request_of, recording, SLOW)
    assert len(content["parts"]) > 1
    assert all("--kernel-id" not in call["options"] for call in calls(folder))
    assert {part["again"] for part in content["parts"]} == {None}
    assert content["flags"][0].startswith("no second measurements: Nsight Compute says that no kernel was")


def test_from_which_part_on_they_were_given_up(stand_in, request_of, recording):
    step, times = [*range(40)] * 3, [1e5] * 80 + [9e5] * 40
    fails = [None, "nothing", None]
    _, _, content = capture(stand_in, request_of, recording, SLOW, step, times, fails=fails)
    assert content["parts"][0]["second"]
    assert not content["parts"][1]["second"]
    assert content["flags"][0].startswith("no second measurements from part 2 on: ")


def test_a_part_of_which_nothing_was_measured_again_is_kept(stand_in, request_of, recording):
    """Nsight Compute also goes by shared memory, which no timeline tells: there may be no third launch."""
    folder, _, content = capture(stand_in, request_of, recording, numbers="1")
    assert len(calls(folder)) == 1
    assert [(part["launches"], part["second"]) for part in content["parts"]] == [(40, [])]
    assert content["flags"] == []
    assert content["scaled_time"] > 0.5


def test_second_measurements_must_be_of_their_launches():
    step = step_of({"a": [1.0, 90.0], "b": [4.0, 8.0], "c": [1.0, 1.0]})

    def judge(*durations: float) -> None:
        require_second(step, Measured(("a", "b", "a", "b"), durations, frozenset(), ""), 2, (2, 3))

    judge(1.1, 5.0, 80.0, 9.0)
    judge(1.1, 5.0, 80.0, 30.0)  # one of two: no majority
    judge(1.1, float("nan"), 80.0, 9.0)
    judge(0.0, 5.0, 80.0, 9.0)
    with pytest.raises(OtherLaunches, match="2 of 2 second measurements"):
        judge(1.1, 5.0, 1.2, 30.0)


def test_times_that_are_not_known_are_their_configuration_s_mean():
    keys = ["a", "b", "a", "a", "c"]
    assert known_times(keys, [4.0, 3.0, 0.0, 8.0, float("nan")]).tolist() == [4.0, 3.0, 6.0, 8.0, 0.0]
    stands = represent(keys, [4.0, 3.0, 0.0, 8.0, 0.0], ["a", "b", "c"], [0, 0, 0])
    assert stands.amount.tolist() == pytest.approx([4.5, 1.0, 1.0])
    assert stands.time.tolist() == [18.0, 3.0, 0.0]
    assert stands.scaled_time == pytest.approx(14 / 21)


def test_a_later_launch_is_the_one_of_its_number():
    parts = [{"launches": 1}, {"launches": 3, "again": 3, "second": [2]}]
    assert skips_of(parts) == [0, 0, 0, 2]
    keys = ["a", "b", "b", "b", "b", "b", "c"]
    stands = represent(keys, [1.0, 1.0, 1.0, 6.0, 3.0, 6.0, 1.0], ["a", "b", "c", "b"], skips_of(parts))
    assert stands.amount.tolist() == pytest.approx([1.0, 2.0, 1.0, 2.5])


def test_measurements_at_one_place_are_of_one_launch():
    stands = represent(["a"] * 4, [1.0, 1.0, 5.0, 5.0], ["a", "a"], [0, 0])
    assert stands.amount.sum() == 12.0
    assert stands.scaled_time == pytest.approx(10 / 12)
