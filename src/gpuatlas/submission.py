"""What must hold before anything is submitted: account, stack, image; one sentence where it does not."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from gpuatlas.config import Study
from gpuatlas.errors import ConfigError, InputRefused, MachineRefused
from gpuatlas.imagebuild import load_stack
from gpuatlas.images import (
    DOCKER_SUFFIX,
    Image,
    read_record,
    record_path,
    require_runtime,
    require_stack,
    verify,
)

SUFFIXES = {"apptainer": ".sif", "docker": DOCKER_SUFFIX, "none": ""}


def image_path(study: Study, site: str) -> Path | None:
    """Return the image that cells run in at `site`: the site file's own, the workflow's, or none."""
    container = study.sites[site]["container"]
    if container["runtime"] == "none":
        return None
    if container["image"]:
        return Path(container["image"])
    return Path("containers/images") / f"{study.config['stack']}{SUFFIXES[container['runtime']]}"


def image_site(study: Study, format_: str) -> str:
    """Return the site that an image (``docker`` or ``sif``) is built for: this one, or the first with jobs.

    Where none of them runs images of this format, it is ``local``: the image is made on this machine for
    another one, as a Docker archive is for a site with Apptainer.
    """
    runtime = {"sif": "apptainer", "docker": "docker"}[format_]
    using = [site for site in study.sites if study.sites[site]["container"]["runtime"] == runtime]
    return next((site for site in (study.site, *captured_sites(study)) if site in using), "local")


def check_given_images(study: Study) -> None:
    """Check that the images that site files name are there: the workflow cannot build those.

    Raises
    ------
    InputRefused
        If one or its record is missing, or the record is not one.
    ConfigError
        If one is of another runtime than the site's, or of another stack than the study's.
    """
    for site in captured_sites(study):
        if study.sites[site]["container"]["image"]:
            path = image_path(study, site)
            if path is not None:
                _recorded(study, site, path)


def _recorded(study: Study, site: str, path: Path) -> Image:
    """Return an image as recorded, of the site's runtime and the study's stack."""
    image = read_record(path)
    require_runtime(image, site, study.sites[site])
    require_stack(image, study.config["stack"])
    return image


def check(study: Study, sites: Iterable[str], *, slurm: bool) -> None:
    """Check every site that will get jobs.

    Parameters
    ----------
    sites
        Those sites.
    slurm
        Whether jobs go to Slurm (accounts do not matter elsewhere).

    Raises
    ------
    ConfigError
        If a site needs an account and none is given, the stack does not serve a site's GPU, an image is
        of another stack or runtime, or one would be fetched where there is no internet.
    InputRefused
        If an image is missing and cannot be built, or is not the recorded one.
    MachineRefused
        If Slurm is asked for at a site without it, or an image cannot be checked here.
    """
    for site in sites:
        if slurm:
            _check_slurm(study, site)
        _check_stack(study, site)
        _check_image(study, site)


def captured_sites(study: Study) -> list[str]:
    """Return the sites that will get jobs."""
    return sorted({cell.site for cell in study.of_origin("captured") if cell.site is not None})


def _check_slurm(study: Study, site: str) -> None:
    entry = study.sites[site]
    if entry["scheduler"] != "slurm":
        raise MachineRefused(
            f"config/sites/{site}.yaml: scheduler is none, so its cells cannot go to Slurm; use "
            "--profile profiles/local"
        )
    if entry["slurm"]["account_required"] and not entry["slurm"]["account"]:
        raise ConfigError(
            f"config/sites/{site}.yaml: key 'slurm.account': {entry['label']} rejects jobs without an "
            "account; set it there (quoted) or in GPUATLAS_ACCOUNT"
        )


def _check_stack(study: Study, site: str) -> None:
    container = study.sites[site]["container"]
    if container["runtime"] == "none" or container["image"]:
        return
    stack = study.config["stack"]
    served = load_stack(study.root, stack)["compute_capabilities"]
    for cell in study.of_origin("captured"):
        needed = study.architectures[cell.architecture]["compute_capability"]
        if cell.site == site and needed not in served:
            raise ConfigError(
                f"config/config.yaml: key 'stack': {stack} serves compute capability {', '.join(served)}, "
                f"not {needed} of {cell.architecture}; choose another stack, or leave the architecture out"
            )


def _check_image(study: Study, site: str) -> None:
    path = image_path(study, site)
    if path is None:
        return
    container = study.sites[site]["container"]
    if _is_built(path):
        image = _recorded(study, site, path)
        if not study.config["accept_changed_image"]:
            try:
                verify(image, quick=True)
            except MachineRefused:
                # The runtime may live on compute nodes alone; there the launcher checks again.
                return
        return
    offline = container["build_on"] == "compute" and not study.sites[site]["internet_on_compute_nodes"]
    if offline and container["source"] != "archive":
        raise ConfigError(
            f"config/sites/{site}.yaml: key 'container.build_on': an image from its {container['source']} "
            "needs the internet, which compute nodes lack; set build_on: login or source: archive"
        )
    archive = archive_path(study.config["stack"])
    if lacks_archive(study, site) and shutil.which("docker") is None:
        raise InputRefused(
            f"{archive}: the image is missing and there is no Docker here to build it; build it where "
            f"Docker is (snakemake {archive} --profile profiles/local) and copy it here"
        )


def lacks_archive(study: Study, site: str) -> bool:
    """Return whether the image of `site` is still to be made, from a Docker archive that is not here."""
    path, container = image_path(study, site), study.sites[site]["container"]
    from_archive = container["runtime"] == "apptainer" and container["source"] == "archive"
    if path is None or container["image"] or not from_archive:
        return False
    return not _is_built(path) and not archive_path(study.config["stack"]).is_file()


def _is_built(path: Path) -> bool:
    return path.is_file() and record_path(path).is_file()


def archive_path(stack: str) -> Path:
    """Return where the Docker archive of a stack lies, from which a SIF is made."""
    return Path("containers/images") / f"{stack}.docker.tar"


def remaining(study: Study) -> Iterable[str]:
    """Return a line for each cell that this run leaves out: which, and where it can be captured."""
    for cell in study.of_origin("absent"):
        yield f"{cell.name}: {cell.reason}"
