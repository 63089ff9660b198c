"""A probe of the performance counters: a few small kernels, profiled as a capture will profile its own.

``python -m gpuatlas.capture.probe DEVICE`` is the profiled program.
"""

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gpuatlas import console
from gpuatlas.capture import ncu
from gpuatlas.capture.cost import estimate
from gpuatlas.capture.messages import MARKED
from gpuatlas.capture.plan import Part
from gpuatlas.errors import MachineRefused
from gpuatlas.ncurep.report import outline

LAUNCHES = 7
"""Launches that the probe has measured; the first, which also sets the profiler up, is not timed."""
LAUNCH_NS = 10_000.0
"""About the GPU time of one of them, in ns."""
NETWORK = 1.2
"""What a network's launch costs over what the probe's one does: 1.0 to 1.5 in eight captures on H200s."""
REPLAYED = 1.6
"""The same with several passes, before each of which what the launch overwrites is restored: 1.3 to 2.0."""


@dataclass(frozen=True)
class Probed:
    """What a few small kernels say of a capture's cost on this machine.

    Attributes
    ----------
    passes
        Passes a launch; None where Nsight Compute does not tell it.
    scale
        Measured over modelled seconds of a launch.
    startup_s
        Seconds of the profiler's run without its marked launches.
    """

    passes: int | None
    scale: float
    startup_s: float


def temporary_folder(environ: dict[str, str]) -> Path:
    """Return where temporary files go: GPUATLAS_SCRATCH, else TMPDIR, else /tmp."""
    return Path(environ.get("GPUATLAS_SCRATCH") or environ.get("TMPDIR") or "/tmp")


def find_ncu() -> str:
    """Return the path of ncu.

    Raises
    ------
    MachineRefused
        If there is none.
    """
    path = shutil.which("ncu")
    if path is None:
        raise MachineRefused("There is no ncu on the PATH; use the image, or see gpuatlas doctor.")
    return path


def probe(settings: ncu.Settings, scratch: Path, stop: ncu.Stop, log: Path, device: str = "cuda") -> Probed:
    """Measure a few small kernels as the capture will: proof that counters can be read, and the cost's scale.

    Raises
    ------
    MachineRefused
        The counters are refused or busy, or the profiler cannot start.
    InputRefused
        The profiler's report is damaged.
    GpuatlasError
        The probe failed otherwise.
    """
    path = find_ncu()
    with tempfile.TemporaryDirectory(prefix="gpuatlas-probe-", dir=scratch) as name:
        folder = Path(name)
        part = Part(None, 0, LAUNCHES, LAUNCHES, 0.0)
        options = ncu.arguments(path, settings, part, folder / "probe.ncu-rep")
        outcome = ncu.run(
            [*options, sys.executable, "-m", "gpuatlas.capture.probe", device],
            log=log,
            environment={**os.environ, "TMPDIR": name},
            stop=stop,
        )
        stored = outline(folder / "probe.ncu-rep").names
    missing = [name for name in settings.metrics if name not in stored]
    if missing:  # Nsight Compute itself passes over a metric that it does not know
        console.note(f"This ncu does not store {', '.join(missing)}: correct the names, or go without")
    passes = outcome.passes.most_common(1)[0][0] if outcome.passes else None
    model = estimate(settings.sections, settings.metrics, step_ns=0.0, compiled=False, passes=passes)
    factor = NETWORK if passes == 1 else REPLAYED
    scale = factor * outcome.profile_s / (outcome.launches - 1) / model.launch_s(LAUNCH_NS)
    return Probed(passes, scale, outcome.startup_s)


def main() -> None:
    """Launch a few element-wise kernels."""
    import torch

    values = torch.ones(4_000_000, device=sys.argv[1])
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for number in range(LAUNCHES):
        values = values * 1.5
        torch.zeros(1).copy_(values[:1])  # waits for the device
        if number == 0:
            began = time.monotonic()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    print(MARKED.format(time.monotonic() - began), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
