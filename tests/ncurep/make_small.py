"""Builds the small reports of tests/data/ncurep from a recorded window: run it to make them anew.

``small`` is three launches with all their metrics, instances and rules; ``tiny`` is two launches with a few metrics
of every kind, small enough to be cut at every byte. Both keep of the sections only their headings.
"""

from pathlib import Path

from gpuatlas.ncurep.blocks import walk
from gpuatlas.ncurep.report import outline
from gpuatlas.ncurep.rewrite import (
    plain_header,
    renumber,
    report_file,
    with_launches,
    write_block,
    write_start,
)
from gpuatlas.ncurep.source import Reader
from gpuatlas.ncurep.wire import fields, read_varint, write_bytes

ROOT = Path(__file__).parents[2]
WINDOW = ROOT / "tests/data/windows/h200/opt1/report.ncu-repz"
DATA = ROOT / "tests/data/ncurep"
METRICS, SECTIONS = 13, 17
TINY = (
    "gpu__time_duration.sum",
    "launch__grid_size",
    "launch__kernel_name",
    "launch__func_cache_config",
    "device__attribute_display_name",
    "device__attribute_multiprocessor_count",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "breakdown:gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "launch__occupancy_per_block_size",
    "numa__cpu_affinity",
    "sass__inst_executed_per_opcode",
    "smsp__inst_executed.sum",
)


def trim(result: bytes, names: list[str], keep: tuple[str, ...] | None, rules: int) -> bytes:
    out = []
    seen = 0
    for field in fields(result):
        content = result[field.content : field.end]
        if field.number == METRICS and keep is not None:
            if names[read_varint(content, 1)[0]] not in keep:
                continue
        elif field.number == SECTIONS:
            head = [content[part.start : part.end] for part in fields(content) if part.number <= 3]
            out.append(write_bytes(SECTIONS, b"".join(head)))
            continue
        elif field.number == 19:
            seen += 1
            if seen > rules:
                continue
        out.append(result[field.start : field.end])
    return b"".join(out)


def with_names(header: bytes, names: list[str]) -> bytes:
    table = write_bytes(4, b"".join(write_bytes(1, name.encode()) for name in names))
    return b"".join(
        table if field.number == 4 and field.end > field.content else header[field.start : field.end]
        for field in fields(header)
    )


def build(out: Path, launches: tuple[int, ...], keep: tuple[str, ...] | None, rules: int) -> None:
    report = outline(WINDOW)
    names = [name for name in report.names if keep is None or name in keep]
    ids = [names.index(name) if name in names else -1 for name in report.names]
    with report_file(out) as file, Reader(report.source) as reader:
        write_start(file)
        seen = 0
        for number, block in enumerate(walk(reader)):
            results = []
            for data in block.result_entries():
                if seen in launches:
                    results.append(renumber(trim(data, report.names, keep, rules), ids))
                seen += 1
            header = with_names(plain_header(block.raw_header, redact=True), names)
            if number == 0:
                header = with_launches(header, len(launches))
            if results or block.header.session or block.header.strings:
                write_block(file, header, results)


if __name__ == "__main__":
    build(DATA / "small.ncu-repz", (0, 8, 60), None, 99)
    build(DATA / "tiny.ncu-repz", (0, 8), TINY, 4)
