"""The launcher: its argument lists, and what a launched command sees and returns."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpuatlas
from gpuatlas.config import load_site
from gpuatlas.errors import ConfigError, InputRefused, MachineRefused
from gpuatlas.images import Image, file_digest, read_record, verify
from gpuatlas.launch import (
    INSIDE,
    argument_list,
    clean_environment,
    gpu_of_job,
    inside_environment,
    launch,
    scratch_of,
)

ROOT = Path(__file__).parents[2]
PACKAGE = Path(gpuatlas.__file__).resolve().parent
COMMAND = ["gpuatlas", "train", "--target", "a b; rm -rf $HOME", "--out", "it's"]
SIF = Image(Path("c.sif"), "common", "apptainer", "/work/c.sif", "sha256:1", "sha256:2", ())
DOCKER = Image(Path("c.docker.json"), "common", "docker", "gpuatlas/common:abc", "sha256:1", "sha256:2", ())


def arguments(
    site: str, image: Image | None, *, gpu: str | None = "2", binds: tuple[str, ...] = ()
) -> list[str]:
    return argument_list(
        load_site(ROOT, site), image, COMMAND, cwd=Path("/work/study"), tmp=Path("/scratch/t"),
        binds=[Path(bind) for bind in binds], gpu=gpu, inside={"CUDA_VISIBLE_DEVICES": "2", "A": "x,y"}, user="7:8",
    )  # fmt: skip


def test_apptainer_behind_modules():
    assert arguments("stampede3", SIF, binds=("/data/my images",)) == [
        *["bash", "-lc", 'n=$1; shift; module load "${@:1:n}" || exit 4; shift "$n"; exec "$@"'],
        *["gpuatlas-launch", "1", "tacc-apptainer"],
        *["apptainer", "exec", "--cleanenv", "--contain", "--nv"],
        *["--bind", "/work/study:/work/study:rw", "--bind", "/scratch/t:/scratch/t:rw"],
        *["--bind", f"{PACKAGE}:{INSIDE}/gpuatlas:ro", "--bind", "/data/my images:/data/my images:ro"],
        *["--home", "/scratch/t", "--pwd", "/work/study", "/work/c.sif"],
        *COMMAND,
    ]


def test_singularity_has_its_own_name():
    line = arguments("expanse", SIF)
    assert line[3:7] == ["gpuatlas-launch", "1", "singularitypro", "singularity"]


def test_docker():
    assert arguments("jetstream2", DOCKER) == [
        *["docker", "run", "--rm", "--init", "--network", "none", "--ipc", "host", "--user", "7:8"],
        *["--gpus", "device=2"],
        *["--mount", "type=bind,source=/work/study,target=/work/study"],
        *["--mount", "type=bind,source=/scratch/t,target=/scratch/t"],
        *["--mount", f"type=bind,source={PACKAGE},target={INSIDE}/gpuatlas,readonly"],
        *["--env", "A=x,y", "--env", "CUDA_VISIBLE_DEVICES=0"],
        *["--workdir", "/work/study", "--cap-add=SYS_ADMIN", "gpuatlas/common:abc"],
        *COMMAND,
    ]


def test_no_container_is_the_command_itself():
    assert arguments("local", None) == COMMAND


def test_no_gpu_no_gpu_option():
    assert "--nv" not in arguments("stampede3", SIF, gpu=None)
    assert "--gpus" not in arguments("jetstream2", DOCKER, gpu=None)


@pytest.mark.parametrize("name", ["/data/a,b", "/data/a:b", '/data/a"b'])
def test_a_folder_that_a_runtime_would_misread_is_refused(name):
    with pytest.raises(ConfigError, match="rename it"):
        arguments("jetstream2", DOCKER, binds=(name,))


def test_one_gpu_is_pinned():
    assert gpu_of_job({"CUDA_VISIBLE_DEVICES": "3,1,0"}, present=True) == "3"
    assert gpu_of_job({"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}, present=True) == "GPU-aa"
    assert gpu_of_job({}, present=True) == "0"  # a whole node without a request: the first of four
    assert gpu_of_job({}, present=False) is None
    # Slurm may grant what no driver serves.
    assert gpu_of_job({"CUDA_VISIBLE_DEVICES": "0"}, present=False) is None


def test_the_environment_is_clean():
    outer = {
        "PATH": "/bin", "HOME": "/home/u", "PYTHONPATH": "/home/u/lib", "LD_PRELOAD": "/x.so", "FOO": "1",
        "SLURM_JOB_ID": "7", "GPUATLAS_ACCOUNT": "a", "LMOD_DIR": "/lmod", "CUDA_VISIBLE_DEVICES": "0,1",
    }  # fmt: skip
    kept = clean_environment(outer, SIF, site="s", tmp=Path("/t"), gpu="0", modules=False)
    assert kept == {
        "PATH": "/bin", "HOME": "/home/u", "SLURM_JOB_ID": "7", "GPUATLAS_ACCOUNT": "a", "CUDA_VISIBLE_DEVICES": "0",
        "TMPDIR": "/t", "PYTHONNOUSERSITE": "1", "GPUATLAS_SITE": "s", "GPUATLAS_STACK": "common",
        "GPUATLAS_IMAGE_DIGEST": "sha256:1", "GPUATLAS_IMAGE_RECIPE": "sha256:2",
    }  # fmt: skip
    assert "LMOD_DIR" in clean_environment(outer, None, site="s", tmp=Path("/t"), gpu=None, modules=True)
    inside = inside_environment(kept, tmp=Path("/t"))
    assert "PATH" not in inside
    assert (inside["HOME"], inside["PYTHONPATH"]) == ("/t", INSIDE)


def test_scratch():
    site = {"label": "S", "scratch": "/scratch/$USER/job_${SLURM_JOB_ID}"}
    assert scratch_of(site, {"USER": "me", "SLURM_JOB_ID": "5"}) == Path("/scratch/me/job_5")
    assert scratch_of(site, {"GPUATLAS_SCRATCH": "/mine"}) == Path("/mine")
    with pytest.raises(ConfigError, match="set GPUATLAS_SCRATCH"):
        scratch_of(site, {"USER": "me"})


def test_a_launched_command(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("GPUATLAS_SCRATCH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    show = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]])); sys.exit(75)"
    assert (
        launch("local", load_site(ROOT, "local"), None, [sys.executable, "-c", show, "a b;", "$HOME"]) == 75
    )
    environment, given = json.loads(capfd.readouterr().out)
    assert given == ["a b;", "$HOME"]
    assert environment["GPUATLAS_SITE"] == "local"
    assert environment["TMPDIR"].startswith(f"{tmp_path}/gpuatlas-")
    assert "PYTHONPATH" not in environment
    assert list(tmp_path.iterdir()) == []  # the job's temporary folder is gone


def test_a_missing_runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUATLAS_SCRATCH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineRefused, match="docker is not installed"):
        launch("jetstream2", load_site(ROOT, "jetstream2"), DOCKER, ["true"])


def test_modules_are_loaded_first(tmp_path, monkeypatch, capfd):
    (tmp_path / "home").mkdir()
    # What /etc/profile.d does at a site: login shells define module.
    (tmp_path / "home" / ".bash_profile").write_text('module() { echo "module $*"; [ "$2" != broken ]; }\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUATLAS_SCRATCH", str(tmp_path / "scratch"))
    site = load_site(ROOT, "local")
    site["container"]["modules"] = ["gcc/13", "tacc-apptainer"]
    assert launch("local", site, None, ["printf", "<%s>", "a b", "$(id)"]) == 0
    assert capfd.readouterr().out == "module load gcc/13 tacc-apptainer\n<a b><$(id)>"
    site["container"]["modules"] = ["broken"]
    assert launch("local", site, None, ["echo", "ran"]) == 4
    assert "ran" not in capfd.readouterr().out


SAVES = """
import signal, sys, time
def save(*_):
    open(sys.argv[1], "w").write("saved")
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("by", ["launcher", "supervisor", "supervisor and shell"])
def test_sigterm_reaches_what_must_save_its_state(tmp_path, by):
    """Only the outermost process gets the signal, as from Slurm's cgroup tracking."""
    saved = tmp_path / "saved"
    script = tmp_path / "saves.py"
    script.write_text(SAVES)
    work = ["gpuatlas", "launch", "--site", "local", "--", sys.executable, str(script), str(saved)]
    if by == "supervisor":
        work = [sys.executable, "-m", "gpuatlas.supervise", *work]
    if by == "supervisor and shell":
        # Snakemake's shell, with the prefix that the workflow sets.
        inner = "set -euo pipefail; trap : TERM; " + " ".join(work) + "; true"
        work = [sys.executable, "-m", "gpuatlas.supervise", "bash", "-c", inner]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(work, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 75
    assert saved.read_text() == "saved"


def test_images_are_what_was_recorded(tmp_path):
    image = tmp_path / "a.sif"
    image.write_bytes(b"one")
    with pytest.raises(InputRefused, match=r"a\.sif\.json: the image is missing"):
        read_record(image)
    record = {
        "schema": 1, "stack": "common", "runtime": "apptainer", "reference": "a.sif", "digest": file_digest(image),
        "recipe": "sha256:0", "packages": ["torch==2.7.1"], "size": 3, "mtime_ns": image.stat().st_mtime_ns,
    }  # fmt: skip
    (tmp_path / "a.sif.json").write_text(json.dumps(record))
    verify(read_record(image))
    before = image.stat()
    image.write_bytes(b"two")
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    verify(read_record(image), quick=True)  # not read: same size and time
    with pytest.raises(InputRefused, match="is not the recorded image"):
        verify(read_record(image))
    time.sleep(0.01)
    image.touch()
    with pytest.raises(InputRefused, match="is not the recorded image"):
        verify(read_record(image), quick=True)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("schema", 99, "key 'schema': 1 was expected"),
        ("stack", 1, "key 'stack'"),
        ("runtime", "podman", "key 'runtime': 'podman' is not one of"),
        ("runtime", "apptainer", "key 'runtime': apptainer does not run a file of this name"),
        ("reference", "--privileged", "key 'reference'"),
        ("reference", "a b", "key 'reference'"),
        ("reference", "a\n", "key 'reference'"),
        ("digest", 3, "key 'digest': 3 is not of type 'string'"),
        ("digest", "md5:0", "key 'digest'"),
        ("recipe", None, "key 'recipe'"),
        ("packages", "torch", "key 'packages'"),
    ],
)
def test_a_record_that_is_none(tmp_path, key, value, says):
    path = tmp_path / "a.docker.json"
    record = {
        "schema": 1, "stack": "common", "runtime": "docker", "reference": "gpuatlas/common:abc", "digest": "sha256:0",
        "recipe": "", "packages": ["torch==2.7.1"],
    }  # fmt: skip
    path.write_text(json.dumps(record))
    assert read_record(path).reference == "gpuatlas/common:abc"
    for wrong in (record | {key: value}, {name: held for name, held in record.items() if name != key}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(InputRefused, match=r"a\.docker\.json: is not the record of an image") as refused:
            read_record(path)
        assert (says if key in wrong else f"'{key}' is a required property") in str(refused.value)
    path.write_text("{")
    with pytest.raises(InputRefused, match="is not valid JSON; build the image again"):
        read_record(path)


@pytest.mark.parametrize(("site", "image"), [("stampede3", DOCKER), ("jetstream2", SIF), ("local", SIF)])
def test_a_site_runs_images_of_its_runtime(tmp_path, monkeypatch, site, image):
    monkeypatch.setenv("GPUATLAS_SCRATCH", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"{site}\.yaml: key 'container\.runtime': \w+ does not run c\."):
        launch(site, load_site(ROOT, site), image, ["true"])
