"""Is each launch configuration once as good as every launch, and what does it cost?

    python benchmarks/bench_capture.py measure --target opt1 --size 64 --work FOLDER [--seconds 560] [--pack FILE.tar]
    python benchmarks/bench_capture.py show --work FOLDER [--size 64] [--recordings FOLDER]

`measure` needs a GPU and Nsight Compute. It captures one training step twice, with five metrics: each launch
configuration once (`configs`), and every launch (`first:inf`). It goes on where it was stopped, also from what
FILE.tar holds. `show` needs neither: it compares the totals and writes benchmarks/capture.md.

Without an argument, it shows what is recorded beside it (benchmarks/data/capture).
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from stages import deadline, gpuatlas, machine, pack

from gpuatlas.tables.convert import convert

HERE = Path(__file__).parent
METRICS = {
    "duration": "gpu__time_duration.sum",
    "SM cycles": "sm__cycles_elapsed.max",
    "instructions": "smsp__inst_executed.sum",
    "DRAM bytes": "dram__bytes.sum",
    "tensor cycles": "sm__pipe_tensor_cycles_active.sum",
}
WINDOW = 500


@dataclass(frozen=True)
class Capture:
    """The launches of a capture: key and metric values, in report order."""

    keys: list[str]
    values: dict[str, np.ndarray]
    plan: dict


def read(folder: Path) -> Capture:
    """Convert a capture's report and read what is compared."""
    with tempfile.TemporaryDirectory() as name:
        convert([folder / "report.ncu-repz"], Path(name))
        launches = pq.read_table(Path(name) / "launches.parquet", columns=["launch_id", "key"]).sort_by(
            "launch_id"
        )
        table = pq.read_table(Path(name) / "metrics.parquet", columns=["launch_id", "metric", "value"])
    names = table["metric"].cast(pa.string()).to_pylist()
    values = {label: np.full(launches.num_rows, np.nan) for label in METRICS}
    labels = {metric: label for label, metric in METRICS.items()}
    for launch, metric, value in zip(
        table["launch_id"].to_pylist(), names, table["value"].to_pylist(), strict=True
    ):
        if metric in labels and value is not None:
            values[labels[metric]][launch] = value
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    return Capture(launches["key"].to_pylist(), values, plan)


def step_keys(timing: Path) -> tuple[list[str], list[float]]:
    """Return keys and durations of the launches of the unprofiled step."""
    table = pq.read_table(timing / "timeline.parquet", columns=["key", "duration_ns"])
    return table["key"].to_pylist(), table["duration_ns"].to_pylist()


def measure(chosen: argparse.Namespace) -> int:
    """Capture the step both ways; resumable."""
    end = deadline(chosen.seconds)
    machine()
    status = _measure(chosen, end)
    if chosen.pack is not None:
        pack(chosen.pack, chosen.work, sorted(path for path in chosen.work.glob("*") if path.is_dir()))
    return status


def _measure(chosen: argparse.Namespace, end: float) -> int:
    cell = chosen.work / f"{chosen.target}_{chosen.size}"
    timing = cell / "timing"
    what = ["--targets", "config/targets.yaml", "--target", chosen.target]
    what += ["--network", chosen.network, "--size", str(chosen.size), "--device", chosen.device]
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str((cell / "compiled").resolve())
    if not (timing / "timeline.parquet").exists() and (
        status := gpuatlas(["timeline", *what, "--allow-no-effect", "--out", str(timing)], end)
    ):
        return status
    metrics = [text for metric in METRICS.values() for text in ("--metric", metric)]
    for name, mode in (("configs", "configs"), ("every", "first:inf")):
        if (cell / name / "report.ncu-repz").exists():
            continue
        folders = ["--state", str(cell / ".state" / name), "--out", str(cell / name)]
        if status := gpuatlas(
            ["capture", *what, "--timing", str(timing), "--mode", mode, *metrics, *folders], end
        ):
            return status
    return 0


def compare(folder: Path) -> dict:
    """Compare the totals over the step of `configs`, weighted, with those of every launch."""
    keys, durations = step_keys(folder / "timing")
    once, every = read(folder / "configs"), read(folder / "every")
    weight = Counter(keys)
    measured = Counter(once.keys)
    factors = np.array([weight[key] / measured[key] for key in once.keys])
    totals = {}
    for label in METRICS:
        estimated = float(np.nansum(once.values[label] * factors))
        true = float(np.nansum(every.values[label]))
        totals[label] = {
            "configs": estimated,
            "every": true,
            "error": estimated / true - 1 if true else None,
            "missing": int(np.isnan(once.values[label]).sum() + np.isnan(every.values[label]).sum()),
        }
    covered = sum(duration for key, duration in zip(keys, durations, strict=True) if key in measured)
    return {
        "launches": len(keys),
        "configurations": len(weight),
        "configurations_measured": len(set(once.keys) & set(weight)),
        "launches_measured": len(every.keys),
        "coverage": covered / sum(durations),
        "totals": totals,
        "spread": spread(once, every, factors),
        "cost": {
            name: {key: capture.plan[key] for key in ("predicted_s", "spent_s", "passes")}
            for name, capture in (("configs", once), ("every", every))
        },
    }


def spread(once: Capture, every: Capture, factors: np.ndarray) -> list[dict]:
    """Return the configurations whose one measurement is furthest from their own total."""
    true: dict[str, list[float]] = {}
    for key, value in zip(every.keys, every.values["duration"], strict=True):
        true.setdefault(key, []).append(float(value))
    whole = sum(sum(values) for values in true.values())
    rows = []
    for key, value, factor in zip(once.keys, once.values["duration"], factors, strict=True):
        held = true.get(key)
        if held:
            rows.append(
                {
                    "key": key,
                    "launches": len(held),
                    "mean_ns": sum(held) / len(held),
                    "deviation": float(np.std(held)) / (sum(held) / len(held)),
                    "error_of_step": (value * factor - sum(held)) / whole,
                }
            )
    return sorted(rows, key=lambda row: -abs(row["error_of_step"]))[:8]


def windows(recordings: Path) -> dict | None:
    """Return what the first launches say of opt2 against baseline, beside what whole steps say."""
    folders = {name: recordings / name for name in ("baseline", "opt2")}
    firsts = {name: recordings / f"{name}_first{WINDOW}" for name in folders}
    if not all((folder / "report.ncu-repz").exists() for folder in [*folders.values(), *firsts.values()]):
        return None
    steps, heads, times = {}, {}, {}
    for name, folder in folders.items():
        capture = read(folder)
        launched = Counter(
            pq.read_table(folder / "timing" / "timeline.parquet", columns=["key"])["key"].to_pylist()
        )
        measured = Counter(capture.keys)
        factors = np.array([launched[key] / measured[key] for key in capture.keys])
        steps[name] = {label: float(np.nansum(capture.values[label] * factors)) for label in METRICS}
        timed = pq.read_table(
            folder / "timing" / "timings.parquet", columns=["variant", "step_ms"]
        ).to_pylist()
        times[name] = float(np.median([row["step_ms"] for row in timed if row["variant"] == "autotune_off"]))
        first = read(firsts[name])
        heads[name] = {label: float(np.nansum(first.values[label])) for label in METRICS}
    labels = [label for label in METRICS if steps["baseline"][label] and heads["baseline"][label]]
    return {
        "window": {label: heads["opt2"][label] / heads["baseline"][label] for label in labels},
        "step": {label: steps["opt2"][label] / steps["baseline"][label] for label in labels},
        "unprofiled": times["opt2"] / times["baseline"],
    }


def page(results: dict[str, dict], window: dict | None) -> str:
    """Return benchmarks/capture.md."""
    lines = [
        "# Each launch configuration once, against every launch",
        "",
        "`python benchmarks/bench_capture.py` writes this page; `measure` makes its data on a GPU.",
        "",
    ]
    for name, found in results.items():
        cost = found["cost"]
        ratio = cost["configs"]["spent_s"] / cost["every"]["spent_s"]
        lines += [
            f"## {name}: one step, {found['launches']} launches of {found['configurations']} configurations",
            "",
            "| total over the step | configurations, weighted | every launch | error |",
            "|---|---:|---:|---:|",
        ]
        for label, row in found["totals"].items():
            error = f"{100 * row['error']:+.2f} %" if row["error"] is not None else "–"
            lines.append(f"| {label} | {row['configs']:.6g} | {row['every']:.6g} | {error} |")
        lines += [
            "",
            f"Coverage: {100 * found['coverage']:.2f} % of the step's GPU time "
            f"({found['configurations_measured']} of {found['configurations']} configurations measured).",
            f"Cost: {cost['configs']['spent_s']:.0f} s against {cost['every']['spent_s']:.0f} s, "
            f"{ratio:.3f} of it.",
            "",
            "| capture | passes a launch | predicted, s | real, s | predicted/real |",
            "|---|---:|---:|---:|---:|",
        ]
        for mode, row in cost.items():
            lines.append(
                f"| {mode} | {row['passes']} | {row['predicted_s']:.0f} | {row['spent_s']:.0f} | "
                f"{row['predicted_s'] / row['spent_s']:.2f} |"
            )
        lines += [
            "",
            "Configurations whose one measurement is furthest from their own total over all launches:",
            "",
            "| key | launches | mean, µs | deviation of a launch | error, of the step's duration |",
            "|---|---:|---:|---:|---:|",
        ]
        for row in found["spread"]:
            lines.append(
                f"| {row['key']} | {row['launches']} | {row['mean_ns'] / 1000:.1f} | "
                f"{100 * row['deviation']:.1f} % | {100 * row['error_of_step']:+.3f} % |"
            )
        lines.append("")
    if window is not None:
        lines += [
            f"## What the first {WINDOW} launches say of the channels-last layout (opt2 over baseline)",
            "",
            "| total | first launches | whole step |",
            "|---|---:|---:|",
        ]
        lines += [
            f"| {label} | {window['window'][label]:.3f} | {window['step'][label]:.3f} |"
            for label in window["step"]
        ]
        lines += ["", f"Unprofiled step time: {window['unprofiled']:.3f} of the baseline's.", ""]
    return "\n".join(lines)


def show(chosen: argparse.Namespace) -> int:
    """Compare what is measured and write the page."""
    folders = sorted(
        folder.parent for folder in chosen.work.glob("*/every") if (folder / "plan.json").exists()
    )
    if not folders:
        print(f"nothing measured in {chosen.work}: see bench_capture.py --help")
        return 0
    results = {folder.name: compare(folder) for folder in folders}
    text = page(results, windows(chosen.recordings))
    chosen.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    measuring = commands.add_parser("measure")
    measuring.add_argument("--target", default="opt1")
    measuring.add_argument("--network", default="whole_head_128")
    measuring.add_argument("--size", type=int, default=64)
    measuring.add_argument("--work", type=Path, required=True)
    measuring.add_argument("--device", default="cuda", help="cpu only with a stand-in for ncu")
    measuring.add_argument("--pack", type=Path, help="tar for what is measured")
    measuring.add_argument("--seconds", type=float, default=560.0)
    showing = commands.add_parser("show")
    for one in (showing, parser):
        one.add_argument("--work", type=Path, default=HERE / "data" / "capture")
        one.add_argument("--out", type=Path, default=HERE / "capture.md", help="the page")
        one.add_argument("--recordings", type=Path, default=HERE.parent / "resources" / "recordings" / "h200")
    chosen = parser.parse_args()
    return measure(chosen) if chosen.command == "measure" else show(chosen)


if __name__ == "__main__":
    sys.exit(main())
