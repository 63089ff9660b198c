# Where a job runs: what its site asks of Slurm, and its image; no rules here.
import shlex

from gpuatlas.imagebuild import build_arguments, load_stack, recipe_digest
from gpuatlas.submission import archive_path, image_path, image_site

# Minutes that a stage's first attempt is given; a retry gets twice as many, up to the site's limit.
MINUTES = {"image": 60, "data": 30, "train": 480, "timing": 60, "capture": 360}


def site_name(wildcards):
    """The site that a job belongs to: the cell's, or for an image the one that needs it."""
    if "cell" in wildcards.keys():
        return STUDY.cell(wildcards.cell).site
    return image_site(STUDY, wildcards.format)


def site_of(wildcards):
    """The site file of a job."""
    return STUDY.sites[site_name(wildcards)]


def _slurm(key, wildcards):
    return site_of(wildcards).get("slurm", {}).get(key)


def _runtime(stage, wildcards, attempt):
    return min(
        MINUTES[stage] * 2 ** (attempt - 1),
        _slurm("time_limit_min", wildcards) or 10**6,
    )


def _gpu(kind, wildcards):
    return _slurm("gpus", wildcards) if _slurm("gpu_request", wildcards) == kind else 0


def _gpu_model(wildcards):
    return _slurm("gpu_model", wildcards) if _gpu("gpus", wildcards) else ""


def _gres(wildcards):
    count, model = _gpu("gres", wildcards), _slurm("gpu_model", wildcards)
    return ":".join(["gpu", *([model] if model else []), str(count)]) if count else ""


def _extra(wildcards):
    """Further flags of sbatch: the site's own, and the warning that lets a step save its state before its limit."""
    warning = _slurm("stop_warning_s", wildcards)
    return " ".join(
        [
            _slurm("extra", wildcards) or "",
            f"--signal=TERM@{warning}" if warning else "",
        ]
    ).strip()


def site_resources(stage):
    """All that Slurm is asked for, from the site file; 0 or empty where the site refuses the flag."""

    def of(key, default):
        return lambda wildcards: _slurm(key, wildcards) or default

    def jobs_at(site):
        return lambda wildcards: int(site_name(wildcards) == site)

    return {
        "slurm_account": of("account", ""),
        "slurm_partition": of("partition", ""),
        "clusters": of("cluster", ""),
        "slurm_status": of("status", ""),
        "slurm_extra": _extra,
        "mem_mb": of("mem_mb", 0),
        "runtime": lambda wildcards, attempt: _runtime(stage, wildcards, attempt),
        "nodes": 1,
        "gpu": lambda wildcards: _gpu("gpus", wildcards),
        "gpu_model": _gpu_model,
        "gres": _gres,
        **{f"{site}_jobs": jobs_at(site) for site in SLURM_SITES},
    }


def site_threads(wildcards):
    """Cores of a job at its site."""
    return _slurm("cpus", wildcards) or workflow.cores or 1


def where(wildcards):
    """Where a job runs and what it asks for, for a person to read."""
    name, site = site_name(wildcards), site_of(wildcards)
    image = ", ".join(image_of(wildcards)) or "no container"
    if site["scheduler"] != "slurm":
        return f"{name} (this machine; {image})"
    slurm = site["slurm"]
    model = f" {slurm['gpu_model']}" if slurm["gpu_model"] else ""
    request = {"gpus": "--gpus", "gres": "--gres", "none": "whole node"}[slurm["gpu_request"]]
    return f"{name} (partition {slurm['partition']}; {slurm['gpus']} GPU{model} by {request}; {image})"


def image_of(wildcards):
    """The image that a cell's jobs run in, as an input; none where the site runs no containers."""
    path = image_path(STUDY, site_name(wildcards))
    return [str(path)] if path else []


def sif_sources(wildcards):
    """What a SIF is made from at its site."""
    if site_of(wildcards)["container"]["source"] == "archive":
        return [str(archive_path(wildcards.stack))]
    return [ancient("containers/gpuatlas.def")]


def recipe_of(recipe):
    """Digest of all that an image is built from: a change builds it again."""

    def digest(wildcards):
        arguments = build_arguments(load_stack(ROOT, wildcards.stack), [])
        return recipe_digest(ROOT, recipe, wildcards.stack, arguments)

    return digest


def built_here(format_):
    """Whether images of a format are built where Snakemake runs, not in a job."""
    return STUDY.sites[image_site(STUDY, format_)]["container"]["build_on"] == "login"


def launcher(wildcards):
    """The command that runs what follows it at the cell's site, inside the image where there is one."""
    data = config["data"]
    options = ["--site", site_name(wildcards)]
    options += [part for path in image_of(wildcards) for part in ("--image", path)]
    if image_of(wildcards) and "phantom" not in data:
        options += ["--bind", data["images"], "--bind", data["masks"]]
    if config["accept_changed_image"]:
        options += ["--accept-changed-image"]
    return f"gpuatlas launch {shlex.join(options)} --"
