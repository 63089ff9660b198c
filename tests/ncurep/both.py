"""The compiled decoder of metrics and the one in numpy side by side: what one says, the other must say."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuatlas.ncurep import instep, metrics
from gpuatlas.ncurep.metrics import Decoded, Values
from gpuatlas.ncurep.wire import WireError


def of_both(
    compiled: Callable[[], Any], in_numpy: Callable[[], Any], same: Callable[[Any, Any], bool]
) -> Any:
    """Return or raise what the compiled one does, after comparing."""
    try:
        expected = in_numpy()
    except WireError:
        try:
            found = compiled()
        except WireError:
            raise
        raise AssertionError(f"numpy refuses what the compiled decoder takes: {found}") from None
    try:
        found = compiled()
    except WireError as error:
        raise AssertionError(f"the compiled decoder refuses what numpy takes: {error}") from error
    assert same(found, expected), (found, expected)
    return found


def decode_metrics(raw, starts, ends, names, *, instances) -> Decoded:
    start, end = np.array(starts, np.int64), np.array(ends, np.int64)
    return of_both(
        lambda: metrics.decode_metrics(raw, starts, ends, names, instances=instances),
        lambda: instep.decode(raw, start, end, names, instances=instances),
        same_decoded,
    )


def metrics_end(launch) -> int:
    return of_both(
        lambda: metrics.metrics_end(launch),
        lambda: instep.metrics_end(launch),
        lambda one, other: one == other,
    )


def same_decoded(one: Decoded, other: Decoded) -> bool:
    columns = [
        (one.heads, other.heads),
        (one.tails, other.tails),
        (one.metrics.launch, other.metrics.launch),
        (one.metrics.counts, other.metrics.counts),
        (one.metrics.name, other.metrics.name),
    ]
    values = [(one.metrics.values, other.metrics.values)]
    if one.instance_count != other.instance_count or (one.instances is None) != (other.instances is None):
        return False
    if one.instances and other.instances:
        columns += [
            (one.instances.owner, other.instances.owner),
            (one.instances.index, other.instances.index),
        ]
        values += [
            (one.instances.correlation, other.instances.correlation),
            (one.instances.value, other.instances.value),
        ]
    return all(map(same_array, *zip(*columns, strict=True))) and all(
        map(same_values, *zip(*values, strict=True))
    )


def same_array(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()  # NaN by their bits


def same_values(one: Values, other: Values) -> bool:
    return one.text == other.text and all(
        same_array(getattr(one, name), getattr(other, name)) for name in ("kind", "number", "integer")
    )
