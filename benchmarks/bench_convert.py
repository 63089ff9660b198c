"""The converter beside NVIDIA's own reader: whole processes, medians, the same Parquet at the end.

``python benchmarks/bench_convert.py`` writes ``benchmarks/convert.md``. It needs ``gpuatlas[nvidia]`` for the
peers, about 1.3 GB of disk in the temporary folder, and less than ten minutes on a quiet machine.
"""

import argparse
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RECORDINGS = {
    name: ROOT / f"tests/data/windows/h200/{name}/report.ncu-repz" for name in ("baseline", "opt1", "opt12")
}
LAUNCHES, METRICS = 10_000, 260
GIGABYTE = 1_000_000_000
BUSY = 0.5


# What is measured


@dataclasses.dataclass
class Read:
    """What a peer has read: metrics launch by launch, each launch's sorted by name."""

    counts: array = dataclasses.field(default_factory=lambda: array("i"))
    """Metrics of each launch."""
    code: array = dataclasses.field(default_factory=lambda: array("i"))
    """Of each metric its name's place in `names`."""
    values: array = dataclasses.field(default_factory=lambda: array("d"))
    valid: bytearray = dataclasses.field(default_factory=bytearray)
    texts: dict[int, str] = dataclasses.field(default_factory=dict)
    names: dict[str, int] = dataclasses.field(default_factory=dict)
    units: list[str] = dataclasses.field(default_factory=list)
    launches: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    rules: list[list[dict]] = dataclasses.field(default_factory=list)


def _rules(action: Any) -> list[dict]:
    return [
        {**result, "rule_message": dict(result["rule_message"])} for result in action.rule_results_as_dicts()
    ]


def read_by_value(report: str) -> Read:
    """Read as one would: value() of each metric."""
    import ncu_report

    actions = ncu_report.load_report(report).range_by_idx(0)
    read = Read()
    for action in actions:
        read.launches.append((action.name(0), action.name(1), action.name(2)))
        read.rules.append(_rules(action))
        names = sorted(set(action.metric_names()))
        read.counts.append(len(names))
        for name in names:
            metric = action.metric_by_name(name)
            if name not in read.names:
                read.names[name] = len(read.names)
                read.units.append(metric.unit())
            value = metric.value() if metric.has_value() else None
            if isinstance(value, str):
                read.texts[len(read.code)] = value
                value = None
            read.code.append(read.names[name])
            read.values.append(0.0 if value is None else value)
            read.valid.append(value is not None)
    return read


def read_by_accessors(report: str, part: int = 0, parts: int = 1) -> Read:
    """Read as fast as we could make it.

    The accessor of the metric's kind, names sorted once for all launches that have the same, kinds and units asked
    once a name, columns in arrays, no garbage collection. Of `parts` equal parts of the launches, one is read.
    """
    import gc

    import ncu_report

    gc.disable()
    actions = ncu_report.load_report(report).range_by_idx(0)
    launches = actions.num_actions()
    read = Read()
    code, values, valid, places, kinds = read.code, read.values, read.valid, read.names, []
    orders: dict[tuple, list[str]] = {}
    for number in range(launches * part // parts, launches * (part + 1) // parts):
        action = actions.action_by_idx(number)
        read.launches.append((action.name(0), action.name(1), action.name(2)))
        read.rules.append(_rules(action))
        names = action.metric_names()
        order = orders.get(names)
        if order is None:
            order = orders[names] = sorted(set(names))
        read.counts.append(len(order))
        get = action.metric_by_name
        for name in order:
            metric = get(name)
            place = places.get(name)
            if place is None:
                place = places[name] = len(places)
                read.units.append(metric.unit())
                kinds.append(metric.kind())
            code.append(place)
            if metric.has_value():
                kind = kinds[place]
                if kind in (5, 6):
                    values.append(metric.as_uint64())
                    valid.append(True)
                    continue
                if kind in (3, 4):
                    values.append(metric.as_double())
                    valid.append(True)
                    continue
                read.texts[len(code) - 1] = metric.as_string()
            values.append(0.0)
            valid.append(False)
    return read


def write(reads: list[Read], out: str) -> None:
    """Write the Parquet of what was read; columns are built as our own are, without pandas."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gpuatlas.tables.arrays import primitives, sparse_strings, strings

    names: dict[str, str] = {}
    for read in reads:
        names.update(zip(read.names, read.units, strict=True))
    place = {name: number for number, name in enumerate(names)}
    code = np.concatenate(
        [np.array([place[name] for name in read.names])[np.frombuffer(read.code, np.int32)] for read in reads]
    )
    counts = np.concatenate([np.frombuffer(read.counts, np.int32) for read in reads])
    texts, before = {}, 0
    for read in reads:
        texts.update({before + row: text for row, text in read.texts.items()})
        before += len(read.code)
    codes = primitives(pa.int32(), code)
    table = pa.Table.from_arrays(
        [
            primitives(pa.int32(), np.repeat(np.arange(len(counts)), counts)),
            pa.DictionaryArray.from_arrays(codes, strings(list(names))),
            primitives(
                pa.float64(),
                np.concatenate([np.frombuffer(read.values) for read in reads]),
                np.concatenate([np.frombuffer(read.valid, np.bool_) for read in reads]),
            ),
            sparse_strings(texts, len(code)),
            pa.DictionaryArray.from_arrays(codes, strings(list(names.values()))),
        ],
        names=["launch_id", "metric", "value", "text", "unit"],
    )
    Path(out).mkdir(parents=True, exist_ok=True)
    pq.write_table(table, f"{out}/metrics.parquet", compression="zstd")
    launches = [launch for read in reads for launch in read.launches]
    columns = [strings(column) for column in zip(*launches, strict=True)]
    table = pa.Table.from_arrays(
        [primitives(pa.int32(), np.arange(len(launches))), *columns],
        names=["launch_id", "function", "demangled", "mangled"],
    )
    pq.write_table(table, f"{out}/launches.parquet", compression="zstd")
    found = (rules for read in reads for rules in read.rules)
    rows = [{"launch_id": number, **rule} for number, rules in enumerate(found) for rule in rules]
    pq.write_table(pa.Table.from_pylist(rows), f"{out}/rules.parquet", compression="zstd")


def peer_value(report: str, out: str) -> None:
    write([read_by_value(report)], out)


def peer_accessors(report: str, out: str) -> None:
    write([read_by_accessors(report)], out)


def peer_processes(report: str, out: str) -> None:
    """Read a part of the launches in a process for each CPU, each of which loads the report."""
    from multiprocessing import get_context

    parts = len(os.sched_getaffinity(0))
    with get_context("fork").Pool(parts) as pool:
        reads = pool.starmap(read_by_accessors, [(report, part, parts) for part in range(parts)])
    write(reads, out)


def merely_parse(report: str, out: str) -> None:
    """Read the bytes and let protobuf parse each result, nothing more."""
    del out
    from gpuatlas.ncurep.messages import Result
    from gpuatlas.ncurep.report import launches, outline

    for launch in launches(outline(Path(report), keep=True)):
        Result.FromString(bytes(launch.data))


def convert_with_numpy(report: str, out: str) -> None:
    """Convert as where the decoder could not be compiled."""
    sys.modules["gpuatlas.ncurep._native"] = None  # type: ignore[assignment]  # importing it fails
    from gpuatlas.cli import main as gpuatlas

    sys.argv = ["gpuatlas", "-q", "convert", report, "--out", out]
    gpuatlas()


OURS, NUMPY, FLOOR = "gpuatlas convert", "gpuatlas convert, not compiled", "merely parsing"
LOOPS = ("ncu_report, value()", "ncu_report, accessors")
PROCESSES = "ncu_report, accessors, a process a CPU"
CONTENDERS: dict[str, Callable[[str, str], None] | None] = {
    OURS: None,  # the command itself
    NUMPY: convert_with_numpy,
    LOOPS[0]: peer_value,
    LOOPS[1]: peer_accessors,
    PROCESSES: peer_processes,
    FLOOR: merely_parse,
}


# Reports


def make_synthetic(path: Path) -> None:
    """Write 10,000 launches of 260 metrics each: a recording's results, every sixth metric kept."""
    from gpuatlas.ncurep.blocks import walk
    from gpuatlas.ncurep.report import outline
    from gpuatlas.ncurep.rewrite import new_header, report_file, with_launches, write_block, write_start
    from gpuatlas.ncurep.source import Reader
    from gpuatlas.ncurep.wire import fields, write_bytes

    def trim(result: bytes) -> bytes:
        found = [field for field in fields(result) if field.number == 13]
        kept = {found[int(number * len(found) / METRICS)].start for number in range(METRICS)}
        out = []
        for field in fields(result):
            content = result[field.content : field.end]
            if field.number == 17:  # of a section its heading, so that its body does not make the file
                out.append(
                    write_bytes(
                        17, b"".join(content[f.start : f.end] for f in fields(content) if f.number <= 3)
                    )
                )
            elif field.number != 13 or field.start in kept:
                out.append(result[field.start : field.end])
        return b"".join(out)

    report = outline(RECORDINGS["opt1"])
    with report_file(path) as file, Reader(report.source) as reader:
        write_start(file)
        results = []
        for number, block in enumerate(walk(reader)):
            results.extend(trim(data) for data in block.result_entries())
            header = with_launches(block.raw_header, LAUNCHES) if number == 0 else block.raw_header
            if block.header.session or block.header.strings:
                write_block(file, header, [])
        for number in range(LAUNCHES):
            write_block(file, new_header(), [results[number % len(results)]])


def make_long(path: Path) -> None:
    """Write a report of a gigabyte: a recording's results, over and over."""
    from gpuatlas.ncurep.blocks import walk
    from gpuatlas.ncurep.report import outline
    from gpuatlas.ncurep.rewrite import new_header, plain_header, report_file, write_block, write_start
    from gpuatlas.ncurep.source import Reader

    report = outline(RECORDINGS["opt1"])
    with report_file(path) as file:
        write_start(file)
        first = True
        while file.tell() < GIGABYTE:
            with Reader(report.source) as reader:
                for block in walk(reader):
                    results = list(block.result_entries())
                    if first:
                        write_block(file, plain_header(block.raw_header, redact=False), results)
                    elif results:
                        write_block(file, new_header(), results)
            first = False


# Measuring


class Run(NamedTuple):
    """One run of a contender."""

    wall: float
    """In s, as are the CPU times of all its processes."""
    cpu: float
    peak: int
    """Resident memory in MiB, of its largest process."""


@dataclasses.dataclass
class Found:
    """What was measured on one report."""

    runs: dict[str, list[Run]]
    rows: int | None
    """Metric values."""
    unpacked: int
    parquet: int | None
    """Bytes of our tables."""


def medians(runs: list[Run]) -> tuple[float, float]:
    """Return the medians of wall and CPU times."""
    return statistics.median(run.wall for run in runs), statistics.median(run.cpu for run in runs)


def say(line: str) -> None:
    print(line, file=sys.stderr)


def measure(contender: str, report: Path, out: Path) -> Run:
    """Run one contender once."""
    command = [sys.executable, __file__, "--measure", contender, str(report), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{contender} failed on {report}: {done.stderr}")
    return Run(*json.loads(done.stdout.splitlines()[-1]))


def measure_here(contender: str, report: str, out: str) -> None:
    """Do so in this small process: what Linux says of a child's peak begins with its parent's."""
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--run", contender, report, out]
    if CONTENDERS[contender] is None:
        command = [sys.executable, "-m", "gpuatlas.cli", "-q", "convert", report, "--out", out]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024]))
    raise SystemExit(status != 0)


def same_metrics(ours: Path, theirs: Path) -> int:
    """Hold the metrics tables against one another; return the number of rows."""
    import pyarrow.parquet as pq

    columns = ["launch_id", "metric", "value", "text"]
    tables = [pq.read_table(folder / "metrics.parquet", columns=columns) for folder in (ours, theirs)]
    rows = [[column.to_pylist() for column in table.columns] for table in tables]
    if rows[0][:2] != rows[1][:2]:
        raise SystemExit("the tables do not hold the same metrics")
    for a, b, text, other in zip(rows[0][2], rows[1][2], rows[0][3], rows[1][3], strict=True):
        nan = a is not None and b is not None and math.isnan(a) and math.isnan(b)
        # texts of ours also hold the digits of integers that a double cannot
        if not (a == b or nan) or (text != other and a is None):
            raise SystemExit(f"the tables differ: {a} and {b}, {text} and {other}")
    return len(rows[0][0])


def bench(repeats: int, folder: Path) -> dict[str, Found]:
    """Run every contender on every report."""
    from gpuatlas.ncurep.metrics import COMPILED
    from gpuatlas.ncurep.report import outline

    if not COMPILED:
        raise SystemExit(
            "the decoder is not compiled here: install gcc and Python's headers, then `make setup`"
        )
    say("making the synthetic reports")
    synthetic, long = folder / "synthetic.ncu-rep", folder / "long.ncu-rep"
    make_synthetic(synthetic)
    make_long(long)
    found: dict[str, Found] = {}
    for name, report in {**RECORDINGS, "10,000 × 260": synthetic}.items():
        runs: dict[str, list[Run]] = {contender: [] for contender in CONTENDERS}
        for repeat in range(repeats):
            # In turns, so that what else the machine does meets all of them; every other time backwards, so that
            # none always runs after the same one.
            for contender in list(CONTENDERS)[:: -1 if repeat % 2 else 1]:
                say(f"{name}: {contender}, {repeat + 1}")
                runs[contender].append(measure(contender, report, folder / contender))
        rows = {same_metrics(folder / OURS, folder / peer) for peer in (NUMPY, *LOOPS, PROCESSES)}
        tables = sum(path.stat().st_size for path in (folder / OURS).glob("*.parquet"))
        found[name] = Found(runs, rows.pop(), outline(report).unpacked, tables)
    runs = {OURS: [measure(OURS, long, folder / "long") for _ in range(3)]}
    found["1 GB"] = Found(runs, None, long.stat().st_size, None)
    return found


# Telling

HEAD = """# How fast the converter is

Written by `python benchmarks/bench_convert.py` on {date}: {cpu}, {cpus} CPUs, load average {load:.1f} before and
{after:.1f} after (the bench itself makes about one), Python {python}, pyarrow {pyarrow}, numpy {numpy}, typer
{typer}, ncu_report {ncu_report}. Whole processes from start to exit, contenders in turns, medians, all runs in
brackets. Each contender ends in the same Parquet: launches, metrics with units, rules; the metrics tables are
compared value by value. Where the machine was busy, the CPU times tell more.

| report | contender | wall s | CPU s | peak MiB | times ours, wall (CPU) |
|---|---|---|---|---|---|
"""
TAIL = """
* `ncu_report, value()` is the usual loop. `ncu_report, accessors` is the best that we could write with
  NVIDIA's reader: the accessor of each kind, kinds and units asked once a name, names sorted once, columns in
  arrays, no garbage collection. The last peer does that in a process for each CPU, which takes no less CPU
  time; its peak is that of one of them. We convert a report in one process.
* `gpuatlas convert, not compiled` is what a machine without a C compiler gets: numpy decodes the metrics.
* `merely parsing` reads the file and has protobuf parse every result, and uses nothing of it. We do not parse the
  bodies of sections, which are most of a recording.
* `10,000 × 260` is made of a recording's real results, each with 260 of its metrics, repeated. Rules that say
  the same are decoded once, which repeating favours.
* `1 GB` is a recording's results over and over: the peak does not grow with the report.
* The recordings are packed; the 70 MB that they unpack to are part of the peak.
"""


def cpu_model() -> str:
    """Return the CPU's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def page(found: dict[str, Found], load: float) -> str:
    """Return convert.md."""
    lines, best = [], []
    for name, entry in found.items():
        ours = medians(entry.runs[OURS])
        for contender, runs in entry.runs.items():
            wall, cpu = medians(runs)
            every = " ".join(f"{run.wall:.2f}" for run in runs)
            lines.append(
                f"| {name} | {contender} | {wall:.2f} ({every}) | {cpu:.2f} | {max(run.peak for run in runs)} | "
                f"{wall / ours[0]:.1f}× ({cpu / ours[1]:.1f}×) |"
            )
        if len(entry.runs) > 1:
            best_loop = [
                min(part) for part in zip(*(medians(entry.runs[loop]) for loop in LOOPS), strict=True)
            ]
            others = best_loop, medians(entry.runs[PROCESSES]), medians(entry.runs[FLOOR])
            ratios = " | ".join(f"{wall / ours[0]:.1f}× ({cpu / ours[1]:.1f}×)" for wall, cpu in others)
            best.append(f"| {name} | {ratios} |")
    lines += [
        "",
        "| times ours, wall (CPU) | the best loop | it in a process for each CPU | merely parsing |",
    ]
    lines += ["|---|---|---|---|", *best]
    lines += ["", "| report | unpacked bytes | metric values | Parquet bytes | of unpacked |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| {name} | {entry.unpacked:,} | {entry.rows:,} | {entry.parquet:,} | "
        f"{100 * entry.parquet / entry.unpacked:.2f} % |"
        for name, entry in found.items()
        if entry.parquet is not None
    ]
    head = HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        cpu=cpu_model(),
        cpus=len(os.sched_getaffinity(0)),
        load=load,
        after=os.getloadavg()[0],
        python=platform.python_version(),
        **{name: version(name) for name in ("pyarrow", "numpy", "typer", "ncu_report")},
    )
    return head + "\n".join(lines) + "\n" + TAIL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=3, metavar=("CONTENDER", "REPORT", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each contender on each report [5]")
    parser.add_argument("--json", type=Path, help="also write the raw figures here")
    arguments = parser.parse_args()
    if arguments.run:
        contender, report, out = arguments.run
        run = CONTENDERS[contender]
        assert run is not None
        run(report, out)
        return
    if arguments.measure:
        measure_here(*arguments.measure)
    load = os.getloadavg()[0]
    if load > BUSY:
        say(f"the load average is {load:.1f}: the figures will be those of a busy machine")
    with tempfile.TemporaryDirectory(prefix="bench-convert-") as name:
        found = bench(arguments.repeats, Path(name))
    if arguments.json:
        raw = {name: dataclasses.asdict(entry) for name, entry in found.items()}
        arguments.json.write_text(json.dumps(raw, indent=2))
    text = page(found, load)
    (ROOT / "benchmarks/convert.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
