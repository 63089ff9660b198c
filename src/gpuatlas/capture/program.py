"""The profiled program: warm-up, then one marked optimiser step. Run by Nsight Compute, not by people.

``python -m gpuatlas.capture.program JOB.json``; the job says what to run (see `Job`). The step launches
what the timeline's did: same network, same seed, same flags.
"""

import gc
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuatlas import console
from gpuatlas.capture.messages import MARKED
from gpuatlas.errors import GpuatlasError
from gpuatlas.files import write_json

WARMUP = 1
"""Unmarked steps before the marked one: they load the kernels and make the optimiser's state."""
WARMUP_COMPILED = 2
"""The same where the network is compiled, which also compiles and records graphs."""


@dataclass(frozen=True)
class Job:
    """What the program runs, and where it writes its environment record."""

    targets: str
    target: str
    network: str
    size: int
    seed: int
    device: str
    force: bool
    environment: str

    def write(self, path: Path) -> None:
        """Write the job for the program to read."""
        write_json(path, asdict(self))

    @staticmethod
    def read(path: Path) -> "Job":
        """Read a written job."""
        return Job(**json.loads(path.read_text(encoding="utf-8")))


def command(job: Path) -> list[str]:
    """Return the program's command line."""
    return [sys.executable, "-m", "gpuatlas.capture.program", str(job)]


def execute(job: Job) -> None:
    """Warm up, record the environment, and run the marked step.

    Raises
    ------
    GpuatlasError
        As the workload's own functions raise.
    """
    gc.disable()  # collecting while torch and its compiler are imported costs a sixth of that
    import torch

    from gpuatlas.workload import build_network
    from gpuatlas.workload.apply import apply, pick_device
    from gpuatlas.workload.clock import synchronize
    from gpuatlas.workload.environment import environment_record, installed_packages
    from gpuatlas.workload.inputs import step_checksum, step_volumes
    from gpuatlas.workload.step import ACCUMULATE, TrainingStep
    from gpuatlas.workload.targets import load_target

    device = pick_device(job.device)
    torch.manual_seed(job.seed)
    target = load_target(Path(job.targets), job.target)
    # Volumes and packages are kept once made; beside the network they take no time of their own.
    with ThreadPoolExecutor(1) as beside:
        checksum = beside.submit(step_checksum, job.size, ACCUMULATE)
        packages = beside.submit(installed_packages)
        prepared = apply(target, build_network(job.network), device, force=job.force)
        step = TrainingStep(prepared, job.seed)
        packages.result()  # before the compiler adds its own to the path
        volumes = [(i.to(device), m.to(device)) for i, m in step_volumes(job.size, ACCUMULATE, device)]
        gc.freeze()
        gc.enable()
        for _ in range(WARMUP if target.compile == "none" else WARMUP_COMPILED):
            step.run(volumes)
        synchronize(device)
    write_json(Path(job.environment), environment_record(prepared, data_sha256=checksum.result()))
    began = time.monotonic()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    step.run(volumes)
    synchronize(device)
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    print(MARKED.format(time.monotonic() - began), flush=True)  # noqa: T201


def main() -> None:
    """Run the job that the command line names."""
    try:
        execute(Job.read(Path(sys.argv[1])))
    except GpuatlasError as error:
        console.fail(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
