# What the jobs of a cell are told on their command lines, from the configuration; no rules here.
import shlex
from pathlib import Path

from gpuatlas.workload.targets import SETTINGS


def network_options(wildcards):
    """The network that is trained, timed and profiled, the same in every cell."""
    workload = config["workload"]
    return f"--network {workload['network']} --size {workload['size']} --seed {workload['seed']}"


def workload_options(wildcards):
    """The network and the volumes that it sees."""
    data = config["data"]
    if "phantom" in data:
        folders = ["--data", str(Path(dataset()[0]).parent)]
    else:
        folders = ["--images", data["images"], "--masks", data["masks"]]
    return f"{network_options(wildcards)} {shlex.join(folders)}"


def target_of(wildcards):
    """The target of a cell."""
    return wildcards.cell.split("/")[1]


def settings_of(target):
    """What a target changes: targets.yaml has all of them, and a job is stale only when its own is edited."""
    return {key: STUDY.targets[target][key] for key in SETTINGS}


def definition(wildcards):
    """What the target of a cell changes."""
    return settings_of(target_of(wildcards))


def thresholds(wildcards):
    """By what a cell's target is judged to be in effect."""
    return STUDY.targets[target_of(wildcards)]["evidence"]


def training_options(wildcards):
    """How long a cell trains, and on what: a job that sees no GPU must not train for weeks on the CPU."""
    return " ".join(
        f"--{key} {value}" for key, value in ({"device": "cuda"} | (config["train"] or {})).items()
    )


def effect_options(wildcards):
    """A target that its architecture cannot show, or that may fail to show, is timed all the same."""
    architecture, target = wildcards.cell.split("/")
    capability, least = (
        tuple(map(int, version.split(".")))
        for version in (
            STUDY.architectures[architecture]["compute_capability"],
            STUDY.targets[target]["min_cc"],
        )
    )
    allowed = capability < least or config["timing"]["allow_no_effect"]
    return "--allow-no-effect" if allowed else ""


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
    options += [part for section in capture["sections"] for part in ("--section", section)]
    options += [part for metric in capture["metrics"] for part in ("--metric", metric)]
    return " ".join(shlex.quote(str(option)) for option in options)
