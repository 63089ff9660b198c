"""The base unit of a metric, from the grammar of metric names and a short catalogue.

Reports hold no units. Values are always in base units (never scaled), so that the name decides: a hardware
metric is ``<where>__<quantity>.<roll-up>[.<of what>]`` (NVIDIA's public profiling guide), where the quantity
names what is counted and the suffix what it is divided by::

    dram__bytes_read.sum.per_second                         byte/s
    sm__inst_executed.avg.per_cycle_active                  inst/cycle
    sm__warps_active.avg.pct_of_peak_sustained_active       %
    gpc__cycles_elapsed.avg.per_second                      hz

The other metrics (``launch__*``, ``device__attribute_*``, per-source counters) are in the catalogue. A
dimensionless number has the unit ``""``; a name that neither explains has the unit None.
"""

import re
from functools import lru_cache

_CATALOGUE = {
    "launch__registers_per_thread": "register/thread",
    "launch__thread_count": "thread",
    "launch__sm_count": "sm",
    "launch__tpc_count": "tpc",
    "launch__occupancy_limit_barriers": "block",
    "launch__occupancy_limit_blocks": "block",
    "launch__occupancy_limit_registers": "block",
    "launch__occupancy_limit_shared_mem": "block",
    "launch__occupancy_limit_warps": "block",
    "launch__stack_size": "byte",
    "launch__shared_mem_config_size": "byte",
    "launch__persisting_l2_cache_size": "byte",
    "launch__occupancy_cluster_pct": "%",
    "launch__occupancy_cluster_gpu_pct": "%",
    "device__attribute_clock_rate": "khz",
    "device__attribute_memory_clock_rate": "khz",
    "device__attribute_fb_bus_width": "bit",
    "device__attribute_global_memory_bus_width": "bit",
    "device__attribute_l2_cache_size": "byte",
    "device__attribute_ram_type": "",
    "gpu__time_duration": "ns",
    "memory_access_size_type": "bit",
    "memory_access_type": "",
    "memory_type": "",
    "smsp__pcsamp_interval": "",
    "smsp__pcsamp_interval_cycles": "cycle",
    "smsp__pcsamp_buffer_size_bytes": "byte",
    "smsp__maximum_warps_avg_per_active_cycle": "warp",
    "sm__maximum_warps_avg_per_active_cycle": "warp",
}
_PREFIXES = (
    ("launch__shared_mem_per_block", "byte/block"),
    ("launch__occupancy_per_", "warp"),
    ("launch__", ""),
    ("nvlink__", ""),
    ("c2clink__", ""),
    ("numa__", ""),
)
# The first word of a quantity, or of what follows its stage, tells what is counted.
_COUNTED = {
    "bytes": "byte",
    "byte": "byte",
    "sector": "sector",
    "sectors": "sector",
    "cycles": "cycle",
    "cycle": "cycle",
    "inst": "inst",
    "instruction": "inst",
    "instructions": "inst",
    "warp": "warp",
    "warps": "warp",
    "thread": "thread",
    "threads": "thread",
    "ctas": "block",
    "requests": "request",
    "request": "request",
    "wavefronts": "wavefront",
    "ops": "op",
    "tags": "tag",
    "packets": "packet",
    "samples": "sample",
}
_BYTE_ATTRIBUTES = (
    "_bytes",
    "_constant_memory",
    "_global_memory",
    "_memory_per_block",
    "_memory_per_block_optin",
    "_memory_per_multiprocessor",
    "_pitch",
)
_FAMILY = re.compile(r"^(?:pmsampling:|derived__(?=\w+__))?(?:(?:\w+\.)?TriageA\.)?")
_SPLIT = re.compile(r"^(?:[a-z0-9]+__)?(\w+?)(?:\.([\w.]+))?$")
_QUANTITIES = (
    (re.compile(r"time_|^timestamp"), "ns"),
    (re.compile(r"(^|_)(pct|throughput|utilization|efficiency)($|_)|hit_rate"), "%"),
    (re.compile(r"frequency"), "hz"),
    (re.compile(r"^average_"), ""),  # one count per another: latencies, stalls, compression rates
    (re.compile(r"branch_targets"), "branch"),
    (re.compile(r"writeback_active"), "cycle"),
)
"""Quantities that their words tell, tried in this order."""


@lru_cache(maxsize=16384)
def unit(name: str) -> str | None:
    """Return the base unit of a metric.

    Parameters
    ----------
    name
        Its full name, with roll-up and suffix.

    Returns
    -------
    str or None
        For instance ``ns``, ``byte``, ``byte/s``, ``inst/cycle``, ``%``, ``hz``; ``""`` for plain numbers;
        None for texts and for names that are not understood.
    """
    if name.startswith(("breakdown:", "group:")):
        return None
    if name in _CATALOGUE:
        return _CATALOGUE[name]
    if name.startswith("device__attribute_"):
        return _device_attribute(name)
    for prefix, found in _PREFIXES:
        if name.startswith(prefix):
            return found
    match = _SPLIT.match(_FAMILY.sub("", name))
    if not match:
        return None
    quantity, suffix = match.group(1), match.group(2) or ""
    return _suffixed(quantity, suffix.split(".") if suffix else [])


def _device_attribute(name: str) -> str:
    if name.endswith("_khz"):
        return "khz"
    return "byte" if name.endswith(_BYTE_ATTRIBUTES) else ""


def _suffixed(quantity: str, suffix: list[str]) -> str | None:
    if any(part.startswith("pct") for part in suffix):
        return "%"
    base = _base(quantity)
    if base is None or base in ("%", "ns", ""):
        return base
    if suffix[-1:] == ["per_second"]:
        return "hz" if base == "cycle" else f"{base}/s"
    if any(part.startswith("per_cycle") for part in suffix) or suffix[1:] == ["peak_sustained"]:
        return "" if base == "cycle" else f"{base}/cycle"
    return base


@lru_cache(maxsize=16384)
def _base(quantity: str) -> str | None:
    """Return the unit of a quantity without its suffix."""
    for pattern, found in _QUANTITIES:
        if pattern.search(quantity):
            return found
    if "_per_" in quantity:
        above, below = quantity.split("_per_", 1)
        numerator, denominator = _counted(above), _counted(below)
        if numerator and denominator:
            return "" if numerator == denominator else f"{numerator}/{denominator}"
        return None
    if "cycles" in quantity.split("_"):
        return "cycle"
    return _counted(quantity)


def _counted(text: str) -> str | None:
    words = text.split("_")
    if "bytes" in words:
        return "byte"
    if "thread" in words and "inst" in words:
        return "thread inst"
    return next((_COUNTED[word] for word in words if word in _COUNTED), None)
