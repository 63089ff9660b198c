"""Tidy rows and how they are written: Parquet and CSV beside it, whole or not at all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from gpuatlas.compare import catalog
from gpuatlas.compare.study import Cell
from gpuatlas.errors import InputRefused
from gpuatlas.files import sha256, whole
from gpuatlas.tables import schema


@dataclass(frozen=True)
class Row:
    """One row of a table under results/compare/ (see `gpuatlas.tables.schema.COMPARE`).

    `reason` says why `value` is null, and then there is no `source`; beside a value it says how the value was
    made, where that is not the catalogue's first way.
    """

    architecture: str
    target: str
    scope: str
    name: str
    metric: str
    value: float | None
    unit: str
    coverage: float | None = None
    window: str | None = None
    source: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Figure:
    """A value with what must be said beside it: why it is missing, or how it was made."""

    value: float | None
    note: str | None = None

    @property
    def source(self) -> str | None:
        """Where the value comes from, for the rows of a cell; None where there is none."""
        return None if self.value is None else "measured"


def row(cell: Cell, scope: str, name: str, metric: str, figure: Figure) -> Row:
    """Return a measured row of a cell; the unit is the catalogue's."""
    return Row(
        architecture=cell.architecture,
        target=cell.target,
        scope=scope,
        name=name,
        metric=metric,
        value=figure.value,
        unit=catalog.load().known[metric].unit,
        coverage=cell.coverage,
        window=cell.window,
        source=figure.source,
        reason=figure.note,
    )


def write_rows(
    folder: Path,
    name: str,
    rows: Iterable[Mapping[str, Any]],
    sources: Mapping[str, str],
    shape: pa.Schema = schema.COMPARE,
) -> None:
    """Write rows as ``{name}.parquet`` and ``{name}.csv`` in the given shape, with the sources' SHA-256."""
    kind = schema.with_metadata(shape, {"sources": _lines(sources)})
    write_table(folder, name, pa.Table.from_pylist(list(rows), schema=kind))


def write_table(folder: Path, name: str, table: pa.Table) -> None:
    """Write a table as ``{name}.parquet`` (zstd) and ``{name}.csv``, each whole or not at all.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    flat = table
    for index, column in enumerate(table.schema):
        if pa.types.is_list(column.type):
            texts = [";".join(v) if v is not None else None for v in table[column.name].to_pylist()]
            flat = flat.set_column(index, column.name, pa.array(texts, pa.string()))
        elif pa.types.is_dictionary(column.type):
            flat = flat.set_column(index, column.name, table[column.name].cast(pa.string()))
    with whole(folder / f"{name}.parquet") as path:
        pq.write_table(table, path, compression="zstd")
    with whole(folder / f"{name}.csv") as path:
        pacsv.write_csv(flat, path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a table that an earlier step wrote, as a list of rows.

    Raises
    ------
    InputRefused
        If it is missing or damaged.
    """
    if not path.is_file():
        raise InputRefused(f"{path}: is missing; run the step that writes it first")
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputRefused(f"{path}: is not a readable Parquet table; delete it and run again") from error
    return list(table.to_pylist())


def sources_of(root: Path, paths: Sequence[Path]) -> dict[str, str]:
    """Return relative path to SHA-256 for the files that exist."""
    return {str(path.relative_to(root)): sha256(path) for path in paths if path.is_file()}


def _lines(sources: Mapping[str, str]) -> str:
    return "\n".join(f"{path}@{value}" for path, value in sorted(sources.items()))
