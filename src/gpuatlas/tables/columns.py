"""Arrow tables from a chunk of decoded launches."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuatlas.names import launch_key
from gpuatlas.ncurep.launch import LaunchInfo
from gpuatlas.ncurep.metrics import NONE, TEXT, UINT32, UINT64, Instances, Metrics, Values
from gpuatlas.tables import schema
from gpuatlas.tables.arrays import distinct, optional, primitives, sparse_strings, string_lists, strings
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
        self.names = strings(order)
        self._rank = np.fromiter((rank[name] for name in names), np.int64, len(names))
        self._is_text = text_mask(order)
        units = [unit(name) for name in order]
        known = sorted({text for text in units if text is not None})
        self._units = strings(known)
        place = {text: number for number, text in enumerate(known)}
        self._unit = np.fromiter((-1 if u is None else place[u] for u in units), np.int32, len(units))
        self._durations = [rank[name] for name in DURATIONS if name in rank]
        self._orders: dict[bytes, _Ints] = {}

    def ranks(self, metrics: Metrics) -> _Ints:
        """Return the places of the metrics' names in `names`."""
        return self._rank[metrics.name]

    def rows(self, ranks: _Ints, counts: _Ints) -> _Ints:
        """Return the rows to keep, sorted by launch and name; the last of a launch's equal names counts.

        Launches of one report mostly have the same metrics in the same order, so the order of a launch is
        computed once for each different sequence.
        """
        parts = []
        begin = 0
        for count in counts.tolist():
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
        for row in np.flatnonzero(valid & (metrics.values.integer[rows] > EXACT)).tolist():
            texts[row] = str(metrics.values.integer[rows[row]])
        for row in np.flatnonzero(kind == TEXT).tolist():
            text = metrics.values.text[int(rows[row])]
            found = None if text_name[row] else number_in(text)
            if found is None:
                texts[row] = text
            else:
                number[row], valid[row] = found, True
        units = self._unit[codes]
        return pa.Table.from_arrays(
            [
                primitives(pa.int32(), metrics.launch[rows] + first_launch),
                pa.DictionaryArray.from_arrays(primitives(pa.int32(), codes), self.names),
                primitives(pa.float64(), number, valid),
                sparse_strings(texts, len(rows)),
                pa.DictionaryArray.from_arrays(primitives(pa.int32(), units, units >= 0), self._units),
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
            row: correlation.text[old]
            for row, old in enumerate(chosen.tolist() if correlation.text else ())
            if old in correlation.text
        }
        value, valid = _numbers(instances.value)
        return pa.Table.from_arrays(
            [
                primitives(pa.int32(), metrics.launch[owner] + first_launch),
                pa.DictionaryArray.from_arrays(primitives(pa.int32(), ranks[owner]), self.names),
                primitives(pa.int32(), instances.index[chosen]),
                primitives(pa.uint64(), correlation.integer[chosen], identified[chosen]),
                sparse_strings(texts, len(chosen)),
                primitives(pa.float64(), value[chosen], valid[chosen]),
            ],
            schema=schema.INSTANCES,
        )


def _numbers(values: Values) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return values as doubles and which of them there are; texts that spell numbers count."""
    number, valid = values.number.copy(), (values.kind != NONE) & (values.kind != TEXT)
    for row, text in values.text.items():
        found = number_in(text)
        if found is not None:
            number[row], valid[row] = found, True
    return number, valid


def launches_table(
    infos: Sequence[LaunchInfo], durations: Sequence[float | None], first_launch: int, report: int
) -> pa.Table:
    """Return rows of the launches table."""
    count = len(infos)
    started = [info.started for info in infos]
    configurations, rows = distinct([(info.demangled, info.grid, info.block) for info in infos])
    columns = {
        "launch_id": primitives(pa.int32(), np.arange(first_launch, first_launch + count)),
        "key": strings([launch_key(*configuration) for configuration in configurations], rows),
        "report": primitives(pa.int16(), np.full(count, report)),
        "function": strings([info.function for info in infos]),
        "demangled": strings([info.demangled for info in infos]),
        "mangled": strings([info.mangled for info in infos]),
        "context_id": primitives(pa.int64(), np.array([info.context for info in infos])),
        "stream_id": primitives(pa.int64(), np.array([info.stream for info in infos])),
        "device_id": primitives(pa.int32(), np.array([info.device for info in infos])),
        "nvtx": strings([info.nvtx for info in infos]),
        "sections": string_lists([info.sections for info in infos]),
        "started_at": optional(
            pa.timestamp("ns", tz="UTC"), [s if s is None else s * 10**9 for s in started]
        ),
        "duration_ns": optional(pa.float64(), durations),
    }
    for axis, letter in enumerate("xyz"):
        columns[f"grid_{letter}"] = primitives(pa.int32(), np.array([info.grid[axis] for info in infos]))
        columns[f"block_{letter}"] = primitives(pa.int32(), np.array([info.block[axis] for info in infos]))
    return pa.Table.from_arrays([columns[name] for name in schema.LAUNCHES.names], schema=schema.LAUNCHES)
