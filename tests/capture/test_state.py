import json

import pytest

from gpuatlas.capture.state import GivenUp, Record, open_state

IDENTITY = {"target": "opt1", "sections": ["SpeedOfLight"]}


def _record(**changed: object) -> Record:
    held = {
        "functions": ("fill", "add"),
        "skip": None,
        "count": None,
        "launches": 3,
        "modelled_s": 2.0,
        "startup_s": 30.0,
        "profile_s": 4.0,
        "passes": {"27": 2, "28": 1},
        "lost": ("ctc__x",),
    }
    return Record(**(held | changed))  # type: ignore[arg-type]


def test_finished_parts_are_found_again(tmp_path):
    state, discarded = open_state(tmp_path, IDENTITY)
    assert (state.records, discarded, state.predicted_s, state.passes) == ([], False, None, None)
    state.predict(100.0, 9.0)
    for record in (_record(), _record(functions=("copy",), launches=5, again=13, second=(2, 4))):
        state.report(len(state.records)).write_bytes(b"report")
        state.add(record)
    again, discarded = open_state(tmp_path, IDENTITY)
    assert not discarded
    assert again == state
    assert again.functions == {"fill", "add", "copy"}
    assert (again.launches, again.spent_s, again.passes, again.predicted_s) == (8, 68.0, 27, 100.0)
    assert not again.everything
    assert [path.name for path in again.reports()] == ["part-000.ncu-repz", "part-001.ncu-repz"]


def test_a_part_without_its_record_or_report_does_not_count(tmp_path):
    state, _ = open_state(tmp_path, IDENTITY)
    state.report(0).write_bytes(b"report")
    assert open_state(tmp_path, IDENTITY)[0].records == []
    state.add(_record())
    state.report(0).unlink()
    assert open_state(tmp_path, IDENTITY)[0].records == []


def test_parts_of_another_capture_are_discarded(tmp_path):
    state, _ = open_state(tmp_path, IDENTITY)
    state.report(0).write_bytes(b"report")
    state.add(_record())
    state.predict(1.0, 9.0)
    other, discarded = open_state(tmp_path, IDENTITY | {"target": "opt2"})
    assert discarded
    assert other.records == []
    assert other.predicted_s is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture.json"]


def test_a_damaged_record_ends_the_list(tmp_path):
    state, _ = open_state(tmp_path, IDENTITY)
    for number in range(2):
        state.report(number).write_bytes(b"report")
        state.add(_record())
    (tmp_path / "part-001.json").write_text(json.dumps({})[:-1])
    assert len(open_state(tmp_path, IDENTITY)[0].records) == 1


def test_a_part_of_every_kernel(tmp_path):
    state, _ = open_state(tmp_path, IDENTITY)
    state.report(0).write_bytes(b"report")
    state.add(_record(functions=None))
    assert open_state(tmp_path, IDENTITY)[0].everything
    state.report(1).write_bytes(b"report")
    state.add(_record(functions=None, skip=0, count=3))
    assert state.launches == 6


def test_a_record_of_another_version_or_kind_does_not_count(tmp_path):
    for changed in (
        {"skip": 2},
        {"again": 1},
        {"again": True},
        {"again": 3, "second": [3]},
        {"second": [0]},
        {"launches": 2.5},
        {"modelled_s": 0},
        {"startup_s": -5},
        {"profile_s": "ten"},
        {"profile_s": float("nan")},
        {"passes": {"x": 3}},
        {"lost": [1]},
        {"functions": "gemm"},
        {"further": 1},
    ):
        state, _ = open_state(tmp_path, IDENTITY)
        assert state.records == []
        state.report(0).write_bytes(b"report")
        state.report(1).write_bytes(b"report")
        state.add(_record())
        state.add(_record())
        path = tmp_path / "part-000.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
        assert open_state(tmp_path, IDENTITY)[0].records == [], changed
        assert not (tmp_path / "part-001.json").exists(), "it may be of another plan"


@pytest.mark.parametrize(
    "damaged",
    [
        "[1]",
        "",
        '{"predicted_s": "ten", "probe_s": 9}',
        '{"predicted_s": NaN, "probe_s": 9}',
        '{"predicted_s": -1, "probe_s": 9}',
        '{"predicted_s": 1e999, "probe_s": 9}',
        '{"predicted_s": 100}',
        "[" * 100_000,
    ],
    ids=range(8),
)
def test_a_damaged_prediction_is_none(tmp_path, damaged):
    state, _ = open_state(tmp_path, IDENTITY)
    state.predict(100.0, 9.0)
    again, _ = open_state(tmp_path, IDENTITY)
    assert (again.predicted_s, again.probe_s) == (100.0, 9.0)
    (tmp_path / "prediction.json").write_text(damaged)
    assert open_state(tmp_path, IDENTITY)[0].predicted_s is None


def test_a_record_without_second_measurements_counts(tmp_path):
    state, _ = open_state(tmp_path, IDENTITY)
    state.report(0).write_bytes(b"report")
    state.add(_record())
    path = tmp_path / "part-000.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({key: held[key] for key in held if key not in ("again", "second")}))
    assert open_state(tmp_path, IDENTITY)[0].records == [_record()]


def test_giving_up_is_kept_with_the_part_that_went_without(tmp_path):
    state, _ = open_state(tmp_path, IDENTITY)
    state.log(0).write_text("what the profiler said")
    state.give_up_second("it did not work", 40.0)
    assert state.spent_s == 40.0
    assert (tmp_path / "no-second.log").read_text() == "what the profiler said"
    assert open_state(tmp_path, IDENTITY)[0].given_up is None
    state.report(0).write_bytes(b"report")
    state.add(_record())
    again = open_state(tmp_path, IDENTITY)[0]
    assert again.given_up == state.given_up == GivenUp("it did not work", 0, 40.0)
    assert again.spent_s == 74.0
    assert open_state(tmp_path, IDENTITY | {"target": "opt2"})[0].given_up is None
    assert not (tmp_path / "no-second.json").exists()
