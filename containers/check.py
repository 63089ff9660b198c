"""Fail the build of an image that does not hold what stacks.yaml says of its stack; no GPU is needed.

usage: check.py STACKS_YAML STACK NCU_VERSION (empty: an image without Nsight Compute)
"""

import subprocess
import sys
from pathlib import Path

import yaml

# A chip of each compute capability, as Nsight Compute names it.
CHIPS = {"7.0": "gv100", "7.5": "tu102", "8.0": "ga100", "8.6": "ga102", "8.9": "ad102", "9.0": "gh100"}


def installed() -> tuple[dict[str, str], list[str]]:
    """Return the versions of torch, its CUDA and its cuDNN (empty: not there), and what GPUs torch serves."""
    try:
        import torch
    except ImportError:
        return {"torch": "", "cuda": "", "cudnn": ""}, []
    number = torch.backends.cudnn.version() or 0
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    versions = {
        "torch": torch.__version__.partition("+")[0],
        "cuda": torch.version.cuda or "",
        "cudnn": f"{major}.{rest // 100}.{rest % 100}" if number else "",
    }
    # torch.cuda.get_arch_list() is empty where there is no GPU.
    return versions, torch._C._cuda_getArchFlags().split() if torch.version.cuda else []


def differences(stack: dict, ncu: str) -> list[str]:
    """Return what this image has other than its stack says."""
    versions, kernels = installed()
    wrong = []
    for key, version in versions.items():
        # cuDNN does not tell the fourth part of its version.
        said = ".".join(stack[key].split(".")[:3])
        if said != version:
            wrong.append(f"{key}: {version!r} instead of {said!r}")
    chips = profiled_chips() if ncu else []
    for capability in stack["compute_capabilities"]:
        # A build of torch without CUDA serves no GPU.
        if stack["cuda"] and f"sm_{capability.replace('.', '')}" not in kernels:
            wrong.append(f"torch has no kernels of compute capability {capability}")
        if ncu and CHIPS.get(capability) not in chips:
            wrong.append(f"Nsight Compute {ncu} does not know compute capability {capability}")
    return wrong


def profiled_chips() -> list[str]:
    """Return the chips that Nsight Compute can profile."""
    done = subprocess.run(["ncu", "--list-chips"], capture_output=True, text=True, check=True)
    return done.stdout.replace(",", " ").split()


if __name__ == "__main__":
    stacks, name, ncu = sys.argv[1:]
    wrong = differences(yaml.safe_load(Path(stacks).read_text())[name], ncu)
    if wrong:
        sys.exit(f"containers/stacks.yaml: {name}: {'; '.join(wrong)}; correct the stack or its lock")
