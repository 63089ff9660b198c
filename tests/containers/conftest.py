"""The real images of the stack `ci`, built once: Docker's, its archive, and the SIF made from that archive."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.containers.rig import STACK, USER, Docker, import_base, make_stack, reason_to_skip
from tests.slurm.study import SITES, copy_study, give_runtime


@dataclass
class Images:
    """A copy of the project with the built images."""

    docker: Docker
    project: Path
    record: Path
    archive: Path
    sif: Path
    pip: str


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
def wheels(docker: Docker) -> Iterator[Path]:
    """A folder whose wheels the builds fetch, and a server for it."""
    folder = docker.folder / "wheels"
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        (docker.folder / "wheels.url").write_text(f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        del arguments


@pytest.fixture(scope="session")
def images(docker: Docker, wheels: Path) -> Images:
    project = docker.folder / "project"
    # One core each: three trainings side by side on a machine of two.
    changes = {site: {"cpus": 1} for site in SITES}
    copy_study(project, ["Snakefile", "workflow", "config", "profiles", "containers", "src"], changes)
    for site, runtime in (("jetstream2", "docker"), ("stampede3", "apptainer")):
        give_runtime(project, site, runtime)
    make_stack(project, wheels)
    pip = f"PIP_OPTIONS=--no-index --find-links={(docker.folder / 'wheels.url').read_text()}"
    folder = Path("containers/images")
    (project / folder).mkdir()
    record, archive, sif = (
        project / folder / f"{STACK}.{end}" for end in ("docker.json", "docker.tar", "sif")
    )
    build = ["gpuatlas", "image", "docker", "--stack", STACK, "--network", "host", "--build-arg", pip]
    docker.must([*build, "--out", str(record)], project)
    docker.must(["gpuatlas", "image", "archive", "--image", str(record), "--out", str(archive)], project)
    docker.must(["chown", "-R", USER, str(project)], project)
    make = ["gpuatlas", "image", "sif", "--stack", STACK, "--from", "archive", "--out", str(sif)]
    docker.must(make, project, user=USER)
    return Images(docker, project, record, archive, sif, pip)
