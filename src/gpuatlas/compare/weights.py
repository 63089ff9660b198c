"""How often a step launches what was measured once.

A capture of launch configurations measures each configuration once; the step's timeline says how often the
step launches it. A figure over the step is then a sum over measured launches, each times its weight.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gpuatlas.errors import InputRefused


def step_weights(keys: Sequence[str], timeline: Path) -> npt.NDArray[np.float64]:
    """Return the weight of each measured launch of a whole-step capture.

    Parameters
    ----------
    keys
        Launch configuration of each measured launch, shape (launches,).
    timeline
        ``timeline.parquet`` of the cell. Where there is none the capture holds every launch of the step, and
        each counts once.

    Returns
    -------
    ndarray, shape (launches,)
        Launches of the step per measured launch of the same configuration; 0 for what the step has not.

    Raises
    ------
    InputRefused
        If the timeline cannot be read.
    """
    if not timeline.is_file():
        return np.ones(len(keys))
    try:
        launched = Counter(pq.read_table(timeline, columns=["key"])["key"].to_pylist())
    except (pa.ArrowInvalid, OSError) as error:
        raise InputRefused(f"{timeline}: is not a readable timeline; time the cell again") from error
    measured = Counter(keys)
    return np.asarray([launched[key] / measured[key] for key in keys])
