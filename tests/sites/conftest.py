"""Copies of the project for tests that plan jobs."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ["Snakefile", "workflow", "config", "profiles", "src", "resources", "containers"]


def copy_project(destination: Path) -> Path:
    skip = shutil.ignore_patterns("__pycache__", "images", "*.pyc")
    destination.mkdir(parents=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, destination / part, ignore=skip)
        else:
            shutil.copy2(ROOT / part, destination / part)
    return destination


@pytest.fixture(scope="module")
def module_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("sites") / "project")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_project(tmp_path / "project")
