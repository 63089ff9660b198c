"""What a report holds, at a glance, and what takes its space."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import Outline, launches, outline
from gpuatlas.ncurep.wire import Content, fields

_PARTS = {13: "metrics", 17: "sections", 19: "rules", 21: "nvtx"}
_INSTANCES = 3


@dataclass(frozen=True)
class Info:
    """A report at a glance."""

    outline: Outline
    functions: int
    """Different kernels by name."""
    sections: dict[str, int]
    """Section -> launches that have it."""
    metrics: int
    """Different metrics."""
    sizes: dict[str, int]
    """What takes how many bytes of the unpacked report."""


def info(path: Path) -> Info:
    """Read a report and say what it holds.

    Raises
    ------
    InputRefused
        If it is no report or damaged.
    """
    report = outline(path, keep=True)
    sizes: Counter[str] = Counter()
    sections: Counter[str] = Counter()
    functions = set()
    for chunk in decode_report(report):
        for launch in chunk.infos:
            functions.add(launch.demangled)
            sections.update(launch.sections)
    for raw in launches(report):
        _count(raw.data, sizes)
    results = sum(sizes.values())
    sizes["embedded code"] = report.payload - results - 4 * report.launches
    sizes["session and names"] = report.unpacked - report.payload
    return Info(report, len(functions), dict(sections), len(set(report.names)), dict(sizes))


def _count(result: Content, sizes: Counter[str]) -> None:
    for field in fields(result):
        part = _PARTS.get(field.number, "names, dimensions and the rest")
        size = field.end - field.start
        if part == "metrics" and size > 40:
            metric = result[field.content : field.end]
            instances = sum(f.end - f.start for f in fields(metric) if f.number == _INSTANCES)
            sizes["instances of metrics"] += instances
            size -= instances
        sizes[part] += size


def as_dict(found: Info) -> dict[str, object]:
    """Return what `info` found in the order in which it is shown."""
    report, session = found.outline, found.outline.session
    created = None if session.created is None else datetime.fromtimestamp(session.created, UTC).isoformat()
    return {
        "report": str(report.source.path),
        "packing": report.source.packing,
        "bytes on disk": report.source.size,
        "bytes unpacked": report.unpacked,
        "device": session.device_name,
        "compute capability": _capability(report),
        "created": created,
        "versions": session.versions,
        "launches": report.launches,
        "kernels": found.functions,
        "metrics": found.metrics,
        "sections": found.sections or "none",
        "bytes by part": dict(sorted(found.sizes.items(), key=lambda item: -item[1])),
    }


def _capability(report: Outline) -> str:
    for device in report.session.devices:
        numbers = [
            device.attributes.get(f"device__attribute_compute_capability_{part}")
            for part in ("major", "minor")
        ]
        if None not in numbers:
            return ".".join(map(str, numbers))
    return "unknown"
