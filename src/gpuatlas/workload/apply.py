"""Put a target into effect: the one place where flags, memory formats, autocast and the compiler are set."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpuatlas.errors import ConfigError, MachineRefused
from gpuatlas.workload.precision import pin_precision
from gpuatlas.workload.targets import Target
from gpuatlas.workload.unet import AttentionBlock, UNet

_COMPILE_MODES = {
    ("default", False): "default",
    ("default", True): "reduce-overhead",
    ("max-autotune", False): "max-autotune-no-cudagraphs",
    ("max-autotune", True): "max-autotune",
}


@dataclass(frozen=True)
class Prepared:
    """A network under a target.

    Attributes
    ----------
    network
        The plain module: parameters and state-dict names, on its device, in the target's memory format.
    predict
        What to call: (batch, image + mask channels, d, h, w), (batch,) -> float32 noise. Compiled and under
        autocast as the target says.
    """

    target: Target
    device: torch.device
    network: UNet
    predict: Callable[[Tensor, Tensor], Tensor]


def apply(target: Target, network: UNet, device: torch.device, *, force: bool = False) -> Prepared:
    """Return `network` on `device` under `target`; sets process-wide flags, so one target a process.

    Parameters
    ----------
    network
        As `build_network` returns it; moved and reformatted in place.
    force
        Go on although the stack is known to be broken for 3D convolution.

    Raises
    ------
    MachineRefused
        The stack is known to be broken (see `broken_stack`), or does not take a flag.
    ConfigError
        The target asks for fused kernels that do not exist.
    """
    if target.fused != "none":
        raise ConfigError(
            f"Target '{target.name}' asks for fused kernels '{target.fused}', which do not exist; "
            "set fused to none."
        )
    if device.type == "cuda" and not force:
        reason = broken_stack(torch.__version__, cudnn_version())
        if reason:
            raise MachineRefused(f"{reason}; use another stack, or --force to measure this one.")
    pin_precision(target.precision)
    # Before the first convolution: PyTorch keeps the plan that it first chose.
    torch.backends.cudnn.benchmark = target.autotune
    channels_last = target.layout == "channels_last_3d"
    layout = torch.channels_last_3d if channels_last else torch.contiguous_format
    network = network.to(device)
    if channels_last:
        network = network.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    call: Callable[[Tensor, Tensor], Tensor] = network
    if target.compile != "none":
        # The compiler's own partitioner decides what to recompute; ours would tie its hands.
        for module in network.modules():
            if isinstance(module, AttentionBlock):
                module.recompute = False
        mode = _COMPILE_MODES[target.compile, target.graphs]
        call = torch.compile(network, mode=mode, dynamic=False)

    def predict(x: Tensor, timesteps: Tensor) -> Tensor:
        reduced: Any = nullcontext()
        if target.precision == "bf16":
            reduced = torch.autocast(device.type, dtype=torch.bfloat16)
        with reduced:
            return call(x.contiguous(memory_format=layout), timesteps).float()

    return Prepared(target, device, network, predict)


def pick_device(name: str) -> torch.device:
    """Return the device `name`: `auto` (a GPU if there is one), `cuda` or `cpu`.

    Raises
    ------
    MachineRefused
        `cuda` is asked for and there is none.
    """
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if name == "cuda" and not available:
        raise MachineRefused("This process sees no CUDA GPU; run on a GPU node, or with --device cpu.")
    if name not in ("cuda", "cpu"):
        raise ConfigError(f"There is no device '{name}'; choose auto, cuda or cpu.")
    return torch.device(name)


def broken_stack(torch_version: str, cudnn_version: int | None) -> str | None:
    """Return why 3D convolution is broken in this stack, or None.

    torch 2.9.x with cuDNN 9.8 to 9.14 takes 3D convolution in half precision (and, from 2.9.1, TF32 with
    cuDNN before 9.15) away from cuDNN: several times slower, up to 17 times the memory, and a TF32 target
    that silently does nothing (pytorch#163581, #166122, #166643, #167024).
    """
    match = re.match(r"(\d+)\.(\d+)", torch_version)
    if match is None or cudnn_version is None:
        return None
    cudnn = cudnn_release(cudnn_version)
    if (int(match[1]), int(match[2])) == (2, 9) and (9, 8) <= cudnn <= (9, 14):
        return (
            f"torch {torch_version} with cuDNN {cudnn[0]}.{cudnn[1]} is broken for 3D convolution "
            "(pytorch#166122, #167024)"
        )
    return None


def cudnn_version() -> int | None:
    """Return the version number of the cuDNN that is loaded, or None."""
    version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return version


def cudnn_release(version: int) -> tuple[int, int]:
    """Return (major, minor) of cuDNN's version number: 8902 is 8.9.2, 91900 is 9.19.0."""
    if version >= 90000:
        return version // 10000, version // 100 % 100
    return version // 1000, version // 100 % 10
