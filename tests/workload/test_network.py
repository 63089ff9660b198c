"""The network equals the published one: names, shapes, outputs, losses, gradients."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gpuatlas.errors import ConfigError
from gpuatlas.workload import build_network
from gpuatlas.workload.network import NETWORKS, check_size, network_spec

SIZES = {"whole_head_128": 32, "small_64": 16}
PARAMETERS = {"whole_head_128": 40_226_433, "small_64": 9_771_937}


@pytest.mark.parametrize("name", NETWORKS)
def test_state_dict_is_the_published_one(name, reference_keys):
    state = build_network(name).state_dict()
    assert {key: list(value.shape) for key, value in state.items()} == reference_keys[name]
    assert list(state) == list(reference_keys[name]), "order"
    if name in PARAMETERS:
        assert sum(value.numel() for value in state.values()) == PARAMETERS[name]


# Rounding of float32 convolutions depends on the instruction set, so the pass runs in a process where
# oneDNN is held to AVX2, which every x86-64 machine of interest has: the same numbers everywhere.
PASS = """
import json, sys
import numpy as np, torch
sys.path.insert(0, sys.argv[2])
from conftest import REFERENCE, formula_weights, wave
from gpuatlas.workload import build_network
name = sys.argv[1]
shapes = json.loads((REFERENCE / "med_ddpm_keys.json").read_text())[name]
stored = np.load(REFERENCE / "med_ddpm_vectors.npz")
network = build_network(name)
network.load_state_dict(formula_weights(shapes))
timesteps = torch.from_numpy(stored[name + ".timesteps"])
batch, size = len(timesteps), int(sys.argv[3])
output = network(wave(0.013, batch, 3, size, size, size), timesteps)
loss = (wave(0.029, batch, 1, size, size, size) - output).abs().mean()
loss.backward()
parameters = dict(network.named_parameters())
norms = np.array([parameters[key].grad.double().norm().item() for key in sorted(shapes)])
np.savez(sys.argv[4], output=output.detach().numpy(), loss=loss.item(), grad_norm=norms)
"""


@pytest.mark.parametrize("name", SIZES)
def test_pass_equals_the_reference(name, reference_vectors, tmp_path):
    done = tmp_path / "pass.npz"
    command = [sys.executable, "-c", PASS, name, str(Path(__file__).parent), str(SIZES[name]), str(done)]
    subprocess.run(command, check=True, env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"})
    ours = np.load(done)
    expected = reference_vectors[f"{name}.output"]
    assert np.linalg.norm(ours["output"] - expected) <= 1e-5 * np.linalg.norm(expected)
    assert float(ours["loss"]) == pytest.approx(float(reference_vectors[f"{name}.loss"]), rel=1e-5)
    norms = reference_vectors[f"{name}.grad_norm"]
    assert ours["grad_norm"].shape == norms.shape
    # Where a group of GroupNorm is one channel, a constant shift has no effect: those gradients are zero
    # in exact arithmetic and rounding noise (norms of 1e-8 and less) in both networks.
    noise = norms < 1e-7
    assert noise.sum() <= 12
    np.testing.assert_allclose(ours["grad_norm"][~noise], norms[~noise], rtol=1e-4)
    assert (ours["grad_norm"][noise] < 1e-7).all()


def test_the_parity_check_can_fail(reference_keys, reference_vectors):
    """The usual maximum period of 10000 instead of 1000 moves the loss well beyond the tolerance."""
    from conftest import formula_weights, wave

    from gpuatlas.workload import unet

    network = build_network("small_64")
    network.load_state_dict(formula_weights(reference_keys["small_64"]))
    kept, unet.MAX_PERIOD = unet.MAX_PERIOD, 10000.0
    try:
        with torch.no_grad():
            output = network(wave(0.013, 2, 3, 16, 16, 16), torch.tensor([0, 249]))
    finally:
        unet.MAX_PERIOD = kept
    expected = reference_vectors["small_64.output"]
    assert np.linalg.norm(output.numpy() - expected) > 1e-4 * np.linalg.norm(expected)


def test_attention_is_recomputed_and_gradients_do_not_change():
    torch.manual_seed(0)
    block = build_network("small_64").middle_block[1]
    torch.nn.init.normal_(block.proj_out.weight, std=0.1)
    volume = torch.randn(1, 128, 2, 2, 2, requires_grad=True)
    calls = []
    attend = block._attend
    block._attend = lambda x: calls.append(1) or attend(x)
    gradients = {}
    for recompute in (True, False):
        calls.clear()
        block.recompute = recompute
        (gradient,) = torch.autograd.grad(block(volume).square().sum(), volume)
        gradients[recompute] = gradient
        assert len(calls) == (2 if recompute else 1)
    assert torch.equal(gradients[True], gradients[False])


def test_targets_are_readable_without_torch():
    code = (
        "import sys; import gpuatlas.workload, gpuatlas.workload.network; "
        "from gpuatlas.workload import targets; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bad_names_and_sizes():
    with pytest.raises(ConfigError, match="did you mean 'small_64'"):
        network_spec("smal_64")
    with pytest.raises(ConfigError, match="multiple of 16"):
        check_size(network_spec("whole_head_128"), 24)
    assert json.dumps(network_spec("brats_192").stride) == "16"
