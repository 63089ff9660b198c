"""The rules table."""

from collections.abc import Sequence
from itertools import accumulate

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
    place: dict[int, int] = {}
    distinct: list[RuleResult] = []
    rows: list[int] = []
    for found in results:
        for result in found:
            row = place.setdefault(id(result), len(distinct))
            if row == len(distinct):
                distinct.append(result)
            rows.append(row)
    entries = [entry for result in distinct for entry in result.focus]
    counts = [len(result.focus) for result in distinct]
    first = [0, *accumulate(counts)]
    focus_rows = [entry for row in rows for entry in range(first[row], first[row + 1])]
    values = [entry.value for entry in entries]
    focus = pa.StructArray.from_arrays(
        [
            strings([entry.name for entry in entries], focus_rows),
            optional(pa.float64(), [values[row] for row in focus_rows]),
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
            words([distinct[row].kind for row in rows]),
            words([distinct[row].speedup_kind for row in rows]),
            optional(pa.float64(), [distinct[row].speedup_percent for row in rows]),
            lists([counts[row] for row in rows], focus),
        ],
        schema=schema.RULES,
    )
