"""Proof that a target took effect, from the kernels that ran and the formats that activations had.

A flag is no proof: stacks exist in which TF32 or channels-last is asked for and nothing changes. Each check
compares an observation with a threshold of the target (see `gpuatlas.workload.targets.EVIDENCE`).

Judging needs no torch; only observing memory formats does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gpuatlas.workload.targets import Target

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gpuatlas.workload.apply import Prepared

# Convolution and matrix multiplication by cuDNN, cuBLAS, CUTLASS and Triton templates, by their names.
_MULTIPLIES = re.compile(
    r"fprop|dgrad|wgrad|convolve|conv\dd|winograd|implicit_gemm|gemm|gemv|cutlass|xmma|nvjet|triton_tem"
)
# Their helpers, which multiply nothing: layout conversion, padding, workspaces, sums of split products.
_HELPS = re.compile(
    r"nchwtonhwc|nhwctonchw|addpadding|converttensor|settensor|init_device_workspace|splitkreduce"
)
# Tensor cores: TF32, half and bfloat16 operands or MMA shapes in the name. nvjet has no other kernels.
_TENSOR = re.compile(
    r"tensorop|tensor\d+x\d+x\d+|tf32|bf16|f16f16|fp16|[hs](?:1688|16816|884)|[hi]mma|gmma|nvjet"
)
_BF16 = re.compile(r"bf16|bfloat16|nvjet_t|nvjet_sm\d+_t")
_COMPILED = re.compile(r"^triton_")
# Layout conversion: cuDNN's own, and PyTorch's strided copies.
_CUDNN_LAYOUT = re.compile(r"nchwtonhwc|nhwctonchw|addpadding|converttensor")
_TORCH_COPY = re.compile(r"(?<![a-z_])elementwise_kernel<.*direct_copy")


@dataclass(frozen=True)
class Formats:
    """Memory formats at the 3D convolutions of a forward pass.

    Attributes
    ----------
    channels_last, contiguous, neither
        How many convolutions stored their result so: the form in which they computed it.
    inputs_channels_last
        How many were given a channels-last input; the others of `channels_last` had to convert it first
        (GroupNorm, for one, returns contiguous tensors).
    """

    channels_last: int
    contiguous: int
    neither: int
    inputs_channels_last: int

    @property
    def channels_last_share(self) -> float | None:
        """Share of convolutions with a channels-last result; None where no result could tell."""
        total = self.channels_last + self.contiguous + self.neither
        return self.channels_last / total if total else None


@dataclass(frozen=True)
class Shares:
    """What a timeline shows, as shares of GPU time; None where there is nothing to take a share of."""

    tensor_time: float | None
    bf16_time: float | None
    compiled_time: float | None
    torch_layout_ms: float
    cudnn_layout_ms: float
    gpu_ms: float

    @property
    def layout_ms(self) -> float:
        """GPU time of layout conversion in the step, PyTorch's copies and cuDNN's own."""
        return self.torch_layout_ms + self.cudnn_layout_ms


def observe_formats(prepared: Prepared, volume: tuple[Tensor, Tensor]) -> Formats:
    """Run one forward pass under the target and look at the tensors of each 3D convolution.

    A tensor that is both (one channel, or one voxel) tells nothing and is not counted.

    Parameters
    ----------
    prepared
        Not compiled: a compiled network hides its activations.
    volume
        image (1, 1, d, h, w) and mask (1, 2, d, h, w) on the device.
    """
    import torch

    results: list[str] = []
    inputs: list[str] = []

    def look(_module: nn.Module, given: Sequence[Tensor], result: Tensor) -> None:
        inputs.append(_format(given[0]))
        results.append(_format(result))

    convolutions = (module for module in prepared.network.modules() if isinstance(module, torch.nn.Conv3d))
    handles = [module.register_forward_hook(look) for module in convolutions]
    try:
        with torch.no_grad():
            timesteps = torch.zeros(volume[0].shape[0], dtype=torch.long, device=volume[0].device)
            prepared.predict(torch.cat(volume, dim=1), timesteps)
    finally:
        for handle in handles:
            handle.remove()
    return Formats(
        channels_last=results.count("channels_last"),
        contiguous=results.count("contiguous"),
        neither=results.count("neither"),
        inputs_channels_last=inputs.count("channels_last"),
    )


def _format(tensor: Tensor) -> str:
    import torch

    last = tensor.is_contiguous(memory_format=torch.channels_last_3d)
    contiguous = tensor.is_contiguous()
    if last and contiguous:
        return "both"
    return "channels_last" if last else "contiguous" if contiguous else "neither"


def observe_timeline(timeline: pa.Table) -> Shares:
    """Return the shares of GPU time that a timeline shows."""
    multiplied = tensor = bf16 = compiled = torch_layout = cudnn_layout = total = 0.0
    for name, duration in zip(timeline["name"].to_pylist(), timeline["duration_ns"].to_pylist(), strict=True):
        low = name.lower()
        total += duration
        if multiplies(name):
            multiplied += duration
            tensor += duration if _TENSOR.search(low) else 0.0
            bf16 += duration if _BF16.search(low) else 0.0
        compiled += duration if _COMPILED.search(low) else 0.0
        torch_layout += duration if _TORCH_COPY.search(low) else 0.0
        cudnn_layout += duration if _CUDNN_LAYOUT.search(low) else 0.0
    return Shares(
        tensor_time=tensor / multiplied if multiplied else None,
        bf16_time=bf16 / multiplied if multiplied else None,
        compiled_time=compiled / total if total else None,
        torch_layout_ms=torch_layout / 1e6,
        cudnn_layout_ms=cudnn_layout / 1e6,
        gpu_ms=total / 1e6,
    )


def multiplies(name: str) -> bool:
    """Tell whether the kernel `name` is a convolution or a matrix multiplication."""
    low = name.lower()
    return bool(_MULTIPLIES.search(low)) and not _HELPS.search(low)


def uses_tensor_cores(name: str) -> bool:
    """Tell whether a convolution or matrix multiplication runs on tensor cores, by its name."""
    return multiplies(name) and bool(_TENSOR.search(name.lower()))


def judge(
    target: Target,
    formats: Formats | None,
    timeline: pa.Table | None,
    reference: pa.Table | None = None,
    capability: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Return what evidence.json holds.

    Parameters
    ----------
    formats, timeline
        Observations; None where they could not be made, so that the checks on them stay open.
    reference
        Timeline of the same workload on the same machine without the layout.
    capability
        Compute capability of the GPU, checked against the target's least one.

    Returns
    -------
    dict
        `in_effect` is `false` if a check fails, `unknown` if one could not be made (or the target asks for
        none), else `true`.
    """
    shares = observe_timeline(timeline) if timeline is not None else None
    observed: dict[str, float | None] = {
        "tensor_time": shares.tensor_time if shares else None,
        "bf16_time": shares.bf16_time if shares else None,
        "compiled_time": shares.compiled_time if shares else None,
        "channels_last": formats.channels_last_share if formats else None,
        "layout_time_change": _change(shares, reference),
    }
    checks = [
        _check(name, observed[name.rsplit("_", 1)[0]], threshold)
        for name, threshold in target.evidence.items()
    ]
    if capability is not None and capability < target.min_cc:
        least = ".".join(map(str, target.min_cc))
        found = ".".join(map(str, capability))
        checks.append({"name": "compute_capability", "observed": found, "threshold": least, "ok": False})
    return {
        "schema": 1,
        "target": target.name,
        "in_effect": _verdict(check["ok"] for check in checks),
        "checks": checks,
        "source": [
            *(["timeline"] if timeline is not None else []),
            *(["formats"] if formats is not None else []),
        ],
        "formats": vars(formats) if formats else None,
        "shares": vars(shares) if shares else None,
    }


def failures(evidence: dict[str, Any]) -> str:
    """Say which checks of an evidence record failed, with what was observed."""
    return "; ".join(
        f"{check['name']} asks for {check['threshold']}, observed is "
        + (f"{check['observed']:.3f}" if isinstance(check["observed"], float) else str(check["observed"]))
        for check in evidence["checks"]
        if check["ok"] is False
    )


def _change(shares: Shares | None, reference: pa.Table | None) -> float | None:
    if shares is None or reference is None:
        return None
    before = observe_timeline(reference).layout_ms
    return abs(shares.layout_ms - before) / max(before, shares.layout_ms, 1e-9)


def _check(name: str, observed: float | None, threshold: float) -> dict[str, Any]:
    ok = None
    if observed is not None:
        ok = observed <= threshold if name.endswith("_max") else observed >= threshold
    return {"name": name, "observed": observed, "threshold": threshold, "ok": ok}


def _verdict(results: Iterable[bool | None]) -> str:
    found = list(results)
    if False in found:
        return "false"
    return "unknown" if None in found or not found else "true"
