"""The record of where a measurement was made: card, stack, effective flags, image, data."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from typing import Any

import torch

from gpuatlas.workload.apply import Prepared, cudnn_version
from gpuatlas.workload.precision import effective_precision

SCHEMA = 1


def environment_record(prepared: Prepared, *, data_sha256: str | None) -> dict[str, Any]:
    """Return what environment.json holds for a run of `prepared`.

    Flags are read back from torch, not copied from the target. The image, stack and site are what the
    launcher says in GPUATLAS_IMAGE_DIGEST, GPUATLAS_IMAGE_RECIPE, GPUATLAS_STACK and GPUATLAS_SITE; null
    outside it. No host or user name is recorded.

    Parameters
    ----------
    data_sha256
        Of the prepared data (`data.Dataset.checksum`, `inputs.step_checksum`); None where there is none.
    """
    return {
        "schema": SCHEMA,
        "target": prepared.target.name,
        "settings": prepared.target.settings,
        "network": prepared.network.spec.name,
        "gpu": _gpu(prepared.device),
        "stack": {
            "name": os.environ.get("GPUATLAS_STACK"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": cudnn_version(),
            "triton": _triton_version(),
            "ncu": None,
            "packages": installed_packages(),
        },
        "flags": effective_flags(),
        "image": {
            "digest": os.environ.get("GPUATLAS_IMAGE_DIGEST"),
            "recipe": os.environ.get("GPUATLAS_IMAGE_RECIPE"),
        },
        "site": os.environ.get("GPUATLAS_SITE"),
        "job": os.environ.get("SLURM_JOB_ID"),
        "data_sha256": data_sha256,
    }


@cache
def installed_packages() -> list[str]:
    """Return ``name==version`` of every Python package here: inside an image, what the image holds."""
    found = {(d.metadata["Name"].lower(), d.version) for d in importlib.metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in found)


def effective_flags() -> dict[str, Any]:
    """Return the flags that decide about kernels, as torch reports them now."""
    return {
        "fp32_precision": effective_precision(),
        "cudnn_enabled": torch.backends.cudnn.enabled,
        "cudnn_autotune": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
    }


def _gpu(device: torch.device) -> dict[str, Any] | None:
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "cc": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        # A virtual GPU calls itself 'GRID A100X-40C' or 'NVIDIA A100X-40C': a slice, or a whole card.
        "vgpu": properties.name if properties.name.endswith(("C", "Q")) and "-" in properties.name else None,
        "driver": query_gpu("driver_version"),
    }


def query_gpu(field: str) -> str | None:
    """Return one field of `nvidia-smi --query-gpu` for this process's first GPU; None where it has none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    command = ["nvidia-smi", f"--id={visible}", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    value = done.stdout.strip().splitlines()[0].strip() if done.stdout.strip() else ""
    return None if not value or value.startswith("[") else value


def _triton_version() -> str | None:
    triton = sys.modules.get("triton")
    return getattr(triton, "__version__", None)
