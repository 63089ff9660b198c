"""Reports to Parquet: streaming, in bounded memory, and all or nothing."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpuatlas import __version__
from gpuatlas.errors import ConfigError, GpuatlasError
from gpuatlas.files import whole
from gpuatlas.ncurep.chunk import Chunk, decode_report
from gpuatlas.ncurep.report import Loss, Outline
from gpuatlas.tables import schema
from gpuatlas.tables.columns import MetricColumns, launches_table
from gpuatlas.tables.rules import rules_table

_GROUP_BYTES = 16 << 20
"""Rows are collected until they have this many bytes, then written as a row group; it bounds the memory."""
_TABLES = ("launches", "metrics", "rules", "session")
_INSTANCES = "instances"
_COLUMNS = frozenset(name for table in (*_TABLES, _INSTANCES) for name in schema.TABLES[table].names)
_STATISTICS = ["launch_id", "metric", "key", "rule"]
"""Columns worth statistics: those that a reader filters by."""


@dataclass(frozen=True)
class Options:
    """What a conversion writes and bears."""

    partition: Mapping[str, str] = field(default_factory=dict)
    """Hive partition keys and values."""
    instances: bool = False
    """Write the instances too."""
    partial: bool = False
    """Leave out launches that are not whole instead of refusing their report."""


Progress = Callable[[int], None]
"""Called with the number of launches done since the last call."""
Metadata = Callable[[], Mapping[str, str]]


@dataclass
class Converted:
    """What came of one report."""

    path: Path
    launches: int
    metrics: int
    sha256: str = ""
    """Of the report as it lies on disk."""
    lost: int = 0
    """Launches left out of a damaged report (`partial`)."""
    lost_at_least: bool = False
    """Whether more may be lost than `lost`: the report is cut and does not tell how many it had."""
    notes: list[str] = field(default_factory=list)


def table_path(out: Path, table: str, partition: Mapping[str, str]) -> Path:
    """Return where a table lies: ``out/launches.parquet``, or ``out/launches/key=value/part.parquet``."""
    if not partition:
        return out / f"{table}.parquet"
    folder = out / table
    for key, value in partition.items():
        folder /= f"{key}={value}"
    return folder / "part.parquet"


def parse_partition(entries: Sequence[str]) -> dict[str, str]:
    """Return ``key=value`` words as a mapping, in their order.

    Raises
    ------
    ConfigError
        If one is not a key and a value that can be a folder's name.
    """
    found: dict[str, str] = {}
    for entry in entries:
        key, separator, value = entry.partition("=")
        plain = all(c.isalnum() or c in "_-." for c in key + value) and not value.startswith(".")
        if key in _COLUMNS:
            raise ConfigError(f"--partition {entry}: '{key}' is a column of the tables; give another key.")
        if not (separator and key and value and plain) or key in found:
            raise ConfigError(
                f"--partition {entry}: give each once, as key=value of letters, digits, '_', '-', '.'."
            )
        found[key] = value
    return found


class TableFiles:
    """Parquet files that a thread of their own writes together, while the caller decodes what follows.

    Parameters
    ----------
    places
        Where the files are opened; leaving it gives them their names, or removes them if there was an error.
    paths
        Table -> its file.
    metadata
        Tells the files' metadata; called when the first rows are written.
    """

    def __init__(self, places: ExitStack, paths: Mapping[str, Path], metadata: Metadata) -> None:
        self._places = places
        self._paths = dict(paths)
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.Table]] = {name: [] for name in paths}
        self._bytes = dict.fromkeys(paths, 0)
        self._thread = ThreadPoolExecutor(1, "parquet")
        self._pending: Future[None] | None = None
        self._metadata = cache(metadata)

    @property
    def names(self) -> list[str]:
        """Names of the tables."""
        return list(self._paths)

    def add(self, name: str, table: pa.Table) -> None:
        """Append rows to a table; they are written when enough for a row group have come together."""
        self._waiting[name].append(table)
        self._bytes[name] += table.nbytes
        if self._bytes[name] >= _GROUP_BYTES:
            self._flush(name)

    def _flush(self, name: str) -> None:
        tables, self._waiting[name], self._bytes[name] = self._waiting[name], [], 0
        self._wait()
        self._pending = self._thread.submit(self._write, name, tables)

    def _wait(self) -> None:
        if self._pending:
            self._pending.result()

    def _write(self, name: str, tables: list[pa.Table]) -> None:
        with self._naming(name):
            table_schema = schema.with_metadata(schema.TABLES[name], self._metadata())
            if name not in self._writers:
                self._writers[name] = pq.ParquetWriter(
                    self._places.enter_context(whole(self._paths[name])),
                    table_schema,
                    compression="zstd",
                    compression_level=3,
                    write_statistics=_STATISTICS,
                )
            if tables:
                table = pa.concat_tables(tables).replace_schema_metadata(table_schema.metadata)
                self._writers[name].write_table(table, row_group_size=max(table.num_rows, 1))

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Say of an error of the system, for instance a full disk, which file it is about."""
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise GpuatlasError(
                f"{self._paths[name]}: cannot be written ({reason}); the tables are left as they were."
            ) from error

    def finish(self) -> None:
        """Write what is waiting."""
        for name in self._paths:
            self._flush(name)
        self._wait()
        for name in self._paths:
            with self._naming(name):
                self._writers.pop(name).close()

    def close(self) -> None:
        """End the thread; files that are not finished are given up."""
        self._thread.shutdown(wait=True)
        for writer in self._writers.values():
            with suppress(OSError):  # it would write the end of a file that is removed anyway
                writer.close()


@contextmanager
def table_files(out: Path, options: Options, metadata: Metadata) -> Iterator[TableFiles]:
    """Open the tables of a conversion; they appear together if the block ends without an error."""
    names = [*_TABLES, _INSTANCES] if options.instances else _TABLES
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(out).decode(errors="backslashreplace")
        raise ConfigError(f"{shown}: Parquet cannot be written to a path that is not UTF-8.") from error
    # Of an earlier conversion to the same place: they would belong to other launches.
    stale = None if options.instances else table_path(out, _INSTANCES, options.partition)
    if stale is not None and stale.is_dir():
        raise ConfigError(f"{stale}: a folder stands where an earlier table would; remove or rename it.")
    with ExitStack() as places:
        paths = {name: table_path(out, name, options.partition) for name in names}
        files = TableFiles(places, paths, metadata)
        try:
            yield files
            files.finish()
        finally:
            files.close()
    if stale is not None:
        stale.unlink(missing_ok=True)


def file_metadata(reports: Sequence[Outline], sha256s: Sequence[str]) -> dict[str, str]:
    """Return the metadata of the files: sources, their SHA-256, the writer's ncu version, the device."""

    def distinct(values: Sequence[str]) -> str:
        return ",".join(dict.fromkeys(values))

    return {
        "source": ",".join(report.source.name for report in reports),
        "source_sha256": ",".join(sha256s),
        "ncu_version": distinct([report.session.ncu_version for report in reports]),
        "device": distinct([report.session.device_name for report in reports]),
        "writer": f"gpuatlas {__version__}",
    }


def add_report(
    files: TableFiles,
    report: Outline,
    options: Options,
    *,
    number: int = 0,
    first_launch: int = 0,
    progress: Progress | None = None,
) -> Converted:
    """Append a report's launches, metrics, rules and instances to the tables.

    Parameters
    ----------
    files
        The tables.
    report
        Outline of the report.
    options
        What to write, and whether to bear damage.
    number, first_launch
        Its place among the converted reports, and the id of its first launch.
    progress
        Is told of launches that are done.

    Raises
    ------
    Damaged
        At the first launch that is not whole, unless `options.partial`.
    """
    loss = Loss() if options.partial else None
    columns = MetricColumns(report.names)
    result = Converted(report.source.path, 0, 0)
    extended = report.extended
    for chunk in decode_report(report, loss, instances=options.instances):
        result.metrics += _add(files, chunk, columns, number, first_launch + result.launches)
        result.launches += len(chunk.infos)
        extended += chunk.extended
        if progress:
            progress(len(chunk.infos))
    result.notes.extend(report.session.notes)
    if loss:
        result.lost, result.lost_at_least = loss.launches, loss.at_least
        result.notes.extend(loss.reasons)
    if extended:
        places = "1 block or launch" if extended == 1 else f"{extended} blocks or launches"
        result.notes.append(f"fields in {places} are left out, since this version does not know them")
    return result


def _add(files: TableFiles, chunk: Chunk, columns: MetricColumns, number: int, first_launch: int) -> int:
    """Append a decoded chunk to the tables; return the number of its metrics rows."""
    metrics = chunk.metrics
    ranks = columns.ranks(metrics)
    rows = columns.rows(ranks, metrics.counts)
    durations = columns.durations(metrics, ranks, rows, len(chunk.infos))
    files.add("launches", launches_table(chunk.infos, durations, first_launch, number))
    files.add("metrics", columns.table(metrics, ranks, rows, first_launch))
    files.add("rules", rules_table(chunk.rules, first_launch))
    if chunk.instances:
        files.add("instances", columns.instances(chunk.instances, metrics, ranks, rows, first_launch))
    return len(rows)
