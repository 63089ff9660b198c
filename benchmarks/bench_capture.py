"""Is each launch configuration once as good as every launch, and what does it cost?

    python benchmarks/bench_capture.py measure --target opt1 --size 128 --work FOLDER [--budget 25s] [--pack FILE.tar]
    python benchmarks/bench_capture.py show [--work FOLDER] [--recordings FOLDER] [--out PAGE.md]

`measure` needs a GPU and Nsight Compute. It captures one training step twice, with five metrics: each launch
configuration once (`configs`), and every launch (`first:inf`); with `--budget` once more, what it buys of the
configurations. It goes on where it was stopped, also from what FILE.tar holds. `show`, or no argument at all, needs
neither: it compares the totals of what is kept in benchmarks/data and writes benchmarks/capture.md.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from stages import deadline, gpuatlas, machine, pack, slim

from gpuatlas.capture.cost import CostModel, seconds
from gpuatlas.capture.plan import plan_first
from gpuatlas.capture.represent import represent, skips_of
from gpuatlas.capture.second import plan_step
from gpuatlas.capture.timeline import Timeline, function_base, read_timeline
from gpuatlas.compare.kernels import classify
from gpuatlas.compare.weights import read_step, weigh
from gpuatlas.errors import ConfigError, GpuatlasError
from gpuatlas.files import read_json, write_json
from gpuatlas.names import normalise
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
CHOSEN = ("configs", "budget")
"""Captures that are compared with that of every launch: all configurations, and what a budget buys of them."""


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
    plan = read_json(folder / "plan.json", "measure again")
    return Capture(launches["key"].to_pylist(), values, plan)


def measure(chosen: argparse.Namespace) -> int:
    """Capture the step both ways; resumable."""
    end = deadline(chosen.seconds)
    machine()
    status = _measure(chosen, end)
    if chosen.pack is not None:
        pack(chosen.pack, chosen.work, sorted(path for path in chosen.work.glob("*") if path.is_dir()))
    return status


def _measure(chosen: argparse.Namespace, end: float) -> int:
    budget_s = seconds(chosen.budget) if chosen.budget else None
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
    captures = {"configs": ["--mode", "configs"], "every": ["--mode", "first:inf"]}
    if chosen.budget:
        captures["budget"] = ["--mode", "configs", "--budget", chosen.budget]
        plan = cell / "budget" / "plan.json"
        if plan.exists() and (held := read_json(plan)["budget_s"]) != budget_s:
            raise ConfigError(f"{plan.parent} was measured within {held:.0f} s; remove it to measure again")
    for name, mode in captures.items():
        if (cell / name / "command.json").exists():  # written last, when the report is slim
            continue
        folders = ["--state", str(cell / ".state" / name), "--out", str(cell / name)]
        begun_before = any((cell / ".state" / name).glob("capture/part-*.json"))
        began = time.monotonic()
        if status := gpuatlas(["capture", *what, "--timing", str(timing), *mode, *metrics, *folders], end):
            return status
        command_s = None if begun_before else time.monotonic() - began
        report = cell / name / "report.ncu-repz"
        slim(report, report.with_name("slim.ncu-repz")).replace(report)
        write_json(cell / name / "command.json", {"command_s": command_s, "note": chosen.note})
    return 0


def machine_of(environment: Path) -> str:
    """Return the card and the versions that a figure stands for."""
    held = json.loads(environment.read_text(encoding="utf-8"))
    gpu, stack = held["gpu"], held["stack"]
    card = "no GPU"
    if gpu is not None:
        card = f"{gpu['name']} (cc {gpu['cc']}, {gpu['sm_count']} SMs), driver {gpu['driver']}"
    return f"{card}, torch {stack['torch']}, cuDNN {stack['cudnn']}, Nsight Compute {stack['ncu']}"


def totals(capture: Capture, amount: np.ndarray) -> dict[str, float]:
    """Return the step's totals: the measured launches' values, each times its amount."""
    return {label: float(np.nansum(capture.values[label] * amount)) for label in METRICS}


def weighed(capture: Capture, timeline: Path) -> dict[str, float]:
    """Return a capture's totals over its whole step, weighed as the comparison does.

    What was not measured is stood for by its kernel class.
    """
    skips = skips_of(capture.plan["parts"])
    step = read_step(capture.keys, timeline, capture.plan["coverage_time"], skips=skips)
    known = dict(zip(step.keys, step.names, strict=True))
    classes = [classify(normalise(known[key])) for key in capture.keys]
    return totals(capture, weigh(step, capture.keys, classes).weight)


def compare(folder: Path) -> dict:
    """Compare the totals over the step of the chosen launches, weighed, with those of every launch."""
    timeline = folder / "timing" / "timeline.parquet"
    step = read_timeline(timeline)
    every = read(folder / "every")
    true = totals(every, np.ones(len(every.keys)))
    chosen = {name: read(folder / name) for name in CHOSEN if (folder / name / "report.ncu-repz").exists()}
    return {
        "machine": machine_of(folder / "configs" / "environment.json"),
        "note": command_of(folder / "every").get("note"),
        "launches": len(step.keys),
        "configurations": len(set(step.keys)),
        "every": true,
        "chosen": {
            name: {
                "configurations": len(set(capture.keys) & set(step.keys)),
                "launches": len(capture.keys),
                "second": any(part.get("again") for part in capture.plan["parts"]),
                "coverage": capture.plan["coverage_time"],
                "scaled_time": capture.plan["scaled_time"],
                "errors": errors(weighed(capture, timeline), true),
            }
            for name, capture in chosen.items()
        },
        "weights": weightings(step, every, true),
        "spread": spread(step, every, true["duration"]),
        "cost": {
            name: {
                key: capture.plan[key] for key in ("budget_s", "predicted_s", "spent_s", "passes", "parts")
            }
            | {"command_s": command_of(folder / name).get("command_s")}
            for name, capture in [*chosen.items(), ("every", every)]
        },
    }


def command_of(folder: Path) -> dict:
    """Return what `measure` noted of a capture's whole command: its seconds, and a word on the machine."""
    path = folder / "command.json"
    return read_json(path, "remove it") if path.exists() else {}


def errors(estimated: dict[str, float], true: dict[str, float]) -> dict[str, float | None]:
    """Return how far estimated totals are from the true ones, as a share of these; None of zero."""
    return {label: estimated[label] / true[label] - 1 if true[label] else None for label in METRICS}


def weightings(step: Timeline, every: Capture, true: dict[str, float]) -> dict[str, dict[str, float | None]]:
    """Return the error of each total by how measured launches are weighed.

    All of them use the capture of every launch alone: the values of each configuration's first launch, and of
    the launches that a second measurement would take.
    """
    if every.keys != list(step.keys):
        return {}
    places: dict[str, list[int]] = {}
    for at, key in enumerate(every.keys):
        places.setdefault(key, []).append(at)
    first = [own[0] for own in places.values()]
    counts = np.array([len(own) for own in places.values()], dtype=float)
    ways = {
        "number of launches": (first, counts),
        "GPU time": (first, represent(step.keys, step.durations_ns, list(places), [0] * len(first)).amount),
    }
    skips = {
        one.key: part.again - 1
        for part in plan_step(step, CostModel(1, 0.0)).parts
        for one in step.configurations()
        if part.twice(one)
    }
    if skips:
        twice = list(skips)
        chosen = [*first, *(places[key][skip] for key, skip in skips.items())]
        passed = [0] * len(first) + list(skips.values())
        stands = represent(step.keys, step.durations_ns, [*places, *twice], passed)
        ways[f"GPU time, {len(twice)} second measurements"] = (chosen, stands.amount)
    return {
        name: errors({label: float((every.values[label][at] * amount).sum()) for label in METRICS}, true)
        for name, (at, amount) in ways.items()
    }


def spread(step: Timeline, every: Capture, whole: float) -> list[dict]:
    """Return the configurations whose launches differ most, by how far their first is from their mean."""
    names = {key: function_base(name) for key, name in zip(step.keys, step.names, strict=True)}
    held: dict[str, list[float]] = {}
    for key, value in zip(every.keys, every.values["duration"], strict=True):
        held.setdefault(key, []).append(float(value))
    rows = [
        {
            "kernel": names.get(key, key),
            "launches": len(own),
            "mean_ns": sum(own) / len(own),
            "deviation": float(np.std(own)) / (sum(own) / len(own)),
            "share": (own[0] * len(own) - sum(own)) / whole,
        }
        for key, own in held.items()
    ]
    return sorted(rows, key=lambda row: -abs(row["share"]))[:8]


def windowed(recording: Path) -> bool:
    """Whether a recording holds only the first launches of a step."""
    return json.loads((recording / "plan.json").read_text(encoding="utf-8"))["window"] is not None


def sections_cost(folder: Path) -> dict:
    """Return what a recording says of the cost of its step with its sections, each launch and each configuration."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    step = read_timeline(folder / "timing" / "timeline.parquet")
    mean = {one.key: one.duration_ns for one in step.configurations()}
    measured = read(folder).keys
    modelled = CostModel(plan["passes"], 0.0).launches_s(mean.get(key, 0.0) for key in measured)
    cost = CostModel(
        plan["passes"],
        sum(part["startup_s"] for part in plan["parts"]) / len(plan["parts"]),
        sum(part["profile_s"] for part in plan["parts"]) / modelled,
    )
    return {
        "passes": plan["passes"],
        "budget_s": plan["budget_s"],
        "probe_s": plan.get("probe_s"),
        "predicted_s": plan["predicted_s"],
        "spent_s": plan["spent_s"],
        "launches": len(measured),
        "launch_s": sum(part["profile_s"] for part in plan["parts"]) / len(measured),
        "configs_s": plan_step(step, cost).seconds,
        "every_s": plan_first(step, 0, cost).seconds,
    }


def second_measurements(folder: Path) -> dict[str, float | None]:
    """Return how far a recording's totals are off without its second measurements, as a share of those with them."""
    capture, timeline = read(folder), folder / "timing" / "timeline.parquet"
    passed = skips_of(capture.plan["parts"])
    first = [at for at, skip in enumerate(passed) if not skip]
    alone = Capture(
        [capture.keys[at] for at in first],
        {label: values[first] for label, values in capture.values.items()},
        {**capture.plan, "parts": [{"launches": len(first)}]},
    )
    return errors(weighed(alone, timeline), weighed(capture, timeline))


def windows(recordings: Path, second: Path) -> dict | None:
    """Return what the first launches say of opt2 against baseline, beside what whole steps say."""
    folders = {name: recordings / name for name in ("baseline", "opt2")}
    firsts = {name: recordings / f"{name}_first{WINDOW}" for name in folders}
    if not all((folder / "report.ncu-repz").exists() for folder in [*folders.values(), *firsts.values()]):
        return None
    steps, heads, times, shares = {}, {}, {}, {}
    for name, folder in folders.items():
        timeline = folder / "timing" / "timeline.parquet"
        steps[name] = weighed(read(folder), timeline)
        times_ns = np.array(read_timeline(timeline).durations_ns)
        shares[name] = times_ns[:WINDOW].sum() / times_ns.sum()
        timed = pq.read_table(
            folder / "timing" / "timings.parquet", columns=["variant", "step_ms"]
        ).to_pylist()
        times[name] = float(np.median([row["step_ms"] for row in timed if row["variant"] == "autotune_off"]))
        first = read(firsts[name])
        heads[name] = totals(first, np.ones(len(first.keys)))
    again = second / "opt2"
    mended = weighed(read(again), again / "timing" / "timeline.parquet") if again.exists() else None
    labels = [label for label in METRICS if steps["baseline"][label] and heads["baseline"][label]]
    return {
        "machine": machine_of(folders["opt2"] / "environment.json"),
        "share": shares,
        "window": {label: heads["opt2"][label] / heads["baseline"][label] for label in labels},
        "step": {label: steps["opt2"][label] / steps["baseline"][label] for label in labels},
        "mended": {label: mended[label] / steps["baseline"][label] for label in labels} if mended else {},
        "unprofiled": times["opt2"] / times["baseline"],
    }


def page(
    results: dict[str, dict],
    window: dict | None,
    costs: dict[str, dict],
    second: dict[str, dict[str, float | None]],
) -> str:
    """Return benchmarks/capture.md."""
    lines = [
        "# Each launch configuration once, against every launch",
        "",
        "`python benchmarks/bench_capture.py` writes this page; `measure` makes its data on a GPU.",
        "",
    ]
    lines += [
        "| step | measured | coverage | largest error of a total | cost, share of every launch's | predicted/real |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, found in results.items():
        every_s = found["cost"]["every"]["spent_s"]
        for one, row in found["chosen"].items():
            cost = found["cost"][one]
            worst = max((error for error in row["errors"].values() if error is not None), key=abs)
            lines.append(
                f"| {name} | {_called(one, cost['budget_s'])} | {100 * row['coverage']:.2f} % | {_percent(worst)} | "
                f"{cost['spent_s'] / every_s:.3f} | {cost['predicted_s'] / cost['spent_s']:.2f} |"
            )
    lines.append("")
    for name, found in results.items():
        lines += _compared(name, found)
    if costs:
        lines += [
            "## What a step costs with the sections of config/config.yaml",
            "",
            "By the recordings in resources/recordings. Seconds a launch are measured over the launches of the",
            "recording; the two whole steps are what the model of the cost, with this recording's scale and",
            "start-up, says of all configurations, second measurements included, and of every launch: that was",
            "not measured. Predicted and real are of the capture itself, within its budget; where the probe's",
            "start-up is not given, by an earlier model of the cost.",
            "",
            "| recording | budget, s | passes a launch | launches measured | s a launch | probe's start-up, s | predicted, s | real, s | predicted/real | each configuration, min | every launch, min | share |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {name} | {_number(row['budget_s'], '.0f')} | {row['passes']} | {row['launches']} | {row['launch_s']:.2f} | "
            f"{_number(row['probe_s'], '.1f')} | {row['predicted_s']:.0f} | "
            f"{row['spent_s']:.0f} | {row['predicted_s'] / row['spent_s']:.2f} | {row['configs_s'] / 60:.1f} | "
            f"{row['every_s'] / 60:.1f} | {row['configs_s'] / row['every_s']:.3f} |"
            for name, row in costs.items()
        ]
        lines.append("")
    for name, row in second.items():
        lines += [
            f"## {name} at 128³ without its second measurements",
            "",
            "Its totals from the first launches alone, against those from all that were measured.",
            "",
            f"| {' | '.join(row)} |",
            "|---:" * len(row) + "|",
            f"| {' | '.join(_percent(error) for error in row.values())} |",
            "",
        ]
    if window is not None:
        lines += [
            f"## What the first {WINDOW} launches say of the channels-last layout (opt2 over baseline)",
            "",
            "| total | first launches | whole step | whole step, opt2 with second measurements |",
            "|---|---:|---:|---:|",
        ]
        lines += [
            f"| {label} | {window['window'][label]:.3f} | {window['step'][label]:.3f} | "
            f"{_number(window['mended'].get(label), '.3f')} |"
            for label in window["step"]
        ]
        shares = " and ".join(f"{100 * share:.1f} % under {name}" for name, share in window["share"].items())
        lines += [
            "",
            f"These launches are {shares} of the step's GPU time: the window ends at another place of the network.",
            "Both whole steps are recorded without second measurements; the last column takes opt2's from its second "
            "capture.",
            f"Unprofiled step time: {window['unprofiled']:.3f} of the baseline's. {window['machine']}.",
            "",
        ]
    return "\n".join(lines)


def _compared(name: str, found: dict) -> list[str]:
    cost, chosen = found["cost"], found["chosen"]
    called = {one: _called(one, row["budget_s"]) for one, row in cost.items()}
    lines = [
        f"## {name}: one step, {found['launches']} launches of {found['configurations']} configurations",
        "",
        found["machine"] + "." + (f" {found['note']}." if found["note"] else ""),
        "",
        f"| total over the step | every launch | {' | '.join(f'{called[one]}, error' for one in chosen)} |",
        "|---|---:" + "|---:" * len(chosen) + "|",
    ]
    for label, true in found["every"].items():
        shown = " | ".join(_percent(one["errors"][label]) for one in chosen.values())
        lines.append(f"| {label} | {true:.6g} | {shown} |")
    lines.append("")
    for one, row in chosen.items():
        lines.append(
            f"* {called[one].capitalize()}: {100 * row['coverage']:.2f} % of the step's GPU time in "
            f"{row['configurations']} configurations, {row['launches']} launches, "
            f"{'with' if row['second'] else 'without'} second measurements; "
            f"{100 * row['scaled_time']:.1f} % is in launches that take a fifth longer or shorter than the one that "
            "stands for them."
        )
    lines += [
        "",
        "| capture | passes a launch | start-up, s | launches, s | predicted, s | real, s | predicted/real | share of every launch's | whole command, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for mode, row in cost.items():
        startup, profile = (sum(part[key] for part in row["parts"]) for key in ("startup_s", "profile_s"))
        lines.append(
            f"| {called[mode]} | {row['passes']} | {startup:.1f} | {profile:.1f} | "
            f"{row['predicted_s']:.1f} | {row['spent_s']:.1f} | {row['predicted_s'] / row['spent_s']:.2f} | "
            f"{row['spent_s'] / cost['every']['spent_s']:.3f} | "
            f"{_number(row['command_s'], '.0f')} |"
        )
    lines += [
        "",
        "Real is what the profiler's runs took by the clock, their start-up included; the whole command also "
        "probes the counters, checks, merges and compresses.",
        "",
    ]
    if found["weights"]:
        lines += [
            "Errors by what a measured launch is weighed with, all from the capture of every launch:",
            "",
            f"| weighed by | {' | '.join(METRICS)} |",
            "|---" + "|---:" * len(METRICS) + "|",
        ]
        lines += [
            f"| {way} | {' | '.join(_percent(row[label]) for label in METRICS)} |"
            for way, row in found["weights"].items()
        ]
        lines.append("")
    lines += [
        "Configurations whose first launch is furthest from their mean, of the step's duration:",
        "",
        "| kernel | launches | mean, µs | deviation of a launch | first times number, less all |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['kernel']} | {row['launches']} | {row['mean_ns'] / 1000:.1f} | {100 * row['deviation']:.1f} % | "
        f"{_percent(row['share'])} |"
        for row in found["spread"]
    ]
    return [*lines, ""]


def _called(capture: str, budget_s: float | None) -> str:
    if capture == "every":
        return "every launch"
    return "all configurations" if budget_s is None else f"within {budget_s:.0f} s"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:+.2f} %"


def show(chosen: argparse.Namespace) -> int:
    """Compare what is measured and write the page."""
    folders = sorted(
        folder.parent for folder in chosen.work.glob("*/every") if (folder / "plan.json").exists()
    )
    if not folders:
        print(f"nothing measured in {chosen.work}: see bench_capture.py --help")
        return 0
    results = {folder.name: compare(folder) for folder in folders}
    recorded = sorted(path.parent for path in chosen.recordings.glob("*/report.ncu-repz"))
    whole = {folder.name: sections_cost(folder) for folder in recorded if not windowed(folder)}
    twice = sorted(path.parent for path in chosen.second.glob("*/report.ncu-repz"))
    whole |= {f"{folder.name}, again": sections_cost(folder) for folder in twice}
    second = {folder.name: second_measurements(folder) for folder in twice}
    text = page(results, windows(chosen.recordings, chosen.second), whole, second)
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
    measuring.add_argument("--budget", metavar="25s", help="also capture what this buys, such as 25s")
    measuring.add_argument("--note", help="what the page shall say of the machine")
    measuring.add_argument("--pack", type=Path, help="tar for what is measured")
    measuring.add_argument("--seconds", type=float, default=560.0)
    showing = commands.add_parser("show")
    showing.add_argument("--work", type=Path, default=HERE / "data" / "capture")
    showing.add_argument(
        "--second", type=Path, default=HERE / "data" / "second", help="with second measurements"
    )
    showing.add_argument("--out", type=Path, default=HERE / "capture.md", help="the page")
    showing.add_argument("--recordings", type=Path, default=HERE.parent / "resources" / "recordings" / "h200")
    chosen = parser.parse_args(sys.argv[1:] or ["show"])
    try:
        if chosen.command == "show":
            return show(chosen)
        return measure(chosen)
    except GpuatlasError as error:
        print(f"bench_capture.py: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
