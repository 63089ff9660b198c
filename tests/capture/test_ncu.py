import os
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.capture.conftest import calls, key_of
from tests.capture.stand_in import HELP, options

from gpuatlas.capture import ncu
from gpuatlas.capture.join import read_measured
from gpuatlas.capture.messages import MARKED, invocation, profiled
from gpuatlas.capture.plan import Part
from gpuatlas.errors import GpuatlasError, Interrupted, MachineRefused

EVERY = Part(None, None, None, 10, 8.0)
SETTINGS = ncu.Settings(("SpeedOfLight", "LaunchStats"), ("dram__bytes_read.sum",), "kernel", "all", "none")
ENDED = f"print({MARKED.format(0.001)!r})"
PROGRAM = [sys.executable, "-c", f"import marked; marked.start(); marked.stop(); {ENDED}"]
STEP = [*range(20), 3, 5, 7, 3, 5, 7]


def _run(tmp_path: Path, part: Part = EVERY, settings: ncu.Settings = SETTINGS, program: list[str] = PROGRAM):
    report = tmp_path / "part.ncu-rep"
    outcome = ncu.run(
        [*ncu.arguments("ncu", settings, part, report), *program],
        log=tmp_path / "part.log",
        environment=os.environ,
        stop=ncu.Stop(),
    )
    return outcome, report


def _keys(recording, numbers):
    return tuple(key_of(recording, number) for number in numbers)


def test_every_option_and_value_is_in_the_real_help():
    if not HELP.is_file():
        pytest.skip(f"{HELP}: the real help text is not recorded yet")
    known = options(HELP.read_text(encoding="utf-8"))
    assert len(known) > 20
    twice = Part(("a", "b"), None, None, 4, 2.0, again=3, second=2)
    for part in (EVERY, twice, Part(("a", "b"), None, None, 2, 1.0), Part(None, 5, 10, 10, 1.0)):
        given = ncu.arguments("ncu", SETTINGS, part, Path("x.ncu-rep"))[1:]
        at = 0
        while at < len(given):
            option = known[given[at]]
            value = given[at + 1] if option.takes_value else ""
            if re.search(r"^\s{20,}[a-z-]+$", option.text, re.MULTILINE):  # a list of values
                assert value in option.text, given[at]
            at += 2 if option.takes_value else 1


def test_each_configuration_once(stand_in, tmp_path, recording):
    stand_in(before=[50, 51], step=STEP, after=[52])
    outcome, report = _run(tmp_path)
    measured = read_measured(report)
    assert measured.keys == tuple(dict.fromkeys(_keys(recording, STEP)))
    assert outcome.launches == len(measured.keys)
    assert outcome.passes == {27: outcome.launches}
    assert outcome.profile_s == 0.001
    assert outcome.startup_s > 0
    assert "Profiling" in (tmp_path / "part.log").read_text()


def test_named_kernels_only(stand_in, tmp_path, recording):
    stand_in(step=STEP)
    _, report = _run(tmp_path, Part(("elementwise_kernel", "kernel"), None, None, 2, 1.0))
    assert {
        recording.launches[n].function for n in STEP if key_of(recording, n) in read_measured(report).keys
    } == {
        "elementwise_kernel",
        "kernel",
    }


def test_instances_of_a_template_are_kernels_of_their_own(stand_in, tmp_path, recording):
    shapes: dict[object, set[str]] = {}
    for number, launch in enumerate(recording.launches):
        shapes.setdefault((launch.function, launch.grid, launch.block), set()).add(key_of(recording, number))
    assert any(len(keys) > 1 for keys in shapes.values()), "the recording has what base names would lose"
    stand_in(step=list(range(105)))
    _, report = _run(tmp_path)
    assert set(read_measured(report).keys) == set.union(*shapes.values())


def test_patterns_find_the_mangled_names_of_their_kernels(recording):
    for launch in recording.launches:
        assert re.search(ncu.mangled_pattern(launch.function), launch.mangled)
    functions = {launch.function for launch in recording.launches}
    others = [
        (function, launch.function)
        for function in functions
        for launch in recording.launches
        if function != launch.function and re.search(ncu.mangled_pattern(function), launch.mangled)
    ]
    assert not others


def test_the_real_one_tells_instances_apart_by_mangled_names_alone():
    folder = HELP.parent

    def rows(name: str) -> list[str]:
        lines = (folder / f"filter_{name}.txt").read_text(encoding="utf-8").splitlines()
        return [line.split(",", 1)[1].split(',"1","7"')[0] for line in lines if re.match(r'"\d+",', line)]

    assert len(rows("every")) == 16
    assert len(rows("mangled")) == len(set(rows("every"))) * 2 == 8
    assert len(rows("function")) == 4
    assert len(rows("mangled_named")) == 6


def test_the_real_one_counts_invocations_for_each_configuration():
    """Recorded: 45 launches each of b + 1, b * 2 and a + 1, then 3 of b.sum()."""
    text = (HELP.parent / "filter_kernel_id.txt").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r'"\d+",', line)]
    shapes = Counter(line.split(",", 1)[1].rsplit(",", 1)[0] for line in rows)
    assert sorted(shapes.values()) == [1, 2, 2, 2], "the fourth of each configuration that has one, no 14th"
    told = [found[0] for line in text.splitlines() if (found := profiled(line))]
    assert [invocation(name) for name in told] == [1, 1, 1, 4, 4, 4, 1]


def test_the_first_and_a_later_launch_of_each_configuration(stand_in, tmp_path, recording):
    stand_in(step=STEP)
    functions = tuple(sorted({recording.launches[number].function for number in (3, 5)}))
    part = Part(functions, None, None, 0, 1.0, again=3)
    outcome, report = _run(tmp_path, part)
    asked = [number for number in STEP if recording.launches[number].function in functions]
    count: Counter[str] = Counter()
    expected = []
    for key in _keys(recording, asked):
        count[key] += 1
        expected += [(key, count[key])] if count[key] in (1, 3) else []
    assert [*zip(read_measured(report).keys, outcome.invocations, strict=True)] == expected
    assert {number for _, number in expected} == {1, 3}


def test_a_range_of_launches(stand_in, tmp_path, recording):
    stand_in(step=STEP)
    _, report = _run(tmp_path, Part(None, 18, 5, 5, 1.0))
    assert read_measured(report).keys == _keys(recording, STEP[18:23])


def test_only_the_metrics_asked_for(stand_in, tmp_path):
    stand_in(step=STEP)
    settings = ncu.Settings((), ("gpu__time_duration.sum", "sm__cycles_elapsed.max"), "kernel", "all", "none")
    _run(tmp_path, settings=settings)
    import ncu_report

    action = ncu_report.load_report(str(tmp_path / "part.ncu-rep")).range_by_idx(0).action_by_idx(0)
    counters = {name for name in action.metric_names() if not name.startswith(("device__", "launch__"))}
    assert counters == set(settings.metrics)


@pytest.mark.parametrize(
    ("fail", "error", "words"),
    [
        ("permission", MachineRefused, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("busy", MachineRefused, "dcgmi profile --pause"),
        ("kill:3", GpuatlasError, "killed .signal 9. after 3 launches"),
    ],
)
def test_refusals_are_told_with_their_remedy(stand_in, tmp_path, fail, error, words):
    stand_in(step=STEP, fails=[fail])
    with pytest.raises(error, match=words):
        _run(tmp_path)
    assert not (tmp_path / "part.ncu-rep").exists()


def test_an_unknown_option_is_refused_as_by_the_real_one(stand_in, tmp_path):
    stand_in(step=STEP)
    command = ncu.arguments("ncu", SETTINGS, EVERY, tmp_path / "r.ncu-rep")
    with pytest.raises(MachineRefused, match="option"):
        ncu.run(
            [command[0], "--no-such-option", *command[1:], *PROGRAM],
            log=tmp_path / "log",
            environment=os.environ,
            stop=ncu.Stop(),
        )


def test_no_kernels_were_profiled(stand_in, tmp_path):
    stand_in(step=STEP)
    with pytest.raises(GpuatlasError, match="no kernel was profiled"):
        _run(tmp_path, program=[sys.executable, "-c", ENDED])  # the range never starts
    with pytest.raises(GpuatlasError, match="no kernel was profiled"):
        _run(tmp_path, Part(("no_such_kernel",), None, None, 1, 1.0))


def test_a_failing_program(stand_in, tmp_path):
    stand_in(step=STEP)
    with pytest.raises(GpuatlasError, match="profiled program failed"):
        _run(tmp_path, program=[sys.executable, "-c", "import marked; marked.start(); raise SystemExit(3)"])


def test_a_program_that_ends_inside_its_step(stand_in, tmp_path):
    stand_in(step=STEP)
    with pytest.raises(GpuatlasError, match="marked step"):
        _run(tmp_path, program=[sys.executable, "-c", "import marked; marked.start()"])


def test_lost_metrics_are_kept_and_an_essential_one_fails(stand_in, tmp_path):
    stand_in(step=STEP, lost=["ctc__rx_bytes_data_user.sum"])
    outcome, _ = _run(tmp_path)
    assert outcome.lost == ["ctc__rx_bytes_data_user.sum"]
    stand_in(step=STEP, lost=["gpu__time_duration.sum"])
    with pytest.raises(GpuatlasError, match=r"gpu__time_duration\.sum"):
        _run(tmp_path)


def test_a_missing_profiler(tmp_path):
    with pytest.raises(MachineRefused, match="doctor"):
        ncu.run(["/nowhere/ncu"], log=tmp_path / "log", environment=os.environ, stop=ncu.Stop())


def test_a_stop_ends_the_profiler_and_its_program(stand_in, tmp_path):
    stand_in(step=STEP)
    pid = tmp_path / "pid"
    program = [
        sys.executable,
        "-c",
        f"import os, time, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)",
    ]
    stop = ncu.Stop()

    def request() -> None:
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
        stop.requested.set()

    threading.Thread(target=request).start()
    began = time.monotonic()
    with pytest.raises(Interrupted, match="again"):
        ncu.run(
            [*ncu.arguments("ncu", SETTINGS, EVERY, tmp_path / "r.ncu-rep"), *program],
            log=tmp_path / "log",
            environment=os.environ,
            stop=stop,
        )
    assert time.monotonic() - began < 60
    state = Path("/proc", pid.read_text(), "stat")
    assert not state.exists() or ") Z " in state.read_text()


def test_the_version(stand_in, tmp_path):
    folder = stand_in(step=[])
    assert ncu.version(str(folder / "ncu")) == "2025.3.1.0"
    assert ncu.version(str(tmp_path / "none")) is None
    assert not (folder / "calls.jsonl").exists()


def test_the_temporary_folder_is_the_job_s(stand_in, tmp_path):
    folder = stand_in(step=STEP)
    _run(tmp_path)
    (call,) = calls(folder)
    assert call["tmpdir"] == str(tmp_path)
    assert call["command"] == PROGRAM
