"""MS-SSIM and the comparison that stands behind 'no loss of synthesis quality'."""

import json
from pathlib import Path

import pytest
import torch

from gpuatlas.workload import quality
from gpuatlas.workload.distance import compare
from gpuatlas.workload.quality import train_and_judge
from gpuatlas.workload.similarity import gaussian_blur, ms_ssim
from gpuatlas.workload.targets import load_target

TARGETS = Path(__file__).parents[2] / "config" / "targets.yaml"


def head():
    from gpuatlas.workload.inputs import step_volumes

    return step_volumes(32, 1, torch.device("cpu"))[0][0][0, 0]


def test_ms_ssim_orders_what_eyes_order():
    truth = head()
    assert ms_ssim(truth, truth) == pytest.approx(1)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    blurred = [ms_ssim(gaussian_blur(truth, sigma), truth) for sigma in (0.5, 1.0, 2.0)]
    noisy = [ms_ssim((truth + scale * noise).clamp(-1, 1), truth) for scale in (0.05, 0.2, 0.8)]
    assert 1 > blurred[0] > blurred[1] > blurred[2] > 0
    assert 1 > noisy[0] > noisy[1] > noisy[2] > 0
    assert ms_ssim(noise.clamp(-1, 1), truth) < 0.1
    assert ms_ssim(-truth, truth) < 0.2
    assert ms_ssim(truth, blurred_truth := gaussian_blur(truth, 1.0)) == pytest.approx(
        ms_ssim(blurred_truth, truth)
    )


def test_ms_ssim_of_constants_is_the_luminance_term():
    """By hand: structure is 1 at every scale; luminance (2ab + c1) / (a² + b² + c1), at the coarsest only."""
    a, b, c1 = 0.5, 0.2, (0.01 * 2) ** 2
    luminance = (2 * a * b + c1) / (a * a + b * b + c1)
    weights = (0.0448, 0.2856)  # 32³ has two scales of at least 11 voxels
    expected = luminance ** (weights[1] / sum(weights))
    found = ms_ssim(torch.full((32, 32, 32), a), torch.full((32, 32, 32), b))
    assert found == pytest.approx(expected, rel=1e-6)


def test_ms_ssim_refuses_what_it_cannot_compare():
    with pytest.raises(ValueError, match="at least 11 voxels"):
        ms_ssim(torch.zeros(8, 8, 8), torch.zeros(8, 8, 8))
    with pytest.raises(ValueError, match="equal shapes"):
        ms_ssim(torch.zeros(16, 16, 16), torch.zeros(16, 16, 12))


def test_gaussian_blur_keeps_the_mean():
    spike = torch.zeros(16, 16, 16)
    spike[8, 8, 8] = 1
    blurred = gaussian_blur(spike, 1.0)
    assert blurred.sum() == pytest.approx(1, abs=1e-3)
    assert 0.05 < blurred.max() < 0.08, "1 / (2π)^1.5"


def run(target, seed, loss, similarity=0.9):
    return {
        "target": target,
        "seed": seed,
        "loss": loss,
        "ms_ssim": [similarity] * 4,
        "ms_ssim_blurred": [0.8] * 4,
    }


BASE = [run("baseline", 0, 0.10, 0.90), run("baseline", 1, 0.12, 0.92), run("baseline", 2, 0.14, 0.94)]


def test_distance_is_in_the_spread_over_seeds():
    found = compare([*BASE, run("opt1", 0, 0.16, 0.91)])
    assert found["loss"]["status"] == "measured"
    assert found["loss"]["baseline_mean"] == pytest.approx(0.12)
    assert found["loss"]["baseline_sd"] == pytest.approx(0.02)
    assert found["loss"]["distance"] == pytest.approx(2)
    assert found["ms_ssim"]["distance"] == pytest.approx(0.5)


def test_what_cannot_be_had_is_not_measured():
    two = compare([*BASE[:2], run("opt1", 0, 0.1)])
    assert two["loss"] == {
        "status": "not measured",
        "reason": "baseline has 2 seeds; a spread needs 3",
    }
    assert compare(BASE)["loss"]["reason"] == "no run of opt1"
    weak = [{**entry, "ms_ssim": [0.7] * 4} for entry in BASE]
    found = compare([*weak, run("opt1", 0, 0.1)])
    assert found["loss"]["status"] == "measured"
    assert "do not beat a blurred phantom" in found["ms_ssim"]["reason"]


def test_a_real_run(tmp_path, monkeypatch):
    """One step at 16³ of one phantom: everything is written."""
    monkeypatch.setattr(quality, "VOLUMES", 1)
    target = load_target(TARGETS, "baseline")
    found = train_and_judge(target, 0, steps=1, folder=tmp_path, size=16, device="cpu")
    assert found == json.loads((tmp_path / "quality.json").read_text())
    assert found["steps"] == 1
    assert found["loss"] == pytest.approx(0.8, abs=0.02), "predicting nothing costs E|n|"
    assert len(found["ms_ssim"]) == 1
    assert all(0.1 < value < 1 for value in found["ms_ssim_blurred"])
    assert max(found["ms_ssim"]) < min(found["ms_ssim_blurred"]), "an untrained network draws noise"
    assert (tmp_path / "sample.png").exists()
