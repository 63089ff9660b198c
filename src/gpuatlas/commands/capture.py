"""Plan and run captures, and ask a machine whether it can be profiled."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuatlas import console
from gpuatlas.errors import ConfigError, MachineRefused
from gpuatlas.files import read_json

if TYPE_CHECKING:
    from gpuatlas.capture.preflight import Finding
    from gpuatlas.workload.targets import Target

Targets = Annotated[Path, typer.Option("--targets", help="The targets' YAML file.")]
TargetName = Annotated[str, typer.Option("--target", help="Which target of it.")]
Timing = Annotated[Path, typer.Option(help="Folder with timeline.parquet of that target.")]
Mode = Annotated[str, typer.Option(help="configs, first:N or first:inf.")]
Budget = Annotated[str | None, typer.Option(help="Time that the capture may take, such as 30m.")]
Sections = Annotated[list[str] | None, typer.Option("--section", help="A section of Nsight Compute; repeat.")]
Metrics = Annotated[list[str] | None, typer.Option("--metric", help="A further metric; repeat.")]
Site = Annotated[str | None, typer.Option(help="Name of a file in config/sites.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_NOTHING = "Nothing to measure: give --section or --metric"
_MARKS = {"ok": "ok", "warning": "!", "refused": "✗", "unknown": "?"}


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    app.command("capture")(capture)
    app.command("plan")(plan)
    app.command("doctor")(doctor)


def capture(
    *,
    targets: Targets,
    target: TargetName,
    timing: Timing,
    state: Annotated[Path, typer.Option(help="Folder for the state that survives an interruption.")],
    out: Annotated[Path, typer.Option(help="Folder for report.ncu-repz, plan.json and environment.json.")],
    network: Annotated[str, typer.Option(help="whole_head_128 or small_64.")] = "whole_head_128",
    size: Annotated[int, typer.Option(help="Edge of the volumes in voxels.")] = 128,
    seed: Annotated[int, typer.Option(help="Of the initial weights and the noise.")] = 0,
    mode: Mode = "configs",
    budget: Budget = None,
    section: Sections = None,
    metric: Metrics = None,
    replay: Annotated[str, typer.Option(help="kernel or application.")] = "kernel",
    cache_control: Annotated[str, typer.Option(help="all (flushed before each pass) or none.")] = "all",
    clock_control: Annotated[str, typer.Option(help="none, or base (locked; seldom permitted).")] = "none",
    if_refused: Annotated[
        str, typer.Option(help="Where counters are refused: fail, or degrade to timing and timeline.")
    ] = "fail",
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "cuda",
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the stack is known to be broken.")
    ] = False,
) -> None:
    """Profile one training step of a cell; run the same command again to go on after an interruption."""
    from gpuatlas.capture.cost import seconds
    from gpuatlas.capture.messages import CountersRefused
    from gpuatlas.capture.ncu import Settings, Stop
    from gpuatlas.capture.plan import parse_mode
    from gpuatlas.capture.probe import probe, temporary_folder
    from gpuatlas.capture.program import Job
    from gpuatlas.capture.refused import write_refusal
    from gpuatlas.capture.result import Request
    from gpuatlas.capture.run import capture as run
    from gpuatlas.lock import locked
    from gpuatlas.workload.network import check_size, network_spec

    check_size(network_spec(network), size)
    _one_of("--if-refused", if_refused, ("fail", "degrade"))
    _one_of("--replay", replay, ("kernel", "application"))
    _one_of("--cache-control", cache_control, ("all", "none"))
    _one_of("--clock-control", clock_control, ("none", "base"))
    job = Job(
        targets=str(targets),
        target=target,
        network=network,
        size=size,
        seed=seed,
        device=device,
        force=force,
        environment="",
    )
    scratch = temporary_folder(dict(os.environ))
    request = Request(
        job=job,
        timeline=timing / "timeline.parquet",
        mode=parse_mode(mode),
        budget_s=seconds(budget) if budget is not None else None,
        settings=Settings(_once(section), _once(metric), replay, cache_control, clock_control),
        state=state / "capture",
        out=out,
        scratch=scratch,
    )
    if not section and not metric:
        raise ConfigError(f"{_NOTHING}.")
    with locked(request.state), Stop().listening() as stop:
        try:
            _preflight(scratch, None)
            console.note("Probing the performance counters with a few small kernels")
            probed = probe(request.settings, scratch, stop, request.state / "probe.log", device)
        except CountersRefused as error:
            if if_refused == "fail":
                raise
            write_refusal(request, timing, error)
            console.note(f"Not profiled: {error} The cell keeps its timing and timeline.")
            return
        written = run(request, probed, stop)
    for flag in written["flags"]:
        console.note(f"Note: {flag}")
    covered, predicted = written["coverage_time"], written["predicted_s"]
    console.say(
        f"{written['launches_measured']} launches measured in {written['spent_s'] / 60:.1f} min "
        f"(predicted {'unknown' if predicted is None else f'{predicted / 60:.1f}'}); "
        + (
            f"coverage {100 * covered:.2f} % of the step's GPU time"
            if covered is not None
            else written["window"]
        )
        + f"; report in {out}",
    )


def plan(
    *,
    targets: Targets,
    target: TargetName,
    timing: Timing,
    mode: Annotated[str | None, typer.Option(help="configs (as without it), first:N or first:inf.")] = None,
    budget: Budget = None,
    section: Sections = None,
    metric: Metrics = None,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Say what a capture would measure and cost, without a GPU.

    Without --section and --metric, it plans what config/config.yaml in this folder says under 'capture': also
    its mode and budget, unless given.
    """
    from gpuatlas.capture.cost import seconds, shown
    from gpuatlas.capture.forecast import SECTIONS, forecast
    from gpuatlas.capture.plan import parse_mode
    from gpuatlas.config import load_capture, load_site, nearest
    from gpuatlas.workload.targets import load_target

    slurm = None
    if not section and not metric and Path("config/config.yaml").is_file():
        held = load_capture(Path.cwd())
        section, metric = held["sections"], held["metrics"]
        mode, budget = mode or held["mode"], budget if budget is not None else held.get("budget")
    if not section and not metric:
        raise ConfigError(f"{_NOTHING}, or run this where a config/config.yaml names some under 'capture'.")
    if site is not None:
        told = load_site(Path.cwd(), site)
        slurm = told.get("slurm")
        _note_gpus(told["architectures"], load_target(targets, target), timing)
    found = forecast(
        timing / "timeline.parquet",
        targets,
        target,
        mode=parse_mode(mode or "configs"),
        budget_s=seconds(budget) if budget is not None else None,
        sections=_once(section),
        metrics=_once(metric),
        slurm=slurm,
    )
    for name in [one for one in section or () if one not in SECTIONS]:
        hint = nearest(name, SECTIONS, "ncu --list-sections shows what a machine has")
        console.note(f"Note: Nsight Compute does not come with a section {name!r}{hint}")
    if as_json:
        console.say(json.dumps(asdict(found), indent=2))
        return
    again = f", {found.second_launches} of them twice" if found.second_launches else ""
    lines = [
        f"launches to measure   {found.launches} ({found.configs_measured} of {found.configs_total} "
        f"launch configurations{again}, {found.launches_total} launches a step)",
        f"passes a launch       about {found.passes}",
        f"time                  about {shown(found.predicted_s)} in {_counted(found.parts, 'part')}",
        f"GPU time covered      {_floored(100 * found.coverage_time)} %"
        if found.coverage_time is not None
        else found.window,
    ]
    if found.gpu_hours is not None:
        units = f", {found.service_units:.2f} service units" if found.service_units is not None else ""
        lines.append(f"at {site:<18} {found.gpu_hours:.2f} GPU-hours{units}")
    console.say("\n".join(str(line) for line in lines))


def doctor(
    *,
    site: Site = None,
    no_probe: Annotated[bool, typer.Option("--no-probe", help="Profile no kernel.")] = False,
    as_json: Json = False,
) -> None:
    """Say whether this machine can be profiled, and what to ask its administrators."""
    from gpuatlas.capture.doctor import examine
    from gpuatlas.capture.preflight import refused
    from gpuatlas.capture.probe import temporary_folder
    from gpuatlas.config import load_site

    held = load_site(Path.cwd(), site) if site is not None else None
    findings = examine(temporary_folder(dict(os.environ)), held, probing=not no_probe)
    if as_json:
        console.say(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    worst = refused(findings)
    if worst is not None:
        raise MachineRefused(f"This machine cannot be profiled: {worst.what}; {worst.ask}.")


def _preflight(scratch: Path, site: dict[str, Any] | None) -> None:
    """Refuse a machine on which a capture cannot succeed; note what a reader of the log should know."""
    from gpuatlas.capture.machine import Machine
    from gpuatlas.capture.messages import CountersRefused
    from gpuatlas.capture.preflight import COUNTERS, inspect, refused

    findings = inspect(Machine(temporary=scratch), site)
    for finding in findings:
        if finding.level in ("warning", "refused"):
            console.note(f"{finding.what}: {finding.why}; {finding.ask}")
    # What a job can change comes first: the cell must not go without counters for it.
    worst = refused([one for one in findings if one.check not in COUNTERS]) or refused(findings)
    if worst is None:
        return
    message = f"This machine cannot be profiled: {worst.what}; {worst.ask}."
    raise CountersRefused(message, worst.what) if worst.check in COUNTERS else MachineRefused(message)


def _show(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        console.say(f"{_MARKS[finding.level]:>2}  {finding.check:<11} {finding.what}")
        if finding.level != "ok":
            for label, text in (("why", finding.why), ("ask", finding.ask)):
                if text:
                    console.say(f"{'':17}{label}: {text}")


def _note_gpus(architectures: Sequence[str], target: "Target", timing: Path) -> None:
    """Say where a site's GPUs make a plan worth less than it seems."""
    from gpuatlas.config import load_named

    known, beside = load_named(Path.cwd(), "architectures"), timing / "environment.json"
    held = read_json(beside, "time the cell again") if beside.is_file() else {}
    timed = (held.get("gpu") or {}).get("cc")
    for one in (known[name] for name in architectures):
        label, capability = one["label"], one["compute_capability"]
        if tuple(map(int, capability.split("."))) < target.min_cc:
            console.note(f"Note: {target.name} takes no effect on {label} (compute capability {capability})")
        if timed not in (None, capability):
            console.note(f"Note: the timeline is of compute capability {timed}: a first idea of {label}")


def _once(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return names without their repetitions, in order."""
    return tuple(dict.fromkeys(names or ()))


def _floored(percent: float) -> str:
    """Return a percentage that says 100 of nothing less."""
    return f"{math.floor(round(10 * percent, 6)) / 10:.1f}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(f"{option} {value}: choose one of {', '.join(allowed)}.")
