"""What sbatch is asked for by every rule at every site, flag by flag; no Slurm is needed."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

CELLS = {"expanse": "v100", "jetstream2": "a100", "stampede3": "h100"}
HERE = Path(__file__).parent

COMMON = ["sbatch", "--parsable", "--job-name", "NAME", "--output", "LOG", "--comment", "COMMENT"]
END = ["--signal=TERM@120", "-D", "WORKDIR"]


def flags(site: str, minutes: int) -> list[str]:
    """The whole line, in order: what is not here must not be there."""
    return (
        COMMON
        + {
            # SDSC: account, shared partition, one GPU of the only model, a quarter of the node.
            "expanse": [
                *[
                    "-A",
                    "abc123",
                    "-p",
                    "gpu-shared",
                    "-t",
                    str(minutes),
                    "--mem",
                    "92000",
                    "--nodes=1",
                    "--requeue",
                ],
                *["--cpus-per-task=10", *END, "--gpus=1"],
            ],
            # A virtual cluster: no account is asked for, but the one in GPUATLAS_ACCOUNT is passed on.
            "jetstream2": [
                *[
                    "-A",
                    "abc123",
                    "-p",
                    "gpu",
                    "-t",
                    str(minutes),
                    "--mem",
                    "110000",
                    "--nodes=1",
                    "--requeue",
                ],
                *["--cpus-per-task=16", *END, "--gres=gpu:a100:1"],
            ],
            # TACC rejects --gres, --gpus-per-task and --mem, wants -N and -n, and asks not to give --export.
            "stampede3": [
                *["-A", "abc123", "-p", "h100", "-t", str(minutes), "--nodes=1", "--requeue", "--ntasks=1"],
                *["--cpus-per-task=96", *END],
            ],
        }[site]
    )


def submit_lines(
    project: Path, attempt: int, account: str | None = "abc123"
) -> dict[tuple[str, str], list[str]]:
    targets = [f"results/cells/{a}/{t}/cell.json" for a in CELLS.values() for t in ("baseline", "opt1")]
    environment = os.environ | {"PYTHONPATH": str(project / "src"), "GPUATLAS_ACCOUNT": account or ""}
    done = subprocess.run(
        [sys.executable, str(HERE / "submit_lines.py"), str(attempt), *targets],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {}
    for entry in json.loads(done.stdout):
        name = entry["wildcards"].get("cell") or entry["wildcards"].get("format")
        lines[entry["rule"], name] = shlex.split(entry["line"])
    return lines


@pytest.fixture(scope="module")
def first_attempt(module_project):
    return submit_lines(module_project, 1)


@pytest.mark.parametrize("site", CELLS)
@pytest.mark.parametrize(("rule", "minutes"), [("train_cell", 480), ("time_cell", 60), ("capture_cell", 360)])
def test_cells(first_attempt, site, rule, minutes):
    for target in ("baseline", "opt1"):
        assert first_attempt[rule, f"{CELLS[site]}/{target}"] == flags(site, minutes)


def test_images_are_built_in_a_job_of_the_site_that_needs_them(first_attempt):
    assert first_attempt["sif_image", "sif"] == flags("expanse", 60)
    assert first_attempt["docker_image", "docker"] == flags("jetstream2", 60)


def test_nothing_else_goes_to_slurm(first_attempt):
    assert {rule for rule, _ in first_attempt} == {
        "train_cell", "time_cell", "capture_cell", "sif_image", "docker_image",
    }  # fmt: skip


def test_a_retry_asks_for_twice_the_time_up_to_the_limit(module_project):
    second, third = (submit_lines(module_project, attempt) for attempt in (2, 3))
    for site, architecture in CELLS.items():
        for rule, minutes in (("train_cell", 480), ("time_cell", 60), ("capture_cell", 360)):
            assert second[rule, f"{architecture}/opt1"] == flags(site, 2 * minutes)
            assert third[rule, f"{architecture}/opt1"] == flags(site, 4 * minutes)
    # 8 × 480 minutes would be longer than the partitions take.
    assert submit_lines(module_project, 4)["train_cell", "v100/opt1"] == flags("expanse", 2880)


def test_no_account_where_none_is_given(module_project):
    lines = submit_lines(module_project, 1, account=None)
    assert "-A" not in lines["train_cell", "h100/opt1"]
    assert "-A" not in lines["train_cell", "a100/opt1"]
