"""What is wrong is said in one sentence, before anything is submitted."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpuatlas.images import file_digest

CELL = {"v100": "results/cells/v100/opt1/cell.json", "h100": "results/cells/h100/opt1/cell.json"}


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content, f"{path} no longer holds {old!r}"
    path.write_text(content.replace(old, new, 1))


def run(project: Path, tmp_path: Path, *arguments: str, account: str = "") -> tuple[int, list[str], bool]:
    """Run Snakemake for real; return its exit status, our lines, and whether sbatch was called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    called = tmp_path / "called"
    sbatch = programs / "sbatch"
    sbatch.write_text(f"#!/bin/sh\ntouch {called}\nexit 1\n")
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IXUSR)
    # A queue without jobs.
    squeue = programs / "squeue"
    squeue.write_text("#!/bin/sh\nexit 0\n")
    squeue.chmod(squeue.stat().st_mode | stat.S_IXUSR)
    # The system's programs but Docker, which a login node does not have.
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith("docker") and not (programs / program.name).exists():
            (programs / program.name).symlink_to(program)
    environment = os.environ | {
        "PATH": f"{programs}:{Path(sys.executable).parent}",
        "PYTHONPATH": str(project / "src"),
        "GPUATLAS_ACCOUNT": account,
    }
    done = subprocess.run(
        ["snakemake", *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output, output
    lines = [line for line in output.splitlines() if line.startswith("gpuatlas: ")]
    return done.returncode, lines, called.exists()


def slurm(*arguments: str) -> list[str]:
    return [*arguments, "--profile", "profiles/slurm", "--config", "site=all"]


def sif(project: Path, content: bytes) -> Path:
    """An image file with its record, as `gpuatlas image sif` leaves them."""
    image = project / "containers/images/common.sif"
    image.parent.mkdir()
    image.write_bytes(content)
    seen = image.stat()
    record = {
        "schema": 1, "stack": "common", "runtime": "apptainer", "reference": image.name, "recipe": "sha256:0",
        "digest": file_digest(image), "packages": ["torch==2.7.1"], "size": seen.st_size, "mtime_ns": seen.st_mtime_ns,
    }  # fmt: skip
    image.with_name("common.sif.json").write_text(json.dumps(record))
    return image


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("partition: gpu-shared", "partitoin: gpu-shared", r"unknown key 'slurm\.partitoin'; did you mean 'partition'"),
        ("runtime: apptainer", "runtime: aptainer", r"key 'container\.runtime': 'aptainer' is not one of"),
        ("cpus: 10", "cpus: ten", r"key 'slurm\.cpus'"),
        ('read: "2026-08"', "read: 2026", r"key 'read'"),
        ("modules: [singularitypro]", "modules: ['a; rm -rf /']", r"key 'container\.modules\.0'"),
        ("  partition: gpu-shared", "  partition_: gpu-shared", r"unknown key 'slurm\.partition_'"),
    ],
)  # fmt: skip
def test_a_wrong_site_file(project, tmp_path, old, new, says):
    edit(project / "config/sites/expanse.yaml", old, new)
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (2, False)
    [line] = lines
    assert re.search(r"config/sites/expanse\.yaml: .*" + says, line), line


def test_no_account_where_the_site_needs_one(project, tmp_path):
    sif(project, b"image")
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]))
    assert (status, submitted) == (2, False)
    assert lines == [
        "gpuatlas: config/sites/expanse.yaml: key 'slurm.account': SDSC Expanse rejects jobs without an account; "
        "set it there (quoted) or in GPUATLAS_ACCOUNT"
    ]


def test_a_stack_that_does_not_serve_a_gpu(project, tmp_path):
    edit(project / "config/config.yaml", "stack: common", "stack: paper")
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["h100"]), account="abc123")
    assert (status, submitted) == (2, False)
    assert lines == [
        "gpuatlas: config/config.yaml: key 'stack': paper serves compute capability 7.0, 8.0, not 9.0 of h100; choose "
        "another stack, or leave the architecture out"
    ]


def test_an_image_that_is_missing_and_cannot_be_built(project, tmp_path):
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (3, False)
    [line] = lines
    assert "containers/images/common.docker.tar: the image is missing and there is no Docker here" in line


@pytest.mark.parametrize("source", ["definition", "registry"])
def test_an_image_that_cannot_be_fetched_where_it_is_built(project, tmp_path, source):
    edit(project / "config/sites/stampede3.yaml", "source: archive", f"source: {source}")
    edit(project / "config/sites/stampede3.yaml", "compute_nodes: true", "compute_nodes: false")
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["h100"]), account="abc123")
    assert (status, submitted) == (2, False)
    assert lines == [
        f"gpuatlas: config/sites/stampede3.yaml: key 'container.build_on': an image from its {source} needs the "
        "internet, which compute nodes lack; set build_on: login or source: archive"
    ]


def test_an_image_of_ones_own_that_is_missing(project, tmp_path):
    edit(project / "config/sites/stampede3.yaml", 'image: "" ', 'image: "/scratch/none.sif" ')
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["h100"]), account="abc123")
    assert (status, submitted) == (3, False)
    [line] = lines
    assert "/scratch/none.sif: the image is missing" in line
    assert "container.image in the site file" in line


def test_an_altered_image(project, tmp_path):
    image = sif(project, b"image")
    image.write_bytes(b"another image")
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (3, False)
    [line] = lines
    assert re.search(
        r"common\.sif: is not the recorded image \(sha256:\w+… instead of sha256:\w+…\)", line
    ), line


def test_an_altered_image_is_used_if_told(project, tmp_path):
    image = sif(project, b"image")
    image.write_bytes(b"another image")
    config = project / "config/config.yaml"
    edit(config, "accept_changed_image: false", "accept_changed_image: true")
    edit(config, "    volumes: 64\n    size: 128", "    volumes: 1\n    size: 16")
    _, lines, submitted = run(
        project, tmp_path, *slurm(CELL["v100"]), "--set-resources", "time_cell:slurm_account=", "train_cell:slurm_account=",
        "--retries", "0", account="abc123",
    )  # fmt: skip
    assert submitted
    assert not [line for line in lines if "recorded image" in line]


def test_a_site_without_slurm(project, tmp_path):
    edit(project / "config/sites/local.yaml", "architectures: []", "architectures: [v100]")
    status, lines, submitted = run(
        project, tmp_path, CELL["v100"], "--profile", "profiles/slurm", "--config", "site=local"
    )
    assert (status, submitted) == (4, False)
    [line] = lines
    assert "scheduler is none, so its cells cannot go to Slurm; use --profile profiles/local" in line


@pytest.mark.parametrize("dry", [[], ["-n"]], ids=["run", "dry run"])
def test_what_this_site_cannot_do_is_listed(project, dry):
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(project / "src")}
    done = subprocess.run(
        [programs / "snakemake", "results/study.json", *dry, "--profile", "profiles/local", "--config", "site=expanse"],
        cwd=project, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    listed = re.findall(
        r"^Not in this run: (\S+): .*captured at (\S+)$", done.stdout + done.stderr, re.MULTILINE
    )
    targets = ["baseline", "opt1", "opt2", "opt12"]
    # Once each, in the study's order: the jobs' own processes say nothing.
    expected = [(f"a100/{t}", "jetstream2") for t in targets] + [(f"h100/{t}", "stampede3") for t in targets]
    assert listed == expected
