"""The whole stage, with the stand-in for ncu and a program without torch."""

import json
import os
import resource
import signal
import threading
import time
from pathlib import Path

import ncu_report
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.capture.conftest import FAST, SETTINGS, SLOW, STEP, calls, key_of, write_timeline
from tests.capture.stand_in import ROOT

from gpuatlas.capture import run
from gpuatlas.capture.join import read_measured
from gpuatlas.capture.ncu import Settings, Stop
from gpuatlas.capture.probe import Probed
from gpuatlas.capture.result import Request
from gpuatlas.errors import GpuatlasError, InputRefused, Interrupted
from gpuatlas.tables import schema


def _plan(request: Request) -> dict:
    return json.loads((request.out / "plan.json").read_text())


def _step_keys(recording) -> list[str]:
    return [key_of(recording, number) for number in STEP]


def test_a_whole_step_in_one_part(stand_in, request_of, recording, tmp_path):
    folder = stand_in(step=STEP)
    request = request_of()
    content = run.capture(request, FAST, Stop())
    assert content == _plan(request)
    assert len(calls(folder)) == 1
    assert "--kernel-name" not in calls(folder)[0]["options"]
    measured = read_measured(request.out / "report.ncu-repz")
    assert set(measured.keys) == set(_step_keys(recording))
    assert len(measured.keys) == len(set(measured.keys))
    expected = {
        "mode": "configs",
        "window": None,
        "configs_total": len(set(_step_keys(recording))),
        "configs_measured": len(set(_step_keys(recording))),
        "launches_total": len(STEP),
        "coverage_time": 1.0,
        "coverage_launches": 1.0,
        "unmatched_time": 0.0,
        "foreign_launches": 0,
        "sections": ["SpeedOfLight", "LaunchStats"],
        "metrics": ["dram__bytes_read.sum"],
        "metrics_lost": [],
        "replay": "kernel",
        "cache": "all",
        "clock": "none",
        "ncu": "2025.3.1.0",
        "flags": [],
        "passes": 27,
    }
    assert {key: content[key] for key in expected} == expected
    assert content["gpu_time_ns"] == pytest.approx(sum(1000.0 * (number + 1) for number in STEP))
    assert content["predicted_s"] > 0
    assert content["spent_s"] > 0
    assert json.loads((request.out / "environment.json").read_text())["stack"]["ncu"] == "2025.3.1.0"
    assert not list(tmp_path.glob("gpuatlas-*")), "temporary folders are removed"


def test_the_report_opens_in_nvidia_s_reader_with_the_recorded_values(stand_in, request_of, recording):
    stand_in(step=STEP)
    request = request_of()
    run.capture(request, SLOW, Stop())
    served = ncu_report.load_report(str(request.out / "report.ncu-repz")).range_by_idx(0)
    source = ncu_report.load_report(str(ROOT / "tests/data/windows/h200/opt1/report.ncu-repz")).range_by_idx(
        0
    )
    durations = {}
    for index in range(source.num_actions()):
        durations[key_of(recording, index)] = source.action_by_idx(index)["gpu__time_duration.sum"].value()
    for index, key in enumerate(read_measured(request.out / "report.ncu-repz").keys):
        assert served.action_by_idx(index)["gpu__time_duration.sum"].value() == durations[key]
        assert {section.identifier() for section in served.action_by_idx(index).sections()} == set(
            SETTINGS.sections
        )


@pytest.mark.parametrize(
    ("key", "held", "wanted"), [("target", "opt2", "opt1"), ("network", "brats_192", "small_64"), ("size", "32", "16")]
)  # fmt: skip
def test_another_cell_s_timeline_is_refused(stand_in, request_of, key, held, wanted):
    folder = stand_in(step=STEP)
    request = request_of()
    of_cell = {"target": "opt1", "network": "small_64", "size": "16"}
    for told, refused in ((of_cell | {key: held}, True), (of_cell, False)):
        table = pq.read_table(request.timeline)
        pq.write_table(table.cast(schema.with_metadata(table.schema, told)), request.timeline)
        if refused:
            with pytest.raises(InputRefused, match=f"is of {key} '{held}' and not '{wanted}'"):
                run.capture(request, FAST, Stop())
            assert not request.out.exists()
            assert not (folder / "calls.jsonl").exists()
        else:
            assert run.capture(request, FAST, Stop())["coverage_time"] == 1.0


def test_a_full_disk_names_the_file(stand_in, request_of):
    stand_in(step=STEP)
    request = request_of()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            run.capture(request, FAST, Stop())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(request.state / "capture.json")
    assert not request.out.exists()


def test_a_full_disk_ends_the_profiler(stand_in, request_of):
    stand_in(step=STEP)
    request = request_of()
    run.capture(request, FAST, Stop())
    (request.state / "part-000.json").unlink()
    log = request.state / "part-000.log"
    log.unlink()
    log.symlink_to("/dev/full")
    stand_in(step=STEP, launch_s=10)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    with pytest.raises(OSError, match="No space left on device") as caught:
        run.capture(request, FAST, Stop())
    assert caught.value.filename == str(log)
    assert children.read_text() == before


def test_a_killed_profiler_fails_the_cell_and_the_same_command_goes_on(stand_in, request_of, recording):
    folder = stand_in(step=STEP, fails=[None, "kill:3"])
    request = request_of()
    with pytest.raises(GpuatlasError, match="killed"):
        run.capture(request, SLOW, Stop())
    assert not request.out.exists()
    first, second = (set(_names(call)) for call in calls(folder))
    assert first
    assert not first & second
    folder = stand_in(step=STEP)
    content = run.capture(request, SLOW, Stop())
    assert all(not set(_names(call)) & first for call in calls(folder)), "a finished part is not run again"
    measured = read_measured(request.out / "report.ncu-repz")
    assert set(measured.keys) == set(_step_keys(recording))
    assert len(measured.keys) == len(set(measured.keys))
    assert content["coverage_time"] == 1.0
    assert len(content["parts"]) > 1
    assert content["spent_s"] == pytest.approx(
        sum(one["startup_s"] + one["profile_s"] for one in content["parts"]), abs=0.01
    )


def _names(call: dict) -> list[str]:
    (pattern,) = call["options"]["--kernel-name"]
    return pattern.removeprefix("regex:^(").removesuffix(")$").split("|")


def test_the_prediction_is_the_one_made_before_the_first_part(stand_in, request_of):
    stand_in(step=STEP, fails=[None, "kill:0"])
    request = request_of()
    with pytest.raises(GpuatlasError):
        run.capture(request, SLOW, Stop())
    stand_in(step=STEP)
    content = run.capture(request, FAST, Stop())
    assert content["predicted_s"] > 500


def test_other_metrics_start_again(stand_in, request_of):
    folder = stand_in(step=STEP)
    run.capture(request_of(), FAST, Stop())
    assert len(calls(folder)) == 1
    run.capture(request_of(), FAST, Stop())
    assert len(calls(folder)) == 1, "nothing is missing"
    run.capture(request_of(settings=Settings(("SpeedOfLight",), (), "kernel", "none", "none")), FAST, Stop())
    assert len(calls(folder)) == 2


def test_a_stop_keeps_the_parts(stand_in, request_of):
    folder = stand_in(step=STEP)
    stop = Stop()
    stop.requested.set()
    with pytest.raises(Interrupted):
        run.capture(request_of(), FAST, stop)
    assert not (folder / "calls.jsonl").exists()


def test_sigterm_ends_the_running_part_and_the_same_command_goes_on(stand_in, request_of, tmp_path):
    stand_in(step=STEP, launch_s=0.2)
    request = request_of()
    log = request.state / "part-000.log"

    def terminate() -> None:
        while not (log.exists() and "Profiling" in log.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    with Stop().listening() as stop, pytest.raises(Interrupted, match="same command again") as caught:
        run.capture(request, FAST, stop)
    thread.join()
    assert caught.value.exit_code == 75
    assert not request.out.exists()
    assert not list(tmp_path.glob("gpuatlas-*"))
    stand_in(step=STEP)
    assert run.capture(request, FAST, Stop())["coverage_time"] == 1.0


def test_a_budget_states_its_coverage(stand_in, request_of, recording):
    stand_in(step=STEP, launch_s=0.05)
    request = request_of(budget_s=4.0)
    # Measuring all 105 would take over five seconds, however fast the machine.
    content = run.capture(request, Probed(27, 0.05, 0.75), Stop())
    assert 0.2 < content["coverage_time"] < 1
    assert content["unmatched_time"] == 0
    assert content["configs_measured"] < content["configs_total"]
    keys = set(read_measured(request.out / "report.ncu-repz").keys)
    step = _step_keys(recording)
    covered = sum(1000.0 * (number + 1) for number, key in zip(STEP, step, strict=True) if key in keys)
    assert content["coverage_time"] == pytest.approx(covered / content["gpu_time_ns"])
    assert content["budget_s"] == 4.0


def test_a_budget_below_one_part(stand_in, request_of):
    stand_in(step=STEP)
    with pytest.raises(GpuatlasError, match="budget"):
        run.capture(request_of(budget_s=20.0), SLOW, Stop())
    content = run.capture(request_of(), FAST, Stop())
    assert content["predicted_s"] > 20, "what bought nothing is no prediction"


def test_a_lost_prediction_is_not_made_up(stand_in, request_of):
    stand_in(step=STEP)
    request = request_of()
    assert run.capture(request, FAST, Stop())["predicted_s"] > 20
    (request.state / "prediction.json").unlink()
    assert run.capture(request, FAST, Stop())["predicted_s"] is None


def test_a_window_is_a_window(stand_in, request_of, recording):
    folder = stand_in(before=[100], step=STEP)
    request = request_of("first:100")
    content = run.capture(request, SLOW, Stop())
    assert content["window"] == f"the first 100 of the {len(STEP)} launches of a step"
    assert content["coverage_time"] is None
    assert content["coverage_launches"] is None
    assert read_measured(request.out / "report.ncu-repz").keys == tuple(_step_keys(recording)[:100])
    assert len(calls(folder)) > 1


def test_every_launch_is_no_window(stand_in, request_of, recording):
    stand_in(step=STEP)
    request = request_of("first:inf")
    content = run.capture(request, FAST, Stop())
    assert content["window"] is None
    assert content["coverage_time"] == 1.0
    assert read_measured(request.out / "report.ncu-repz").keys == tuple(_step_keys(recording))


def test_another_step_than_the_timeline_s(stand_in, request_of):
    stand_in(step=STEP[::-1])
    with pytest.raises(GpuatlasError, match="time the cell again"):
        run.capture(request_of("first:100"), FAST, Stop())


def test_no_backward_kernels_are_no_capture(stand_in, request_of):
    stand_in(step=STEP[: len(STEP) // 2])
    request = request_of()
    with pytest.raises(GpuatlasError, match="backward"):
        run.capture(request, FAST, Stop())
    assert not request.out.exists()


def test_a_timeline_of_other_kernels_shows_in_the_first_part(stand_in, request_of):
    """Not after half an hour: here every other configuration has another grid."""
    folder = stand_in(step=STEP)
    request = request_of()
    table = pq.read_table(request.timeline)
    keys = table["key"].to_pylist()
    other = set(list(dict.fromkeys(keys))[::2])
    keys = [f"{key}x" if key in other else key for key in keys]
    pq.write_table(table.set_column(table.column_names.index("key"), "key", pa.array(keys)), request.timeline)
    with pytest.raises(GpuatlasError, match="the timeline and the report are not of the same kernels"):
        run.capture(request, SLOW, Stop())
    assert len(calls(folder)) == 1
    assert not list(request.state.glob("part-*.json"))


def test_kernels_that_are_not_found_are_no_whole_step(stand_in, request_of):
    stand_in(step=STEP[:-30])
    with pytest.raises(GpuatlasError, match="% of the step's GPU time has no measured launch"):
        run.capture(request_of(), FAST, Stop())


def test_a_thin_report_is_refused(stand_in, request_of):
    stand_in(step=STEP, fails=["thin"])
    with pytest.raises(GpuatlasError, match="its report holds"):
        run.capture(request_of(), FAST, Stop())


def test_lost_metrics_flag_the_cell(stand_in, request_of):
    stand_in(step=STEP, lost=["dram__bytes_read.sum", "ctc__rx_bytes_data_user.sum"])
    content = run.capture(request_of(), FAST, Stop())
    assert content["metrics_lost"] == ["ctc__rx_bytes_data_user.sum", "dram__bytes_read.sum"]
    assert "could not access 2 metrics" in content["flags"][0]


def test_foreign_launches_are_counted(stand_in, request_of, recording, tmp_path):
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, [*STEP[:-1], STEP[-2]])
    stand_in(step=[*STEP, 0, 1, 2])
    assert run.capture(request_of(), FAST, Stop())["foreign_launches"] == 0
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, [n for n in STEP if n not in (3, 5)])
    assert run.capture(request_of(), FAST, Stop())["foreign_launches"] == 2


def test_the_state_holds_slim_parts(stand_in, request_of, tmp_path):
    stand_in(step=STEP)
    run.capture(request_of(), FAST, Stop())
    names = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert "part-000.ncu-repz" in names
    assert (tmp_path / "state" / "part-000.ncu-repz").stat().st_size < 2_000_000
    assert Path(tmp_path / "state" / "part-000.log").read_text().count("==PROF== Profiling") > 50
