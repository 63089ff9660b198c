"""Which GPU a report was measured on, and whether that is the cell's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuatlas.config import read_yaml
from gpuatlas.errors import ConfigError, InputRefused
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


def load_architecture(architectures: Path, cell: str) -> dict[str, Any]:
    """Return the entry of a cell's architecture in ``config/architectures.yaml``.

    Raises
    ------
    ConfigError
        If there is none.
    """
    known, name = read_yaml(architectures), cell.partition("/")[0]
    if name not in known:
        raise ConfigError(f"{architectures}: has no architecture {name!r}; add it or correct the cell")
    entry: dict[str, Any] = known[name]
    return entry


def require_architecture(
    device: Mapping[str, Any], architecture: Mapping[str, Any], cell: str, report: object
) -> None:
    """Refuse a report that was measured on another architecture than its cell's.

    Raises
    ------
    InputRefused
        If the compute capabilities differ.
    """
    if device["compute_capability"] != architecture["compute_capability"]:
        raise InputRefused(
            f"{report}: measured on {device['name']} (compute capability "
            f"{device['compute_capability'] or 'unknown'}), but cell {cell} is of "
            f"{architecture['compute_capability']}; put it where it belongs"
        )
