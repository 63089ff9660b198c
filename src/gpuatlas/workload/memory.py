"""Peak memory, and what to say when it does not suffice."""

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gpuatlas.errors import MachineRefused

_GIB = 2**30
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def peak_bytes(device: torch.device) -> int:
    """Return the peak of allocated device memory since the last reset; of resident memory on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak(device: torch.device) -> None:
    """Begin a new peak (a CPU process has only one)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


@contextmanager
def out_of_memory_explained(device: torch.device, what: str) -> Iterator[None]:
    """Turn an allocation failure inside into one sentence: what it needed and what there was.

    Parameters
    ----------
    what
        What was running, for instance `network whole_head_128 at 128³`.

    Raises
    ------
    MachineRefused
        Memory did not suffice.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        asked = _asked_bytes(str(error))
        if isinstance(error, torch.cuda.OutOfMemoryError):
            held = torch.cuda.memory_allocated(device)
            free, total = torch.cuda.mem_get_info(device)
            raise MachineRefused(
                f"Out of GPU memory: {what} needs at least {(held + asked) / _GIB:.1f} GiB (it held "
                f"{held / _GIB:.1f} and asked for {asked / _GIB:.1f} more), and this GPU has "
                f"{total / _GIB:.1f} GiB with {free / _GIB:.1f} free; use a larger GPU or a smaller size."
            ) from error
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        bound = "" if limit == resource.RLIM_INFINITY else f" under a limit of {limit / _GIB:.1f} GiB"
        raise MachineRefused(
            f"Out of memory on the host: {what} asked for {asked / _GIB:.1f} GiB more, after a peak of "
            f"{peak_bytes(torch.device('cpu')) / _GIB:.1f} GiB{bound}; use more memory or a smaller size."
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` is a failed allocation: on the host PyTorch raises a plain RuntimeError."""
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or "DefaultCPUAllocator" in str(error)


def _asked_bytes(text: str) -> float:
    """Return the size of the failed allocation that PyTorch's message tells; 0 where it tells none."""
    match = re.search(r"tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", text, re.IGNORECASE)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0
