import json

from gpuatlas.capture.state import Record, open_state

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
    state.predict(100.0)
    for record in (_record(), _record(functions=("copy",), launches=5)):
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
    state.predict(1.0)
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
