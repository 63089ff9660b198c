"""A stand-in for ncu: it runs the program, and serves real recorded launches for those that it would launch.

It knows the options that the recorded text of the real ``ncu --help`` lists, and refuses others. What the program
launches is scripted (there is no GPU): numbers of launches of a recorded report, before, in and after its marked
range. Filters, skips, counts and metrics act on them as in the real ncu.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from tests.capture.blocks import Launch, Recording, build, read, retimed

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HELP = ROOT / "tests" / "data" / "capture" / "ncu_help.txt"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Option:
    """An option of the real help text."""

    takes_value: bool
    text: str


def options(text: str) -> dict[str, Option]:
    """Read the options of the real help text, each with its whole paragraph."""
    found: dict[str, Option] = {}
    pattern = re.compile(r"^  (?:-(\w) \[ )?--([\w-]+)(?: \])?( arg)?", re.MULTILINE)
    heads = list(pattern.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        option = Option(head[3] is not None, text[head.start() : following.start() if following else None])
        found[f"--{head[2]}"] = option
        if head[1]:
            found[f"-{head[1]}"] = option
    return found


def parse(arguments: list[str], known: dict[str, Option]) -> tuple[dict[str, list[str]], list[str]]:
    """Split the command line into options and the program's command; end as ncu does on an unknown option."""
    held: dict[str, list[str]] = {}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        name = arguments[at]
        if name not in known:
            sys.exit(f"==ERROR== unrecognised option '{name}'. Use --help for further details.")
        at += 1
        if known[name].takes_value:
            if at == len(arguments):
                sys.exit(f"==ERROR== the required argument for option '{name}' is missing.")
            held.setdefault(name, []).append(arguments[at])
            at += 1
        else:
            held.setdefault(name, [])
    return held, arguments[at:]


def last(held: dict[str, list[str]], name: str, default: str) -> str:
    return held[name][-1] if held.get(name) else default


def select(
    launches: list[Launch], sequence: list[int], held: dict[str, list[str]], told: dict
) -> dict[int, int]:
    """Return the places in a sequence of launch numbers that the filters leave, as recorded texts show it.

    Each with which launch of its configuration it is. Launches are told apart by what --kernel-name-base says:
    by base names, instances of a template with one grid count as one (filter_function.txt, filter_mangled.txt).
    --kernel-id selects by number (filter_kernel_id.txt); `told` may make it do otherwise (see `main`).
    """
    wanted, numbers = last(held, "--kernel-name", ""), ".*"
    if "--kernel-id" in held:
        context, stream, wanted, numbers = re.fullmatch(
            r"(\d*):(\d*):((?:regex:)?[^:]+):(.*)", last(held, "--kernel-id", "")
        ).groups()
        assert not context
        assert not stream
        numbers = told.get("numbers", numbers)
    base = last(held, "--kernel-name-base", "function")
    skip, count = int(last(held, "--launch-skip", "0")), int(last(held, "--launch-count", "1000000000"))
    per_configuration = last(held, "--filter-mode", "global") == "per-launch-config"
    seen: Counter[object] = Counter()
    chosen = {}
    for place, number in enumerate(sequence):
        launch = launches[number]
        name = {"function": launch.function, "demangled": launch.demangled, "mangled": launch.mangled}[base]
        if wanted.startswith("regex:"):
            if not re.search(wanted.removeprefix("regex:"), name):
                continue
        elif wanted and wanted != name:
            continue
        group = (name, launch.grid, launch.block) if per_configuration else None
        if "--kernel-id" in held and told.get("counts") == "kernel":
            group = name
        seen[group] += 1
        if skip < seen[group] <= skip + count and re.fullmatch(numbers, str(seen[group])):
            chosen[place] = seen[group]
    return chosen


def run_program(command: list[str], folder: Path) -> tuple[int, list[str]]:
    """Run the program with the injected range; return its status and the range's events."""
    events = folder / "events"
    events.touch()
    path = os.pathsep.join(filter(None, [str(HERE / "injected"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "STAND_IN_EVENTS": str(events), "PYTHONPATH": path}
    status = subprocess.run(command, env=environment, check=False).returncode
    return status, events.read_text(encoding="utf-8").split()


def main(script: Path) -> None:
    """Be ncu, as `script` (JSON) says.

    Its keys: recording, before, step, times (GPU time in ns of each launch of the step; without it, as
    recorded), after, passes, counts ("kernel": --kernel-id counts for each kernel, not for each configuration),
    and `fails`: a list with one entry a call, the last one repeated: null, "kill:N" (after N launches),
    "permission", "busy", "refuse", "hang", "nothing" (no launch matches), "identifier" (--kernel-id is not known
    so).
    """
    if len(sys.argv) == 2 and sys.argv[1] == "--version":
        say("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 1) (public-release)")
        return
    told = json.loads(script.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--list-chips"]:
        say(told.get("chips", "ga100, ga102, gh100, gb100"))
        return
    held, command = parse(sys.argv[1:], options(HELP.read_text(encoding="utf-8")))
    calls = script.with_name("calls.jsonl")
    number = len(calls.read_text(encoding="utf-8").splitlines()) if calls.exists() else 0
    with calls.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"options": held, "command": command, "tmpdir": os.environ.get("TMPDIR")}) + "\n"
        )
    fails = told.get("fails") or [None]
    fail = fails[min(number, len(fails) - 1)]
    say(f"==PROF== Connected to process {os.getpid()} ({command[0]})")
    if fail == "hang":
        time.sleep(600)
    with tempfile.TemporaryDirectory() as name:
        status, events = run_program(command, Path(name))
    _profile(told, held, status, events, fail)


def _profile(
    told: dict, held: dict[str, list[str]], status: int, events: list[str], fail: str | None
) -> None:
    recording = read(Path(told["recording"]))
    sequence = list(told["step"]) if "start" in events else []
    if last(held, "--profile-from-start", "on") in ("on", "yes", "1"):
        sequence = [*told.get("before", []), *told["step"], *told.get("after", [])]
    elif "start" in events and "stop" not in events:
        sequence += told.get("after", [])
    if fail == "identifier" and "--kernel-id" in held:
        sys.exit(f"==ERROR== Invalid kernel identifier {last(held, '--kernel-id', '')}")
    places = {}
    if fail != "nothing":
        places = select(recording.launches, sequence, held, told)
    chosen = [sequence[place] for place in places]
    lost = told.get("lost", [])
    if lost and chosen:
        say(
            f"==WARNING== Unable to access the following {len(lost)} metrics: {', '.join(lost)}.\n",
        )
    for position, (launch, number) in enumerate(zip(chosen, places.values(), strict=True)):
        if fail == f"kill:{position}":
            os.kill(os.getpid(), signal.SIGKILL)
        shown = f'"{recording.launches[launch].function[:28]}"'
        if "--kernel-id" in held:
            shown_number = number if number == 1 else told.get("named", number)
            named = f"1:7:{recording.launches[launch].function[:28]}:{shown_number}"
            shown = f'"{named if shown_number is not None else recording.launches[launch].function[:28]}"'
        if fail == "permission":
            say(
                "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
                "on the target device 0. For instructions on enabling permissions and to get more information see "
                "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
            )
            sys.exit(1)
        if fail == "busy":
            say("==ERROR== An error was reported by the driver\n")
            say(
                "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like "
                "DCGM) is concurrently collecting profiling data. See "
                "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more details."
            )
            say(f"==ERROR== Failed to profile {shown} in process {os.getpid()}")
            sys.exit(1)
        time.sleep(told.get("launch_s", 0.0))
        passes = told.get("passes", 27)
        numbered = "" if "--kernel-id" in held else f" - {position}"
        say(f"==PROF== Profiling {shown}{numbered}: 0%....50%....100% - {passes} passes")
    say(f"==PROF== Disconnected from process {os.getpid()}")
    if status:
        say(f"==ERROR== The application returned an error code ({status}).")
    if not chosen:
        say("==WARNING== No kernels were profiled.")
        sys.exit(1 if status else 0)
    if "times" in told:
        at = len(told["step"]) - len(sequence)
        launches = [
            retimed(recording, recording.launches[sequence[p]], told["times"][at + p]) for p in places
        ]
        recording, chosen = replace(recording, launches=launches), list(range(len(launches)))
    _write(recording, chosen, held, lost, thin=fail == "thin")
    sys.exit(1 if status else 0)


def _write(
    recording: Recording, chosen: list[int], held: dict[str, list[str]], lost: list[str], *, thin: bool
) -> None:
    sections = held.get("--section", [])
    asked = {name for text in held.get("--metrics", []) for name in text.split(",")}
    kept = set(recording.names) if sections else asked
    report = Path(last(held, "--export", ""))
    if report.exists() and "--force-overwrite" not in held:
        sys.exit(f"==ERROR== Failed to create report file {report}: it exists")
    data = build(recording, chosen[:-1] if thin else chosen, metrics=kept - set(lost), sections=sections)
    report.write_bytes(data)
    say(f"==PROF== Report: {report}")
