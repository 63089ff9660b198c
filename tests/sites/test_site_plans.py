"""What is planned at a site: with images that were copied there, and on one instance without Slurm."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.sites.conftest import ROOT
from tests.sites.test_site_errors import edit

from gpuatlas.config import read_yaml, resolve
from gpuatlas.submission import image_site

CELL = {"v100": "results/cells/v100/opt1/cell.json", "a100": "results/cells/a100/opt1/cell.json"}


def plan(project: Path, *arguments: str) -> tuple[Counter[str], str]:
    """Jobs by rule of a dry run, and all that it says."""
    environment = os.environ | {"PYTHONPATH": str(project / "src"), "GPUATLAS_ACCOUNT": "abc123"}
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [programs / "snakemake", "-n", *arguments],
        cwd=project, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    table = text.rsplit("Job stats:", 1)[1].split("total", 1)[0]
    return Counter({m[1]: int(m[2]) for m in re.finditer(r"^(\w+) +(\d+)$", table, re.MULTILINE)}), text


def place(path: Path) -> None:
    """A file that was copied here with its old date, as scp -p and rsync do."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    os.utime(path, (1_600_000_000, 1_600_000_000))


def test_an_image_is_built_where_there_is_none(project):
    jobs, _ = plan(project, CELL["v100"], "--profile", "profiles/slurm", "--config", "site=expanse")
    assert (jobs["sif_image"], jobs["docker_archive"], jobs["docker_image"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("site", "docker", "sif"),
    # Docker's image for an archive is made here, and not by a job with another site's partition.
    [
        ("expanse", "local", "expanse"),
        ("jetstream2", "jetstream2", "local"),
        ("all", "jetstream2", "expanse"),
    ],
)
def test_whose_job_builds_an_image(site, docker, sif):
    study = resolve(read_yaml(ROOT / "config/config.yaml") | {"site": site}, ROOT)
    assert (image_site(study, "docker"), image_site(study, "sif")) == (docker, sif)


def test_a_copied_archive_is_turned_into_an_image(project):
    place(project / "containers/images/common.docker.tar")
    jobs, _ = plan(project, CELL["v100"], "--profile", "profiles/slurm", "--config", "site=expanse")
    assert (jobs["sif_image"], jobs["docker_archive"], jobs["docker_image"]) == (1, 0, 0)


def test_a_copied_image_is_used_although_the_checkout_is_newer(project):
    for name in ("common.sif", "common.sif.json"):
        place(project / "containers/images" / name)
    jobs, _ = plan(project, CELL["v100"], "--profile", "profiles/slurm", "--config", "site=expanse")
    assert jobs["train_cell"] == jobs["capture_cell"] == 1
    assert (jobs["sif_image"], jobs["docker_archive"], jobs["docker_image"]) == (0, 0, 0)


def test_one_instance_without_slurm_runs_docker_by_the_same_site_file(project):
    jobs, text = plan(
        project, CELL["a100"], "--profile", "profiles/local", "--config", "site=jetstream2", "-p"
    )
    assert jobs["docker_image"] == jobs["train_cell"] == jobs["time_cell"] == jobs["capture_cell"] == 1
    assert jobs["sif_image"] == 0
    launched = (
        "gpuatlas launch --site jetstream2 --image containers/images/common.docker.json -- gpuatlas train"
    )
    assert launched in text


@pytest.fixture(params=["expanse", "stampede3"])
def own(request, project):
    """A project with a cluster of one's own that captures A100 with Apptainer: no site of the study has Docker."""
    site = project / "config/sites/mycluster.yaml"
    content = (project / f"config/sites/{request.param}.yaml").read_text()
    content = re.sub(r"^architectures: .*$", "architectures: [a100]", content, flags=re.MULTILINE)
    site.write_text(content.replace("account_required: true", "account_required: false"))
    edit(project / "config/architectures.yaml", "site: jetstream2", "site: mycluster")
    return project


def test_a_cluster_of_ones_own(own):
    jobs, text = plan(own, CELL["a100"], "--profile", "profiles/slurm", "--config", "site=mycluster")
    assert (jobs["sif_image"], jobs["docker_archive"], jobs["docker_image"]) == (1, 1, 1)
    assert "at mycluster (partition" in text


def test_the_archive_for_a_cluster_of_ones_own(own):
    archive = "containers/images/common.docker.tar"
    jobs, _ = plan(own, archive, "--profile", "profiles/local", "--config", "site=mycluster")
    assert (jobs["docker_archive"], jobs["docker_image"]) == (1, 1)
