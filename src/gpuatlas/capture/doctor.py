"""The whole examination of a machine: what can be read of it, then a probe that profiles a few kernels."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuatlas.capture import ncu
from gpuatlas.capture.machine import Machine
from gpuatlas.capture.preflight import Finding, inspect, refused
from gpuatlas.capture.probe import probe
from gpuatlas.errors import GpuatlasError

PROBE = ncu.Settings(("SpeedOfLight",), (), "kernel", "all", "none")
"""What the examination measures: a section whose metrics need the counters."""


def examine(scratch: Path, site: Mapping[str, Any] | None, *, probing: bool) -> list[Finding]:
    """Return all findings of this machine.

    Parameters
    ----------
    scratch
        The folder that temporary files will go to.
    site
        The site file; None to leave the container runtime out.
    probing
        Whether to profile a few small kernels, unless something forbids it already.
    """
    findings = inspect(Machine(temporary=scratch), site)
    if probing and refused(findings) is None:
        findings.append(_probe(scratch))
    return findings


def _probe(scratch: Path) -> Finding:
    try:
        with ncu.Stop().listening() as stop:
            found = probe(PROBE, scratch, stop, scratch / f"gpuatlas-probe-{os.getuid()}.log")
    except GpuatlasError as error:
        what, _, ask = str(error).partition(": ")
        return Finding(
            "probe", "refused", what, "a capture would fail in the same way, after a longer wait", ask
        )
    return Finding("probe", "ok", f"counters were read from a kernel ({found.passes} passes)")
