"""Arithmetic of float32 matmul and cuDNN convolution: one function sets it, one reads what is in effect.

PyTorch has two families of flags. Since 2.9 `fp32_precision` by operator is the documented one, but once it
asks for TF32, readers of the older `allow_tf32` family raise, and the compiler itself is such a reader
(`torch.get_float32_matmul_precision()` in Inductor's cache key). Setting the older family keeps both
consistent wherever it exists; the newer one serves where it is gone. Note that cuDNN convolution defaults to
TF32, and that the top-level `torch.backends.fp32_precision` does not reach it: both are set one by one.
"""

import warnings
from typing import Any

import torch

from gpuatlas.errors import MachineRefused


def pin_precision(precision: str) -> None:
    """Set matmul and cuDNN convolution to IEEE float32 (`ieee`) or let both use TF32 (`tf32`, `bf16`).

    Raises
    ------
    MachineRefused
        The flags, read back, say otherwise: this torch has a flag API that is not known here.
    """
    tf32 = precision != "ieee"
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 2.9 and later call the older family deprecated
        if _has(matmul, "allow_tf32") and _has(cudnn, "allow_tf32"):
            matmul.allow_tf32 = tf32
            cudnn.allow_tf32 = tf32
        else:
            wanted = "tf32" if tf32 else "ieee"
            matmul.fp32_precision = wanted
            cudnn.conv.fp32_precision = wanted
            cudnn.rnn.fp32_precision = wanted
    found = effective_precision()
    expected = "tf32" if tf32 else "ieee"
    if set(found.values()) != {expected}:
        raise MachineRefused(
            f"torch {torch.__version__} did not take float32 precision '{expected}': matmul is "
            f"{found['matmul']}, convolution is {found['convolution']}."
        )


def effective_precision() -> dict[str, str]:
    """Return what float32 matmul and cuDNN convolution use: `ieee` or `tf32` each, read from the flags."""
    return {"matmul": _matmul(), "convolution": _convolution()}


def _matmul() -> str:
    matmul: Any = torch.backends.cuda.matmul
    if _has(matmul, "fp32_precision"):
        return "tf32" if matmul.fp32_precision == "tf32" else "ieee"
    return "tf32" if matmul.allow_tf32 else "ieee"


def _convolution() -> str:
    cudnn: Any = torch.backends.cudnn
    if _has(cudnn, "conv"):
        # "none" means that nothing asks for less than float32.
        return "tf32" if cudnn.conv.fp32_precision == "tf32" else "ieee"
    return "tf32" if cudnn.allow_tf32 else "ieee"


def _has(backend: Any, name: str) -> bool:
    """Tell whether a backend has a flag: torch 2.0 answers unknown ones with an AssertionError."""
    try:
        getattr(backend, name)
    except (AttributeError, AssertionError):
        return False
    except RuntimeError:
        return True  # it exists, and refuses to be read while the newer family disagrees
    return True
