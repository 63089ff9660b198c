"""Read Nsight Compute reports."""

from pathlib import Path
from typing import Annotated

import typer

from gpuatlas import console

_Reports = Annotated[
    list[Path],
    typer.Argument(metavar="REPORT…", help=".ncu-rep, .ncu-repz, .nsight-cuprof-report; also .xz, .gz."),
]


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _lost(launches: int, at_least: bool) -> str:
    if at_least and not launches:
        return "an unknown number of launches lost"
    return f"{'at least ' if at_least else ''}{_counted(launches, 'launch', 'launches')} lost"


def _clean_up_when_ended() -> None:
    """Let a job that is cancelled, or whose terminal is gone, leave no half-written file behind."""
    import signal
    import sys

    for warning in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(warning) is not signal.SIG_IGN:  # nohup
            signal.signal(warning, lambda number, _: sys.exit(128 + number))


def _convert(  # noqa: PLR0917 (the command line's options)
    reports: _Reports,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the Parquet tables.")],
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="KEY=VALUE", help="Hive partition of the tables; may be repeated."
        ),
    ] = None,
    instances: Annotated[
        bool, typer.Option("--instances", help="Write the values per instance too (large).")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Keep the whole launches of a damaged report.")
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", help="The capture's plan.json: where it says that counters were refused, no rows."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Processes for several reports; default: all CPUs."),
    ] = None,
) -> None:
    """Convert reports to Parquet: launches, metrics, rules, session."""
    import gc
    import os

    _clean_up_when_ended()
    gc.disable()  # a conversion makes many objects and no cycles: looking for them takes a tenth of its time
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread for each CPU, for nothing

    from gpuatlas.tables.convert import convert
    from gpuatlas.tables.write import parse_partition

    if plan is not None:
        from gpuatlas.capture.refused import refusal
        from gpuatlas.tables.refused import write_refused

        reason = refusal(plan)
        if reason is not None:
            write_refused(plan, reason, out, partition=parse_partition(partition or []))
            console.say(f"{plan}: counters refused ({reason}); the tables hold no launch")
            return
    result = convert(
        reports,
        out,
        partition=parse_partition(partition or []),
        instances=instances,
        partial=partial,
        jobs=jobs,
    )
    gc.freeze()  # nor is there anything to look for at the end
    for report in result.converted:
        lost = f", {_lost(report.lost, report.lost_at_least)}" if partial else ""
        launches = _counted(report.launches, "launch", "launches")
        values = _counted(report.metrics, "metric value", "metric values")
        console.say(f"{report.path}: {launches}, {values}{lost}")
        for note in report.notes:
            console.note(f"{report.path}: {note}")
    first: dict[str, object] = {}
    for report in result.converted:
        if first.setdefault(report.sha256, report.path) is not report.path:
            console.note(
                f"{report.path}: the same report as {first[report.sha256]}; its launches count twice"
            )
    for error in result.refused:
        console.fail(str(error))
    if result.refused:
        raise typer.Exit(result.refused[0].exit_code)


def _check(
    files: _Reports,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check that reports are whole: a line a file; exit status 3 if one is not."""
    import json

    from gpuatlas.errors import InputRefused
    from gpuatlas.ncurep.check import check

    failed = False
    for path in files:
        try:
            found = check(path)
        except InputRefused as error:
            failed = True
            entry: dict[str, object] = {"path": str(path), "whole": False, "reason": str(error)}
            line = str(error)
        else:
            entry = {
                "path": str(path),
                "whole": True,
                "launches": found.launches,
                "metrics": found.metrics,
                "instances": found.instances,
                "ncu_version": found.ncu_version,
                "device": found.device,
            }
            places = _counted(found.extended, "block or launch", "blocks or launches")
            line = (
                f"{path}: whole, {_counted(found.launches, 'launch', 'launches')}, "
                f"{_counted(found.metrics, 'metric', 'metrics')}, "
                f"ncu {found.ncu_version or 'before 2020'}, {found.device}"
                + (f"; unknown fields in {places} (of a newer Nsight Compute)" if found.extended else "")
            )
        console.say(json.dumps(entry) if as_json else line)
    if failed:
        raise typer.Exit(InputRefused.exit_code)


def _slim(
    report: Annotated[Path, typer.Argument(metavar="REPORT")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new report; .ncu-repz is packed.")],
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Leave out host, user, process, addresses, environment, command line, folders in rules' "
            "texts. Names of kernels and NVTX ranges stay.",
        ),
    ] = False,
    drop_instances: Annotated[
        bool, typer.Option("--drop-instances", help="Leave out the values per instance.")
    ] = False,
) -> None:
    """Write a report without embedded code, for keeping and publishing."""
    from gpuatlas.errors import ConfigError
    from gpuatlas.ncurep.slim import slim

    if out.suffix not in (".ncu-rep", ".ncu-repz"):
        raise ConfigError(f"--out {out}: end it in .ncu-rep or .ncu-repz; other readers go by that.")
    _clean_up_when_ended()
    done = slim(report, out, redact=redact, drop_instances=drop_instances)
    launches = _counted(done.launches, "launch", "launches")
    console.say(f"{out}: {launches}, {done.before} bytes became {done.after}")
    if done.after >= done.before and not redact:
        hint = "" if out.suffix == ".ncu-repz" else "; .ncu-repz is packed"
        console.note(f"{out}: not smaller than {report}{hint}")


def _info(
    report: Annotated[Path, typer.Argument(metavar="REPORT")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a report holds: device, versions, launches, sections, size by part."""
    import json

    from gpuatlas.ncurep.info import as_dict, info

    found = as_dict(info(report))
    if as_json:
        console.say(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, dict):
            console.say(f"{name}:")
            for key, number in value.items():
                console.say(f"  {key:<45} {number:>14}")
        else:
            console.say(f"{name + ':':<20} {value}")


def register(app: typer.Typer) -> None:
    """Add this stage's commands to `app`."""
    app.command("convert")(_convert)
    app.command("check")(_check)
    app.command("slim")(_slim)
    app.command("info")(_info)
