"""Whole files: written to a temporary name beside their own, then renamed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpuatlas.files import whole
from gpuatlas.tables.schema import with_metadata


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, making its folder."""
    with whole(path) as partial:
        partial.write_bytes(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON."""
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


def write_table(path: Path, table: pa.Table, metadata: Mapping[str, str]) -> None:
    """Write `table` as zstd Parquet with the schema's version and `metadata` in the file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.cast(with_metadata(table.schema, metadata)), sink, compression="zstd")
    write_bytes(path, sink.getvalue().to_pybytes())
