"""The real images of the stack `ci`, built once: Docker's, its archive, and the SIF made from that archive."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.containers.rig import STACK, USER, Docker, import_base, make_stack, reason_to_skip
from tests.slurm.study import copy_study

OFFLINE = "PIP_OPTIONS=--no-index --find-links=/build"


@dataclass
class Images:
    """A copy of the project with the built images."""

    docker: Docker
    project: Path
    record: Path
    archive: Path
    sif: Path


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    running = Docker.start()
    try:
        import_base(running)
        yield running
    finally:
        running.stop()
        assert not running.folder.exists()


@pytest.fixture(scope="session")
def images(docker: Docker) -> Images:
    project = docker.folder / "project"
    copy_study(project, ["Snakefile", "workflow", "config", "profiles", "containers", "src"], {})
    make_stack(project)
    folder = Path("containers/images")
    (project / folder).mkdir()
    record, archive, sif = (
        project / folder / f"{STACK}.{end}" for end in ("docker.json", "docker.tar", "sif")
    )
    build = ["gpuatlas", "image", "docker", "--stack", STACK, "--network", "host", "--build-arg", OFFLINE]
    docker.must([*build, "--out", str(record)], project)
    docker.must(["gpuatlas", "image", "archive", "--image", str(record), "--out", str(archive)], project)
    docker.must(["chown", "-R", USER, str(project)], project)
    make = ["gpuatlas", "image", "sif", "--stack", STACK, "--from", "archive", "--out", str(sif)]
    docker.must(make, project, user=USER)
    return Images(docker, project, record, archive, sif)
