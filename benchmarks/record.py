"""Makes recordings on this machine's GPU: timing, timeline and capture of targets, slim and redacted.

    python benchmarks/record.py --target opt1 --target baseline --work FOLDER --seconds 560 --pack FILE.tar

It ends before `--seconds` are over and keeps what is finished in `--work`: run it again with that folder, or
with what FILE.tar holds of it, to go on. Finished recordings lie in FOLDER/recording, shaped like
resources/recordings. Whole steps are captured as config/config.yaml says; windows (`--mode first:N`) with the
few metrics of bench_capture.py, which alone uses them.

Exit status: 0 all done, 75 run again, 4 this machine cannot be profiled, 1 failed.
"""

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from bench_capture import METRICS
from stages import deadline, gpuatlas, machine, pack, slim

from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline

TIMING = ("timings.parquet", "timeline.parquet", "evidence.json", "environment.json")


@dataclass(frozen=True)
class Cell:
    """One recording that is asked for, and where its files lie."""

    chosen: argparse.Namespace
    target: str

    @property
    def name(self) -> str:
        """Name of the recording: the target's, windows with their length."""
        mode = self.chosen.mode
        return self.target if mode == "configs" else f"{self.target}_{mode.replace(':', '')}"

    @property
    def folder(self) -> Path:
        """Folder of the unfinished work."""
        return Path(self.chosen.work) / self.chosen.architecture / self.name

    @property
    def recording(self) -> Path:
        """Folder of the finished recording."""
        return Path(self.chosen.work) / "recording" / self.chosen.architecture / self.name

    @property
    def finished(self) -> bool:
        """Whether the recording is there, its report written last."""
        return (self.recording / "report.ncu-repz").exists()

    def what(self) -> list[str]:
        """Return the options that say what is run."""
        chosen = self.chosen
        options = ["--targets", "config/targets.yaml", "--target", self.target, "--network", chosen.network]
        return [*options, "--size", str(chosen.size), "--device", chosen.device]


def main() -> int:
    chosen = _arguments()
    end = deadline(chosen.seconds)
    machine()
    cells = [Cell(chosen, target) for target in chosen.target]
    worst = 0
    for cell in cells:
        if cell.finished:
            continue
        status = _record(cell, end)
        worst = worst or status
        if status in (4, 75):  # no other target would fare better
            break
    if chosen.pack is not None:
        finished = [cell.recording for cell in cells if cell.finished]
        unfinished = [cell.folder for cell in cells if not cell.finished and cell.folder.exists()]
        pack(chosen.pack, chosen.work, finished + unfinished)
    return worst


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", required=True, help="repeat for several, in this order")
    parser.add_argument("--architecture", default="h200")
    parser.add_argument("--network", default="whole_head_128")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument(
        "--device", default="cuda", help="cpu only with a stand-in for ncu, to try this script"
    )
    parser.add_argument("--mode", default="configs")
    parser.add_argument("--budget", help="of each capture, such as 4m")
    parser.add_argument("--repeats", default="5")
    parser.add_argument("--steps", default="3")
    parser.add_argument(
        "--timing",
        type=Path,
        help="take finished times and timelines from here: TIMING/TARGET/timeline.parquet",
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pack", type=Path, help="tar for what is finished, and what there is of the rest")
    parser.add_argument("--seconds", type=float, default=560.0)
    return parser.parse_args()


def _record(cell: Cell, end: float) -> int:
    cell.folder.mkdir(parents=True, exist_ok=True)
    # The compiler tunes its kernels once: timeline and capture must see the same ones.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str((cell.folder / "compiled").resolve())
    timing = cell.folder / "timing"
    _take_timing(cell, timing)
    if not (timing / "timings.parquet").exists():
        repeats = ["--repeats", cell.chosen.repeats, "--steps", cell.chosen.steps]
        if status := gpuatlas(["timing", *cell.what(), *repeats, "--out", str(timing)], end):
            return status
    if not (timing / "timeline.parquet").exists():
        options = [*_against(cell), "--allow-no-effect", "--out", str(timing)]
        if status := gpuatlas(["timeline", *cell.what(), *options], end):
            return status
    folders = ["--state", str(cell.folder / ".state"), "--out", str(cell.folder / "capture")]
    if status := gpuatlas(
        ["capture", *cell.what(), "--timing", str(timing), *_capture_options(cell.chosen), *folders], end
    ):
        return status
    _publish(cell)
    return 0


def _take_timing(cell: Cell, timing: Path) -> None:
    """Copy times and timeline of the target from where they are finished."""
    whole_step = Cell(argparse.Namespace(**{**vars(cell.chosen), "mode": "configs"}), cell.target)
    sources = [whole_step.recording / "timing", whole_step.folder / "timing"]
    if cell.chosen.timing is not None:
        sources.append(cell.chosen.timing / cell.target)
    for source in sources:
        if source != timing and not timing.exists() and all((source / name).exists() for name in TIMING):
            shutil.copytree(source, timing)


def _against(cell: Cell) -> list[str]:
    """Return the option that judges a layout against the baseline's timeline, where there is one."""
    for folder in (cell.recording.parent / "baseline", cell.folder.parent / "baseline"):
        timeline = folder / "timing" / "timeline.parquet"
        if timeline.exists() and cell.target != "baseline":
            return ["--against", str(timeline)]
    return []


def _capture_options(chosen: argparse.Namespace) -> list[str]:
    settings = yaml.safe_load(Path("config/config.yaml").read_text(encoding="utf-8"))["capture"]
    options = ["--mode", chosen.mode, "--replay", settings["replay"]]
    options += ["--cache-control", settings["cache_control"], "--clock-control", settings["clock_control"]]
    metrics = list(METRICS.values())
    if chosen.mode == "configs":
        options += [text for section in settings["sections"] for text in ("--section", section)]
        metrics = list(dict.fromkeys([*settings["metrics"], *metrics]))
    options += [text for metric in metrics for text in ("--metric", metric)]
    return options + (["--budget", chosen.budget] if chosen.budget else [])


def _publish(cell: Cell) -> None:
    """Write the recording, its report last."""
    recording = cell.recording
    recording.mkdir(parents=True, exist_ok=True)
    for name in ("plan.json", "environment.json"):
        shutil.copy(cell.folder / "capture" / name, recording)
    shutil.copytree(cell.folder / "timing", recording / "timing", dirs_exist_ok=True)
    report = recording / "report.ncu-repz"
    slim(cell.folder / "capture" / "report.ncu-repz", report)
    names = [one.demangled for chunk in decode_report(outline(report)) for one in chunk.infos]
    plan = json.loads((recording / "plan.json").read_text(encoding="utf-8"))
    print(
        f"{len(names)} launches, dgrad {sum('dgrad' in name for name in names)}, "
        f"wgrad {sum('wgrad' in name for name in names)}; coverage {plan['coverage_time']}, "
        f"unmatched {plan['unmatched_time']}, predicted {plan['predicted_s'] or 0:.0f} s, real "
        f"{plan['spent_s']:.0f} s; flags {plan['flags']}",
        flush=True,
    )
    size = sum(path.stat().st_size for path in recording.rglob("*") if path.is_file())
    print(f"{recording}: {size / 1e6:.2f} MB, report {report.stat().st_size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
