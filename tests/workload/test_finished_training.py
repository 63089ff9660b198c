"""A training that has ended is not trained again by the same command, and is by another one."""

import hashlib
import shutil

import pytest
from tests.workload.test_training import TARGETS, call, command

from gpuatlas.workload.phantom import write_phantoms


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantoms")
    write_phantoms(folder, volumes=2, size=16, seed=0)
    return folder


@pytest.fixture(scope="module")
def finished(phantoms, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    done = call(command(phantoms, folder, length=("--iterations", 2)))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def content(folder):
    """Digest and time of modification of every file."""
    return {
        path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_command_says_that_it_has_ended(phantoms, copied):
    before = content(copied)
    done = call(command(phantoms, copied, length=("--iterations", 2)))
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout == f"Trained 2 steps before; results in {copied / 'out'}. Remove them to train again.\n"
    )
    assert content(copied) == before


@pytest.mark.parametrize(
    "change", [("--iterations", 3), ("--target", "opt2"), ("--epochs", 2, "--iterations", 1)], ids=str
)  # fmt: skip
def test_another_training_trains(phantoms, copied, change):
    done = call([*command(phantoms, copied, length=("--iterations", 2)), *change])
    assert done.returncode == 0, done.stderr
    assert "before" not in done.stdout


def test_an_edited_target_trains_again(phantoms, copied, tmp_path):
    edited = tmp_path / "targets.yaml"
    edited.write_text(TARGETS.read_text().replace("precision: ieee", "precision: tf32", 1))
    again = [*command(phantoms, copied, length=("--iterations", 2)), "--targets", str(edited)]
    assert "before" not in call(again).stdout
    assert "before" in call(again).stdout


@pytest.mark.parametrize("lost", ["out/sample.png", "state/final.pt"])
def test_what_is_missing_is_made_again(phantoms, copied, lost):
    before = content(copied)
    (copied / lost).unlink()
    done = call(command(phantoms, copied, length=("--iterations", 2)))
    assert done.returncode == 0, done.stderr
    assert "before" not in done.stdout
    assert content(copied).keys() >= before.keys()


def test_a_damaged_record_is_no_finished_training(phantoms, copied):
    (copied / "out/loss.json").write_text("{")
    done = call(command(phantoms, copied, length=("--iterations", 2)))
    assert (done.returncode, "before" in done.stdout) == (0, False)
