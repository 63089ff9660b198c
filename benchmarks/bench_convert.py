"""The converter beside NVIDIA's own reader: whole processes, medians, the same Parquet at the end.

``python benchmarks/bench_convert.py`` writes ``benchmarks/convert.md``. It needs ``gpuatlas[nvidia]`` for the
peers, about 2.5 GB of disk in the temporary folder, and ten minutes on a quiet machine.
"""

import argparse
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
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDINGS = {
    name: ROOT / f"resources/recordings/h200/{name}/report.ncu-repz" for name in ("baseline", "opt1", "opt12")
}
LAUNCHES, METRICS = 10_000, 260
GIGABYTE = 1_000_000_000


# What is measured


def peer_value(report: str, out: str) -> None:
    """The loop that one writes: value() of each metric."""
    import ncu_report

    def read(metric: object) -> tuple[float | None, str | None]:
        value = metric.value() if metric.has_value() else None  # type: ignore[attr-defined]
        if isinstance(value, str):
            return None, value
        return (None if value is None else float(value)), None

    _peer(ncu_report, report, out, read)


def peer_accessors(report: str, out: str) -> None:
    """The best loop that we could write: the accessor of each kind, units once a name, columns in arrays."""
    import ncu_report

    def read(metric: object) -> tuple[float | None, str | None]:
        if not metric.has_value():  # type: ignore[attr-defined]
            return None, None
        kind = metric.kind()  # type: ignore[attr-defined]
        if kind in (5, 6):
            return float(metric.as_uint64()), None  # type: ignore[attr-defined]
        if kind in (3, 4):
            return metric.as_double(), None  # type: ignore[attr-defined]
        return None, metric.as_string()  # type: ignore[attr-defined]

    _peer(ncu_report, report, out, read)


def _peer(
    ncu_report: object, report: str, out: str, read: Callable[[object], tuple[float | None, str | None]]
) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    actions = ncu_report.load_report(report).range_by_idx(0)  # type: ignore[attr-defined]
    launch, code, values, valid, texts = array("i"), array("i"), array("d"), bytearray(), []
    codes: dict[str, int] = {}
    units: list[str] = []
    launches, rules = [], []
    for number in range(actions.num_actions()):
        action = actions.action_by_idx(number)
        launches.append((number, action.name(0), action.name(1), action.name(2)))
        for result in action.rule_results_as_dicts():
            rules.append({"launch_id": number, **result, "rule_message": dict(result["rule_message"])})
        for name in sorted(set(action.metric_names())):
            metric = action.metric_by_name(name)
            place = codes.get(name)
            if place is None:
                place = codes[name] = len(codes)
                units.append(metric.unit())
            value, text = read(metric)
            launch.append(number)
            code.append(place)
            values.append(0.0 if value is None else value)
            valid.append(value is not None)
            texts.append(text)
    place = np.frombuffer(code, np.int32)
    table = pa.table(
        {
            "launch_id": pa.array(np.frombuffer(launch, np.int32)),
            "metric": pa.DictionaryArray.from_arrays(place, list(codes)),
            "value": pa.array(np.frombuffer(values), mask=~np.frombuffer(valid, np.bool_)),
            "text": pa.array(texts, pa.string()),
            "unit": pa.DictionaryArray.from_arrays(place, units),
        }
    )
    Path(out).mkdir(parents=True, exist_ok=True)
    pq.write_table(table, f"{out}/metrics.parquet", compression="zstd")
    columns = ("launch_id", "function", "demangled", "mangled")
    pq.write_table(
        pa.table(dict(zip(columns, map(list, zip(*launches, strict=True)), strict=True))),
        f"{out}/launches.parquet",
    )
    pq.write_table(pa.Table.from_pylist(rules), f"{out}/rules.parquet", compression="zstd")


def merely_parse(report: str, out: str) -> None:
    """Read the bytes and let protobuf parse each result, nothing more: the floor."""
    del out
    from gpuatlas.ncurep.messages import Result
    from gpuatlas.ncurep.report import launches, outline

    for launch in launches(outline(Path(report))):
        Result.FromString(launch.data)


CONTENDERS: dict[str, Callable[[str, str], None] | None] = {
    "gpuatlas convert": None,  # the command itself
    "ncu_report, value()": peer_value,
    "ncu_report, accessors": peer_accessors,
    "merely parsing": merely_parse,
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


def measure(contender: str, report: Path, out: Path) -> tuple[float, float, int]:
    """Run one contender once; return its wall time and CPU time in s and its peak memory in MiB."""
    command = [sys.executable, __file__, "--measure", contender, str(report), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{contender} failed on {report}: {done.stderr}")
    wall, cpu, peak = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu, peak


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


def bench(repeats: int, folder: Path) -> dict[str, dict]:
    """Run every contender on every report."""
    from gpuatlas.ncurep.report import outline

    print("making the synthetic reports", file=sys.stderr)
    synthetic, long = folder / "synthetic.ncu-rep", folder / "long.ncu-rep"
    make_synthetic(synthetic)
    make_long(long)
    found: dict[str, dict] = {}
    for name, report in {**RECORDINGS, "10,000 × 260": synthetic}.items():
        runs: dict[str, list[tuple[float, float, int]]] = {contender: [] for contender in CONTENDERS}
        for repeat in range(repeats):
            for contender in CONTENDERS:  # in turns, so that what else the machine does meets all of them
                print(f"{name}: {contender}, {repeat + 1} of {repeats}", file=sys.stderr)
                runs[contender].append(measure(contender, report, folder / contender))
        ours = folder / "gpuatlas convert"
        found[name] = {
            "rows": same_metrics(ours, folder / "ncu_report, accessors"),
            "unpacked": outline(report).unpacked,
            "parquet": sum(path.stat().st_size for path in ours.glob("*.parquet")),
            "runs": runs,
        }
    runs = [measure("gpuatlas convert", long, folder / "long") for _ in range(repeats)]
    found["1 GB"] = {"runs": {"gpuatlas convert": runs}}
    return found


# Telling

HEAD = """# How fast the converter is

Written by `python benchmarks/bench_convert.py` on {date}: {machine}, {cpus} CPUs, load average {load:.1f}
at the start, Python {python}, pyarrow {pyarrow}. Whole processes from start to exit, contenders in turns,
medians of {repeats} (all runs in brackets). Each contender ends in the same Parquet: launches, metrics with
units, rules; the metrics tables are compared value by value. Where the machine was busy, the CPU times tell more.

| report | contender | wall s | CPU s | peak MiB | times ours, wall (CPU) |
|---|---|---|---|---|---|
"""
TAIL = """
* `ncu_report, value()` is the usual loop. `ncu_report, accessors` is the best that we could write with
  NVIDIA's reader: the accessor of each kind, units once a name, columns in arrays.
* `merely parsing` reads the file and has protobuf parse every result, and uses nothing of it.
* `10,000 × 260` is made of a recording's real results, each with 260 of its metrics, repeated. Rules that say
  the same are decoded once, which repeating favours.
* `1 GB` is a recording's results over and over: the peak does not grow with the report.
* The recordings are packed in one zstd frame, and its window, the whole 70 MB, is part of the peak.
"""


def page(found: dict[str, dict], repeats: int, load: float) -> str:
    """Return convert.md."""
    import pyarrow

    lines = []
    for name, entry in found.items():
        runs = entry["runs"]
        ours = [statistics.median(run[part] for run in runs["gpuatlas convert"]) for part in (0, 1)]
        for contender, times in runs.items():
            wall, cpu = (statistics.median(run[part] for run in times) for part in (0, 1))
            peak = max(run[2] for run in times)
            every = " ".join(f"{run[0]:.2f}" for run in times)
            lines.append(
                f"| {name} | {contender} | {wall:.2f} ({every}) | {cpu:.2f} | {peak} | "
                f"{wall / ours[0]:.1f}× ({cpu / ours[1]:.1f}×) |"
            )
    lines += ["", "| report | unpacked bytes | metric values | Parquet bytes | of unpacked |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| {name} | {entry['unpacked']:,} | {entry['rows']:,} | {entry['parquet']:,} | "
        f"{100 * entry['parquet'] / entry['unpacked']:.2f} % |"
        for name, entry in found.items()
        if "rows" in entry
    ]
    head = HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=platform.machine(),
        cpus=os.cpu_count(),
        load=load,
        python=platform.python_version(),
        pyarrow=pyarrow.__version__,
        repeats=repeats,
    )
    return head + "\n".join(lines) + "\n" + TAIL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs=3, metavar=("CONTENDER", "REPORT", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=5)
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
    with tempfile.TemporaryDirectory(prefix="bench-convert-") as name:
        load = os.getloadavg()[0]
        found = bench(arguments.repeats, Path(name))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))
    text = page(found, arguments.repeats, load)
    (ROOT / "benchmarks/convert.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
