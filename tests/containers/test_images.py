"""Real Docker and Apptainer images of the project's recipe, and the same cell in both, outside, and in Slurm jobs."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from tests.containers.conftest import Images
from tests.containers.rig import BASE, LIGHT, STACK, USER
from tests.slurm.rig import Rig, reason_to_skip
from tests.slurm.study import give_runtime

pytestmark = pytest.mark.system

TRAIN = [
    "gpuatlas",
    "train",
    "--targets",
    "config/targets.yaml",
    "--target",
    "baseline",
    "--network",
    "small_64",
    "--size",
    "16",
    "--data",
    "phantoms",
    "--iterations",
    "2",
    "--seed",
    "3",
]
ASK = """
import json, os, sys
import torch, gpuatlas
probe = os.path.join(os.environ["TMPDIR"], "probe"); open(probe, "w").close(); os.chmod(probe, 0o755)
written = [not os.access(path, os.W_OK) for path in (os.path.dirname(gpuatlas.__file__), "/usr")]
print(json.dumps({"environment": dict(os.environ), "arguments": sys.argv[1:], "cwd": os.getcwd(), "torch": torch.__version__,
                  "code": gpuatlas.__file__, "read_only": written, "home": os.path.expanduser("~"), "uid": os.getuid()}))
"""


def launch(images: Images, site: str, image: Path, *command: str, user: str | None = None, **variables: str):
    line = ["gpuatlas", "launch", "--site", site, "--image", str(image), "--", *command]
    return images.docker.run(line, images.project, variables, user)


def record(path: Path) -> dict:
    return json.loads(path.read_text())


def test_the_records_say_what_is_inside(images):
    docker = record(images.record)
    seen = json.loads(
        images.docker.must(["docker", "image", "inspect", docker["reference"]], images.project)
    )[0]
    assert docker["digest"] == seen["Id"]
    assert seen["Config"]["Labels"] == {"org.gpuatlas.stack": STACK, "org.gpuatlas.recipe": docker["recipe"]}
    sif = record(images.sif.with_name(images.sif.name + ".json"))
    assert sif["digest"] == "sha256:" + hashlib.sha256(images.sif.read_bytes()).hexdigest()
    # The SIF was made from the archive: the same packages, and (read by spython) the same labels.
    assert sif["recipe"] == docker["recipe"]
    assert sif["packages"] == docker["packages"]
    locked = re.findall(
        r"^(\S+)==(\S+) --hash", (images.project / f"containers/locks/{STACK}.txt").read_text(), re.M
    )
    packages = {
        package.split("==")[0].lower().replace("_", "-"): package.split("==")[1]
        for package in docker["packages"]
    }
    assert packages["python"].startswith("3.11.")
    for name, version in locked:
        assert packages[name.lower()] == version


@pytest.mark.parametrize("runtime", ["docker", "apptainer"])
def test_what_a_command_sees_inside(images, runtime):
    site, image, user = (
        ("jetstream2", images.record, None) if runtime == "docker" else ("stampede3", images.sif, USER)
    )
    outside = {"FOO": "1", "PYTHONPATH": "/elsewhere", "LD_PRELOAD": "", "CUDA_VISIBLE_DEVICES": ""}
    done = launch(
        images, site, image, "python", "-c", ASK, "a b;", "$HOME", 'it\'s, "x"', user=user, **outside
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen["arguments"] == ["a b;", "$HOME", 'it\'s, "x"']
    assert seen["cwd"] == str(images.project)
    assert seen["code"] == "/opt/gpuatlas/lib/gpuatlas/__init__.py"
    environment = seen["environment"]
    assert "FOO" not in environment
    assert environment["PYTHONPATH"] == "/opt/gpuatlas/lib"
    assert environment["GPUATLAS_SITE"] == site
    assert environment["GPUATLAS_IMAGE_DIGEST"] == record(
        images.record if runtime == "docker" else images.sif.with_name(images.sif.name + ".json")
    )["digest"]  # fmt: skip
    assert environment["TMPDIR"].startswith(f"{images.docker.folder}/scratch/gpuatlas-")
    assert seen["home"] == environment["TMPDIR"]
    if runtime == "apptainer":
        assert all(seen["read_only"])


@pytest.mark.parametrize("runtime", ["docker", "apptainer"])
def test_nsight_compute_inside_has_what_is_measured_on_each_chip(images, runtime):
    site, image, user = (
        ("jetstream2", images.record, None) if runtime == "docker" else ("stampede3", images.sif, USER)
    )

    def ncu(*arguments: str) -> set[str]:
        done = launch(images, site, image, "ncu", *arguments, user=user)
        assert done.returncode == 0, done.stdout + done.stderr
        return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}

    capture = yaml.safe_load((images.project / "config/config.yaml").read_text())["capture"]
    assert set(capture["sections"]) <= ncu("--list-sections")
    names = ",".join(metric.partition(".")[0] for metric in capture["metrics"])
    for chip in ("gv100", "ga100", "gh100"):
        asked = ["--query-metrics", "--query-metrics-mode", "suffix", "--metrics", names, "--chip", chip]
        assert set(capture["metrics"]) <= ncu(*asked)


def test_a_stack_that_is_not_what_was_built_is_refused(images):
    """The last step of a build, by the image's own Python: against the stack as it is, and as it is not."""
    stacks = yaml.safe_load((images.project / "containers/stacks.yaml").read_text())
    version = stacks[STACK]["ncu"]
    check = ["python", "containers/check.py"]
    good = launch(images, "jetstream2", images.record, *check, "containers/stacks.yaml", STACK, version)
    assert (good.returncode, good.stderr) == (0, "")
    stacks[STACK] |= {"cudnn": "9.5.1.17", "compute_capabilities": ["9.0", "13.0"]}
    (images.project / "other.yaml").write_text(yaml.safe_dump(stacks))
    bad = launch(images, "jetstream2", images.record, *check, "other.yaml", STACK, version)
    assert bad.returncode == 1
    assert bad.stderr.strip() == (
        f"containers/stacks.yaml: {STACK}: cudnn: '' instead of '9.5.1'; "
        f"Nsight Compute {version} does not know compute capability 13.0; correct the stack or its lock"
    )


SAVES = (
    "import pathlib, signal, sys, time\n"
    "def save(*_):\n    pathlib.Path(sys.argv[1]).write_text('saved'); sys.exit(75)\n"
    "signal.signal(signal.SIGTERM, save)\npathlib.Path(sys.argv[1]).write_text('ready')\ntime.sleep(60)\n"
)


@pytest.mark.parametrize("runtime", ["docker", "apptainer"])
def test_sigterm_reaches_the_command_inside(images, runtime):
    site, image, user = (
        ("jetstream2", images.record, None) if runtime == "docker" else ("stampede3", images.sif, USER)
    )
    marker = images.project / f"marker-{runtime}"
    work = [
        "gpuatlas",
        "launch",
        "--site",
        site,
        "--image",
        str(image),
        "--",
        "python",
        "-c",
        SAVES,
        str(marker),
    ]
    # The launcher alone gets the signal, once the command inside is ready for it.
    script = (
        'marker=$1; shift; "$@" & pid=$!; for _ in $(seq 300); do grep -qs ready "$marker" && break; sleep 0.2; done; '
        "kill -TERM $pid; wait $pid"
    )
    done = images.docker.run(["bash", "-c", script, "-", str(marker), *work], images.project, None, user)
    assert done.returncode == 75, done.stderr
    assert marker.read_text() == "saved"


def test_an_image_that_is_not_the_recorded_one_is_refused(images, tmp_path):
    altered = images.project / "altered.sif"
    shutil.copy2(images.sif, altered)
    shutil.copy2(images.sif.with_name(images.sif.name + ".json"), images.project / "altered.sif.json")
    with altered.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    done = launch(images, "stampede3", altered, "true", user=USER)
    assert done.returncode == 3
    assert "altered.sif: is not the recorded image" in done.stderr
    altered.unlink()
    other = record(images.record) | {"digest": "sha256:" + "0" * 64}
    (images.project / "other.docker.json").write_text(json.dumps(other))
    done = launch(images, "jetstream2", images.project / "other.docker.json", "true")
    assert done.returncode == 3
    assert "other.docker.json: is not the recorded image" in done.stderr
    gone = other | {"reference": "gpuatlas/ci:gone"}
    (images.project / "gone.docker.json").write_text(json.dumps(gone))
    done = launch(images, "jetstream2", images.project / "gone.docker.json", "true")
    assert done.returncode == 3
    assert "gone.docker.json: Docker has no image gpuatlas/ci:gone here" in done.stderr
    told = images.docker.run(
        ["gpuatlas", "launch", "--site", "jetstream2", "--accept-changed-image", "--image", "other.docker.json", "--",
         "echo", "ran"],
        images.project,
    )  # fmt: skip
    assert (told.returncode, told.stdout.strip()) == (0, "ran")


def test_a_sif_from_the_definition(images):
    """gpuatlas.def, built by a user without rights: the same script, so the same packages as in Docker's image."""
    base = images.project / "base.tar"
    images.docker.must(["docker", "save", "--output", str(base), BASE], images.project)
    base.chmod(0o644)
    out = images.project / "light.sif"
    arguments = [f"BASE={base}", "BOOTSTRAP=docker-archive", images.pip]
    line = ["gpuatlas", "image", "sif", "--stack", LIGHT, "--from", "definition", "--out", str(out)]
    line += [part for argument in arguments for part in ("--build-arg", argument)]
    images.docker.must(line, images.project, user=USER)
    light = record(out.with_name(out.name + ".json"))
    names = {package.split("==")[0].lower() for package in light["packages"]}
    assert names == {"python", "pip", "setuptools", "pyyaml", "rich", "pygments", "mdurl"}
    # torch brings a setuptools of its own; all else is the same in both.
    both = {package for package in light["packages"] if not package.startswith("setuptools==")}
    assert both <= set(record(images.record)["packages"])
    assert light["stack"] == LIGHT
    assert light["recipe"].startswith("sha256:")
    assert images.docker.must(["gpuatlas", "image", "check", str(out)], images.project, user=USER)


@pytest.fixture(scope="module")
def rig() -> Rig:
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    running = Rig.start()
    yield running
    running.stop()


def test_one_cell_in_both_images_and_outside_in_slurm_jobs(images, rig):
    """The same cell at three sites by one command: in the SIF, in the Docker image, and without a container."""
    project = images.project
    for site, runtime in (("expanse", "apptainer"), ("jetstream2", "docker")):
        give_runtime(project, site, runtime, options=[])
    give_runtime(project, "stampede3", "none", command="")
    config = yaml.safe_load((project / "config/config.yaml").read_text())
    config |= {
        "targets": ["baseline"],
        "architectures": ["v100", "a100", "h100"],
        "smoke": False,
        "stack": STACK,
    }
    config["workload"] |= {"network": "small_64", "size": 16}
    config["train"] = {"iterations": 2, "device": "cpu"}
    config["data"] = {"phantom": {"volumes": 2, "size": 16, "seed": 0}}
    (project / "config/config.yaml").write_text(yaml.safe_dump(config))
    cells = ["v100/baseline", "a100/baseline", "h100/baseline"]
    targets = [f"results/cells/{cell}/train/loss.json" for cell in cells]
    command = ["snakemake", *targets, "--profile", "profiles/slurm", "--config", "site=all"]
    environment = {"DOCKER_HOST": images.docker.host}
    driver = rig.start_command(command, project, project / "output.txt", environment)
    assert driver.wait(600) == 0, driver.text()
    assert "Building the" not in driver.text()  # the images are there
    trained = {cell: project / "results/cells" / cell / "train" for cell in cells}
    losses = [json.loads((folder / "loss.json").read_text())["loss"] for folder in trained.values()]
    assert len(losses[0]) == 2
    assert losses[0] == losses[1] == losses[2]
    samples = {
        hashlib.sha256((folder / "sample.nii.gz").read_bytes()).hexdigest() for folder in trained.values()
    }
    assert len(samples) == 1
    for cell, image in (
        ("v100/baseline", images.sif.with_name(images.sif.name + ".json")),
        ("a100/baseline", images.record),
    ):
        about = json.loads((trained[cell] / "environment.json").read_text())
        assert about["image"]["digest"] == record(image)["digest"]
        assert about["image"]["recipe"] == record(image)["recipe"]
        assert about["stack"]["name"] == STACK
