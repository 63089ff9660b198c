"""The locks of the stacks: what stacks.yaml says of them, and that their packages work together."""

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
STACKS = yaml.safe_load((ROOT / "containers/stacks.yaml").read_text())


def locked(stack: str) -> dict[str, str]:
    text = (ROOT / f"containers/locks/{stack}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def asked(stack: str) -> list[Requirement]:
    lines = (ROOT / f"containers/locks/{stack}.in").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_holds_what_its_stack_says(stack):
    lock, entry = locked(stack), STACKS[stack]
    assert lock["torch"] == entry["torch"]
    [cudnn] = [version for name, version in lock.items() if name.startswith("nvidia-cudnn-cu")]
    assert cudnn == entry["cudnn"]
    [runtime] = [version for name, version in lock.items() if name.startswith("nvidia-cuda-runtime-cu")]
    assert runtime.startswith(entry["cuda"] + ".")


@pytest.mark.parametrize("stack", STACKS)
def test_a_lock_fits_what_was_asked_and_what_gpuatlas_needs(stack):
    lock = locked(stack)
    core = [Requirement(line) for line in requires("gpuatlas") or [] if "extra ==" not in line]
    assert {requirement.name for requirement in core} <= {requirement.name for requirement in asked(stack)}
    for requirement in [*asked(stack), *core]:
        assert requirement.specifier.contains(lock[requirement.name]), requirement


# Wheels that import each other: NumPy's and pyarrow's metadata do not tell which versions fit.
IMPORTS = "import nibabel, pyarrow.parquet, gpuatlas.cli, gpuatlas.tables.schema, gpuatlas.capture.plan, gpuatlas.ncurep"


@pytest.mark.system
@pytest.mark.skipif(
    os.environ.get("GPUATLAS_SYSTEM_TESTS") != "1", reason="set GPUATLAS_SYSTEM_TESTS=1 to fetch wheels"
)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the images have Python 3.11")
@pytest.mark.parametrize("stack", STACKS)
def test_the_packages_of_a_lock_work_together(stack, tmp_path):
    """All but torch and what it brings alone (several GB), as the image installs them."""
    text = (ROOT / f"containers/locks/{stack}.txt").read_text()
    entries = re.findall(r"^[a-z0-9-]+==.*(?:\n    .*)*", text, re.MULTILINE)
    assert len(entries) == len(locked(stack))
    heavy = ("torch==", "triton==", "nvidia-", "cmake==", "lit==")
    (tmp_path / "lock.txt").write_text("\n".join(entry for entry in entries if not entry.startswith(heavy)))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    subprocess.run(
        [*install, "--require-hashes", "--target", tmp_path / "packages", "-r", tmp_path / "lock.txt"],
        check=True,
    )
    # -S: nothing of the environment that runs the tests.
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTS], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{tmp_path}/packages:{ROOT}/src", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
