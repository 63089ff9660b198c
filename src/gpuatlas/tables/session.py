"""The session table: what a report says about the machine and the run that made it."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa

from gpuatlas.ncurep.report import Outline
from gpuatlas.tables import schema
from gpuatlas.tables.arrays import strings

_VERSION_KEYS = {
    "CUDA Version": "cuda_version",
    "Display Driver Version": "driver_version",
    "Nsight Compute Target": "ncu_build",
    "PerfWorks": "perfworks_version",
}


def session_rows(report: Outline, number: int, sha256: str) -> Iterator[tuple[str, str]]:
    """Iterate over the rows of one report; keys of the second report and later begin with ``report/<n>/``."""
    prefix = "" if number == 0 else f"report/{number}/"
    info = report.session
    yield f"{prefix}source", report.source.name
    yield f"{prefix}source_sha256", sha256
    yield f"{prefix}ncu_version", info.ncu_version
    yield f"{prefix}launches", str(report.launches)
    if info.created is not None:
        yield f"{prefix}created_at", datetime.fromtimestamp(info.created, UTC).isoformat()
    for name, value in info.versions.items():
        yield prefix + _VERSION_KEYS.get(name, f"version/{name}"), value
    if info.command_line:
        yield f"{prefix}command_line", " ".join(info.command_line)
    for device in info.devices:
        yield f"{prefix}device/{device.id}/name", device.name
        for name, attribute in device.attributes.items():
            yield f"{prefix}device/{device.id}/{name.removeprefix('device__attribute_')}", str(attribute)


def session_table(rows: list[tuple[str, str]]) -> pa.Table:
    """Return the session table."""
    return pa.Table.from_arrays(
        [strings([key for key, _ in rows]), strings([value for _, value in rows])], schema=schema.SESSION
    )
