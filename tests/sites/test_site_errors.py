"""What is wrong is said in one sentence, before anything is submitted."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.sites.conftest import ROOT

from gpuatlas.config import load_site
from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.images import file_digest, read_record, verify

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
        ("architectures: [v100]", "architectures: [v100, v10]", r"key 'architectures': 'v10' is not in config/arch.*mean 'v100'"),
    ],
)  # fmt: skip
def test_a_wrong_site_file(project, tmp_path, old, new, says):
    edit(project / "config/sites/expanse.yaml", old, new)
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (2, False)
    [line] = lines
    assert re.search(r"config/sites/expanse\.yaml: .*" + says, line), line


def changed(tmp_path: Path, **slurm: object) -> Path:
    """A project with one site, whose keys for Slurm are Expanse's but for those given."""
    site = yaml.safe_load((ROOT / "config/sites/expanse.yaml").read_text())
    site["slurm"] |= slurm
    (tmp_path / "config/sites").mkdir(parents=True)
    (tmp_path / "config/sites/mine.yaml").write_text(yaml.safe_dump(site))
    (tmp_path / "config/architectures.yaml").symlink_to(ROOT / "config/architectures.yaml")
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    return tmp_path


@pytest.mark.parametrize("key", ["account", "cluster", "partition", "gpu_model"])
@pytest.mark.parametrize("value", ["a b", "a\n", "abc\nx", "-x", "--wrap=id", "a;b", "$(id)", "a,,b", " "])
def test_a_name_that_slurm_does_not_have(tmp_path, key, value):
    with pytest.raises(ConfigError) as caught:
        load_site(changed(tmp_path, **{key: value}), "mine")
    said = f"config/sites/mine.yaml: key 'slurm.{key}': {value!r} is not of its form ("
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    ["--exclusive; touch x #", "--exclusive\n", "--wrap=id", "--wra=id", "-x", "--a=$(id)", "--a=`id`", "--a b", "--a|b"],
)  # fmt: skip
def test_further_flags_are_flags_alone(tmp_path, value):
    with pytest.raises(
        ConfigError, match=r"mine\.yaml: key 'slurm\.extra': .* is not of its form \(further flags of sb"
    ):
        load_site(changed(tmp_path, extra=value), "mine")


@pytest.mark.parametrize(
    ("slurm", "says"),
    [
        ({"cpus": 5000}, "key 'slurm.cpus': 5000 is greater than the maximum"),
        ({"mem_mb": 10**9}, "key 'slurm.mem_mb': 1000000000 is greater than the maximum"),
        ({"time_limit_min": 10**6}, "key 'slurm.time_limit_min': 1000000 is greater than the maximum"),
        ({"jobs": 10**5}, "key 'slurm.jobs': 100000 is greater than the maximum"),
        ({"service_units_per_hour": float("inf")}, "key 'slurm.service_units_per_hour': inf is no finite"),
        ({"stop_warning_s": 1801}, "key 'slurm.stop_warning_s': 1801 is greater than the maximum"),
        ({"stop_warning_s": 600, "time_limit_min": 10}, "key 'slurm.stop_warning_s': 600 s are not less than the time limit of 10 min"),
        ({"gpu_request": "none", "gpu_model": "a100"}, "key 'slurm.gpu_model': '' was expected (empty where gpu_request is none)"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_meant(tmp_path, slurm, says):
    with pytest.raises(ConfigError) as caught:
        load_site(changed(tmp_path, **slurm), "mine")
    assert str(caught.value).startswith(f"config/sites/mine.yaml: {says}")


def test_what_slurm_takes_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUATLAS_ACCOUNT", "TG-ABC_1.2")
    given = {
        "partition": "gpu,gpu-shared", "cluster": "gh200", "gpu_model": "nvidia_a100_1g.10gb",
        "extra": "--exclusive --mail-type=END,FAIL", "stop_warning_s": 599, "time_limit_min": 10,
    }  # fmt: skip
    slurm = load_site(changed(tmp_path, **given), "mine")["slurm"]
    assert {key: slurm[key] for key in given} == given
    assert slurm["account"] == "TG-ABC_1.2"


@pytest.mark.parametrize("account", ["abc\nx", "a,b", "-x", "a b"])
def test_an_account_from_the_environment_is_a_name_too(project, tmp_path, account):
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account=account)
    assert (status, submitted) == (2, False)
    [line] = lines
    assert f"environment variable GPUATLAS_ACCOUNT: {account!r} is not of its form" in line


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


@pytest.mark.parametrize("left", ["nothing", "image"])
def test_an_image_that_is_missing_and_cannot_be_built(project, tmp_path, left):
    """One without its record is built again too."""
    if left == "image":
        sif(project, b"image").with_name("common.sif.json").unlink()
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (3, False)
    [line] = lines
    assert "containers/images/common.docker.tar: the image is missing and there is no Docker here" in line
    assert "(snakemake containers/images/common.docker.tar --profile profiles/local)" in line


def test_a_docker_image_that_is_gone(project, tmp_path):
    record = {
        "schema": 1, "stack": "common", "runtime": "docker", "reference": "gpuatlas/common:0", "recipe": "sha256:0",
        "digest": "sha256:0", "packages": [],
    }  # fmt: skip
    path = project / "containers/images/common.docker.json"
    path.parent.mkdir()
    path.write_text(json.dumps(record))
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho Error: No such image: $5 >&2\nexit 1\n")
    docker.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        patch.chdir(project)
        with pytest.raises(InputRefused) as refused:
            verify(read_record(Path("containers/images/common.docker.json")))
    assert str(refused.value) == (
        "containers/images/common.docker.json: Docker has no image gpuatlas/common:0 here; build it again "
        "(snakemake --force containers/images/common.docker.json)"
    )


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


def test_an_image_of_another_stack(project, tmp_path):
    image = sif(project, b"image")
    record = image.with_name(image.name + ".json")
    edit(record, '"stack": "common"', '"stack": "paper"')
    edit(project / "config/sites/expanse.yaml", 'image: "" ', f'image: "{image}" ')
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (2, False)
    assert lines == [
        f"gpuatlas: config/config.yaml: key 'stack': common is not the stack of {image}, which holds paper; give an "
        "image of common, or set stack: paper"
    ]


def test_an_image_of_another_runtime(project, tmp_path):
    image = project / "mine.docker.json"
    record = {
        "schema": 1, "stack": "common", "runtime": "docker", "reference": "gpuatlas/common:0", "recipe": "sha256:0",
        "digest": "sha256:0", "packages": [],
    }  # fmt: skip
    image.write_text(json.dumps(record))
    edit(project / "config/sites/expanse.yaml", 'image: "" ', f'image: "{image}" ')
    status, lines, submitted = run(project, tmp_path, *slurm(CELL["v100"]), account="abc123")
    assert (status, submitted) == (2, False)
    assert lines == [
        f"gpuatlas: config/sites/expanse.yaml: key 'container.runtime': apptainer does not run {image}, an image of "
        "docker; give an image of apptainer, or correct the runtime"
    ]


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
    # A run is refused where it needs the archive and cannot build it; a dry run only tells.
    note = (
        "No containers/images/common.docker.tar here: this machine builds it with Docker, or you copy it here"
    )
    assert ((done.stdout + done.stderr).count(note) == 1) == bool(dry)
