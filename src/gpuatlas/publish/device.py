"""Which GPU a report was measured on, and whether that is the cell's."""

from typing import Any

from gpuatlas.errors import InputRefused
from gpuatlas.ncurep.report import Outline

_PREFIX = "device__attribute_"


def device_of(report: Outline) -> dict[str, Any]:
    """Return name, compute capability and number of multiprocessors of the report's first device.

    What the report does not tell is None.
    """
    attributes = report.session.devices[0].attributes if report.session.devices else {}
    capability = [attributes.get(f"{_PREFIX}compute_capability_{part}") for part in ("major", "minor")]
    return {
        "name": report.session.device_name or None,
        "compute_capability": ".".join(map(str, capability)) if None not in capability else None,
        "sm_count": attributes.get(f"{_PREFIX}multiprocessor_count"),
    }


def require_architecture(
    device: dict[str, Any], architecture: dict[str, Any], cell: str, report: object
) -> None:
    """Refuse a report that was measured on another architecture than its cell's.

    Raises
    ------
    InputRefused
        If the compute capabilities differ.
    """
    if device["compute_capability"] != architecture["compute_capability"]:
        raise InputRefused(
            f"{report}: measured on {device['name']} (compute capability {device['compute_capability']}), "
            f"but cell {cell} is of {architecture['compute_capability']}; put it where it belongs"
        )
