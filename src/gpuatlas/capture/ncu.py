"""Nsight Compute's command line: the argument list of a part, one run of it, and what came of it."""

import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuatlas.capture.messages import CountersRefused, diagnose, invocation, lost_metrics, marked, profiled
from gpuatlas.capture.plan import Part
from gpuatlas.errors import GpuatlasError, Interrupted, MachineRefused
from gpuatlas.files import named

GRACE_S = 15.0
"""Seconds that a stopped profiler gets to end before it is killed."""
_ESSENTIAL = ("gpu__time_duration.sum",)
"""Metrics without which no weight can be given to a launch: losing one fails the capture."""


@dataclass(frozen=True)
class Settings:
    """What is measured and how; all of it is recorded in plan.json."""

    sections: tuple[str, ...]
    metrics: tuple[str, ...]
    replay: str
    cache: str
    clock: str


@dataclass
class Outcome:
    """One run of the profiler that ended well.

    Attributes
    ----------
    launches
        Launches that it says it has profiled.
    passes
        Passes a launch, and how many launches took as many.
    startup_s, profile_s
        Seconds before and after the marked step; seconds of the marked step, profiled.
    lost
        Metrics that it says it could not access.
    invocations
        Of each profiled launch, which one of its configuration it is, counted from 1; None where ncu does not
        tell.
    """

    launches: int = 0
    passes: Counter[int] = field(default_factory=Counter)
    startup_s: float = 0.0
    profile_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    invocations: list[int | None] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the run."""
        return self.startup_s + self.profile_s


def arguments(ncu: str, settings: Settings, part: Part, report: Path) -> list[str]:
    """Return Nsight Compute's arguments for one part; the program's own command follows them.

    The marked step is between cudaProfilerStart and cudaProfilerStop. NVTX push/pop ranges would lose the
    backward pass, which autograd launches from a thread of its own.
    """
    options = [
        ncu,
        "--profile-from-start",
        "off",
        "--target-processes",
        "application-only",
        "--replay-mode",
        settings.replay,
        "--cache-control",
        settings.cache,
        "--clock-control",
        settings.clock,
    ]
    if part.count is None:
        # By mangled names: by base names, instances of a template with one grid would count as one kernel.
        options += ["--kernel-name-base", "mangled", "--filter-mode", "per-launch-config"]
        names = "|".join(mangled_pattern(name) for name in sorted(part.functions or ()))
        if part.again is not None:
            options += ["--kernel-id", f"::regex:{names or '.*'}:^(1|{part.again})$"]
        else:
            options += ["--launch-count", "1"]
            options += ["--kernel-name", f"regex:{names}"] if names else []
    else:
        options += ["--launch-skip", str(part.skip or 0), "--launch-count", str(part.count)]
    for section in settings.sections:
        options += ["--section", section]
    if settings.metrics:
        options += ["--metrics", ",".join(settings.metrics)]
    options += ["--apply-rules", "yes" if settings.sections else "no", "--import-source", "no"]
    return [*options, "--force-overwrite", "--export", str(report)]


def mangled_pattern(function: str) -> str:
    """Return a regex that finds the mangled names of the kernels with this base name.

    A C++ name holds it with its length before it, a C name is it. A longer name that ends in the same digits
    and letters may match too, which costs a measurement and loses none.
    """
    name = re.escape(function)
    return f"{len(function)}{name}|^{name}$"


class Stop:
    """A request to stop, by SIGTERM or SIGINT; forwards it to the profiler that is running."""

    def __init__(self) -> None:
        self.requested = threading.Event()

    @contextmanager
    def listening(self) -> Iterator["Stop"]:
        """Handle SIGTERM and SIGINT inside the block."""
        previous = {
            number: signal.signal(number, lambda *_: self.requested.set())
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted` if a stop was requested."""
        if self.requested.is_set():
            raise Interrupted("The capture was stopped; finished parts are kept: run the same command again.")


def run(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    stop: Stop,
    on_launch: Callable[[], object] = lambda: None,
) -> Outcome:
    """Run the profiler with its program, and judge what it says.

    Parameters
    ----------
    command
        `arguments` and the program's command.
    log
        File that keeps all that both print.
    environment
        Of the profiler; its TMPDIR is the job's own.
    on_launch
        Called at each profiled launch.

    Raises
    ------
    MachineRefused
        The machine does not permit the measurement; `CountersRefused` where it keeps its counters.
    Interrupted
        A stop was requested meanwhile.
    GpuatlasError
        The program failed, the profiler was killed, no kernel was profiled, or a metric that everything
        needs was lost.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    began = time.monotonic()
    said: list[str] = []
    with named(log), log.open("w", encoding="utf-8") as record:
        try:
            process = subprocess.Popen(
                list(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise MachineRefused(
                f"{command[0]} cannot be run ({error.strerror}); see gpuatlas doctor"
            ) from error
        watcher = threading.Thread(target=_stop_with, args=(process, stop), daemon=True)
        watcher.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                record.write(line)
                record.flush()
                said.append(line)
                found = profiled(line)
                if found:
                    outcome.launches += 1
                    outcome.invocations.append(invocation(found[0]))
                    if found[1] is not None:
                        outcome.passes[found[1]] += 1
                    on_launch()
        except OSError:
            _end(process)
            raise
        status = process.wait()
        watcher.join()
    ended = time.monotonic()
    stop.check()
    text = "".join(said)
    _judge(text, status, outcome, log)
    outcome.lost = lost_metrics(text)
    essential = [name for name in outcome.lost if name in _ESSENTIAL]
    if essential:
        raise GpuatlasError(f"Nsight Compute lost {essential[0]}, which weighs every launch; see {log}")
    marks = marked(text)
    if not marks:
        raise GpuatlasError(f"The profiled program did not end its marked step; see {log}")
    outcome.profile_s = min(marks[-1], ended - began)
    outcome.startup_s = ended - began - outcome.profile_s
    return outcome


def _judge(text: str, status: int, outcome: Outcome, log: Path) -> None:
    known = diagnose(text)
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    if status < 0:
        raise GpuatlasError(
            f"Nsight Compute was killed (signal {-status}) after {outcome.launches} launches; finished parts "
            f"are kept: run the same command again, with more memory if the system killed it; see {log}"
        )
    if known is not None and (status or errors or known.code == "empty" or not outcome.launches):
        message = f"Nsight Compute says that {known.meaning}: {known.remedy}; see {log}"
        if known.error is CountersRefused:
            raise CountersRefused(message, known.meaning)
        raise known.error(message)
    if status or errors:
        last = errors[-1].removeprefix("==ERROR==").strip() if errors else f"exit status {status}"
        raise GpuatlasError(f"Nsight Compute failed ({last}); see {log}")
    if not outcome.launches:
        raise GpuatlasError(f"Nsight Compute ended without a profiled kernel or a reason; see {log}")


def _stop_with(process: "subprocess.Popen[str]", stop: Stop) -> None:
    """End the profiler and its program when a stop is requested."""
    while process.poll() is None:
        if stop.requested.wait(0.2):
            _end(process)
            return


def _end(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)  # also what outlives the profiler


def version(ncu: str) -> str | None:
    """Return the version that ``ncu --version`` prints, for instance ``2025.3.1.0``; None if it fails."""
    try:
        shown = subprocess.run(
            [ncu, "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Version\s+(\d[\d.]*)", shown)
    return match[1] if match else None
