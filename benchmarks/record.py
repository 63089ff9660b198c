"""Makes recordings on this machine's GPU: timing, timeline and capture of targets, slim and redacted.

    python benchmarks/record.py --target opt1 --target baseline --work FOLDER --seconds 520

It stops by itself before `--seconds` are over and keeps what is finished in `--work`: run it again with that
folder to go on. Finished recordings lie in FOLDER/recording, shaped like resources/recordings.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline

RESERVE_S = 25.0
"""Kept for stopping the profiler and copying what is finished."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", required=True, help="repeat for several, in this order")
    parser.add_argument("--architecture", default="h200")
    parser.add_argument("--network", default="whole_head_128")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--mode", default="configs")
    parser.add_argument("--budget", help="of each capture, such as 4m")
    parser.add_argument("--repeats", default="5")
    parser.add_argument("--steps", default="3")
    parser.add_argument(
        "--timing", type=Path, help="take finished timing folders from here: TIMING/TARGET/timing"
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=520.0)
    chosen = parser.parse_args()
    end = time.monotonic() + chosen.seconds - RESERVE_S
    worst = 0
    for target in chosen.target:
        name = target if chosen.mode == "configs" else f"{target}_{chosen.mode.replace(':', '')}"
        recording = chosen.work / "recording" / chosen.architecture / name
        if (recording / "report.ncu-repz").exists():
            continue
        cell = chosen.work / chosen.architecture / name
        cell.mkdir(parents=True, exist_ok=True)
        # The compiler tunes its kernels once: timeline and capture must see the same ones.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str((cell / "compiled").resolve())
        status = _record(chosen, target, cell, end)
        if status == 0:
            _publish(cell, recording)
        worst = max(worst, status)
    return worst


def _record(chosen: argparse.Namespace, target: str, cell: Path, end: float) -> int:
    timing = cell / "timing"
    if chosen.timing is not None and not timing.exists():
        shutil.copytree(chosen.timing / target / "timing", timing)
    what = ["--targets", "config/targets.yaml", "--target", target]
    what += ["--network", chosen.network, "--size", str(chosen.size)]
    if not (timing / "timings.parquet").exists():
        repeats = ["--repeats", chosen.repeats, "--steps", chosen.steps]
        if status := _run(["timing", *what, *repeats, "--out", str(timing)], end):
            return status
    if not (timing / "timeline.parquet").exists():
        baseline = cell.parent / "baseline" / "timing" / "timeline.parquet"
        against = ["--against", str(baseline)] if baseline.exists() and target != "baseline" else []
        if status := _run(["timeline", *what, *against, "--allow-no-effect", "--out", str(timing)], end):
            return status
    return _run(["capture", *what, "--timing", str(timing), *_capture_options(chosen), *_folders(cell)], end)


def _folders(cell: Path) -> list[str]:
    return ["--state", str(cell / ".state"), "--out", str(cell / "capture")]


def _capture_options(chosen: argparse.Namespace) -> list[str]:
    settings = yaml.safe_load(Path("config/config.yaml").read_text(encoding="utf-8"))["capture"]
    options = ["--mode", chosen.mode, "--replay", settings["replay"]]
    options += ["--cache-control", settings["cache_control"], "--clock-control", settings["clock_control"]]
    options += [text for section in settings["sections"] for text in ("--section", section)]
    options += [text for metric in settings["metrics"] for text in ("--metric", metric)]
    return options + (["--budget", chosen.budget] if chosen.budget else [])


def _run(arguments: list[str], end: float) -> int:
    """Run a command of gpuatlas; stop it in an orderly way when the time is over."""
    left = end - time.monotonic()
    if left < 30:
        print("out of time: run again to go on", flush=True)
        return 75
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "gpuatlas.cli", *arguments])
    try:
        status = process.wait(left)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(RESERVE_S - 5)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    print(f"{arguments[0]}: exit status {status} after {time.monotonic() - began:.0f} s", flush=True)
    return 75 if status < 0 else status


def _publish(cell: Path, recording: Path) -> None:
    recording.mkdir(parents=True, exist_ok=True)
    report = recording / "report.ncu-repz"
    slim = ["slim", str(cell / "capture" / "report.ncu-repz"), "--out", str(report)]
    subprocess.run([sys.executable, "-m", "gpuatlas.cli", *slim, "--redact", "--drop-instances"], check=True)
    for name in ("plan.json", "environment.json"):
        shutil.copy(cell / "capture" / name, recording)
    shutil.copytree(cell / "timing", recording / "timing", dirs_exist_ok=True)
    names = [one.demangled for chunk in decode_report(outline(report)) for one in chunk.infos]
    plan = json.loads((recording / "plan.json").read_text(encoding="utf-8"))
    print(
        f"{len(names)} launches, dgrad {sum('dgrad' in name for name in names)}, "
        f"wgrad {sum('wgrad' in name for name in names)}; coverage {plan['coverage_time']}, "
        f"unmatched {plan['unmatched_time']}, predicted {plan['predicted_s']:.0f} s, real "
        f"{plan['spent_s']:.0f} s; flags {plan['flags']}",
        flush=True,
    )
    size = sum(path.stat().st_size for path in recording.rglob("*") if path.is_file())
    print(f"{recording}: {size / 1e6:.2f} MB, report {report.stat().st_size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
