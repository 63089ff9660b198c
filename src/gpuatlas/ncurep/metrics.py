"""The metrics of many launches at once, as columns.

A metric entry is ``6a <size>``, then ``08 <name id> [12 <size> <value>] [1a <size> <instance>]* [20
<flag>]``; a value is one field: text (1), float (2), double (3), uint32 (4) or uint64 (5). An instance is
``[0a <size> <correlation id>] [12 <size> <value>]``. What reads them is compiled (``_native.c``); where that
could not be built, numpy does the same (`instep`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuatlas.ncurep.wire import Content


def _compiled() -> Any:
    """Return the compiled decoder; None where there is none, or none of the source that lies here."""
    try:
        module = import_module("gpuatlas.ncurep._native")
    except ImportError:  # no compiler when it was installed, or another C library in this image
        return None
    source = Path(__file__).with_name("_native.c")
    return module if sha256(source.read_bytes()).hexdigest() == module.SOURCE_SHA256 else None


_native = _compiled()
COMPILED = _native is not None
"""Whether metrics are decoded by the compiled decoder."""

NONE, TEXT, FLOAT, DOUBLE, UINT32, UINT64 = 0, 1, 2, 3, 4, 5
"""Kinds of a stored value; NONE where nothing is stored."""

MOST_METRICS = 100_000
"""Launches have up to a few thousand metrics; one that has more than this is damaged or made to do harm."""
PAD = 32
"""Zero bytes behind the last message of a buffer: looking that far ahead is harmless."""
Ints = npt.NDArray[np.int64]


@dataclass
class Values:
    """Values of one kind of entry, a row an entry."""

    kind: npt.NDArray[np.uint8]
    number: npt.NDArray[np.float64]
    """The value as a double; 0 for NONE and TEXT."""
    integer: npt.NDArray[np.uint64]
    """The exact integer for UINT32 and UINT64; else 0."""
    text: dict[int, str]
    """Row -> text, for TEXT."""


@dataclass
class Metrics:
    """The metrics of a chunk of launches, launch by launch, each in the report's order."""

    launch: Ints
    """Row -> launch within the chunk."""
    counts: Ints
    """Launch -> number of its metrics."""
    name: Ints
    """Row -> name id."""
    values: Values


@dataclass
class Instances:
    """The instances of the metrics of a chunk, in their order."""

    owner: Ints
    """Instance -> row of the metrics."""
    index: Ints
    correlation: Values
    value: Values


@dataclass
class Decoded:
    """What was read of the launches in a buffer."""

    heads: Ints
    """Launch -> where in the buffer its metrics begin."""
    tails: Ints
    """Launch -> where they end."""
    metrics: Metrics
    instance_count: int
    instances: Instances | None
    """None unless asked for."""


def decode_metrics(
    raw: bytearray, starts: Sequence[int], ends: Sequence[int], names: int, *, instances: bool
) -> Decoded:
    """Decode the metrics of launches.

    Parameters
    ----------
    raw
        The launches' messages, a zero byte after each and `PAD` of them after the last.
    starts, ends
        Where each launch begins and ends.
    names
        How many name ids there are.
    instances
        Decode the instances too. If not, they are only checked: a damaged length or tag may have made
        instances of what follows it, so they are looked at even where nobody wants their values.

    Raises
    ------
    WireError
        If a launch has no metrics or more than `MOST_METRICS`, or an entry is not exactly of the shape above
        or reaches beyond its launch, or a name id is beyond the string tables.
    """
    start, end = np.array(starts, np.int64), np.array(ends, np.int64)
    if _native is None:
        from gpuatlas.ncurep import instep

        return instep.decode(raw, start, end, names, instances=instances)
    extents, name, value, count, found = _native.decode(raw, start, end, names, MOST_METRICS, instances)
    heads, tails, counts = np.frombuffer(extents, np.int64).reshape(3, -1)
    launch = np.repeat(np.arange(len(counts)), counts)
    metrics = Metrics(launch, counts, np.frombuffer(name, np.int64), _values(*value))
    if found is None:
        return Decoded(heads, tails, metrics, count, None)
    owner, index, correlation, content = found
    return Decoded(
        heads,
        tails,
        metrics,
        count,
        Instances(
            np.frombuffer(owner, np.int64),
            np.frombuffer(index, np.int64),
            _values(*correlation),
            _values(*content),
        ),
    )


def _values(kind: Any, number: Any, integer: Any, text: dict[int, str]) -> Values:
    return Values(
        np.frombuffer(kind, np.uint8),
        np.frombuffer(number, np.float64),
        np.frombuffer(integer, np.uint64),
        text,
    )


def metrics_end(launch: Content) -> int:
    """Return where in a launch's message its metrics end.

    Raises
    ------
    WireError
        If it has no metrics, or an entry reaches beyond it.
    """
    if _native is None:
        from gpuatlas.ncurep import instep

        return instep.metrics_end(launch)
    return int(_native.metrics_end(launch))
