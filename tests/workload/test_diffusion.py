"""The diffusion process and published checkpoints."""

import pickle

import numpy as np
import pytest
import torch

from gpuatlas.errors import InputRefused
from gpuatlas.workload import build_network
from gpuatlas.workload.diffusion import Diffusion, cosine_betas, load_weights


def test_schedule_is_the_published_one(reference_vectors):
    np.testing.assert_allclose(cosine_betas().numpy(), reference_vectors["schedule_250.betas"], rtol=1e-12)


def test_noised_at_both_ends():
    diffusion = Diffusion()
    image, noise = torch.full((2, 1, 2, 2, 2), 0.5), torch.full((2, 1, 2, 2, 2), -1.0)
    early, late = diffusion.noised(image, torch.tensor([0, 249]), noise)
    assert early.mean().item() == pytest.approx(0.5, abs=0.02)
    assert late.mean().item() == pytest.approx(-1.0, abs=0.02)


def test_sampling_recovers_the_volume_that_a_perfect_predictor_knows():
    """A predictor that names the exact noise of one volume makes ancestral sampling end at that volume."""
    diffusion = Diffusion()
    truth = torch.linspace(-0.9, 0.9, 64).reshape(1, 1, 4, 4, 4)

    def perfect(x, timesteps):
        step = int(timesteps[0])
        return (x[:, :1] - diffusion.signal_scale[step] * truth) / diffusion.noise_scale[step]

    mask = torch.zeros(1, 2, 4, 4, 4)
    sampled = diffusion.sample(perfect, mask, 1, torch.Generator().manual_seed(1))
    assert (sampled - truth).abs().max() < 1e-3


def test_sampling_is_seeded():
    diffusion = Diffusion(steps=5)
    network = build_network("small_64").eval()
    mask = -torch.ones(1, 2, 8, 8, 8)
    first, again, other = (
        diffusion.sample(network, mask, 1, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def published(reference_keys, name, value=0.5):
    """A checkpoint in the published form, made from the names and shapes alone."""
    state = {f"denoise_fn.{key}": torch.full(shape, value) for key, shape in reference_keys[name].items()}
    return {"step": 50_000, "model": {**state, "betas": torch.zeros(250)}, "ema": dict(state)}


def test_published_checkpoint_loads(tmp_path, reference_keys):
    for name in ("whole_head_128", "small_64", "brats_192"):
        checkpoint = published(reference_keys, name)
        torch.save(checkpoint, tmp_path / "model.pt")
        network = build_network(name)
        load_weights(tmp_path / "model.pt", network)
        assert all((value == 0.5).all() for value in network.state_dict().values())


def test_checkpoint_says_what_is_missing_or_unexpected(tmp_path, reference_keys):
    path = tmp_path / "model.pt"
    checkpoint = published(reference_keys, "small_64")
    del checkpoint["ema"]["denoise_fn.out.2.bias"]
    checkpoint["ema"]["denoise_fn.extra"] = torch.zeros(1)
    checkpoint["ema"]["denoise_fn.out.0.bias"] = torch.zeros(3)
    torch.save(checkpoint, path)
    with pytest.raises(
        InputRefused, match=r"1 missing: out\.2\.bias; 1 unexpected: extra; 1 of another shape"
    ):
        load_weights(path, build_network("small_64"))
    load_weights(path, build_network("small_64"), which="model")
    with pytest.raises(InputRefused, match="missing"):
        load_weights(path, build_network("whole_head_128"), which="model")


class _Malicious:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("content", ["cut", "text", "code", "no weights", "list"])
def test_what_is_no_checkpoint_is_refused(tmp_path, reference_keys, content, capsys):
    path = tmp_path / "model.pt"
    if content == "cut":
        torch.save(published(reference_keys, "small_64"), path)
        path.write_bytes(path.read_bytes()[:100_000])
    elif content == "text":
        path.write_text("not a checkpoint")
    elif content == "code":
        path.write_bytes(pickle.dumps({"ema": _Malicious()}))
    elif content == "no weights":
        torch.save({"weights": {}}, path)
    else:
        torch.save([1, 2], path)
    with pytest.raises(InputRefused, match=r"model\.pt"):
        load_weights(path, build_network("small_64"))
    assert "executed" not in capsys.readouterr().out
