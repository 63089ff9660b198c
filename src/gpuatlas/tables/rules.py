"""The rules table."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from gpuatlas.ncurep.rules import RuleResult
from gpuatlas.tables import schema
from gpuatlas.tables.arrays import lists, optional, primitives, strings, words


def rules_table(results: Sequence[Sequence[RuleResult]], first_launch: int) -> pa.Table:
    """Return rows of the rules table.

    Parameters
    ----------
    results
        A list for each launch of a chunk.
    first_launch
        The id of the chunk's first launch.
    """
    # Rules that say the same are one object (`rule_results` caches them), and their texts are encoded once.
    ids = [id(result) for launch in results for result in launch]
    known = dict(zip(ids, chain.from_iterable(results), strict=True))
    place = {number: row for row, number in enumerate(known)}
    rows = np.fromiter(map(place.__getitem__, ids), np.int64, len(ids))
    distinct = list(known.values())

    entries = [entry for result in distinct for entry in result.focus]
    counts = np.array([len(result.focus) for result in distinct], np.int64)
    sizes = counts[rows]
    # Of each row the places of its entries: from its first one on.
    first = (np.cumsum(counts) - counts)[rows]
    inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    focus_rows = np.repeat(first, sizes) + inner
    focus = pa.StructArray.from_arrays(
        [
            strings([entry.name for entry in entries], focus_rows),
            optional(pa.float64(), [entry.value for entry in entries], focus_rows),
            strings([entry.severity for entry in entries], focus_rows),
            strings([entry.info for entry in entries], focus_rows),
        ],
        fields=list(schema.FOCUS_METRIC),
    )
    launch = np.repeat(np.arange(len(results)) + first_launch, [len(found) for found in results])
    return pa.Table.from_arrays(
        [
            primitives(pa.int32(), launch),
            strings([result.section for result in distinct], rows),
            strings([result.rule for result in distinct], rows),
            strings([result.title for result in distinct], rows),
            strings([result.message for result in distinct], rows),
            words([result.kind for result in distinct], rows),
            words([result.speedup_kind for result in distinct], rows),
            optional(pa.float64(), [result.speedup_percent for result in distinct], rows),
            lists(sizes, focus),
        ],
        schema=schema.RULES,
    )
