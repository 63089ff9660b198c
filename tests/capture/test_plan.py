import json

import pytest
from tests.capture.stand_in import ROOT

from gpuatlas.capture.cost import CostModel, estimate, seconds, shown
from gpuatlas.capture.join import read_measured
from gpuatlas.capture.plan import PART_S, charge, parse_mode, plan_configs, plan_first
from gpuatlas.capture.timeline import Configuration, read_timeline, timeline_of
from gpuatlas.errors import ConfigError

RECORDINGS = [
    ROOT / "resources" / "recordings" / "h200" / name
    for name in ("baseline", "opt1", "opt2", "opt12", "compile")
]
TIMELINES = sorted((ROOT / "tests" / "data" / "measured" / "h200").glob("*/timeline.parquet"))


def _configurations(count: int, functions: int) -> list[Configuration]:
    return [
        Configuration(
            f"key{number}", f"kernel_{number % functions}", 2, 1e3 * (number + 1), frozenset({"forward"})
        )
        for number in range(count)
    ]


def test_default_sections_cost_what_was_measured():
    model = estimate(["section"] * 9, [], step_ns=0, compiled=False)
    assert model.passes == 27
    assert 0.8 < model.launch_s(3000) < 1.2
    assert estimate([], ["metric"] * 12, step_ns=0, compiled=False).launch_s(3000) == pytest.approx(
        0.35, abs=0.05
    )
    assert 0.03 < estimate([], ["metric"], step_ns=0, compiled=False).launch_s(3000) < 0.06


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_launches_of_recorded_steps_cost_what_was_measured(recording):
    plan = json.loads((recording / "plan.json").read_text())
    step = read_timeline(recording / "timing" / "timeline.parquet")
    mean = {one.key: one.duration_ns for one in step.configurations()}
    measured = read_measured(recording / "report.ncu-repz").keys
    took = sum(part["profile_s"] for part in plan["parts"])
    cost = estimate(
        plan["sections"], plan["metrics"], step_ns=step.gpu_time_ns, compiled=False, passes=plan["passes"]
    )
    assert cost.launches_s(mean[key] for key in measured) == pytest.approx(took, rel=0.1)


def test_a_probe_replaces_the_guessed_passes():
    assert estimate(["section"], [], step_ns=0, compiled=False, passes=44).passes == 44


def test_a_machine_on_which_the_probe_starts_fast_starts_fast():
    slow, fast = (estimate(["s"], [], step_ns=2e9, compiled=False, probe_s=s).startup_s for s in (9.0, 3.0))
    assert slow - fast == pytest.approx(12)


def test_compiling_costs_start_up():
    plain, compiled = (estimate(["s"], [], step_ns=2e9, compiled=on).startup_s for on in (False, True))
    assert compiled > plain > 6


def test_one_short_capture_is_one_part_without_a_filter():
    plan = plan_configs(_configurations(50, 7), CostModel(27, 30))
    (part,) = plan.parts
    assert part.functions is None
    assert part.launches == plan.launches == 50
    assert plan.seconds == pytest.approx(part.modelled_s + 30)


def test_long_captures_are_cut_at_kernels_and_nothing_is_lost():
    every = _configurations(1000, 40)
    plan = plan_configs(every, CostModel(27, 30))
    assert len(plan.parts) > 3
    named = [name for part in plan.parts for name in part.functions or ()]
    assert sorted(named) == sorted({one.function for one in every})
    assert sum(part.launches for part in plan.parts) == 1000
    assert all(part.modelled_s <= PART_S for part in plan.parts)
    assert plan.left_out == frozenset()


def _by_gpu_time(every: list[Configuration], cost: CostModel, budget_s: float) -> float:
    """GPU time of the kernels that are taken by GPU time alone until the budget is spent."""
    groups: dict[str, list[Configuration]] = {}
    for one in every:
        groups.setdefault(one.function, []).append(one)
    covered, spent, part = 0.0, 0.0, PART_S
    for own in sorted(groups.values(), key=lambda own: -sum(one.time_ns for one in own)):
        seconds = cost.launches_s(one.duration_ns for one in own)
        start = cost.startup_s if part + seconds > PART_S else 0.0
        if spent + start + seconds > budget_s:
            break
        part = seconds if start else part + seconds
        spent += start + seconds
        covered += sum(one.time_ns for one in own)
    return covered


def test_a_budget_covers_no_less_than_kernels_by_gpu_time_until_it_is_spent():
    every = _configurations(1000, 40)
    cost = CostModel(27, 30)
    half = plan_configs(every, cost).seconds / 2
    plan = plan_configs(every, cost, budget_s=half)
    assert 0.8 * half < plan.seconds <= half
    taken = {name for part in plan.parts for name in part.functions or ()}
    time = {
        name: sum(one.time_ns for one in every if one.function == name)
        for name in {o.function for o in every}
    }
    covered = sum(time[name] for name in taken)
    assert covered >= _by_gpu_time(every, cost, half) > 0.4 * sum(time.values())
    assert plan.left_out == {one.key for one in every if one.function not in taken}


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.parent.name)
def test_a_larger_budget_covers_no_less_of_a_real_step(path):
    timeline = read_timeline(path)
    every = timeline.configurations()
    compiled = path.parent.name.startswith("compile")
    cost = estimate(["a section"] * 9, [], step_ns=timeline.gpu_time_ns, compiled=compiled)
    covered = [0.0]
    for budget_s in range(60, 600, 20):
        plan = plan_configs(every, cost, budget_s=budget_s)
        assert plan.seconds <= budget_s + 1e-6
        left = sum(one.time_ns for one in every if one.key in plan.left_out)
        covered.append(1 - left / timeline.gpu_time_ns)
        assert covered[-1] >= _by_gpu_time(every, cost, budget_s) / timeline.gpu_time_ns - 1e-9
        assert covered[-1] >= covered[-2] - 1e-3  # how kernels fall into parts may cost as much
    assert covered[-1] > 0.97


def test_a_budget_below_the_start_up_takes_nothing():
    plan = plan_configs(_configurations(10, 2), CostModel(27, 30), budget_s=29)
    assert not plan.parts
    assert len(plan.left_out) == 10


def test_an_interrupted_capture_goes_on_with_what_is_missing():
    every = _configurations(1000, 40)
    cost = CostModel(27, 30)
    first = plan_configs(every, cost).parts[0]
    rest = plan_configs(every, cost, done=first.functions or ())
    assert rest.launches == 1000 - first.launches
    assert not {name for part in rest.parts for name in part.functions or ()} & set(first.functions or ())


def test_first_launches_are_cut_into_ranges():
    count = 700
    timeline = timeline_of(["k"] * count, ["n"] * count, [1e5] * count, ["forward"] * count)
    plan = plan_first(timeline, 0, CostModel(27, 30))
    assert [part.skip for part in plan.parts] == [
        sum(before.count or 0 for before in plan.parts[:number]) for number in range(len(plan.parts))
    ]
    assert sum(part.count or 0 for part in plan.parts) == count
    assert plan_first(timeline, 500, CostModel(27, 30)).launches == 500
    assert plan_first(timeline, 500, CostModel(27, 30), done=480).launches == 20
    assert plan_first(timeline, 9999, CostModel(27, 30)).launches == count
    short = plan_first(timeline, 0, CostModel(27, 30), budget_s=150)
    assert short.seconds <= 150 < short.seconds + 1


@pytest.mark.parametrize(("text", "first"), [("configs", None), ("first:500", 500), ("first:inf", 0)])
def test_modes(text, first):
    mode = parse_mode(text)
    assert (mode.first, mode.text) == (first, text)


@pytest.mark.parametrize("text", ["", "first", "first:0", "first:-1", "config", "first:x"])
def test_wrong_modes(text):
    with pytest.raises(ConfigError, match="--mode"):
        parse_mode(text)


def test_durations():
    assert [seconds(text) for text in ("90s", "30m", "2h")] == [90, 1800, 7200]
    assert [shown(total) for total in (42, 600, 3900)] == ["42 s", "10 min", "1 h 05 min"]
    with pytest.raises(ConfigError, match="30m"):
        seconds("30")


def test_a_site_charges_hours():
    cost = charge(1800, {"service_units_per_hour": 4, "gpus": 1})
    assert (cost.gpu_hours, cost.service_units) == (0.5, 2.0)
    assert charge(3600, {"gpus": 2}).service_units is None
