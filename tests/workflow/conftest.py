"""Copies of the project in which Snakemake really runs; one full run is shared and copied.

They replay the windows that the tests keep, in `recordings`, and not what the project comes with.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ["Snakefile", "workflow", "config", "profiles", "src", "containers"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def copy_project(destination: Path) -> Path:
    destination.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "images", "*.pyc")
            shutil.copytree(source, destination / part, ignore=skip)
        else:
            shutil.copy2(source, destination / part)
    shutil.copytree(ROOT / "tests" / "data" / "windows", destination / "recordings")
    edit(
        destination / "config" / "config.yaml",
        "recordings_dir: resources/recordings",
        "recordings_dir: recordings",
    )
    return destination


def edit(path: Path, old: str, new: str) -> None:
    """Replace what a file holds once."""
    content = path.read_text()
    assert old in content, f"{path} no longer holds {old!r}"
    path.write_text(content.replace(old, new, 1))


def without_smoke(project: Path) -> Path:
    """Leave the smoke training out of a copy."""
    config = project / "config" / "config.yaml"
    text = config.read_text()
    config.write_text(text[: text.index("\nsmoke:")] + "\nsmoke: false\n")
    return project


def run_snakemake(project: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in `project`, with that copy's own sources."""
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(project / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("GPUATLAS_ACCOUNT", None)
    done = subprocess.run(
        [programs / "snakemake", "--cores", "2", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A fresh copy without results."""
    return copy_project(tmp_path / "project")


@pytest.fixture(scope="session")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study run once from the recordings, without the smoke training."""
    project = without_smoke(copy_project(tmp_path_factory.mktemp("full") / "project"))
    run_snakemake(project, "--profile", "profiles/local")
    return project


@pytest.fixture
def finished(full_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, free to be changed."""
    shutil.copytree(full_run, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


@pytest.fixture
def snakemake() -> Run:
    return run_snakemake
