"""A table read back: its columns, or one sentence that names the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpuatlas.errors import InputRefused


def read_columns(
    path: Path, columns: Sequence[str], remedy: str, filters: list[tuple[str, str, Any]] | None = None
) -> pa.Table:
    """Read some columns of a Parquet table, and its file metadata.

    Parameters
    ----------
    columns
        Names of the columns, which the table must have.
    remedy
        What the sentence of an error says to do.
    filters
        Rows to read, as `pyarrow.parquet.read_table` takes them; all where there are none.

    Raises
    ------
    InputRefused
        If the file is no whole Parquet table or lacks a column.
    """
    try:
        names = pq.read_schema(path).names
        lost = [name for name in columns if name not in names]
        if lost:
            raise InputRefused(f"{path}: has no column {lost[0]!r}; {remedy}")
        # The folders of a partition are no columns of the file.
        return pq.read_table(path, columns=list(columns), filters=filters, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise InputRefused(f"{path}: is not a readable Parquet table; {remedy}") from error
