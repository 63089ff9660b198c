# Helpers that the rules share; no rules here.
import json
import os
import re
import shlex
import sys
from pathlib import Path

from gpuatlas import console
from gpuatlas.config import resolve
from gpuatlas.errors import GpuatlasError
from gpuatlas.figures import FIGURES

ROOT = Path(str(workflow.current_basedir)).parent.parent
ENVIRONMENT = "../envs/gpuatlas.yaml"

try:
    STUDY = resolve(config, ROOT)
except GpuatlasError as error:
    console.fail(str(error))
    sys.exit(error.exit_code)

TRAIN_FILES = ["steps.parquet", "loss.json", "sample.nii.gz", "sample.png"]
TIMING_FILES = [
    "timings.parquet",
    "timeline.parquet",
    "evidence.json",
    "environment.json",
]
TABLES = ["launches", "metrics", "rules", "session"]
COMPARISONS = [
    "summary",
    "classes",
    "kernels",
    "instructions",
    "stalls",
    "roofline",
    "priority",
]
STAGE_SOURCES = {
    "convert": ["ncurep/*.py", "tables/*.py", "names.py"],
    "describe": ["publish/cell.py"],
    "compare": ["compare/*", "tables/schema.py", "names.py"],
    "figures": ["figures/*"],
    "report": ["publish/report.py", "publish/*.j2"],
}
# Minutes that a stage's first attempt is given; a retry gets twice as many, up to the site's limit.
MINUTES = {"image": 60, "data": 30, "train": 480, "timing": 60, "capture": 360}


def stage_sources(stage):
    """Source files of a stage: what is computed with them is computed again when they change."""
    package = ROOT / "src" / "gpuatlas"
    return sorted(
        os.path.relpath(path)
        for pattern in STAGE_SOURCES[stage]
        for path in package.glob(pattern)
        if path.is_file()
    )


def of_origin(*origins):
    """Regular expression of the cells whose capture comes from `origins`; matches nothing if there are none."""
    names = [
        re.escape(cell.name) for origin in origins for cell in STUDY.of_origin(origin)
    ]
    return "|".join(names) if names else "(?!)"


def site_of(wildcards):
    """The site file of the cell or site that a job belongs to."""
    return STUDY.sites[wildcards.get("site") or STUDY.cell(wildcards.cell).site]


def _slurm(key, wildcards):
    return site_of(wildcards).get("slurm", {}).get(key)


def _runtime(stage, wildcards, attempt):
    return min(
        MINUTES[stage] * 2 ** (attempt - 1),
        _slurm("time_limit_min", wildcards) or 10**6,
    )


def _gpu(stage, kind, wildcards):
    if (
        stage not in ("train", "timing", "capture")
        or _slurm("gpu_request", wildcards) != kind
    ):
        return 0
    return _slurm("gpus", wildcards)


def _gpu_model(stage, wildcards):
    return _slurm("gpu_model", wildcards) if _gpu(stage, "gpus", wildcards) else ""


def _gres(stage, wildcards):
    count, model = _gpu(stage, "gres", wildcards), _slurm("gpu_model", wildcards)
    return ":".join(["gpu", *([model] if model else []), str(count)]) if count else ""


def site_resources(stage):
    """All that Slurm is asked for, from the site file; 0 or empty where the site refuses the flag."""

    def of(key, default):
        return lambda wildcards: _slurm(key, wildcards) or default

    return {
        "slurm_account": of("account", ""),
        "slurm_partition": of("partition", ""),
        "clusters": of("cluster", ""),
        "slurm_extra": of("extra", ""),
        "mem_mb": of("mem_mb", 0),
        "runtime": lambda wildcards, attempt: _runtime(stage, wildcards, attempt),
        "nodes": 1,
        "gpu": lambda wildcards: _gpu(stage, "gpus", wildcards),
        "gpu_model": lambda wildcards: _gpu_model(stage, wildcards),
        "gres": lambda wildcards: _gres(stage, wildcards),
    }


def site_threads(wildcards):
    """Cores of a job at its site."""
    return _slurm("cpus", wildcards) or workflow.cores or 1


def where(wildcards):
    """Where a job runs and what it asks for, for a person to read."""
    name = wildcards.get("site") or STUDY.cell(wildcards.cell).site
    site = STUDY.sites[name]
    image = ", ".join(image_of(wildcards)) or "no container"
    if site["scheduler"] != "slurm":
        return f"{name} (this machine; {image})"
    slurm = site["slurm"]
    model = f" {slurm['gpu_model']}" if slurm["gpu_model"] else ""
    request = {"gpus": "--gpus", "gres": "--gres", "none": "whole node"}[
        slurm["gpu_request"]
    ]
    return f"{name} (partition {slurm['partition']}; {slurm['gpus']} GPU{model} by {request}; {image})"


def image_of(wildcards):
    """The image that a cell's jobs run in, as an input; none where the site runs no containers."""
    runtime = site_of(wildcards)["container"]["runtime"]
    suffix = {"apptainer": "sif", "docker": "docker.json"}.get(runtime)
    return [f"containers/images/{config['stack']}.{suffix}"] if suffix else []


def manifests():
    """The manifests of all cells that have a capture or can have one here."""
    return [f"results/cells/{cell.name}/cell.json" for cell in STUDY.present()]


def tables_of(cells):
    """The Parquet tables of `cells`."""
    return [
        f"results/tables/{table}/architecture={cell.architecture}/target={cell.target}/part.parquet"
        for cell in cells
        for table in TABLES
    ]


def measured_files(name):
    """What a cell's manifest waits for beside the capture: unprofiled times, and training where it is asked for."""
    cell = STUDY.cell(name)
    here = f"results/cells/{name}"
    timing = expand(f"{here}/timing/{{file}}", file=TIMING_FILES)
    if cell.origin == "captured":
        training = (
            expand(f"{here}/train/{{file}}", file=TRAIN_FILES)
            if config["train"]
            else []
        )
        return timing + training
    recorded = (
        cell.origin == "recorded" and (Path(cell.source).parent / "timing").is_dir()
    )
    return timing if recorded else []


def smoke_files():
    """What the report shows of the smoke test, if there is one."""
    return expand("results/smoke/{file}", file=TRAIN_FILES) if config["smoke"] else []


def data_manifest():
    """The manifest of the training volumes: phantoms are made, your own volumes are taken where they lie."""
    phantom = config["data"].get("phantom")
    if phantom is None:
        return []
    return [
        f"data/phantom_{phantom['volumes']}x{phantom['size']}_seed{phantom['seed']}/manifest.json"
    ]


def launcher(wildcards):
    """The command that runs what follows it on the cell's site, inside the image where there is one."""
    cell = STUDY.cell(wildcards.cell)
    image = image_of(wildcards)
    return " ".join(
        [
            "gpuatlas launch",
            f"--site {cell.site}",
            *(f"--image {path}" for path in image),
            "--",
        ]
    )


def workload_options(wildcards):
    """What is trained, timed and profiled, the same in every cell."""
    workload, data = config["workload"], config["data"]
    if "phantom" in data:
        folders = ["--data", str(Path(data_manifest()[0]).parent)]
    else:
        folders = ["--images", data["images"], "--masks", data["masks"]]
    options = [
        "--network",
        workload["network"],
        "--size",
        workload["size"],
        "--seed",
        workload["seed"],
        *folders,
    ]
    return " ".join(shlex.quote(str(option)) for option in options)


def capture_options(wildcards):
    """What Nsight Compute measures, and how."""
    capture = config["capture"]
    options = ["--mode", capture["mode"]]
    if "budget" in capture:
        options += ["--budget", capture["budget"]]
    options += [
        "--clock-control",
        capture["clock_control"],
        "--cache-control",
        capture["cache_control"],
    ]
    options += ["--replay", capture["replay"]]
    options += [
        part for section in capture["sections"] for part in ("--section", section)
    ]
    options += [part for metric in capture["metrics"] for part in ("--metric", metric)]
    return " ".join(shlex.quote(str(option)) for option in options)


DATA_MANIFEST = data_manifest()
