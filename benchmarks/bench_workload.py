"""Step times, evidence and timelines of every target on one GPU; the tables in workload.md come from here.

    python benchmarks/bench_workload.py measure --out DIR [--targets opt1,compile] [--minutes 9]
    python benchmarks/bench_workload.py quality --out DIR --run opt1:0 [--steps 600]
    python benchmarks/bench_workload.py table --out DIR          # prints Markdown, writes DIR/workload.json

`measure` runs each target and variant (cuDNN's autotune off, on) in a process of its own: PyTorch keeps the
plan that it first chose for a convolution. It leaves DIR/TARGET/{autotune_off,autotune_on}.json,
timeline.parquet, evidence.json and environment.json (`table` adds timings.parquet); what is there is not
measured again, and nothing is begun that would not end within the minutes. Needs torch, numpy, pyarrow,
pyyaml and rich.
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

TARGETS = ("baseline", "opt1", "opt2", "opt12", "compile", "compile_bf16")
NETWORK, SIZE, REPEATS, WARMUP = "whole_head_128", 128, 5, 3
REPEAT_MS = 5000  # steps a repeat are chosen so that it takes about this long
EXPECTED_S = {"baseline": 130, "opt2": 150, "compile": 180, "compile_bf16": 180}
# Measured before with the authors' network on an H200 (torch 2.11 + cu130, cuDNN 9.19), ms a step.
STUDY = {
    ("baseline", "autotune_off"): 2456,
    ("baseline", "autotune_on"): 1719,
    ("opt1", "autotune_off"): 469,
    ("opt1", "autotune_on"): 442,
    ("opt2", "autotune_off"): 2753,
    ("opt12", "autotune_off"): 682,
    ("opt12", "autotune_on"): 661,
    ("compile", "autotune_on"): 331,
}


def measure(out: Path, targets: list[str], minutes: float, size: int) -> int:
    began = time.monotonic()
    for run in (f"{target}:{variant}" for target in targets for variant in ("autotune_off", "autotune_on")):
        target, _, variant = run.partition(":")
        if (out / target / f"{variant}.json").exists():
            print(f"{run}: already measured")
            continue
        left = minutes * 60 - (time.monotonic() - began)
        if left < EXPECTED_S.get(target, 90):
            print(f"{run}: not begun, {left:.0f} s are left; run the same command again")
            return 75
        command = [sys.executable, __file__, "one", "--out", str(out), "--run", run, "--size", str(size)]
        try:
            status = subprocess.run(command, timeout=left, check=False).returncode
        except subprocess.TimeoutExpired:
            print(f"{run}: did not end within {left:.0f} s")
            return 75
        if status:
            print(f"{run}: failed with status {status}; going on with the next")
    return 0


def one(out: Path, run: str, size: int) -> None:
    """Time one variant; the one without autotune also leaves the timeline, as captures have it."""
    import torch

    from gpuatlas.workload import build_network
    from gpuatlas.workload.apply import apply
    from gpuatlas.workload.environment import environment_record
    from gpuatlas.workload.files import write_json, write_table
    from gpuatlas.workload.inputs import step_checksum, step_volumes
    from gpuatlas.workload.observe import observe
    from gpuatlas.workload.step import ACCUMULATE, TrainingStep
    from gpuatlas.workload.targets import load_target
    from gpuatlas.workload.timing import VARIANTS, measure

    began = time.monotonic()
    name, _, variant = run.partition(":")
    device = torch.device("cuda")
    torch.manual_seed(0)
    target = replace(load_target(ROOT / "config" / "targets.yaml", name), autotune=VARIANTS[variant])
    prepared = apply(target, build_network(NETWORK), device)
    folder = out / name
    environment = environment_record(prepared, data_sha256=step_checksum(size, ACCUMULATE))
    volumes = step_volumes(size, ACCUMULATE, device)
    step = TrainingStep(prepared, 0)

    # The first measurement tells how many steps fill a repeat; its own row is dropped.
    (trial,) = measure(step, volumes, repeats=1, steps=1, warmup=WARMUP)
    warm = time.monotonic() - began
    steps = min(20, max(3, round(REPEAT_MS / trial["step_ms"])))
    torch.cuda.reset_peak_memory_stats()
    rows = measure(step, volumes, repeats=REPEATS, steps=steps, warmup=1)
    bench = {
        "target": name,
        "variant": variant,
        "network": NETWORK,
        "size": size,
        "rows": [{"variant": variant, **row} for row in rows],
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "warmup_s": round(warm, 1),
        "environment": environment,
    }
    print(run, [round(row["step_ms"], 1) for row in rows], flush=True)

    if variant == "autotune_off":
        timeline, evidence = observe(step, size, warmup=1)
        write_table(folder / "timeline.parquet", timeline, {"target": name, "network": NETWORK})
        write_json(folder / "evidence.json", evidence)
        write_json(folder / "environment.json", environment)
        print(run, timeline.num_rows, "launches:", evidence["in_effect"], evidence["checks"], flush=True)
        bench["launches"] = timeline.num_rows
        bench["configurations"] = len(set(timeline["key"].to_pylist()))
        bench["phases"] = _by_phase(timeline)
        bench["waits_in_a_step"] = _waits(step, volumes)
        bench["reference_l2"] = _reference_l2(prepared)
    bench["seconds"] = round(time.monotonic() - began, 1)
    write_json(folder / f"{variant}.json", bench)


def _by_phase(timeline) -> dict[str, float]:
    totals: dict[str, float] = {}
    for phase, duration in zip(
        timeline["phase"].to_pylist(), timeline["duration_ns"].to_pylist(), strict=True
    ):
        totals[phase] = totals.get(phase, 0.0) + duration / 1e6
    return totals


def _waits(step, volumes) -> str | None:
    """Run one step in which any wait of the host for the GPU is an error; return the error, or None."""
    import torch

    device = step.prepared.device
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.run([(i.to(device, non_blocking=True), m.to(device, non_blocking=True)) for i, m in volumes])
    except RuntimeError:
        return traceback.format_exc()[-2000:]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None


def _reference_l2(prepared) -> float:
    """Relative L2 distance of the output from the reference vector, on this GPU under this target."""
    import math
    from contextlib import nullcontext

    import numpy as np
    import torch

    reference = ROOT / "tests" / "data" / "reference"
    stored = np.load(reference / "med_ddpm_vectors.npz")
    shapes = json.loads((reference / "med_ddpm_keys.json").read_text())[NETWORK]
    weights = {}
    for index, key in enumerate(sorted(shapes)):
        shape = shapes[key]
        wave = np.sin(0.7 * np.arange(math.prod(shape), dtype=np.float64) + 1.3 * index + 0.1)
        if len(shape) >= 2:
            wave /= math.sqrt(math.prod(shape[1:]))
        else:
            wave = 1 + 0.1 * wave if key.endswith("weight") else 0.02 * wave
        weights[key] = torch.from_numpy(wave.astype(np.float32)).reshape(shape)
    prepared.network.load_state_dict(weights)
    x = torch.from_numpy(np.sin(0.013 * np.arange(3 * 32**3)).astype(np.float32)).reshape(1, 3, 32, 32, 32)
    timesteps = torch.from_numpy(stored[f"{NETWORK}.timesteps"]).cuda()
    reduced = nullcontext()
    if prepared.target.precision == "bf16":
        reduced = torch.autocast("cuda", dtype=torch.bfloat16)
    with torch.no_grad(), reduced:
        output = prepared.network(x.cuda(), timesteps).float().cpu().numpy()
    expected = stored[f"{NETWORK}.output"]
    return float(np.linalg.norm(output - expected) / np.linalg.norm(expected))


def table(out: Path) -> None:
    from gpuatlas.workload.distance import compare
    from gpuatlas.workload.files import write_json, write_table
    from gpuatlas.workload.timing import VARIANTS, summary, timings_table

    found, lines = {}, []
    header = (
        "| target | autotune | step ms, median | least | greatest | before | off by | peak GiB | in effect |"
    )
    lines += [header, "|---" * 9 + "|"]
    for target in TARGETS:
        folder = out / target
        files = {variant: folder / f"{variant}.json" for variant in VARIANTS}
        if not files["autotune_off"].exists():
            lines.append(f"| {target} | | not measured | | | | | | |")
            continue
        evidence = json.loads((folder / "evidence.json").read_text())
        parts = {variant: json.loads(path.read_text()) for variant, path in files.items() if path.exists()}
        rows = [row for part in parts.values() for row in part["rows"]]
        write_table(folder / "timings.parquet", timings_table(rows), {"target": target, "network": NETWORK})
        found[target] = {"evidence": evidence, **parts}
        for variant, part in parts.items():
            result, before = summary(rows, variant), STUDY.get((target, variant))
            part["summary"] = result
            off = f"{(result['median_ms'] / before - 1) * 100:+.1f} %" if before else ""
            lines.append(
                f"| {target} | {variant.removeprefix('autotune_')} | {result['median_ms']:.1f} "
                f"| {result['min_ms']:.1f} | {result['max_ms']:.1f} | {before or ''} | {off} "
                f"| {part['peak_bytes'] / 2**30:.1f} | {evidence['in_effect']} |"
            )
    lines += [
        "",
        "| target | launches a step | configurations | GPU ms of the timeline | checks |",
        "|---" * 5 + "|",
    ]
    for target, entry in found.items():
        checks = "; ".join(
            f"{c['name']} {c['threshold']}: {c['observed']}" for c in entry["evidence"]["checks"]
        )
        lines.append(
            f"| {target} | {entry['autotune_off']['launches']} | {entry['autotune_off']['configurations']} "
            f"| {entry['evidence']['shares']['gpu_ms']:.1f} | {checks} |"
        )
    if found:
        first = next(iter(found.values()))["autotune_off"]["environment"]
        gpu, stack = first["gpu"], first["stack"]
        about = (
            f"{gpu['name']} (cc {gpu['cc']}, {gpu['sm_count']} SMs), driver {gpu['driver']}, "
            f"torch {stack['torch']}, CUDA {stack['cuda']}, cuDNN {stack['cudnn']}, "
            f"Python {stack['python']}; "
            f"{NETWORK} at {SIZE}³, batch 1, two accumulated passes a step; {REPEATS} repeats."
        )
        lines = [about, "", *lines]
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("quality-*/quality.json"))]
    if runs:
        lines += ["", "| run | steps | validation loss | MS-SSIM | of blurred phantoms |", "|---" * 5 + "|"]
        for run in runs:
            similarity, blurred = fmean(run["ms_ssim"]), fmean(run["ms_ssim_blurred"])
            name = f"{run['target']} seed {run['seed']}"
            lines.append(
                f"| {name} | {run['steps']} | {run['loss']:.5f} | {similarity:.4f} | {blurred:.4f} |"
            )
        comparison = compare(runs)
        write_json(out / "quality.json", comparison)
        lines += ["", "```", json.dumps(comparison, indent=1), "```"]
    write_json(out / "workload.json", found)
    print("\n".join(lines))


def quality(out: Path, run: str, steps: int) -> None:
    from gpuatlas.workload.quality import train_and_judge
    from gpuatlas.workload.targets import load_target

    name, _, seed = run.partition(":")
    target = load_target(ROOT / "config" / "targets.yaml", name)
    result = train_and_judge(target, int(seed), steps=steps, folder=out / f"quality-{name}-{seed}")
    print(json.dumps(result, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "one", "table", "quality"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--run", help="one: TARGET:VARIANT; quality: TARGET:SEED")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--steps", type=int, default=600, help="quality: the same in every run")
    parser.add_argument("--size", type=int, default=SIZE)
    options = parser.parse_args()
    if options.what == "measure":
        return measure(options.out, options.targets.split(","), options.minutes, options.size)
    if options.what == "one":
        one(options.out, options.run, options.size)
    elif options.what == "quality":
        quality(options.out, options.run, options.steps)
    else:
        table(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
