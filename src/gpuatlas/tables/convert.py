"""Conversion of one report or several, the latter in parallel processes."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq

from gpuatlas import console
from gpuatlas.errors import GpuatlasError, InputRefused
from gpuatlas.files import make_folder
from gpuatlas.ncurep.report import Outline, outline
from gpuatlas.tables.session import session_rows, session_table
from gpuatlas.tables.write import (
    Converted,
    Options,
    Progress,
    TableFiles,
    add_report,
    file_metadata,
    table_files,
    table_path,
)


@dataclass
class Conversion:
    """What came of a call."""

    converted: list[Converted] = field(default_factory=list)
    refused: list[InputRefused] = field(default_factory=list)
    """Why reports were left out; the others are converted."""


def convert(
    reports: Sequence[Path],
    out: Path,
    *,
    partition: Mapping[str, str] | None = None,
    instances: bool = False,
    partial: bool = False,
    jobs: int | None = None,
) -> Conversion:
    """Convert reports to one set of Parquet tables.

    Parameters
    ----------
    reports
        Paths of reports, packed or not, in the order in which their launches are numbered.
    out
        Folder for ``launches.parquet``, ``metrics.parquet``, ``rules.parquet``, ``session.parquet``.
    partition
        Hive partition keys and values: the tables then lie at ``out/launches/key=value/part.parquet`` and so
        on.
    instances
        Also write ``instances``.
    partial
        Keep the whole launches of a damaged report; `Converted.lost` says how many were left out.
    jobs
        Processes for several reports; by default as many as there are CPUs to use.

    Returns
    -------
    Conversion
        Also names the refused reports: one that fails leaves the others whole.

    Raises
    ------
    InputRefused
        If no report could be converted; nothing is written then.
    """
    done = Conversion()
    found: list[_Report] = []
    for path in reports:
        try:
            found.append(_Report(outline(path, partial=partial, keep=len(reports) == 1)))
        except InputRefused as error:
            done.refused.append(error)
    options = Options(dict(partition or {}), instances, partial)
    if len(found) == 1:
        _convert_one(found[0], out, options, done)
    elif found:
        _convert_several(found, out, options, jobs or len(os.sched_getaffinity(0)), done)
    if not done.converted:
        raise InputRefused(" ".join(map(str, done.refused)))
    return done


@dataclass
class _Report:
    outline: Outline
    number: int = 0
    first_launch: int = 0


def _convert_one(report: _Report, out: Path, options: Options, done: Conversion) -> None:
    with console.counting(report.outline.source.path.name, report.outline.launches) as progress:
        try:
            done.converted.append(_write(report, out, options, progress))
        except InputRefused as error:
            done.refused.append(error)


def _write(report: _Report, out: Path, options: Options, progress: Progress | None = None) -> Converted:
    with ThreadPoolExecutor(1, "hash") as thread:
        sha256 = thread.submit(report.outline.source.sha256).result
        with table_files(out, options, lambda: file_metadata([report.outline], [sha256()])) as files:
            converted = add_report(
                files,
                report.outline,
                options,
                number=report.number,
                first_launch=report.first_launch,
                progress=progress,
            )
            if not converted.launches:
                raise InputRefused(
                    f"{report.outline.source.path}: holds no whole launch, so nothing is converted."
                )
            converted.sha256 = sha256()
            report.outline.source.require_unchanged()
            rows = session_rows(report.outline, report.number, converted.sha256)
            files.add("session", session_table(list(rows)))
    return converted


def _convert_several(found: list[_Report], out: Path, options: Options, jobs: int, done: Conversion) -> None:
    """Convert each report in a process of its own, then join the tables in the order of the reports."""
    # Imported here because one report, the common case, needs none of this.
    import tempfile
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    first_launch = 0
    for number, report in enumerate(found):
        report.number, report.first_launch = number, first_launch
        first_launch += report.outline.launches
    make_folder(out)
    whole: list[tuple[Outline, Path, str]] = []
    with (
        tempfile.TemporaryDirectory(prefix=".convert-", dir=out) as folder,
        ProcessPoolExecutor(min(jobs, len(found)), get_context("spawn"), _end_with_parent) as pool,
        _children_end_with_error(),
        console.counting("reports", len(found)) as progress,
    ):
        places = [Path(folder) / str(report.number) for report in found]
        inner = replace(options, partition={})
        # Ctrl-C comes to every process of the terminal; it is for this one to end the others.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        running = [
            pool.submit(_write, report, place, inner) for report, place in zip(found, places, strict=True)
        ]
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for report, place, work in zip(found, places, running, strict=True):
            try:
                converted = work.result()
                done.converted.append(converted)
                whole.append((report.outline, place, converted.sha256))
            except InputRefused as error:
                done.refused.append(error)
            except BrokenProcessPool as error:
                raise GpuatlasError(
                    f"{report.outline.source.path}: the process that converts it was killed; "
                    "where memory is short, give fewer --jobs."
                ) from error
            progress(1)
        if not whole:
            return
        outlines, parts, sha256s = zip(*whole, strict=True)
        with table_files(out, options, lambda: file_metadata(outlines, sha256s)) as files:
            for place in parts:
                _join(files, place)


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed one could not tell it to."""
    from multiprocessing import parent_process
    from threading import Thread

    parent = parent_process()

    def watch() -> None:
        if parent:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def _children_end_with_error() -> Iterator[None]:
    """End the processes that convert where an error or an interrupt ends the block."""
    from multiprocessing import active_children

    try:
        yield
    except BaseException:
        for child in active_children():
            child.terminate()
        raise


def _join(files: TableFiles, place: Path) -> None:
    for name in files.names:
        with pq.ParquetFile(table_path(place, name, {})) as part:
            for group in range(part.num_row_groups):
                files.add(name, part.read_row_group(group))
