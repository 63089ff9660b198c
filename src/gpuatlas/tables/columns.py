"""Arrow tables from a chunk of decoded launches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuatlas.names import launch_key
from gpuatlas.ncurep.launch import LaunchInfo, RuleResult
from gpuatlas.ncurep.metrics import NONE, TEXT, UINT32, UINT64, Instances, Metrics, Values
from gpuatlas.ncurep.wire import WireError
from gpuatlas.tables import schema
from gpuatlas.tables.kinds import EXACT, number_in, text_mask
from gpuatlas.tables.units import unit

_Ints = npt.NDArray[np.int64]
DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration")
"""Metrics that tell a launch's GPU time in ns, the first found counts (Pascal has no roll-up)."""


class MetricColumns:
    """Turns the metrics of one report into rows of the metrics table.

    Holds what is the same for the whole report: the names in alphabetical order, their units and kinds.
    """

    def __init__(self, names: Sequence[str]) -> None:
        order = sorted(set(names))
        rank = {name: place for place, name in enumerate(order)}
        self.names = pa.array(order, pa.string())
        self._rank = np.fromiter((rank[name] for name in names), np.int64, len(names))
        self._is_text = text_mask(order)
        units = [unit(name) for name in order]
        known = sorted({text for text in units if text is not None})
        self._units = pa.array(known, pa.string())
        place = {text: number for number, text in enumerate(known)}
        self._unit = np.fromiter((-1 if u is None else place[u] for u in units), np.int32, len(units))
        self._durations = [rank[name] for name in DURATIONS if name in rank]
        self._orders: dict[bytes, _Ints] = {}

    def ranks(self, metrics: Metrics) -> _Ints:
        """Return the places of the metrics' names in `names`.

        Raises
        ------
        WireError
            If a name id is beyond the report's string tables.
        """
        if metrics.name.size and not 0 <= metrics.name.max() < len(self._rank):
            raise WireError(f"a metric has the name id {metrics.name.max()} of {len(self._rank)}")
        return self._rank[metrics.name]

    def rows(self, ranks: _Ints, counts: Sequence[int]) -> _Ints:
        """Return the rows to keep, sorted by launch and name; the last of a launch's equal names counts.

        Launches of one report mostly have the same metrics in the same order, so the order of a launch is computed
        once for each different sequence.
        """
        parts = []
        begin = 0
        for count in counts:
            sequence = ranks[begin : begin + count]
            digest = sequence.tobytes()
            order = self._orders.get(digest)
            if order is None:
                order = np.argsort(sequence, kind="stable")
                ordered = sequence[order]
                order = order[np.append(ordered[1:] != ordered[:-1], True)]
                self._orders[digest] = order
            parts.append(order + begin)
            begin += count
        return np.concatenate(parts)

    def table(self, metrics: Metrics, ranks: _Ints, rows: _Ints, first_launch: int) -> pa.Table:
        """Return rows of the metrics table; `first_launch` is the id of the chunk's first launch."""
        codes = ranks[rows]
        text_name = self._is_text[codes]
        kind = metrics.values.kind[rows]
        number = metrics.values.number[rows]
        valid = (kind != NONE) & (kind != TEXT) & ~text_name
        texts: dict[int, str] = {}
        exact = np.flatnonzero(valid & ((kind == UINT64) | (kind == UINT32)) & (number > EXACT))
        for row in exact.tolist():
            texts[row] = str(metrics.values.integer[rows[row]])
        for row in np.flatnonzero(kind == TEXT).tolist():
            text = _utf8(metrics.values.text[int(rows[row])])
            found = None if text_name[row] else number_in(text)
            if found is None:
                texts[row] = text
            else:
                number[row], valid[row] = found, True
        units = self._unit[codes]
        return pa.Table.from_arrays(
            [
                pa.array((metrics.launch[rows] + first_launch).astype(np.int32)),
                pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), self.names),
                _nullable(number, valid),
                _sparse_texts(texts, len(rows)),
                pa.DictionaryArray.from_arrays(pa.array(units, mask=units < 0), self._units),
            ],
            schema=schema.METRICS,
        )

    def durations(self, metrics: Metrics, ranks: _Ints, rows: _Ints, launches: int) -> list[float | None]:
        """Return the GPU time in ns of each of the chunk's launches."""
        found: list[float | None] = [None] * launches
        stored = (metrics.values.kind[rows] != NONE) & (metrics.values.kind[rows] != TEXT)
        for code in reversed(self._durations):
            for row in rows[stored & (ranks[rows] == code)].tolist():
                found[int(metrics.launch[row])] = float(metrics.values.number[row])
        return found

    def instances(
        self, instances: Instances, metrics: Metrics, ranks: _Ints, rows: _Ints, first_launch: int
    ) -> pa.Table:
        """Return rows of the instances table, for the metrics that `rows` keeps, in their order."""
        place = np.full(len(ranks), -1, np.int64)
        place[rows] = np.arange(len(rows))
        chosen = np.flatnonzero(place[instances.owner] >= 0)
        chosen = chosen[np.argsort(place[instances.owner[chosen]], kind="stable")]
        owner = instances.owner[chosen]
        correlation = instances.correlation
        identified = (correlation.kind == UINT64) | (correlation.kind == UINT32)
        texts = {
            row: _utf8(correlation.text[old])
            for row, old in enumerate(chosen.tolist())
            if old in correlation.text
        }
        value, valid = _numbers(instances.value)
        return pa.Table.from_arrays(
            [
                pa.array((metrics.launch[owner] + first_launch).astype(np.int32)),
                pa.DictionaryArray.from_arrays(pa.array(ranks[owner].astype(np.int32)), self.names),
                pa.array(instances.index[chosen].astype(np.int32)),
                pa.array(correlation.integer[chosen], mask=~identified[chosen]),
                _sparse_texts(texts, len(chosen)),
                _nullable(value[chosen], valid[chosen]),
            ],
            schema=schema.INSTANCES,
        )


def _numbers(values: Values) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return values as doubles and which of them there are; texts that spell numbers count."""
    number, valid = values.number.copy(), (values.kind != NONE) & (values.kind != TEXT)
    for row, raw in values.text.items():
        found = number_in(_utf8(raw))
        if found is not None:
            number[row], valid[row] = found, True
    return number, valid


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise WireError("a metric's text is not UTF-8") from error


def _nullable(number: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return doubles with nulls where not `valid`; NaN stays NaN."""
    bitmap = np.packbits(valid, bitorder="little")
    return pa.Array.from_buffers(pa.float64(), len(number), [pa.py_buffer(bitmap), pa.py_buffer(number)])


def _sparse_texts(texts: dict[int, str], count: int) -> pa.Array:
    """Return a column of strings that is null except for some rows."""
    indices = np.full(count, -1, np.int32)
    words: dict[str, int] = {}
    for row, text in texts.items():
        indices[row] = words.setdefault(text, len(words))
    dictionary = pa.array(list(words), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), dictionary).cast(pa.string())


def launches_table(
    infos: Sequence[LaunchInfo], durations: Sequence[float | None], first_launch: int, report: int
) -> pa.Table:
    """Return rows of the launches table."""
    count = len(infos)
    columns: dict[str, Any] = {
        "launch_id": list(range(first_launch, first_launch + count)),
        "key": [launch_key(info.demangled, info.grid, info.block) for info in infos],
        "report": [report] * count,
        "function": [info.function for info in infos],
        "demangled": [info.demangled for info in infos],
        "mangled": [info.mangled for info in infos],
        "context_id": [info.context for info in infos],
        "stream_id": [info.stream for info in infos],
        "device_id": [info.device for info in infos],
        "nvtx": [info.nvtx for info in infos],
        "sections": [info.sections for info in infos],
        "started_at": [None if info.started is None else info.started * 1_000_000_000 for info in infos],
        "duration_ns": list(durations),
    }
    for axis, letter in enumerate("xyz"):
        columns[f"grid_{letter}"] = [info.grid[axis] for info in infos]
        columns[f"block_{letter}"] = [info.block[axis] for info in infos]
    return pa.Table.from_pydict(columns, schema=schema.LAUNCHES)


def rules_table(results: Sequence[Sequence[RuleResult]], first_launch: int) -> pa.Table:
    """Return rows of the rules table; `results` has a list for each launch."""
    flat = [(first_launch + number, result) for number, found in enumerate(results) for result in found]
    columns: dict[str, Any] = {
        "launch_id": [launch for launch, _ in flat],
        "focus_metrics": [
            [{"name": f.name, "value": f.value, "severity": f.severity, "info": f.info} for f in result.focus]
            for _, result in flat
        ],
    }
    for name in ("section", "rule", "title", "message", "kind", "speedup_kind", "speedup_percent"):
        columns[name] = [getattr(result, name) for _, result in flat]
    return pa.Table.from_pydict(columns, schema=schema.RULES)
