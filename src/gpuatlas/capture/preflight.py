"""Whether a machine can be profiled: one finding a question, with the reason and what to ask for.

Each check is a function of a `Machine`, so that tests run it on real files and commands of their own.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuatlas.capture.machine import Gpu, Machine
from gpuatlas.capture.ncu import version

DISK_BYTES = 4 * 2**30
"""A part's raw report is up to 0.5 GB, and the program's own temporary files come on top."""
HOST_BYTES = 16 * 2**30
"""The program takes about 8 GB; what the profiler saves goes here where the GPU's memory does not suffice."""
DEVICE_MIB = 24 * 1024
"""A step at 128³ peaks at 19 GiB; the profiler saves what a kernel overwrites beside it."""
CHIPS = {
    "7.0": ("gv100",),
    "7.5": ("tu1",),
    "8.0": ("ga100",),
    "8.6": ("ga10",),
    "8.9": ("ad10",),
    "9.0": ("gh100",),
    "10.0": ("gb100",),
    "12.0": ("gb20",),
}
"""Compute capability to the beginning of its chips' names in ``ncu --list-chips``."""
WHOLE_GB = {"V100": (16, 32), "A100": (40, 80), "H100": (80, 94, 96)}
"""Memory of whole cards: a virtual GPU with less is a fraction."""
THROTTLE = {
    0x8: "hardware slow-down",
    0x20: "software thermal slow-down",
    0x40: "hardware thermal slow-down",
    0x80: "power brake",
}
"""NVML's clock event reasons that mean trouble; power capping (0x4) is normal under load."""
COUNTERS = frozenset({"chip", "vgpu", "mig"})
"""Checks whose refusal means that this GPU's counters cannot be read, however the job is run."""
_HOLDERS = ("nv-hostengine", "dcgm-exporter")


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes
    ----------
    level
        ``ok``, ``warning`` (the capture goes on, the record says so), ``refused`` (it cannot), ``unknown``.
    what, why, ask
        What was found, why it matters, and what to change or to ask the administrators; may be empty.
    """

    check: str
    level: str
    what: str
    why: str = ""
    ask: str = ""


def inspect(machine: Machine, site: Mapping[str, Any] | None = None) -> list[Finding]:
    """Return the findings that need no profiled kernel.

    Parameters
    ----------
    site
        The site file, for its container runtime; None where there is none to check.
    """
    gpu = machine.gpu()
    findings = [
        _gpu(gpu),
        _ncu(machine, gpu),
        _counters(machine),
        _dcgm(machine),
        _temporary(machine),
        _disk(machine),
        _host_memory(machine),
    ]
    if gpu is not None:
        checks: tuple[Callable[[Gpu], Finding], ...] = (_device_memory, _vgpu, _mig, _clocks)
        findings += [check(gpu) for check in checks]
    if site is not None:
        findings.append(_container(machine, site))
    return findings


def refused(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding that forbids a capture."""
    return next((finding for finding in findings if finding.level == "refused"), None)


def _gpu(gpu: Gpu | None) -> Finding:
    if gpu is None:
        return Finding(
            "gpu",
            "refused",
            "nvidia-smi shows no GPU",
            "nothing can be profiled",
            "run in a job that asks for a GPU, with the container's GPU option on",
        )
    return Finding("gpu", "ok", f"{gpu.name}, compute capability {gpu.capability}, driver {gpu.driver}")


def _ncu(machine: Machine, gpu: Gpu | None) -> Finding:
    path = machine.command("ncu")
    found = version(path) if path else None
    if path is None or found is None:
        return Finding(
            "ncu",
            "refused",
            "ncu cannot be run" if path else "there is no ncu on the PATH",
            "it is the profiler that captures",
            "use the image, which holds one, or load the site's CUDA or Nsight Compute module",
        )
    wanted = CHIPS.get(gpu.capability or "") if gpu else None
    chips = (machine.output(["ncu", "--list-chips"]) or "").replace(",", " ").split()
    if wanted and chips and not any(chip.startswith(wanted) for chip in chips):
        return Finding(
            "chip",
            "refused",
            f"ncu {found} does not know the chip of compute capability {gpu.capability if gpu else ''}",
            "it would profile nothing; recent ones have left Volta out",
            "use an image with an ncu that lists the chip (2024 for Volta and Hopper)",
        )
    return Finding("ncu", "ok", f"ncu {found}")


def _counters(machine: Machine) -> Finding:
    only = machine.administrators_only()
    if only is None:
        return Finding(
            "counters",
            "unknown",
            "the driver's parameters cannot be read",
            "whether counters are permitted shows only when a kernel is profiled",
        )
    if only:
        return Finding(
            "counters",
            "warning",
            "the driver keeps performance counters for administrators (RmProfilingAdminOnly: 1)",
            "as an ordinary user, ncu fails with ERR_NVGPUCTRPERM",
            "ask for the nvidia module option NVreg_RestrictProfilingToAdminUsers=0 on these nodes",
        )
    return Finding("counters", "ok", "the driver permits counters to all users")


def _dcgm(machine: Machine) -> Finding:
    holders = sorted(machine.processes() & set(_HOLDERS))
    if holders:
        return Finding(
            "dcgm",
            "warning",
            f"{' and '.join(holders)} is running",
            "where DCGM samples profiling metrics it holds the counters, and ncu finds them busy",
            "ask for dcgmi profile --pause during the job",
        )
    return Finding("dcgm", "ok", "no DCGM process is seen")


def _temporary(machine: Machine) -> Finding:
    try:
        with tempfile.TemporaryDirectory(dir=machine.temporary) as folder:
            script = Path(folder) / "run"
            script.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
            script.chmod(0o700)
            subprocess.run([script], check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(
            "tmpdir",
            "refused",
            f"{machine.temporary}: programs cannot be run from it ({error})",
            "ncu unpacks and loads its libraries there",
            "set GPUATLAS_SCRATCH to a folder that is not mounted noexec",
        )
    return Finding("tmpdir", "ok", f"{machine.temporary} is writable, and programs run from it")


def _disk(machine: Machine) -> Finding:
    free = shutil.disk_usage(machine.temporary).free if machine.temporary.exists() else 0
    what = f"{free / 2**30:.1f} GiB free in {machine.temporary}"
    if free < DISK_BYTES:
        return Finding(
            "disk",
            "refused",
            what,
            f"a part's raw report and temporary files need {DISK_BYTES / 2**30:.0f} GiB",
            "set GPUATLAS_SCRATCH to a larger folder",
        )
    return Finding("disk", "ok", what)


def _host_memory(machine: Machine) -> Finding:
    free = machine.memory_available()
    if free is None:
        return Finding("memory", "unknown", "the free host memory cannot be read")
    what = f"{free / 2**30:.0f} GiB of host memory available"
    if free < HOST_BYTES:
        return Finding(
            "memory",
            "warning",
            what,
            "the profiler may save device memory in host memory, and be killed",
            "ask for more memory in the job",
        )
    return Finding("memory", "ok", what)


def _device_memory(gpu: Gpu) -> Finding:
    if gpu.memory_free_mib is None:
        return Finding("gpu_memory", "unknown", "the free device memory is not told")
    what = f"{gpu.memory_free_mib / 1024:.0f} GiB of device memory free"
    if gpu.memory_free_mib < DEVICE_MIB:
        return Finding(
            "gpu_memory",
            "warning",
            what,
            "a step at 128³ needs 19 GiB, and the profiler saves more beside it",
            "use a larger card, a smaller volume, or find out who else uses this GPU",
        )
    return Finding("gpu_memory", "ok", what)


def _vgpu(gpu: Gpu) -> Finding:
    match = re.search(r"([A-Z]\d+)X?-(?:\d-)?(\d+)[CQ]$", gpu.name)
    if match is None:
        return Finding("vgpu", "ok", "not a virtual GPU")
    card, size = match[1], int(match[2])
    if card in WHOLE_GB and size not in WHOLE_GB[card]:
        return Finding(
            "vgpu",
            "refused",
            f"{gpu.name} is a fraction of a card ({size} GB)",
            "its multiprocessors and caches are shared, so that its counters compare with nothing",
            "use the flavour with the whole card (A100X-40C)",
        )
    return Finding(
        "vgpu",
        "unknown",
        f"{gpu.name} is a virtual GPU of a whole card",
        "counters must be enabled on the hypervisor too, which a guest cannot see or change",
        "if the probe is refused, ask for profiling to be enabled for this virtual GPU type",
    )


def _mig(gpu: Gpu) -> Finding:
    if gpu.mig == "Enabled":
        return Finding(
            "mig",
            "refused",
            "MIG is enabled",
            "units shared with other instances cannot be measured, and an instance is no whole card",
            "ask for a GPU without MIG",
        )
    return Finding("mig", "ok", "MIG is off")


def _clocks(gpu: Gpu) -> Finding:
    what = f"SM clock {gpu.sm_mhz or float('nan'):.0f} of {gpu.sm_max_mhz or float('nan'):.0f} MHz"
    if gpu.throttle is None:
        return Finding("clocks", "unknown", f"{what}; throttling is not told", "throttled durations mislead")
    active = [text for bit, text in THROTTLE.items() if gpu.throttle & bit]
    if active:
        return Finding(
            "clocks",
            "warning",
            f"{what}; {', '.join(active)}",
            "durations are longer and rates lower than the card's own",
            "let the card cool down, or take another node; tell the administrators",
        )
    return Finding("clocks", "ok", f"{what}, not throttled")


def _container(machine: Machine, site: Mapping[str, Any]) -> Finding:
    container = site["container"]
    runtime = container["runtime"]
    if runtime == "none":
        return Finding("container", "ok", "this site runs without containers")
    command = container.get("command") or runtime
    if machine.command(command) is None:
        modules = " ".join(container["modules"])
        return Finding(
            "container",
            "warning" if modules else "refused",
            f"there is no {command} on the PATH",
            "cells run inside the image",
            f"load {modules} in the job first" if modules else f"install {command}, or ask for it",
        )
    if runtime == "docker" and machine.output([command, "info"]) is None:
        return Finding(
            "container",
            "refused",
            "Docker is there, and its daemon does not answer",
            "cells run inside the image",
            "start it (systemctl start docker), or ask to be in the group that may use it",
        )
    return Finding("container", "ok", f"{command} is there")
