"""Training for real, small: what it writes, and that no interruption changes a bit of it."""

import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import nibabel
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpuatlas.errors import InputRefused
from gpuatlas.lock import locked
from gpuatlas.tables import schema
from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply
from gpuatlas.workload.data import Dataset, batches, open_dataset
from gpuatlas.workload.phantom import write_phantoms
from gpuatlas.workload.state import resume
from gpuatlas.workload.step import TrainingStep
from gpuatlas.workload.targets import load_target
from gpuatlas.workload.train import Plan, _average

REPOSITORY = Path(__file__).parents[2]
TARGETS = REPOSITORY / "config" / "targets.yaml"
GPUATLAS = [sys.executable, "-m", "gpuatlas.cli"]
STEPS = 10
SIZE = 8  # the smallest volume that small_64 takes: hundreds of passes fit into the tests
ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantoms")
    write_phantoms(folder, volumes=3, size=16, seed=0)  # resized to 8 when prepared
    return folder


def command(phantoms, folder, *more, size=SIZE, network="small_64", length=("--iterations", STEPS)):
    return [
        *GPUATLAS,
        "train",
        *("--targets", TARGETS, "--target", "baseline", "--network", network, "--size", size),
        *("--data", phantoms, *length, "--save-seconds", 0),
        *("--out", folder / "out", "--state", folder / "state", *more),
    ]


def call(arguments, **options):
    return subprocess.run(
        list(map(str, arguments)), capture_output=True, text=True, env=ENVIRONMENT, check=False, **options
    )


@pytest.fixture(scope="module")
def undisturbed(phantoms, tmp_path_factory):
    """A run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = call(command(phantoms, folder))
    assert done.returncode == 0, done.stderr
    return folder


def outcome(folder):
    """Everything of a run that must not depend on interruptions."""
    weights = torch.load(folder / "state/final.pt", weights_only=True)
    table = pq.read_table(folder / "out/steps.parquet")
    return (
        {f"{part}.{key}": value for part, state in weights.items() for key, value in state.items()},
        (table["step"].to_pylist(), table["epoch"].to_pylist(), table["loss"].to_pylist()),
        (folder / "out/sample.nii.gz").read_bytes(),
        (folder / "out/sample.png").read_bytes(),
        (folder / "out/loss.json").read_bytes(),
    )


def assert_same(folder, reference):
    ours, theirs = outcome(folder), outcome(reference)
    assert ours[0].keys() == theirs[0].keys()
    assert all(torch.equal(ours[0][key], theirs[0][key]) for key in ours[0])
    assert ours[1:] == theirs[1:]


def test_outputs(undisturbed):
    out = undisturbed / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "environment.json",
        "loss.json",
        "sample.nii.gz",
        "sample.png",
        "steps.parquet",
    ]
    table = pq.read_table(out / "steps.parquet")
    assert table.schema.equals(schema.STEPS)
    rows = table.to_pylist()
    assert [row["step"] for row in rows] == list(range(STEPS))
    # The pass that ends step s is number 2s + 1; three volumes an epoch.
    assert [row["epoch"] for row in rows] == [(2 * s + 1) // 3 for s in range(STEPS)]
    assert all(0.5 < row["loss"] < 1.1 for row in rows), "an untrained network predicts no noise: E|n| = 0.8"
    assert all(row["step_ms"] > 1 and row["data_ms"] >= 0 and row["peak_bytes"] > 1e8 for row in rows)
    assert len({row["loss"] for row in rows}) == STEPS
    summary = json.loads((out / "loss.json").read_text())
    assert summary["loss"] == [row["loss"] for row in rows]
    assert (summary["counted_in"], summary["iterations"], summary["epochs"]) == ("iterations", STEPS, None)
    assert summary["sample_weights"] == "model"
    environment = json.loads((out / "environment.json").read_text())
    assert len(environment["data_sha256"]) == 64
    assert environment["flags"]["fp32_precision"] == {"matmul": "ieee", "convolution": "ieee"}
    assert environment["stack"]["torch"] == torch.__version__
    assert environment["gpu"] is None


def test_sample_and_picture(undisturbed):
    volume = nibabel.load(undisturbed / "out/sample.nii.gz")
    voxels = volume.get_fdata()
    assert voxels.shape == (SIZE, SIZE, SIZE)
    assert np.isfinite(voxels).all()
    assert voxels.std() > 0.01
    png = (undisturbed / "out/sample.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, colour = struct.unpack(">IIBB", png[16:26])
    assert (depth, colour) == (8, 0)
    pixels = np.frombuffer(zlib.decompress(png[41 : 41 + struct.unpack(">I", png[33:37])[0]]), np.uint8)
    grey = pixels.reshape(height, width + 1)[:, 1:]
    # Top left is the axial mid-plane of the sample, enlarged twentyfold inside a border of two pixels.
    plane = np.clip(voxels[:, :, SIZE // 2].T, -1, 1)
    np.testing.assert_allclose(grey[2:162:20, 2:162:20], (plane + 1) * 127.5, atol=1)
    assert set(np.unique(grey[height // 2 :])) <= {0, 128, 255}


def test_sample_draws_from_the_final_weights(phantoms, undisturbed, tmp_path):
    """The command draws what the training drew: same weights, mask and seed."""
    arguments = [
        *(*GPUATLAS, "sample", "--weights", undisturbed / "state/final.pt", "--which", "model"),
        *("--mask", phantoms / "masks/mask_0000.nii.gz", "--network", "small_64", "--size", SIZE),
        *("--targets", TARGETS, "--target", "baseline", "--picture", tmp_path / "drawn.png"),
    ]
    done = call([*arguments, "--out", tmp_path / "drawn.nii.gz"])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "drawn.nii.gz").read_bytes() == (undisturbed / "out/sample.nii.gz").read_bytes()
    assert (tmp_path / "drawn.png").read_bytes() == (undisturbed / "out/sample.png").read_bytes()
    refused = call([*arguments, "--out", tmp_path / "drawn.nii"])
    assert refused.returncode == 2
    assert "ends in .nii.gz" in refused.stderr


def wait_for_a_save(process, checkpoint):
    """Wait until this attempt has saved a pass of its own."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    while not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def test_killed_at_five_random_moments_ends_bit_identical(phantoms, undisturbed, tmp_path):
    moments = random.Random(20260619)
    kills, passes_seen = 0, set()
    checkpoint = tmp_path / "state/checkpoint.pt"
    arguments = list(map(str, command(phantoms, tmp_path)))
    while kills < 5 or not any(passes % 2 for passes in passes_seen):
        assert kills < 15, f"never killed inside an accumulation: {passes_seen}"
        process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        wait_for_a_save(process, checkpoint)
        time.sleep(moments.uniform(0.0, 0.6))
        process.kill()
        if process.wait() == 0:
            pytest.fail("the run ended before it could be killed five times: make it longer")
        process.stderr.close()
        kills += 1
        if checkpoint.exists():
            passes_seen.add(torch.load(checkpoint, weights_only=True)["training"]["passes"])
    assert max(passes_seen) > min(passes_seen), "each attempt goes on from the one before"
    assert not (tmp_path / "out").exists(), "outputs are written at the end only"
    done = call(arguments)
    assert done.returncode == 0, done.stderr
    left = sorted(p.name for p in (tmp_path / "state").iterdir())
    assert left == [".lock", "final.pt"], "no torn files are left"
    assert_same(tmp_path, undisturbed)


def test_sigterm_saves_and_a_retry_goes_on(phantoms, undisturbed, tmp_path):
    arguments = list(map(str, command(phantoms, tmp_path)))
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    wait_for_a_save(process, tmp_path / "state/checkpoint.pt")
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read()
    assert process.wait() == 75, said
    assert "the state is saved" in said
    assert "Traceback" not in said
    held = torch.load(tmp_path / "state/checkpoint.pt", weights_only=True)
    assert 0 < held["training"]["passes"] <= 2 * STEPS
    other = call([*arguments, "--seed", "1"])
    assert other.returncode == 2
    assert "belongs to another run: its seed is 0 and not 1" in other.stderr
    done = call(arguments)
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path, undisturbed)


@pytest.fixture(scope="module")
def interrupted(phantoms, tmp_path_factory):
    """The state folder of a run that SIGTERM ended when it had saved at least three passes."""
    folder = tmp_path_factory.mktemp("interrupted")
    process = subprocess.Popen(
        list(map(str, command(phantoms, folder))), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    for _ in range(3):
        wait_for_a_save(process, folder / "state/checkpoint.pt")
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 75, said
    return folder / "state"


def test_a_run_does_not_go_on_under_another_definition_of_its_target(phantoms, interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "state")
    edited = tmp_path / "targets.yaml"
    edited.write_text(TARGETS.read_text().replace("precision: ieee", "precision: tf32", 1))
    done = call([*command(phantoms, tmp_path), "--targets", edited])
    assert done.returncode == 2, done.stderr
    assert "belongs to another run: its settings is {'precision': 'ieee'" in done.stderr


def test_a_shorter_run_does_not_take_a_longer_one_s_state(phantoms, interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "state")
    before = (tmp_path / "state/checkpoint.pt").read_bytes()
    done = call(command(phantoms, tmp_path, length=("--iterations", 1)))
    assert done.returncode == 3, done.stderr
    passes = torch.load(interrupted / "checkpoint.pt", weights_only=True)["training"]["passes"]
    assert f"checkpoint.pt has trained {passes / 2:g} steps and 1 were asked for" in done.stderr
    assert f"ask for {math.ceil(passes / 2)} or more, or use another --state" in done.stderr
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "state/checkpoint.pt").read_bytes() == before
    longer = call(command(phantoms, tmp_path, length=("--iterations", STEPS + 1)))
    assert longer.returncode == 0, longer.stderr
    assert len(json.loads((tmp_path / "out/loss.json").read_text())["loss"]) == STEPS + 1


def test_a_full_disk_names_the_state(phantoms, tmp_path):
    arguments = [str(a) for a in command(phantoms, tmp_path)[3:]]
    code = f"""
import resource, sys
import gpuatlas.workload.train
from gpuatlas.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, resource.RLIM_INFINITY))
sys.argv = ["gpuatlas", *{arguments!r}]
main()
"""
    done = call([sys.executable, "-c", code])
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].endswith(f"File too large: {tmp_path}/state/checkpoint.pt")
    assert "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "state").iterdir()] == [".lock"]


def test_two_runs_in_one_state_folder(phantoms, interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "state")
    before = (tmp_path / "state/checkpoint.pt").read_bytes()
    with locked(tmp_path / "state"):
        done = call(command(phantoms, tmp_path))
    assert done.returncode == 2, done.stderr
    assert "state is in use by another run; wait for its end, or use another --state" in done.stderr
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "state/checkpoint.pt").read_bytes() == before


def test_another_size_is_named_before_its_data(phantoms, interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "state")
    done = call(command(phantoms, tmp_path, size=16))
    assert done.returncode == 2, done.stderr
    assert "belongs to another run: its size is 8 and not 16" in done.stderr


DAMAGES = {
    "no training": lambda held: held.pop("training"),
    "no identity": lambda held: held["training"].pop("identity"),
    "identity of text": lambda held: held["training"].update(identity="x"),
    "identity without its seed": lambda held: held["training"]["identity"].pop("seed"),
    "no log": lambda held: held["training"].pop("log"),
    "a foreign log": lambda held: held["training"].update(log={"x": []}),
    "a log too short": lambda held: held["training"]["log"]["loss"].pop(),
    "no optimizer": lambda held: held["training"].pop("optimizer"),
    "an empty optimizer": lambda held: held["training"].update(optimizer={}),
    "passes of text": lambda held: held["training"].update(passes="x"),
    "negative passes": lambda held: held["training"].update(passes=-5),
    "passes that the log has not": lambda held: held["training"].update(passes=1),
    "another schema": lambda held: held["training"].update(schema=99),
    "weights missing": lambda held: held["model"].popitem(),
    "averages missing": lambda held: held["ema"].popitem(),
    "a cut state of random numbers": lambda held: held["training"]["random"].update(
        torch=torch.zeros(3, dtype=torch.uint8)
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_altered_state_is_refused(interrupted, tmp_path, damage):
    held = torch.load(interrupted / "checkpoint.pt", weights_only=True)
    identity = dict(held["training"]["identity"])
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), torch.device("cpu"))
    step = TrainingStep(prepared, seed=0)
    assert resume(interrupted, identity, step).passes == held["training"]["passes"]
    DAMAGES[damage](held)
    torch.save(held, tmp_path / "checkpoint.pt")
    with pytest.raises(InputRefused, match="is not the state of a training run of this version; remove it"):
        resume(tmp_path, identity, step)


def test_epochs_are_true_epochs():
    plan = Plan.of(64, epochs=25, iterations=None, seed=0, save_seconds=1)
    assert (plan.steps, plan.epochs) == (800, 25)
    assert Plan.of(3, epochs=3, iterations=None, seed=0, save_seconds=1).steps == 5
    assert Plan.of(64, epochs=25, iterations=7, seed=0, save_seconds=1).steps == 7


def test_training_learns():
    """Overfit one tiny volume: the loss must fall well below that of predicting nothing."""
    torch.manual_seed(0)
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), torch.device("cpu"))
    step = TrainingStep(prepared, seed=0)
    step.optimizer.param_groups[0]["lr"] = 1e-3  # the published rate needs thousands of steps
    volume = (-torch.ones(1, 1, 8, 8, 8), -torch.ones(1, 2, 8, 8, 8))
    losses = torch.stack([step.run([volume, volume]) for _ in range(40)])
    assert losses[:5].mean() > 0.7
    assert losses[-10:].mean() < 0.6 * losses[:5].mean()


def test_two_passes_make_one_step():
    """The accumulated gradient is the mean of both passes' gradients."""
    torch.manual_seed(0)
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), torch.device("cpu"))
    volume = (torch.rand(1, 1, 8, 8, 8), -torch.ones(1, 2, 8, 8, 8))
    weight = prepared.network.out[2].weight
    step = TrainingStep(prepared, seed=7)
    single = []
    for _ in range(2):
        step.one_pass(*volume)
        single.append(weight.grad.clone())
        step.optimizer.zero_grad(set_to_none=True)
    both = TrainingStep(prepared, seed=7)
    for _ in range(2):
        both.one_pass(*volume)
    torch.testing.assert_close(weight.grad, single[0] + single[1])
    before = weight.detach().clone()
    both.update()
    assert weight.grad is None
    assert 0 < (weight - before).abs().max() <= 1.01e-5, "Adam's first step is the learning rate"


def test_the_real_network_trains_at_16(phantoms):
    torch.manual_seed(0)
    prepared = apply(load_target(TARGETS, "opt12"), build_network("whole_head_128"), torch.device("cpu"))
    dataset = open_dataset(phantoms / "images", phantoms / "masks", phantoms / ".prepared", 16)
    step = TrainingStep(prepared, seed=0)
    head = prepared.network.out[2].weight
    assert not head.any(), "the head starts at zero"
    served = [(image, mask) for image, mask, _ in batches(dataset, range(4), 0, prepared.device)]
    losses = [step.run(served[:2]).item(), step.run(served[2:]).item()]
    assert head.any()
    assert all(0.7 < loss < 0.9 for loss in losses), "predicting nothing costs E|n| = 0.8"


def test_average_of_weights():
    torch.manual_seed(0)
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), torch.device("cpu"))
    step = TrainingStep(prepared, seed=0)
    from gpuatlas.workload.state import Progress

    zeros = {key: torch.zeros_like(value) for key, value in prepared.network.state_dict().items()}
    progress = Progress(0, zeros)
    weight = prepared.network.state_dict()["time_embed.0.weight"]
    averaged = progress.ema["time_embed.0.weight"]
    _average(progress, step, 2009)
    assert not averaged.any(), "every ten steps only"
    _average(progress, step, 2010)
    torch.testing.assert_close(averaged, 0.005 * weight)
    _average(progress, step, 1990)
    assert torch.equal(averaged, weight), "before step 2000 a copy"


class _Reads(TorchDispatchMode):
    """Counts reads of a tensor's value by the host: each would stall the GPU."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
            self.count += 1
        return function(*args, **(kwargs or {}))


def test_no_value_is_read_in_a_pass():
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), torch.device("cpu"))
    step = TrainingStep(prepared, seed=0)
    with _Reads() as reads:
        loss = step.one_pass(torch.zeros(1, 1, 8, 8, 8), -torch.ones(1, 2, 8, 8, 8))
    assert reads.count == 0
    with reads:
        loss.item()
    assert reads.count == 1, "the counter counts"


def test_out_of_memory_says_what_it_needed(phantoms, tmp_path):
    arguments = [str(a) for a in command(phantoms, tmp_path, size=64)[3:]]
    code = f"""
import resource, sys
import torch, nibabel, pyarrow.parquet, gpuatlas.workload.train
from gpuatlas.cli import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 700 * 2**20,) * 2)
sys.argv = ["gpuatlas", *{arguments!r}]
main()
"""
    done = call([sys.executable, "-c", code])
    assert done.returncode == 4, done.stderr
    assert "Out of memory on the host: training small_64 at 64³" in done.stderr
    assert "GiB more, after a peak of" in done.stderr
    assert "under a limit of" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (["--target", "optt1"], 2, "did you mean 'opt1'"),
        (["--network", "brats_192", "--size", "16"], 2, "needs 4 modalities"),
        (["--size", "20"], 2, "multiple of 8"),
        (["--device", "cuda"], 4, "sees no CUDA GPU"),
        (["--device", "gpu"], 2, "choose auto, cuda or cpu"),
        (["--targets", "/nowhere.yaml"], 2, "/nowhere.yaml"),
        (["--data", "/nowhere"], 2, "no folder /nowhere/images"),
        (["--masks", "/nowhere"], 2, "--images FOLDER and --masks FOLDER"),
    ],
)
def test_wrong_use_is_one_sentence(phantoms, tmp_path, change, status, said):
    done = call(command(phantoms, tmp_path, *change))
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_whole(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        Dataset((tmp_path / "gone.npz",), "x").load(0)
