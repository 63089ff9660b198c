"""Stands for a long training: counts seconds, saves its state after each, ends with 75 on SIGTERM, goes on later.

usage: ticks.py COUNT OUT STATE. The journal STATE.journal shows what was done, and by which job, once for each tick.
"""

import os
import signal
import sys
import time
from pathlib import Path

count, out, state = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
asked: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
state.parent.mkdir(parents=True, exist_ok=True)
job = os.environ.get("SLURM_JOB_ID", "none")
done = int(state.read_text()) if state.exists() else 0
while done < count:
    if asked:
        sys.stdout.write(f"SIGTERM: saved after {done} of {count}\n")
        sys.exit(75)
    time.sleep(1)
    done += 1
    with Path(f"{state}.journal").open("a") as journal:
        journal.write(f"{done} {job}\n")
    new = Path(f"{state}.new")
    new.write_text(str(done))
    new.replace(state)
out.write_text(f"{count} ticks, last by {job}, gpu {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
