"""What Nsight Compute says, and what it means for a capture.

The texts are those of Nsight Compute itself: of 2025.3.1 as recorded, of others as users have reported them.
"""

import re
from dataclasses import dataclass

from gpuatlas.errors import GpuatlasError, MachineRefused, OtherLaunches

MARKED = "gpuatlas: the marked step took {:.3f} s"
"""What a profiled program prints when it has ended its marked step."""


class CountersRefused(MachineRefused):
    """The GPU's performance counters cannot be read here, whatever the command line says.

    Attributes
    ----------
    reason
        Why, in a few words.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Known:
    """A message with its meaning and its remedy."""

    code: str
    pattern: re.Pattern[str]
    meaning: str
    remedy: str
    error: type[GpuatlasError]


def _known(code: str, pattern: str, meaning: str, remedy: str, error: type[GpuatlasError]) -> Known:
    return Known(code, re.compile(pattern, re.IGNORECASE), meaning, remedy, error)


MESSAGES = (
    _known(
        "permission",
        r"ERR_NVGPUCTRPERM",
        "the driver lets administrators alone read performance counters",
        "ask the administrators for the module option NVreg_RestrictProfilingToAdminUsers=0 "
        "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
        CountersRefused,
    ),
    _known(
        "busy",
        r"driver resource was unavailable",
        "another tool, mostly DCGM, holds the performance counters",
        "ask the administrators to pause it during the job (dcgmi profile --pause)",
        CountersRefused,
    ),
    _known(
        "library",
        r"LibraryNotLoaded|Failed to initialize the profiler|Failed to prepare kernel for profiling",
        "the profiler cannot start on this machine's driver",
        "use an ncu no newer than the driver, outside a sandbox such as gVisor",
        MachineRefused,
    ),
    _known(
        "unsupported",
        r"Profiling is not supported on (this )?device|unsupported GPU|not supported on chip|"
        r"Cuda driver is not compatible",
        "this ncu cannot profile this GPU",
        "use an ncu that lists the GPU's chip under --list-chips (Volta needs one before 2025)",
        CountersRefused,
    ),
    _known(
        "lock",
        r"(InterprocessLock|cannot open lock file|nsight-compute-lock)",
        "the profiler's lock file belongs to another user",
        "give the job a temporary folder of its own (GPUATLAS_SCRATCH)",
        MachineRefused,
    ),
    _known(
        "identifier",
        r"kernel identifier|--kernel-id",
        "it cannot select launches by their number",
        "use a newer Nsight Compute",
        OtherLaunches,
    ),
    _known(
        "option",
        r"(unrecogni[sz]ed option|the argument .* is invalid|required argument for option)",
        "this ncu does not know an option or a value",
        "use Nsight Compute 2022.2 or later",
        MachineRefused,
    ),
    _known(
        "section",
        r"did not match any section|Failed to find section",
        "this ncu does not know a section",
        "correct capture.sections; ncu --list-sections shows what there is",
        GpuatlasError,
    ),
    _known(
        "memory",
        r"(CUDA )?out of memory|Failed to (save|restore) (device )?memory",
        "the device memory does not suffice for the program and what the profiler saves of it",
        "use a smaller volume, or a GPU with more memory",
        GpuatlasError,
    ),
    _known(
        "application",
        r"The application returned an error code",
        "the profiled program failed",
        "read its own message in the log",
        GpuatlasError,
    ),
    _known(
        "kernel",
        r"Failed to profile ",
        "a kernel could not be profiled",
        "read the log",
        GpuatlasError,
    ),
    _known(
        "empty",
        r"No kernels were profiled",
        "no kernel was profiled",
        "check that the program reached its marked step (profiler start and stop) and that the filters match",
        OtherLaunches,
    ),
)

_LOST = re.compile(r"Unable to access the following \d+ metrics?: (.*?)\.?\s*$")
_IDENTIFIED = re.compile(r"\d+:\d+:.+:(\d+)")
_MARKED = re.compile(r"gpuatlas: the marked step took ([\d.]+) s")
_PROFILED = re.compile(r'^==PROF== Profiling "(?P<name>.*)".*?(?:(?P<passes>\d+) pass(?:es)?)?\s*$')


def diagnose(text: str) -> Known | None:
    """Return the first known message, in the order of `MESSAGES`, that Nsight Compute's output holds."""
    said = "\n".join(line for line in text.splitlines() if line.startswith(("==ERROR==", "==WARNING==")))
    return next((known for known in MESSAGES if known.pattern.search(said)), None)


def lost_metrics(text: str) -> list[str]:
    """Return the metrics that Nsight Compute says it could not access."""
    found: dict[str, None] = {}
    for line in text.splitlines():
        match = _LOST.search(line) if line.startswith("==WARNING==") else None
        if match:
            listed = re.split(r"\.\s+If profiling on", match[1])[0]
            found.update(dict.fromkeys(name.strip().rstrip(".") for name in listed.split(",")))
    return list(found)


def marked(text: str) -> list[float]:
    """Return the seconds of the marked steps that profiled programs have ended."""
    return [float(found) for found in _MARKED.findall(text)]


def profiled(line: str) -> tuple[str, int | None] | None:
    """Return the kernel's shortened name and its passes (None if not told) of a progress line, or None."""
    match = _PROFILED.match(line)
    if match is None:
        return None
    return match["name"], int(match["passes"]) if match["passes"] else None


def invocation(name: str) -> int | None:
    """Return which launch of its configuration a progress line names, counted from 1; None if it does not.

    It does where launches are selected by ``--kernel-id``: ``1:7:reduce_kernel:4``.
    """
    match = _IDENTIFIED.fullmatch(name)
    return int(match[1]) if match else None
