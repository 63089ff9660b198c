"""Targets as data, and what applying one sets."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from gpuatlas.errors import ConfigError, MachineRefused
from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply, broken_stack, cudnn_release, pick_device
from gpuatlas.workload.environment import effective_flags
from gpuatlas.workload.precision import effective_precision, pin_precision
from gpuatlas.workload.targets import load_target, load_targets
from gpuatlas.workload.unet import AttentionBlock

TARGETS = Path(__file__).parents[2] / "config" / "targets.yaml"
CPU = torch.device("cpu")


def small():
    torch.manual_seed(0)
    return build_network("small_64")


def volume():
    torch.manual_seed(1)
    return torch.rand(1, 3, 8, 8, 8), torch.tensor([100])


def test_the_project_s_targets_load():
    targets = load_targets(TARGETS)
    assert {"baseline", "opt1", "opt2", "opt12", "compile", "compile_bf16"} <= set(targets)
    assert targets["baseline"].precision == "ieee"
    assert targets["opt12"].layout == "channels_last_3d"
    assert targets["baseline"].min_cc == (7, 0)
    assert all(target.evidence for target in targets.values())


GOOD = {
    "label": "L",
    "description": "D",
    "precision": "tf32",
    "layout": "contiguous",
    "compile": "none",
    "fused": "none",
    "graphs": False,
    "autotune": False,
    "min_cc": "8.0",
    "evidence": {"tensor_time_min": 0.5},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"precison": "tf32"}, "unknown key 'precison'; did you mean 'precision'"),
        ({"precision": "fp8"}, "precision is 'fp8'; choose one of ieee, tf32, bf16"),
        ({"layout": None}, "layout is 'None'"),
        ({"graphs": "yes"}, "graphs is 'yes'; write true or false"),
        ({"graphs": True}, "graphs need a compiled network"),
        ({"min_cc": 8}, "min_cc is '8'"),
        ({"evidence": {"tensor_time": 0.5}}, "did you mean 'tensor_time_m"),
        ({"evidence": {"tensor_time_min": 50}}, "'50'; give a share"),
        ({"evidence": {"tensor_time_min": True}}, "'True'; give a share"),
        ({"evidence": None}, "not a mapping"),
    ],
)
def test_a_wrong_target_is_named(tmp_path, change, said):
    path = tmp_path / "targets.yaml"
    path.write_text(yaml.safe_dump({"mine": {**GOOD, **change}}))
    with pytest.raises(ConfigError, match=said) as caught:
        load_targets(path)
    assert str(path) in str(caught.value)
    assert "'mine'" in str(caught.value)


def test_missing_key_file_and_target(tmp_path):
    path = tmp_path / "targets.yaml"
    path.write_text(yaml.safe_dump({"mine": {key: GOOD[key] for key in GOOD if key != "layout"}}))
    with pytest.raises(ConfigError, match="lacks the key 'layout'"):
        load_targets(path)
    path.write_text("[1, 2")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_targets(path)
    path.write_text("")
    with pytest.raises(ConfigError, match="must hold 'key: value' pairs"):
        load_targets(path)
    path.write_text(yaml.safe_dump({"mine": GOOD}))
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        load_target(path, "min")


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16"])
def test_precision_reaches_matmul_and_convolution(precision):
    pin_precision("tf32" if precision == "ieee" else "ieee")
    pin_precision(precision)
    wanted = "ieee" if precision == "ieee" else "tf32"
    assert effective_precision() == {"matmul": wanted, "convolution": wanted}
    # Both families of flags must stay readable: the compiler reads the older one.
    assert torch.backends.cudnn.allow_tf32 is (wanted == "tf32")
    assert torch.backends.cuda.matmul.allow_tf32 is (wanted == "tf32")
    torch.get_float32_matmul_precision()


def test_untouched_torch_runs_tf32_convolutions():
    """Why the baseline must pin: out of the box cuDNN may use TF32."""
    import subprocess
    import sys

    code = "from gpuatlas.workload.precision import effective_precision as e; print(e()['convolution'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tf32"


class _NewFlags:
    """A torch whose older family of flags is gone, as a later release may be."""

    def __init__(self, ignore=False):
        self.ignore = ignore
        object.__setattr__(self, "held", "tf32")

    @property
    def fp32_precision(self):
        return self.held

    @fp32_precision.setter
    def fp32_precision(self, value):
        if not self.ignore:
            self.held = value


class _Backend:
    def __init__(self, ignore=False):
        self.conv, self.rnn = _NewFlags(ignore), _NewFlags(ignore)


def test_the_newer_family_of_flags_serves_alone(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "matmul", _NewFlags())
    monkeypatch.setattr(torch.backends, "cudnn", _Backend())
    pin_precision("ieee")
    assert effective_precision() == {"matmul": "ieee", "convolution": "ieee"}
    pin_precision("tf32")
    assert effective_precision() == {"matmul": "tf32", "convolution": "tf32"}
    monkeypatch.setattr(torch.backends, "cudnn", _Backend(ignore=True))
    with pytest.raises(MachineRefused, match="convolution is tf32"):
        pin_precision("ieee")


def test_apply_baseline_and_flags():
    target = load_target(TARGETS, "baseline")
    torch.backends.cudnn.benchmark = True
    prepared = apply(target, small(), CPU)
    flags = effective_flags()
    assert flags["fp32_precision"] == {"matmul": "ieee", "convolution": "ieee"}
    assert flags["cudnn_autotune"] is False
    x, timesteps = volume()
    assert torch.equal(prepared.predict(x, timesteps), small()(x, timesteps))


def test_channels_last_changes_the_format_and_not_the_result():
    plain = apply(load_target(TARGETS, "baseline"), small(), CPU)
    last = apply(load_target(TARGETS, "opt2"), small(), CPU)
    torch.nn.init.normal_(plain.network.out[2].weight, std=0.1)
    last.network.load_state_dict(plain.network.state_dict())
    weight = last.network.input_blocks[1][0].in_layers[2].weight
    assert weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert not weight.is_contiguous()
    x, timesteps = volume()
    expected = plain.predict(x, timesteps)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(last.predict(x, timesteps), expected, rtol=1e-4, atol=1e-5)


def test_bf16_is_autocast_with_float32_output():
    prepared = apply(load_target(TARGETS, "baseline"), small(), CPU)
    torch.nn.init.normal_(prepared.network.out[2].weight, std=0.1)
    half = apply(replace(load_target(TARGETS, "baseline"), precision="bf16"), prepared.network, CPU)
    seen = []
    hook = half.network.input_blocks[0][0].register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    x, timesteps = volume()
    output = half.predict(x, timesteps)
    hook.remove()
    assert seen == [torch.bfloat16]
    assert output.dtype == torch.float32
    exact = prepared.network(x, timesteps)
    assert 0 < (output - exact).abs().mean() < 0.05 * exact.abs().mean()
    assert half.network.out[2].weight.dtype == torch.float32


def test_compile_wraps_and_leaves_names_alone():
    before = small()
    names = list(before.state_dict())
    prepared = apply(replace(load_target(TARGETS, "compile"), precision="ieee"), before, CPU)
    assert list(prepared.network.state_dict()) == names
    blocks = [module for module in prepared.network.modules() if isinstance(module, AttentionBlock)]
    assert blocks
    assert not any(block.recompute for block in blocks)


def test_fused_kernels_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match="fused kernels 'groupnorm'"):
        apply(replace(load_target(TARGETS, "opt1"), fused="groupnorm"), small(), CPU)


@pytest.mark.parametrize(
    ("torch_version", "cudnn", "broken"),
    [
        ("2.9.0+cu128", 91002, True),
        ("2.9.1+cu130", 91300, True),
        ("2.9.1", 90800, True),
        ("2.9.1", 91400, True),
        ("2.9.1", 91500, False),
        ("2.9.0", 90701, False),
        ("2.8.0", 91002, False),
        ("2.11.0+cu130", 91900, False),
        ("2.0.1", 8902, False),
        ("2.9.0+cpu", None, False),
    ],
)
def test_broken_stacks(torch_version, cudnn, broken):
    reason = broken_stack(torch_version, cudnn)
    assert bool(reason) is broken
    if reason:
        assert torch_version in reason


def test_cudnn_version_numbers():
    assert cudnn_release(8902) == (8, 9)
    assert cudnn_release(90501) == (9, 5)
    assert cudnn_release(91900) == (9, 19)


def test_devices():
    assert pick_device("cpu") == CPU
    if not torch.cuda.is_available():
        assert pick_device("auto") == CPU
        with pytest.raises(MachineRefused, match="sees no CUDA GPU"):
            pick_device("cuda")
    with pytest.raises(ConfigError, match="choose auto, cuda or cpu"):
        pick_device("tpu")
