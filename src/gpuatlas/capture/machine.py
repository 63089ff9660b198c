"""What the preflight reads of a machine: its GPU through nvidia-smi, its files under /proc, its commands."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_FIELDS = {
    "name": "name",
    "capability": "compute_cap",
    "driver": "driver_version",
    "memory_free_mib": "memory.free",
    "sm_mhz": "clocks.sm",
    "sm_max_mhz": "clocks.max.sm",
    "mig": "mig.mode.current",
}
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")


@dataclass(frozen=True)
class Gpu:
    """The first GPU that this process may use; a text is None where nvidia-smi does not tell it."""

    name: str
    capability: str | None
    driver: str | None
    memory_free_mib: float | None
    sm_mhz: float | None
    sm_max_mhz: float | None
    mig: str | None
    throttle: int | None
    """Bit mask of NVML's clock event reasons."""


@dataclass(frozen=True)
class Machine:
    """Where the preflight looks.

    Attributes
    ----------
    proc
        The proc file system.
    path
        Folders of commands, as in PATH.
    temporary
        The folder that the job's temporary files will go to.
    """

    proc: Path = Path("/proc")
    path: str = field(default_factory=lambda: os.environ.get("PATH", os.defpath))
    temporary: Path = Path("/tmp")

    def command(self, name: str) -> str | None:
        """Return the path of a command; None if there is none."""
        return shutil.which(name, path=self.path)

    def output(self, arguments: Sequence[str], timeout: float = 60) -> str | None:
        """Return what a command prints; None if there is none, or it fails."""
        command = self.command(arguments[0])
        if command is None:
            return None
        try:
            done = subprocess.run(
                [command, *arguments[1:]],
                capture_output=True,
                text=True,
                timeout=timeout,
                check=True,
                env={**os.environ, "PATH": self.path},
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout

    def gpu(self) -> Gpu | None:
        """Ask nvidia-smi for the GPU; None without one."""
        held = {key: self._query(field_name) for key, field_name in _FIELDS.items()}
        if held["name"] is None:
            return None
        reasons = next((found for name in _REASONS if (found := self._query(name)) is not None), None)
        return Gpu(
            name=held["name"],
            capability=held["capability"],
            driver=held["driver"],
            memory_free_mib=_number(held["memory_free_mib"]),
            sm_mhz=_number(held["sm_mhz"]),
            sm_max_mhz=_number(held["sm_max_mhz"]),
            mig=held["mig"],
            throttle=_mask(reasons),
        )

    def _query(self, name: str) -> str | None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
        shown = self.output(
            ["nvidia-smi", f"--id={visible}", f"--query-gpu={name}", "--format=csv,noheader,nounits"]
        )
        value = shown.strip().splitlines()[0].strip() if shown and shown.strip() else ""
        return None if not value or value.startswith("[") or value == "N/A" else value

    def administrators_only(self) -> bool | None:
        """Tell whether the driver keeps counters for administrators; None if it cannot be read."""
        try:
            text = (self.proc / "driver" / "nvidia" / "params").read_text(encoding="utf-8")
        except OSError:
            return None
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "RmProfilingAdminOnly":
                return value.strip() != "0"
        return None

    def processes(self) -> set[str]:
        """Return the names of the running processes that can be seen."""
        found = set()
        for path in self.proc.glob("[0-9]*/comm"):
            try:
                found.add(path.read_text(encoding="utf-8", errors="replace").strip())
            except OSError:  # it has ended
                continue
        return found

    def memory_available(self) -> int | None:
        """Return the bytes of host memory that a new program may take; None if unknown."""
        try:
            text = (self.proc / "meminfo").read_text(encoding="utf-8")
        except OSError:
            return None
        for line in text.splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _mask(text: str | None) -> int | None:
    try:
        return int(text, 16) if text is not None else None
    except ValueError:
        return None
