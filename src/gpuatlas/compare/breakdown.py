"""Where the GPU time goes: totals of a capture, by kernel class and by kernel."""

from collections.abc import Iterator, Mapping

import numpy as np

from gpuatlas.compare import catalog
from gpuatlas.compare.captures import Capture, Mask
from gpuatlas.compare.kernels import CONVOLUTION
from gpuatlas.compare.rollup import ENOUGH, apply, evaluate
from gpuatlas.compare.rows import Figure, Row, row
from gpuatlas.compare.study import Cell

UNMEASURED = Figure(None, "none of its launches was measured")


def groups(capture: Capture) -> Iterator[tuple[str, Mask]]:
    """Yield the kernel classes that occur in the capture, in the catalogue's order, with their launches."""
    for kernel_class in catalog.load().classes:
        where = capture.classes == kernel_class.name
        if where.any():
            yield kernel_class.name, where


def share(capture: Capture, where: Mask) -> float | None:
    """Return the percentage that launches of these configurations have of the whole GPU time."""
    total = capture.whole_time
    return 100.0 * float(capture.own_time[where].sum()) / total if total > 0 else None


def _class_shares(capture: Capture) -> dict[str, tuple[float | None, float]]:
    """Return each class's percentage of GPU time and of launches, measured or not."""
    if capture.step is not None:
        times: Mapping[str, float] = capture.step.class_time
        launches: Mapping[str, float] = capture.step.class_launches
    else:
        found = dict(groups(capture))
        times = {name: float(capture.time[where].sum()) for name, where in found.items()}
        launches = {name: float(capture.own_launches[where].sum()) for name, where in found.items()}
    time, count = sum(times.values()), sum(launches.values())
    return {
        one.name: (100.0 * times[one.name] / time if time > 0 else None, 100.0 * launches[one.name] / count)
        for one in catalog.load().classes
        if one.name in times
    }


def tensor_time_share(capture: Capture) -> Figure:
    """Return the percentage of convolution and GEMM time spent in launches that did tensor-core operations.

    The tensor pipe's own cycles would not do: Ampere and Hopper run half-precision moves there, so kernels
    without one tensor-core operation show a few percent.
    """
    metric = catalog.load().metrics["tensor_flop"]
    for candidate in metric.candidates:
        names = list(candidate.numerator.names())
        if all(name in capture.present and capture.present[name].all() for name in names):
            used = apply(candidate.numerator, capture) > 0
            heavy = np.isin(capture.classes, (*CONVOLUTION, "gemm"))
            total = float(capture.time[heavy].sum())
            if total <= 0:
                return Figure(None, "undefined: no convolution and no matrix multiplication")
            return Figure(100.0 * float(capture.time[heavy & used].sum()) / total)
    return Figure(None, f"not collected: {metric.candidates[0].numerator.text}")


def summary_rows(capture: Capture) -> Iterator[Row]:
    """Yield every metric of the catalogue over the whole capture."""
    cell = capture.cell
    # Of these the timeline tells for every launch, also of classes of which none was measured.
    known, unknown = {}, 1 - capture.represented
    if capture.step is not None:
        known = {"gpu_time": capture.whole_time, "launches": float(sum(capture.step.class_launches.values()))}
    for metric in catalog.load().metrics.values():
        if metric.name in known:
            figure = Figure(known[metric.name])
        elif unknown > 1 - ENOUGH and metric.candidates and metric.candidates[0].denominator is None:
            figure = Figure(None, f"{unknown:.1%} of GPU time is in classes of which nothing was measured")
        else:
            figure = evaluate(metric, capture, capture.everything())
        yield row(cell, cell.scope, "", metric.name, figure)
    yield row(cell, cell.scope, "", "tensor_time_share", tensor_time_share(capture))


def absent_rows(cell: Cell) -> Iterator[Row]:
    """Yield the same metrics of a cell without a profile: null, with the reason."""
    for metric in catalog.load().metrics.values():
        yield row(cell, "step", "", metric.name, Figure(None, cell.absence))
    yield row(cell, "step", "", "tensor_time_share", Figure(None, cell.absence))


def class_rows(capture: Capture) -> Iterator[Row]:
    """Yield the share of GPU time and every metric of the catalogue for each kernel class."""
    metrics = [m for name, m in catalog.load().metrics.items() if not name.startswith("peak_")]
    for name, (of_time, of_launches) in _class_shares(capture).items():
        where = (capture.classes == name) & (capture.own_launches > 0)
        yield row(capture.cell, "class", name, "time_share", Figure(of_time))
        yield row(capture.cell, "class", name, "launch_share", Figure(of_launches))
        for metric in metrics:
            figure = evaluate(metric, capture, where) if where.any() else UNMEASURED
            yield row(capture.cell, "class", name, metric.name, figure)


def kernel_rows(capture: Capture) -> Iterator[Row]:
    """Yield GPU time, its share and the number of launches for each kernel, by GPU time."""
    masks = {name: capture.kernels == name for name in dict.fromkeys(capture.kernels.tolist())}
    ordered = sorted(masks, key=lambda name: -float(capture.own_time[masks[name]].sum()))
    for name in ordered:
        where = masks[name]
        yield row(capture.cell, "kernel", name, "gpu_time", Figure(float(capture.own_time[where].sum())))
        yield row(capture.cell, "kernel", name, "time_share", Figure(share(capture, where)))
        yield row(capture.cell, "kernel", name, "launches", Figure(float(capture.own_launches[where].sum())))
