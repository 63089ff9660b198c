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
    # Rules that say the same are one object (`rule_results` caches them), and one row here until the end.
    place: dict[int, int] = {}
    distinct: list[RuleResult] = []
    rows = []
    for found in results:
        for result in found:
            row = place.setdefault(id(result), len(distinct))
            if row == len(distinct):
                distinct.append(result)
            rows.append(row)
    launch = np.repeat(np.arange(len(results)) + first_launch, [len(found) for found in results])
    table = _distinct(distinct).take(primitives(pa.int64(), np.array(rows, np.int64)))
    table = table.add_column(0, schema.RULES.field("launch_id"), primitives(pa.int32(), launch))
    return pa.Table.from_arrays(table.columns, schema=schema.RULES)


def _distinct(results: list[RuleResult]) -> pa.Table:
    focus = [entry for result in results for entry in result.focus]
    focus_metrics = pa.StructArray.from_arrays(
        [
            strings([entry.name for entry in focus]),
            optional(pa.float64(), [entry.value for entry in focus]),
            strings([entry.severity for entry in focus]),
            strings([entry.info for entry in focus]),
        ],
        fields=list(schema.FOCUS_METRIC),
    )
    return pa.table(
        {
            "section": strings([result.section for result in results]),
            "rule": strings([result.rule for result in results]),
            "title": strings([result.title for result in results]),
            "message": strings([result.message for result in results]),
            "kind": words([result.kind for result in results]),
            "speedup_kind": words([result.speedup_kind for result in results]),
            "speedup_percent": optional(pa.float64(), [result.speedup_percent for result in results]),
            "focus_metrics": lists([len(result.focus) for result in results], focus_metrics),
        }
    )
