"""What the benchmarks on a GPU share: commands that end in time, and one archive of what they leave."""

import platform
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from gpuatlas.files import whole

RESERVE_S = 30.0
"""Kept at the end: for stopping the profiler in an orderly way, and for the archive."""
LEAST_S = 45.0
"""With less time left nothing is begun."""
AGAIN = 75
"""Exit status: interrupted, run the same command again."""
ARCHIVE_BYTES = 15_000_000


def deadline(seconds: float) -> float:
    """Return the moment (`time.monotonic`) at which everything must be stopped."""
    return time.monotonic() + seconds - RESERVE_S


def gpuatlas(arguments: Sequence[str], end: float) -> int:
    """Run a command of gpuatlas, and stop it as a batch system would when the time is over."""
    left = end - time.monotonic()
    if left < LEAST_S:
        print(f"{arguments[0]}: not begun, the time is over; run again to go on", flush=True)
        return AGAIN
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "gpuatlas.cli", *arguments])
    try:
        status = process.wait(left)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(RESERVE_S - 8)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        status = AGAIN if status else 0
    print(f"{arguments[0]}: exit status {status} after {time.monotonic() - began:.0f} s", flush=True)
    return AGAIN if status < 0 else status


def machine() -> None:
    """Print what the machine is: kernel, GPU, driver, profiler."""
    print(f"{platform.system()} {platform.release()}, Python {platform.python_version()}", flush=True)
    for command in (["nvidia-smi", "-L"], ["ncu", "--version"]):
        try:
            shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            shown = f"{command[0]}: {error}"
        print(shown.strip(), flush=True)


def slim(report: Path, out: Path) -> Path:
    """Write a report without what no table needs, and without who measured it; return `out`."""
    options = ["--out", str(out), "--redact", "--drop-instances"]
    subprocess.run([sys.executable, "-m", "gpuatlas.cli", "slim", str(report), *options], check=True)
    return out


def pack(archive: Path, root: Path, folders: Sequence[Path]) -> None:
    """Write folders of `root` to one tar, in this order and as many as `ARCHIVE_BYTES` hold.

    What the compiler cached stays out, and with it the parts of an unfinished capture that used it: without the
    cache the kernels may be others.
    """
    total = 0
    with whole(archive) as temporary, tarfile.open(temporary, "w") as tar:
        for folder in folders:
            compiled = any(path.is_file() for path in folder.glob("compiled/**/*"))
            files = [
                path
                for path in sorted(folder.rglob("*"))
                if path.is_file()
                and "compiled" not in path.parts
                and path.suffix not in (".log", ".part")
                and not (compiled and ".state" in path.parts)
            ]
            size = sum(path.stat().st_size for path in files)
            if total + size > ARCHIVE_BYTES:
                print(f"{folder}: {size / 1e6:.1f} MB do not fit into the archive any more", flush=True)
                continue
            total += size
            for path in files:
                tar.add(path, path.relative_to(root))
    print(f"{archive}: {total / 1e6:.2f} MB of {len(folders)} folders", flush=True)
