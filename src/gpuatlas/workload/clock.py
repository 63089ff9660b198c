"""Time on the device, without making the host wait for it."""

import time
from typing import Any

import torch


class Mark:
    """A point in the device's work: a CUDA event, or the host's clock where there is no GPU."""

    def __init__(self, device: torch.device):
        self._event: Any = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._event.record()
        self._host = time.perf_counter()

    def ms_until(self, end: "Mark") -> float:
        """Return the milliseconds from here to `end`; waits for the device to reach `end`."""
        if self._event is None:
            return (end._host - self._host) * 1e3
        end._event.synchronize()
        return float(self._event.elapsed_time(end._event))


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
