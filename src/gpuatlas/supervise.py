"""Hands SIGTERM on to everything below it: ``python -m gpuatlas.supervise COMMAND…``.

Slurm's warning before a time limit (``--signal=TERM@120``) is sent to a job step's task. Where processes
are tracked by cgroups, as on most sites, the task's children get nothing ("only signal slurm tasks unless
signal is SIGKILL":
https://github.com/SchedMD/slurm/blob/slurm-22-05/src/plugins/proctrack/cgroup/proctrack_cgroup.c). The task
is Snakemake, and the training that should save its state is its grandchild. So the task is this process,
which hands the signal to all that descend from it.
"""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, parents first."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (comm) state ppid …; comm may hold spaces and brackets
            after_name = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        children[int(after_name[1])].append(int(entry.parent.name))
    found: list[int] = []
    pending = [pid]
    while pending:
        below = children[pending.pop()]
        found += below
        pending += below
    return found


def _hand_on(number: int, frame: FrameType | None) -> None:
    del frame
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    signal.signal(signal.SIGTERM, _hand_on)
    # The launcher below would hand it on once more, and a step that has saved would die of the second.
    os.environ["GPUATLAS_SUPERVISED"] = "1"
    status = subprocess.Popen(arguments).wait()
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
