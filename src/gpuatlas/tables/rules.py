"""The rules table."""

from collections.abc import Sequence

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
    flat = [result for found in results for result in found]
    focus = [entry for result in flat for entry in result.focus]
    launch = np.repeat(np.arange(len(results)) + first_launch, [len(found) for found in results])
    focus_metrics = pa.StructArray.from_arrays(
        [
            strings([entry.name for entry in focus]),
            optional(pa.float64(), [entry.value for entry in focus]),
            strings([entry.severity for entry in focus]),
            strings([entry.info for entry in focus]),
        ],
        fields=list(schema.FOCUS_METRIC),
    )
    return pa.Table.from_arrays(
        [
            primitives(pa.int32(), launch),
            strings([result.section for result in flat]),
            strings([result.rule for result in flat]),
            strings([result.title for result in flat]),
            strings([result.message for result in flat]),
            words([result.kind for result in flat]),
            words([result.speedup_kind for result in flat]),
            optional(pa.float64(), [result.speedup_percent for result in flat]),
            lists([len(result.focus) for result in flat], focus_metrics),
        ],
        schema=schema.RULES,
    )
