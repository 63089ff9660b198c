"""The tables of a capture whose counters were refused: every column, and no launch."""

from collections.abc import Mapping
from pathlib import Path

from gpuatlas import __version__
from gpuatlas.files import sha256
from gpuatlas.tables.session import session_table
from gpuatlas.tables.write import Options, table_files


def write_refused(plan: Path, reason: str, out: Path, *, partition: Mapping[str, str]) -> None:
    """Write the tables where `gpuatlas.tables.convert.convert` would write them.

    Parameters
    ----------
    plan
        The capture's plan.json, the tables' source.
    reason
        Why nothing was measured; ``session`` holds it under ``counters_refused``.
    out, partition
        As for `convert`.

    Raises
    ------
    OSError
        If `out` cannot be written.
    """
    digest = sha256(plan)
    metadata = {"source": plan.name, "source_sha256": digest, "writer": f"gpuatlas {__version__}"}
    rows = [("source", plan.name), ("source_sha256", digest), ("counters_refused", reason)]
    with table_files(out, Options(dict(partition)), lambda: metadata) as files:
        files.add("session", session_table(rows))
