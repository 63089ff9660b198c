"""Arrow columns from numpy arrays and Python texts, built from their buffers.

``pyarrow.array`` does the same, but imports pandas on the way where pandas is installed, which takes longer
than most conversions.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Valid = npt.NDArray[np.bool_]
_Rows = npt.NDArray[np.int64]
_T = TypeVar("_T")


def _bitmap(valid: _Valid | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def primitives(kind: pa.DataType, values: npt.NDArray[np.generic], valid: _Valid | None = None) -> pa.Array:
    """Return a column of numbers; null where not `valid`. NaN stays NaN."""
    # Not to_pandas_dtype: releases of pyarrow before 26 import pandas for it.
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    buffer = pa.py_buffer(np.ascontiguousarray(values, f"{letter}{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), buffer])


def optional(kind: pa.DataType, values: Sequence[float | None], rows: _Rows | None = None) -> pa.Array:
    """Return a column of numbers; null for None. With `rows` it has the numbers of these places."""
    valid = np.array([value is not None for value in values], np.bool_)
    width = np.float64 if pa.types.is_floating(kind) else np.int64
    filled = np.array([0 if value is None else value for value in values], width)
    return primitives(kind, filled, valid) if rows is None else primitives(kind, filled[rows], valid[rows])


def _offsets(sizes: npt.NDArray[np.int64]) -> pa.Buffer:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.py_buffer(offsets)


def distinct(values: Sequence[_T]) -> tuple[list[_T], _Rows]:
    """Return the different values, in the order of their first appearance, and each value's place in them."""
    place = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(place), np.fromiter(map(place.__getitem__, values), np.int64, len(values))


def strings(texts: Sequence[str | None], rows: _Rows | None = None) -> pa.Array:
    """Return a column of texts; null for None.

    With `rows` the column has the texts of these places, each as often as it is named.
    """
    if rows is None:
        texts, rows = distinct(texts)
    raw = np.array([b"" if text is None else text.encode() for text in texts], np.object_)
    valid = np.array([text is not None for text in texts], np.bool_)[rows]
    sizes = np.fromiter(map(len, raw), np.int64, len(raw))[rows]
    buffers = [_bitmap(valid), _offsets(sizes), pa.py_buffer(b"".join(raw[rows].tolist()))]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)


def sparse_strings(texts: dict[int, str], count: int) -> pa.Array:
    """Return a column of `count` texts that is null except for some rows."""
    rows = np.array(sorted(texts), np.int64)
    raw = [texts[row].encode() for row in rows.tolist()]
    sizes = np.zeros(count, np.int64)
    sizes[rows] = np.fromiter(map(len, raw), np.int64, len(raw))
    valid = np.zeros(count, np.bool_)
    valid[rows] = True
    buffers = [_bitmap(valid), _offsets(sizes), pa.py_buffer(b"".join(raw))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def lists(sizes: Sequence[int] | _Rows, items: pa.Array) -> pa.Array:
    """Return a column of lists: the first holds the first ``sizes[0]`` of `items`, and so on."""
    buffers = [None, _offsets(np.array(sizes, np.int64))]
    return pa.Array.from_buffers(pa.list_(items.type), len(sizes), buffers, children=[items])


def string_lists(texts: Sequence[Sequence[str]]) -> pa.Array:
    """Return a column of lists of texts."""
    return lists([len(entry) for entry in texts], strings([text for entry in texts for text in entry]))


def words(texts: Sequence[str | None], rows: _Rows) -> pa.DictionaryArray:
    """Return a column of a few different words, those of the places `rows`; null for None."""
    known, codes = distinct([text for text in texts if text is not None])
    place = np.full(len(texts), -1, np.int8)
    place[[text is not None for text in texts]] = codes
    return pa.DictionaryArray.from_arrays(
        primitives(pa.int8(), place[rows], place[rows] >= 0), strings(known)
    )
