"""Train and time the workload."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuatlas import console
from gpuatlas.errors import ConfigError

if TYPE_CHECKING:
    from gpuatlas.workload.apply import Prepared
    from gpuatlas.workload.data import Dataset
    from gpuatlas.workload.targets import Target
    from gpuatlas.workload.train import Plan

Targets = Annotated[Path, typer.Option("--targets", help="The targets' YAML file.")]
TargetName = Annotated[str, typer.Option("--target", help="Which target of it.")]
Network = Annotated[str, typer.Option(help="whole_head_128 or small_64.")]
Size = Annotated[int, typer.Option(help="Edge of the volumes in voxels.")]
Device = Annotated[str, typer.Option(help="auto, cuda or cpu.")]
Force = Annotated[bool, typer.Option("--force", help="Go on although the stack is known to be broken.")]
Seed = Annotated[int, typer.Option(help="Of the initial weights, the data order and the noise.")]
Data = Annotated[Path | None, typer.Option(help="Folder with images/ and masks/.")]
Images = Annotated[Path | None, typer.Option(help="Your own folder of images, instead of --data.")]
Masks = Annotated[Path | None, typer.Option(help="Your own folder of masks, with --images.")]
Cache = Annotated[Path | None, typer.Option(help="Prepared volumes [default: .prepared beside the images].")]


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    data = typer.Typer(no_args_is_help=True, help="Training data.")
    data.command("phantom")(data_phantom)
    app.add_typer(data, name="data")
    app.command("train")(train)
    app.command("sample")(sample)
    app.command("timing")(timing)
    app.command("timeline")(timeline)


def data_phantom(
    *,
    out: Annotated[Path, typer.Option(help="Folder to write images/ and masks/ to.")],
    volumes: Annotated[int, typer.Option(help="How many heads.")] = 64,
    size: Annotated[int, typer.Option(help="Edge in voxels.")] = 128,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal volumes.")] = 0,
) -> None:
    """Write brain-like volumes with tumours as NIfTI pairs."""
    from gpuatlas.workload.phantom import write_phantoms

    with console.progress() as progress:
        task = progress.add_task("phantoms", total=volumes)
        write_phantoms(out, volumes, size, seed, lambda: progress.advance(task))
    console.say(f"{volumes} pairs of {size}³ voxels in {out}")


def train(
    *,
    targets: Targets,
    target: TargetName,
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    state: Annotated[Path, typer.Option(help="Folder for the state that survives an interruption.")],
    network: Network = "whole_head_128",
    size: Size = 128,
    data: Data = None,
    images: Images = None,
    masks: Masks = None,
    cache: Cache = None,
    epochs: Annotated[int, typer.Option(min=1, help="True epochs over the volumes.")] = 25,
    iterations: Annotated[int | None, typer.Option(min=1, help="Optimiser steps, instead of epochs.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    save_seconds: Annotated[float, typer.Option(min=0, help="Save the state this often.")] = 300.0,
    force: Force = False,
) -> None:
    """Train the network under a target; run the same command again to go on after an interruption.

    What has ended is not trained again while its results lie in --out.
    """
    from gpuatlas.workload.memory import out_of_memory_explained
    from gpuatlas.workload.report import StepReporter
    from gpuatlas.workload.train import Plan
    from gpuatlas.workload.train import train as run

    prepared = _prepare(targets, target, network=network, size=size, seed=seed, device=device, force=force)
    dataset = _dataset(data, images, masks, cache, size)
    plan = Plan.of(
        len(dataset.files), epochs=epochs, iterations=iterations, seed=seed, save_seconds=save_seconds
    )
    if _is_finished(prepared, dataset, plan, out, state):
        console.say(f"Trained {plan.steps} steps before; results in {out}. Remove them to train again.")
        return
    console.note(
        f"Training {network} at {size}³ under {target} on {prepared.device}: {plan.steps} steps over "
        f"{len(dataset.files)} volumes"
    )
    with (
        StepReporter("training", plan.steps) as reporter,
        out_of_memory_explained(prepared.device, f"training {network} at {size}³ under {target}"),
    ):
        run(prepared, dataset, plan, out, state, on_step=reporter.update)
    console.say(f"Trained {plan.steps} steps; results in {out}")


def sample(
    *,
    weights: Annotated[Path, typer.Option(help="A checkpoint: published, or final.pt of a training.")],
    mask: Annotated[Path, typer.Option(help="NIfTI mask to draw a volume for.")],
    targets: Targets,
    target: TargetName,
    out: Annotated[Path, typer.Option(help="NIfTI file (.nii.gz) to write.")],
    picture: Annotated[Path | None, typer.Option(help="PNG of the mid-planes to write.")] = None,
    which: Annotated[str, typer.Option(help="ema or model.")] = "ema",
    network: Network = "whole_head_128",
    size: Size = 128,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Draw a volume for a mask by ancestral sampling (250 steps)."""
    from gpuatlas.workload.volumes import prepare_mask

    if not out.name.endswith(".nii.gz"):
        raise ConfigError(f"--out is {out}; give a name that ends in .nii.gz.")
    prepared = _prepare(targets, target, network=network, size=size, seed=seed, device=device, force=force)
    condition = prepare_mask(mask, size)

    import torch

    from gpuatlas.workload.diffusion import Diffusion, load_weights
    from gpuatlas.workload.memory import out_of_memory_explained
    from gpuatlas.workload.pictures import write_midplanes, write_nifti

    load_weights(weights, prepared.network, which)
    diffusion = Diffusion().to(prepared.device)
    generator = torch.Generator(prepared.device).manual_seed(seed)
    with (
        console.progress() as progress,
        out_of_memory_explained(prepared.device, f"sampling {network} at {size}³"),
    ):
        task = progress.add_task("sampling", total=diffusion.steps)
        ready = torch.from_numpy(condition)[None].float().to(prepared.device)
        drawn = diffusion.sample(prepared.predict, ready, 1, generator, lambda: progress.advance(task))
    volume = drawn[0, 0].cpu().numpy()
    write_nifti(out, volume)
    if picture is not None:
        write_midplanes(picture, volume, condition)
    console.say(f"Drew {out} from the '{which}' weights of {weights}")


def timing(
    *,
    targets: Targets,
    target: TargetName,
    out: Annotated[Path, typer.Option(help="Folder for timings.parquet and environment.json.")],
    network: Network = "whole_head_128",
    size: Size = 128,
    repeats: Annotated[int, typer.Option(min=5, help="Repeats of each variant.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps a repeat.")] = 10,
    warmup: Annotated[int, typer.Option(min=1, help="Untimed steps before each variant.")] = 3,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Time optimiser steps without a profiler, with cuDNN's autotune off and on."""
    chosen = _checked(targets, target, network, size)

    from gpuatlas.workload.files import write_json, write_table
    from gpuatlas.workload.timing import VARIANTS, Job, summary, time_apart, timings_table

    rows: list[dict[str, Any]] = []
    environment: dict[str, Any] = {}
    for variant in VARIANTS:
        console.note(f"Timing {network} at {size}³ under {target}, {variant}")
        job = Job(
            target=chosen,
            network=network,
            size=size,
            variant=variant,
            repeats=repeats,
            steps=steps,
            warmup=warmup,
            seed=seed,
            device=device,
            force=force,
            quiet=console.settings.quiet,
        )
        timed, found = time_apart(job)
        rows += timed
        environment = environment or found
    write_json(out / "environment.json", environment)
    write_table(out / "timings.parquet", timings_table(rows), {"target": target, "network": network})
    for variant in VARIANTS:
        result = summary(rows, variant)
        console.say(
            f"{target} {variant}: {result['median_ms']:.1f} ms a step, {result['min_ms']:.1f} to "
            f"{result['max_ms']:.1f} over {repeats} repeats ({result['spread_percent']:.1f} %)",
        )


def timeline(
    *,
    targets: Targets,
    target: TargetName,
    out: Annotated[Path, typer.Option(help="Folder for timeline.parquet and evidence.json.")],
    network: Network = "whole_head_128",
    size: Size = 128,
    against: Annotated[
        Path | None, typer.Option(help="Timeline without the layout, for layout_time_change_min.")
    ] = None,
    allow_no_effect: Annotated[
        bool, typer.Option("--allow-no-effect", help="Succeed although the target is not in effect.")
    ] = False,
    warmup: Annotated[int, typer.Option(min=1, help="Unrecorded steps before.")] = 3,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Record every launch of one step, and judge from it whether the target took effect."""
    from gpuatlas.errors import GpuatlasError, MachineRefused

    prepared = _prepare(targets, target, network=network, size=size, seed=seed, device=device, force=force)
    if prepared.device.type != "cuda":
        raise MachineRefused("A timeline is made of GPU kernels, and this process sees no CUDA GPU.")

    from gpuatlas.workload.environment import environment_record
    from gpuatlas.workload.evidence import failures
    from gpuatlas.workload.files import write_json, write_table
    from gpuatlas.workload.inputs import step_checksum
    from gpuatlas.workload.memory import out_of_memory_explained
    from gpuatlas.workload.observe import observe
    from gpuatlas.workload.step import ACCUMULATE, TrainingStep

    console.note(f"Recording one step of {network} at {size}³ under {target}")
    with out_of_memory_explained(prepared.device, f"a step of {network} at {size}³ under {target}"):
        step = TrainingStep(prepared, seed)
        table, evidence = observe(step, size, warmup=warmup, against=against)
    checksum = step_checksum(size, ACCUMULATE)
    write_json(out / "environment.json", environment_record(prepared, data_sha256=checksum))
    write_json(out / "evidence.json", evidence)
    told = {"target": target, "network": network, "size": str(size)}
    write_table(out / "timeline.parquet", table, told)
    console.say(f"{target}: {table.num_rows} launches, in effect: {evidence['in_effect']}")
    if evidence["in_effect"] == "false" and not allow_no_effect:
        raise GpuatlasError(f"Target '{target}' is not in effect here: {failures(evidence)}.")


def _is_finished(prepared: "Prepared", dataset: "Dataset", plan: "Plan", out: Path, state: Path) -> bool:
    """Whether this very training has ended: its results lie in `out`, and its weights in `state`."""
    names = ("environment.json", "loss.json", "steps.parquet", "sample.nii.gz", "sample.png")
    if (state / "checkpoint.pt").exists() or not (state / "final.pt").is_file():
        return False
    if not all((out / name).is_file() for name in names):
        return False
    try:
        environment, summary = (json.loads((out / name).read_text("utf-8")) for name in names[:2])
        trained = {key: summary[key] for key in ("target", "network", "iterations", "epochs", "seed")} | {
            "settings": environment["settings"],
            "data": environment["data_sha256"],
            "on_gpu": environment["gpu"] is not None,
        }
    except (ValueError, KeyError, TypeError):
        return False
    return trained == {
        "target": prepared.target.name,
        "network": prepared.network.spec.name,
        "iterations": plan.steps,
        "epochs": plan.epochs,
        "seed": plan.seed,
        "settings": prepared.target.settings,
        "data": dataset.checksum,
        "on_gpu": prepared.device.type == "cuda",
    }


def _checked(targets: Path, target: str, network: str, size: int) -> "Target":
    """Return the target, after the checks that need no torch."""
    from gpuatlas.workload.network import check_size, network_spec
    from gpuatlas.workload.targets import load_target

    chosen = load_target(targets, target)
    spec = network_spec(network)
    check_size(spec, size)
    if spec.image_channels != 1:
        raise ConfigError(
            f"Network '{network}' needs {spec.image_channels} modalities, which no data here has."
        )
    return chosen


def _prepare(
    targets: Path, target: str, *, network: str, size: int, seed: int, device: str, force: bool
) -> "Prepared":
    """Return the seeded network under a target."""
    chosen = _checked(targets, target, network, size)

    import torch

    from gpuatlas.workload import build_network
    from gpuatlas.workload.apply import apply, pick_device

    where = pick_device(device)
    torch.manual_seed(seed)
    return apply(chosen, build_network(network), where, force=force)


def _dataset(
    data: Path | None, images: Path | None, masks: Path | None, cache: Path | None, size: int
) -> "Dataset":
    from gpuatlas.workload.data import open_dataset

    if data is not None and images is None and masks is None:
        images, masks = data / "images", data / "masks"
    if images is None or masks is None:
        raise ConfigError("Give the volumes as --data FOLDER, or as --images FOLDER and --masks FOLDER.")
    console.note(f"Preparing the volumes of {images}")
    with console.progress() as progress:
        task = progress.add_task("preparing", total=None)
        return open_dataset(
            images,
            masks,
            cache or images.parent / ".prepared",
            size,
            lambda total: progress.update(task, total=total, advance=1),
        )
