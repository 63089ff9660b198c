import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.capture.blocks import Recording, build, read
from tests.capture.stand_in import HELP, ROOT

from gpuatlas.capture import run
from gpuatlas.capture.ncu import Settings
from gpuatlas.capture.plan import parse_mode
from gpuatlas.capture.probe import Probed
from gpuatlas.capture.program import Job
from gpuatlas.capture.result import Request
from gpuatlas.names import launch_key
from gpuatlas.tables import schema

RECORDING = ROOT / "tests" / "data" / "windows" / "h200" / "opt1" / "report.ncu-repz"
Make = Callable[..., Path]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded report with a few of its sections and metrics, so that serving it takes no time."""
    whole = read(RECORDING)
    kept = {name for name in whole.names if name.startswith(("gpu__", "dram__", "sm__cycles", "smsp__inst"))}
    path = tmp_path_factory.mktemp("recorded") / "report.ncu-repz"
    chosen = range(len(whole.launches))
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(build(whole, chosen, metrics=kept, sections={"SpeedOfLight", "LaunchStats"}))
    return path


@pytest.fixture(scope="session")
def recording(recorded: Path) -> Recording:
    return read(recorded)


# What nvidia-smi tells of the machine that the recordings were made on.
GPU = {
    "name": "NVIDIA H200",
    "compute_cap": "9.0",
    "driver_version": "580.159.04",
    "memory.free": "143000",
    "clocks.sm": "1980",
    "clocks.max.sm": "1980",
    "mig.mode.current": "Disabled",
    "clocks_event_reasons.active": "0x0000000000000000",
}


def install(folder: Path, **script: object) -> None:
    """Put a stand-in for ncu into `folder`; its script says what the program launches and what goes wrong."""
    told = folder / "script.json"
    told.write_text(json.dumps(script))
    (folder / "calls.jsonl").unlink(missing_ok=True)
    program = folder / "ncu"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from pathlib import Path\nfrom tests.capture.stand_in import main\nmain(Path({str(told)!r}))\n"
    )
    program.chmod(0o755)


def show_gpu(folder: Path, gpu: dict[str, str] = GPU) -> None:
    """Put an nvidia-smi into `folder` that tells of a GPU."""
    cases = "".join(f'  --query-gpu={key}) echo "{value}";;\n' for key, value in gpu.items())
    path = folder / "nvidia-smi"
    path.write_text(f'#!/bin/sh\ncase $2 in\n{cases}  *) echo "Field is not valid"; exit 2;;\nesac\n')
    path.chmod(0o755)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Path) -> Make:
    """Put a stand-in for ncu first on the PATH."""
    if not HELP.is_file():
        pytest.skip(f"{HELP}: the real help text is not recorded yet")
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(**script: object) -> Path:
        install(folder, **({"recording": str(recorded)} | script))
        return folder

    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("GPUATLAS_SCRATCH", raising=False)
    return make


def calls(folder: Path) -> list[dict]:
    """What the stand-in was called with, a call an entry."""
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def key_of(recording: Recording, number: int) -> str:
    launch = recording.launches[number]
    return launch_key(launch.demangled, launch.grid, launch.block)


def write_timeline(
    path: Path, recording: Recording, sequence: list[int], durations: list[float] | None = None
) -> None:
    """Write the timeline of a step that launches `sequence`; its second half is the backward pass."""
    launches = [recording.launches[number] for number in sequence]
    half = len(sequence) // 2
    columns = {
        "order": list(range(len(sequence))),
        "key": [key_of(recording, number) for number in sequence],
        "name": [launch.demangled for launch in launches],
        **{
            f"{what}_{axis}": [getattr(launch, what)[position] for launch in launches]
            for what in ("grid", "block")
            for position, axis in enumerate("xyz")
        },
        "start_ns": list(range(len(sequence))),
        "duration_ns": durations or [1000.0 * (number + 1) for number in sequence],
        "stream": [7] * len(sequence),
        "op": ["aten::op"] * len(sequence),
        "module": [None] * len(sequence),
        "phase": ["forward" if position < half else "backward" for position in range(len(sequence))],
        "pass_index": [0] * len(sequence),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).cast(schema.TIMELINE), path)


STEP = [*range(60), *range(20, 60), *range(60, 105), *range(60, 80)]
SETTINGS = Settings(("SpeedOfLight", "LaunchStats"), ("dram__bytes_read.sum",), "kernel", "all", "none")
SLOW = Probed(200, 1.0, 10.0)
"""A probe by which a launch costs five seconds, so that a step takes several parts."""
FAST = Probed(27, 0.01, 10.0)


@pytest.fixture
def request_of(tmp_path, recording, monkeypatch):
    program = ROOT / "tests" / "capture" / "light_program.py"
    monkeypatch.setattr(run, "command", lambda job: [sys.executable, str(program), str(job)])
    write_timeline(tmp_path / "timing" / "timeline.parquet", recording, STEP)

    def make(mode: str = "configs", budget_s: float | None = None, settings: Settings = SETTINGS) -> Request:
        targets = str(ROOT / "config" / "targets.yaml")
        job = Job(targets, "opt1", "small_64", 16, 0, "cpu", False, "")
        return Request(
            job=job,
            timeline=tmp_path / "timing" / "timeline.parquet",
            mode=parse_mode(mode),
            budget_s=budget_s,
            settings=settings,
            state=tmp_path / "state",
            out=tmp_path / "capture",
            scratch=tmp_path,
        )

    return make
