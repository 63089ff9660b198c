"""Copies of the project in which Snakemake really runs; one full run is shared and copied."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ["Snakefile", "workflow", "config", "profiles", "src", "resources", "containers"]

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
    return destination


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
    project = copy_project(tmp_path_factory.mktemp("full") / "project")
    config = project / "config" / "config.yaml"
    text = config.read_text()
    start = text.index("\nsmoke:")
    config.write_text(text[:start] + "\nsmoke: false\n")
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
