"""A capture in memory: its launches with the columns that the catalogue needs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpuatlas.capture.represent import skips_of
from gpuatlas.compare import catalog
from gpuatlas.compare.kernels import classify
from gpuatlas.compare.study import Cell
from gpuatlas.compare.weights import Weights, read_step, weigh
from gpuatlas.errors import InputRefused
from gpuatlas.names import normalise
from gpuatlas.tables.read import read_columns

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """A rule's estimate for one launch: how much of the launch's time it says could go, in percent."""

    launch: int
    rule: str
    title: str
    kind: str
    percent: float


@dataclass(frozen=True)
class Capture:
    """The launches of one cell, in report order; all arrays have one element a launch.

    Attributes
    ----------
    ids, keys
        Identifier in the tables, and launch configuration.
    kernels
        Normalised demangled names.
    classes
        Kernel classes of the catalogue.
    weight
        What to multiply a launch's counters by for the step's totals; 1 where the capture is no step.
    step
        What the step's timeline says; None where the capture is no step, or holds each of its launches.
    columns
        Metric name to values; NaN where a launch has none, or where Nsight Compute stored NaN.
    present
        Metric name to whether anything, NaN included, is stored.
    rules
        Whether any rule result was collected.
    """

    cell: Cell
    ids: npt.NDArray[np.int32]
    keys: tuple[str, ...]
    kernels: npt.NDArray[np.str_]
    classes: npt.NDArray[np.str_]
    weight: Floats
    columns: dict[str, Floats]
    present: dict[str, Mask]
    rules: bool
    estimates: tuple[Estimate, ...]
    step: Weights | None = None

    @property
    def compute_capability(self) -> str:
        """Compute capability of the device, for instance ``9.0``."""
        return str(self.cell.manifest.get("device", {}).get("compute_capability", ""))

    @property
    def time(self) -> Floats:
        """GPU time in ns that each measured launch stands for: of a step unprofiled, otherwise profiled."""
        return self.columns["gpu_ns"] * self.weight

    @property
    def own_time(self) -> Floats:
        """The same, of launches of its own configuration alone."""
        return self.time if self.step is None else self.step.own.time

    @property
    def own_launches(self) -> Floats:
        """How many launches of its own configuration each measured launch stands for."""
        return self.columns["launches"] * self.weight if self.step is None else self.step.own.launches

    @property
    def whole_time(self) -> float:
        """GPU time in ns of all launches, measured or not."""
        return float(self.time.sum()) if self.step is None else sum(self.step.class_time.values())

    @property
    def represented(self) -> float:
        """Share 0..1 of GPU time in kernel classes of which something was measured."""
        whole = self.whole_time
        return float(np.nansum(self.time)) / whole if whole > 0 else 1.0

    def everything(self) -> Mask:
        """Return the mask that selects every launch."""
        return np.ones(len(self.kernels), dtype=np.bool_)


def table_path(results: Path, table: str, cell: Cell) -> Path:
    """Return where a cell's table lies."""
    folder = results / "tables" / table / f"architecture={cell.architecture}" / f"target={cell.target}"
    return folder / "part.parquet"


def timeline_path(results: Path, cell: Cell) -> Path:
    """Return where a cell's timeline lies."""
    return results / "cells" / cell.name / "timing" / "timeline.parquet"


def _read(results: Path, table: str, cell: Cell, columns: list[str]) -> pa.Table:
    path = table_path(results, table, cell)
    if not path.is_file():
        raise InputRefused(f"{path}: is missing though {cell.name} has a capture; convert its report again")
    return read_columns(path, columns, "delete it and convert again")


def load_capture(results: Path, cell: Cell) -> Capture:
    """Read the tables of a cell that has a capture.

    Parameters
    ----------
    results
        The results folder.
    cell
        A cell with a manifest.

    Raises
    ------
    InputRefused
        If a table is missing, damaged or holds no launch.
    """
    launches = _read(results, "launches", cell, ["launch_id", "key", "demangled", "function", "duration_ns"])
    if launches.num_rows == 0:
        raise InputRefused(
            f"{table_path(results, 'launches', cell)}: holds no launch; capture the cell again"
        )
    ids = launches["launch_id"].to_numpy()
    position = {int(launch): index for index, launch in enumerate(ids)}
    names = [
        str(demangled or function)
        for demangled, function in zip(
            launches["demangled"].to_pylist(), launches["function"].to_pylist(), strict=True
        )
    ]
    duration = pc.cast(launches["duration_ns"], pa.float64()).to_numpy(zero_copy_only=False)
    columns: dict[str, Floats] = {
        "duration_ns": np.asarray(duration, dtype=np.float64),
        "gpu_ns": np.asarray(duration, dtype=np.float64),
        "launches": np.ones(len(ids)),
    }
    timed = np.asarray(pc.is_valid(launches["duration_ns"]).to_numpy(), dtype=np.bool_)
    present: dict[str, Mask] = {
        "duration_ns": timed,
        "gpu_ns": timed,
        "launches": np.ones(len(ids), dtype=np.bool_),
    }
    metrics = _read(results, "metrics", cell, ["launch_id", "metric", "value"])
    rules = _read(
        results, "rules", cell, ["launch_id", "rule", "title", "kind", "speedup_kind", "speedup_percent"]
    )
    for name, table in (("metrics", metrics), ("rules", rules)):
        if _source(table) != _source(launches):
            raise InputRefused(
                f"{table_path(results, name, cell)}: is of another report than the cell's launches; "
                "delete it and convert again"
            )
    _add_metrics(metrics, position, columns, present)
    keys = launches["key"].to_pylist()
    timeline = timeline_path(results, cell)
    launched = (cell.manifest.get("step") or {}).get("launches")
    classes = [classify(name) for name in names]
    weight, weights = np.ones(len(ids)), None
    step = None
    if cell.whole_step:
        step = read_step(keys, timeline, cell.coverage, launched, _skips(cell, len(ids)))
    if step is not None:
        weights = weigh(step, keys, classes)
        weight = weights.weight
        columns["launches"] = _a_weight(weights.launches, weight)
        columns["gpu_ns"] = _a_weight(weights.time, weight)
    return Capture(
        cell=cell,
        ids=ids,
        keys=tuple(keys),
        kernels=np.asarray([normalise(name) for name in names]),
        classes=np.asarray(classes),
        weight=weight,
        columns=columns,
        present=present,
        rules=rules.num_rows > 0,
        estimates=tuple(
            Estimate(
                position[row["launch_id"]],
                row["rule"],
                row["title"] or "",
                row["speedup_kind"],
                float(row["speedup_percent"]),
            )
            for row in rules.to_pylist()
            # What the step never launches can gain it nothing.
            if row["speedup_percent"] is not None and weight[position[row["launch_id"]]] > 0
        ),
        step=weights,
    )


def _a_weight(amounts: Floats, weight: Floats) -> Floats:
    """Return amounts as a counter, which times the weight is the amount."""
    return np.divide(amounts, weight, out=np.zeros(len(weight)), where=weight > 0)


def _skips(cell: Cell, launches: int) -> list[int]:
    """Return how many launches of its configuration were passed over before each measured one."""
    parts = cell.manifest.get("parts") or [{"launches": launches}]
    told = sum(part["launches"] for part in parts)
    if told != launches:
        raise InputRefused(
            f"{cell.name}: cell.json tells of {told} measured launches, but its tables hold {launches}; "
            "describe the cell again"
        )
    return skips_of(parts)


def _source(table: pa.Table) -> bytes | None:
    """Return the digest of the report that a table comes from."""
    digest: bytes | None = (table.schema.metadata or {}).get(b"gpuatlas.source_sha256")
    return digest


def _add_metrics(
    table: pa.Table, position: dict[int, int], columns: dict[str, Floats], present: dict[str, Mask]
) -> None:
    """Spread the long metrics table into one array a metric, for the metrics that the catalogue needs."""
    names = table["metric"].cast(pa.string())
    needed = pc.is_in(names, value_set=pa.array(sorted(catalog.load().columns())))
    keep = pc.and_(needed, pc.is_valid(table["value"]))
    table = table.set_column(table.column_names.index("metric"), "metric", names).filter(keep)
    size = len(position)
    for launch, name, value in zip(
        table["launch_id"].to_pylist(), table["metric"].to_pylist(), table["value"].to_pylist(), strict=True
    ):
        if name not in columns:
            columns[name] = np.full(size, np.nan)
            present[name] = np.zeros(size, dtype=np.bool_)
        columns[name][position[launch]] = value
        present[name][position[launch]] = True
