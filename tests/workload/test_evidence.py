"""Each threshold against a run where the flag took effect, and one where it did nothing.

The kernels are those of real captures of the training on an H200 (windows of baseline, opt1 and opt12), the
memory formats those of real forward passes.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply
from gpuatlas.workload.evidence import (
    Formats,
    failures,
    judge,
    multiplies,
    observe_formats,
    observe_timeline,
    uses_tensor_cores,
)
from gpuatlas.workload.targets import EVIDENCE, load_target

ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "config" / "targets.yaml"
NOTHING = Formats(0, 50, 0, 0)
LAST = Formats(49, 1, 0, 2)


def timeline(*launches):
    """A table of (name, ns) launches."""
    names, durations = zip(*launches, strict=True)
    return pa.table({"name": list(names), "duration_ns": pa.array(durations, pa.float64())})


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """Launches of the real captures, by target."""
    found = {}
    for name in ("baseline", "opt1", "opt12"):
        out = tmp_path_factory.mktemp(name)
        report = ROOT / "tests" / "data" / "windows" / "h200" / name / "report.ncu-repz"
        command = [sys.executable, "-m", "gpuatlas.cli", "convert", str(report), "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        table = pq.read_table(out / "launches.parquet", columns=["demangled", "duration_ns"])
        found[name] = table.rename_columns(["name", "duration_ns"])
    return found


def asking(**evidence):
    return replace(load_target(TARGETS, "opt1"), evidence=evidence)


def test_kernels_of_the_recordings_are_told_apart(windows):
    baseline = set(windows["baseline"]["name"].to_pylist())
    tensor = {
        name for window in windows.values() for name in window["name"].to_pylist() if uses_tensor_cores(name)
    }
    assert not tensor & baseline
    assert len(tensor) > 20
    assert all("tf32" in name or "tensorop" in name for name in tensor)
    multiplying = [name for name in baseline if multiplies(name)]
    assert all(
        any(word in name for word in ("implicit_gemm", "gemm", "dgrad", "wgrad", "gemv"))
        for name in multiplying
    )
    left = {name for name in baseline if not multiplies(name)}
    assert not any("xmma_" in name or "cutlass" in name for name in left)
    assert any("nchwToNhwc" in name for name in left)


def test_tensor_time_of_the_recordings(windows):
    assert observe_timeline(windows["baseline"]).tensor_time == 0
    assert observe_timeline(windows["opt1"]).tensor_time > 0.8
    assert 0 < observe_timeline(windows["opt12"]).tensor_time < 0.5, (
        "a slow weight gradient fills this window"
    )


@pytest.mark.parametrize(
    ("threshold", "effective", "no_effect"),
    [
        ({"tensor_time_min": 0.5}, "opt1", "baseline"),
        ({"tensor_time_max": 0.02}, "baseline", "opt1"),
        ({"layout_time_change_min": 0.3}, "opt12", "opt1"),
    ],
)
def test_thresholds_on_real_kernels(windows, threshold, effective, no_effect):
    target = asking(**threshold)
    assert judge(target, None, windows[effective], windows["opt1"])["in_effect"] == "true"
    record = judge(target, None, windows[no_effect], windows["opt1"])
    assert record["in_effect"] == "false"
    assert next(iter(threshold)) in failures(record)
    assert judge(target, None, None)["in_effect"] == "unknown"


CUDNN_BF16 = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_execute_kernel__5x_cudnn"
CUBLAS_BF16 = "nvjet_tst_128x64_64x8_2x1_v_bz_TNT"
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
TRITON = "triton_red_fused_native_group_norm_silu_3"
EAGER = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(...)>"


def test_threshold_of_bfloat16():
    target = asking(bf16_time_min=0.5, tensor_time_min=0.5)
    assert judge(target, None, timeline((CUDNN_BF16, 90), (CUBLAS_BF16, 5), (TF32, 5)))["in_effect"] == "true"
    record = judge(target, None, timeline((TF32, 90), (CUDNN_BF16, 10)))
    assert [check["ok"] for check in record["checks"]] == [False, True]


def test_threshold_of_the_compiler():
    target = asking(compiled_time_min=0.1)
    assert judge(target, None, timeline((TF32, 70), (TRITON, 30)))["in_effect"] == "true"
    assert judge(target, None, timeline((TF32, 70), (EAGER, 30)))["in_effect"] == "false"


def test_no_multiplication_is_no_evidence():
    assert judge(asking(tensor_time_min=0.5), None, timeline((EAGER, 10)))["in_effect"] == "unknown"
    assert judge(asking(), None, timeline((EAGER, 10)))["in_effect"] == "unknown", "nothing was asked for"


def keeps_layout() -> bool:
    """Whether this CPU's bfloat16 3D convolution computes channels-last: only those with such instructions do."""
    convolution = torch.nn.Conv3d(8, 8, 3).to(torch.bfloat16).to(memory_format=torch.channels_last_3d)
    volume = torch.rand(1, 8, 16, 16, 16, dtype=torch.bfloat16).to(memory_format=torch.channels_last_3d)
    return convolution(volume).is_contiguous(memory_format=torch.channels_last_3d)


def test_a_layout_that_the_convolutions_do_not_keep_is_no_evidence():
    """In float32 a CPU's 3D convolution has no channels-last form: opt2 is there a real no-op."""
    prepared = apply(load_target(TARGETS, "opt2"), build_network("small_64"), torch.device("cpu"))
    found = observe_formats(prepared, (torch.rand(1, 1, 16, 16, 16), torch.rand(1, 2, 16, 16, 16)))
    assert found.contiguous > 30
    assert judge(asking(channels_last_min=0.9), found, None)["in_effect"] == "false"


@pytest.mark.skipif(not keeps_layout(), reason="this CPU's bfloat16 3D convolution has no channels-last form")
def test_formats_of_real_forward_passes():
    """On a CPU, 3D convolution keeps the layout in bfloat16 and has no such form in float32: a real no-op."""
    volume = torch.rand(1, 1, 16, 16, 16), torch.rand(1, 2, 16, 16, 16)

    def formats(name, precision):
        target = replace(load_target(TARGETS, name), precision=precision)
        prepared = apply(target, build_network("small_64"), torch.device("cpu"))
        found = observe_formats(prepared, volume)
        assert not any(module._forward_hooks for module in prepared.network.modules())
        return found

    plain, no_effect, last = formats("baseline", "bf16"), formats("opt2", "ieee"), formats("opt2", "bf16")
    assert plain.channels_last_share == 0
    assert plain.contiguous > 30
    target = asking(channels_last_min=0.9)
    assert judge(target, last, None)["in_effect"] == "true", last
    assert judge(target, no_effect, None)["in_effect"] == "false", no_effect
    assert judge(target, plain, None)["in_effect"] == "false"
    assert judge(asking(channels_last_max=0.0), plain, None)["in_effect"] == "true"
    assert judge(asking(channels_last_max=0.0), last, None)["in_effect"] == "false"
    assert judge(target, None, None)["in_effect"] == "unknown"


def test_every_check_that_can_be_asked_for_is_observed(windows):
    everything = {name: 0.0 if name.endswith("min") else 1.0 for name in EVIDENCE}
    record = judge(asking(**everything), LAST, windows["opt12"], windows["opt1"], (9, 0))
    assert [check["name"] for check in record["checks"]] == list(EVIDENCE)
    assert record["in_effect"] == "true"
    assert record["source"] == ["timeline", "formats"]


def test_a_card_below_the_target_s_capability(windows):
    record = judge(asking(tensor_time_min=0.5), NOTHING, windows["opt1"], capability=(7, 0))
    assert record["in_effect"] == "false"
    assert failures(record) == "compute_capability asks for 8.0, observed is 7.0"


def test_one_failed_check_decides(windows):
    target = asking(tensor_time_min=0.5, channels_last_min=0.9)
    record = judge(target, NOTHING, windows["opt1"])
    assert record["in_effect"] == "false"
    assert failures(record) == "channels_last_min asks for 0.9, observed is 0.000"
    assert judge(target, None, windows["opt1"])["in_effect"] == "unknown"
