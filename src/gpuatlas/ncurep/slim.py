"""Reports without embedded code, and the parts of one capture as one report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.ncurep.blocks import walk
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.redact import Redaction
from gpuatlas.ncurep.report import Outline, outline
from gpuatlas.ncurep.rewrite import (
    new_header,
    plain_header,
    renumber,
    report_file,
    with_launches,
    without_instances,
    write_block,
    write_start,
)
from gpuatlas.ncurep.source import Reader


@dataclass(frozen=True)
class Slimmed:
    """What became of a report."""

    path: Path
    launches: int
    before: int
    after: int
    """Sizes on disk in bytes."""


def slim(path: Path, out: Path, *, redact: bool = False, drop_instances: bool = False) -> Slimmed:
    """Write a report without embedded code; what is left reads as before.

    Parameters
    ----------
    path
        The report, which is checked in full first.
    out
        The new report; packed if it ends in .ncu-repz.
    redact
        Leave out host, user, process, network addresses, environment and command line, and the folders of
        paths in rules' texts; thread ids and host addresses are numbered anew. Names of kernels, NVTX ranges
        and values of metrics stay as they are.
    drop_instances
        Leave out the values per instance (per instruction, per sample).

    Raises
    ------
    InputRefused
        If the report is damaged; nothing is written then.
    ConfigError
        If `out` is the report itself.
    OSError
        If the new report cannot be written.
    """
    if out.exists() and path.exists() and out.samefile(path):
        raise ConfigError(f"--out {out}: is the report itself, which stays as it is; name another file.")
    check(path)
    report = outline(path)
    redaction = Redaction()
    with report_file(out, below=report.source.size) as file, Reader(report.source) as reader:
        write_start(file)
        for number, block in enumerate(walk(reader)):
            results = list(block.result_entries())
            if drop_instances:
                results = [without_instances(data) for data in results]
            if redact:
                results = [redaction.result(data) for data in results]
            header = plain_header(block.raw_header, redact=redact)
            write_block(file, with_launches(header, report.launches) if number == 0 else header, results)
        report.source.require_unchanged()
    return Slimmed(out, report.launches, report.source.size, out.stat().st_size)


def merge(parts: Sequence[Path], out: Path) -> Slimmed:
    """Write the parts of one capture as one report, in their order and without embedded code.

    Parameters
    ----------
    parts
        Reports of the same GPU and the same Nsight Compute, each checked in full first. The session is the
        first's.
    out
        The new report; packed if it ends in .ncu-repz.

    Raises
    ------
    InputRefused
        If a part is damaged, or is of another GPU or Nsight Compute than the first; nothing is written then.
    """
    outlines = []
    for path in parts:
        check(path)
        outlines.append(outline(path))
        _require_same(outlines[0], outlines[-1])
    launches = sum(report.launches for report in outlines)
    place: dict[str, int] = {}
    for name in outlines[0].names:
        place.setdefault(name, len(place))
    if len(place) != len(outlines[0].names):
        raise InputRefused(f"{parts[0]}: names a metric twice, so its parts cannot be merged.")
    with report_file(out) as file:
        write_start(file)
        for number, report in enumerate(outlines):
            added = [name for name in report.names if name not in place]
            for name in added:
                place.setdefault(name, len(place))
            if added:
                write_block(file, new_header(list(dict.fromkeys(added))), [])
            ids = [place[name] for name in report.names]
            with Reader(report.source) as reader:
                for index, block in enumerate(walk(reader)):
                    results = list(block.result_entries())
                    if ids != list(range(len(ids))):
                        results = [renumber(data, ids) for data in results]
                    if number == 0:
                        header = plain_header(block.raw_header, redact=False)
                        write_block(file, with_launches(header, launches) if index == 0 else header, results)
                    elif results:
                        write_block(file, new_header(), results)
            report.source.require_unchanged()
    return Slimmed(out, launches, sum(report.source.size for report in outlines), out.stat().st_size)


def _require_same(first: Outline, other: Outline) -> None:
    for what, a, b in (
        ("GPU", first.session.device_name, other.session.device_name),
        ("Nsight Compute", first.session.ncu_version, other.session.ncu_version),
    ):
        if a != b:
            raise InputRefused(
                f"{other.source.path}: its {what} is {b or 'unknown'}, the first part's {a or 'unknown'}; "
                "merge parts of one capture."
            )
