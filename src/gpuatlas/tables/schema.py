"""Every table of the project, as an Arrow schema: the one place that says which columns there are.

Each field carries its meaning as field metadata (``description``), so that a Parquet file explains itself::

    import pyarrow.parquet as pq
    pq.read_schema("metrics.parquet").field("value").metadata[b"description"]

Conventions that hold in every table:

* Durations end in ``_ns``, ``_ms`` or ``_s``; percentages are 0 to 100; sizes are bytes.
* Null means "not there" (not collected, not stored, not applicable), never 0; NaN stays NaN.
* Columns that hold one of a few words, or a name repeated many times, are dictionary-encoded.
* ``architecture`` and ``target`` of the capture tables are hive partition folders and not inside the files.
"""

from collections.abc import Mapping

import pyarrow as pa

SCHEMA_VERSION = 1
"""Raised when a column changes its name, its type or its meaning."""

_WORD = pa.dictionary(pa.int8(), pa.string())
_NAME = pa.dictionary(pa.int32(), pa.string())
_DIMENSIONS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def _field(name: str, kind: pa.DataType, description: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"description": description})


def _dimensions() -> list[pa.Field]:
    return [
        _field(
            name,
            pa.int32(),
            f"{'threads a block' if name.startswith('block') else 'blocks a grid'} in {name[-1]}",
        )
        for name in _DIMENSIONS
    ]


LAUNCHES = pa.schema(
    [
        _field(
            "launch_id",
            pa.int32(),
            "number of the launch in this file, from 0, in report order",
            nullable=False,
        ),
        _field("key", pa.string(), "launch configuration: 16 hex digits of (normalised name, grid, block)"),
        _field("report", pa.int16(), "which of the converted reports, from 0, the launch comes from"),
        _field("function", pa.string(), "base name of the kernel, without template arguments"),
        _field(
            "demangled", pa.string(), "demangled name as Nsight Compute spells it; the function name if none"
        ),
        _field("mangled", pa.string(), "mangled name"),
        *_dimensions(),
        _field("context_id", pa.int64(), "CUDA context"),
        _field("stream_id", pa.int64(), "CUDA stream"),
        _field("device_id", pa.int32(), "CUDA device ordinal"),
        _field(
            "nvtx",
            pa.string(),
            "open NVTX ranges, outermost first: domain:a/b, domains joined by ';'; null if off",
        ),
        _field("sections", pa.list_(pa.string()), "identifiers of the collected sections"),
        _field(
            "started_at", pa.timestamp("ns", tz="UTC"), "wall-clock time of the measurement; null if unknown"
        ),
        _field(
            "duration_ns",
            pa.float64(),
            "GPU time of the launch in ns, at the clock that ncu set; null if unmeasured",
        ),
    ]
)

METRICS = pa.schema(
    [
        _field("launch_id", pa.int32(), "launch of the launches table", nullable=False),
        _field("metric", _NAME, "name of the metric"),
        _field(
            "value", pa.float64(), "number in base units; null if nothing is stored, NaN if NaN is stored"
        ),
        _field("text", pa.string(), "text values; also the exact digits of integers above 2**53"),
        _field(
            "unit",
            _NAME,
            "base unit of value (ns, byte, hz, %, byte/s, inst/cycle …); null if unknown or text",
        ),
    ]
)
"""Sorted by launch_id, then by metric name; at most one row for a launch and metric."""

FOCUS_METRIC = pa.struct(
    [
        pa.field("name", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("severity", pa.string()),
        pa.field("info", pa.string()),
    ]
)

RULES = pa.schema(
    [
        _field("launch_id", pa.int32(), "launch of the launches table", nullable=False),
        _field("section", pa.string(), "section that the rule belongs to"),
        _field("rule", pa.string(), "identifier of the rule"),
        _field("title", pa.string(), "title of the message; null where the rule gives none"),
        _field(
            "message",
            pa.string(),
            "the advice, with Nsight Compute's own markup; null where the rule says nothing",
        ),
        _field("kind", _WORD, "none, ok, optimization, warning or error; null where the rule says nothing"),
        _field(
            "speedup_kind",
            _WORD,
            "what the estimate speaks of: local, global or unknown; null if no estimate",
        ),
        _field("speedup_percent", pa.float64(), "estimated speed-up in percent; null if no estimate"),
        _field("focus_metrics", pa.list_(FOCUS_METRIC), "the metrics that the rule says to watch"),
    ]
)

SESSION = pa.schema(
    [
        _field(
            "key", pa.string(), "what is told, for instance 'ncu_version' or 'device/0/multiprocessor_count'"
        ),
        _field("value", pa.string(), "its value as text"),
    ]
)

INSTANCES = pa.schema(
    [
        _field("launch_id", pa.int32(), "launch of the launches table", nullable=False),
        _field("metric", _NAME, "name of the metric"),
        _field("index", pa.int32(), "position of the instance in the metric"),
        _field(
            "correlation_id",
            pa.uint64(),
            "what the instance belongs to: a SASS address, a time in ns, an index",
        ),
        _field("correlation_text", pa.string(), "the same where it is a text, for instance an opcode"),
        _field("value", pa.float64(), "value of the instance"),
    ]
)

TIMELINE = pa.schema(
    [
        _field("order", pa.int32(), "position of the launch in the step, from 0", nullable=False),
        _field("key", pa.string(), "launch configuration, as in launches"),
        _field("name", pa.string(), "demangled name as the profiler spells it"),
        *_dimensions(),
        _field("start_ns", pa.int64(), "start in ns after the step's first launch"),
        _field("duration_ns", pa.float64(), "GPU time in ns, unprofiled clocks"),
        _field("stream", pa.int32(), "CUDA stream"),
        _field("op", pa.string(), "framework operator that launched it"),
        _field("module", pa.string(), "module of the network; null if unknown"),
        _field("phase", _WORD, "forward, backward, optimizer or other"),
        _field("pass_index", pa.int8(), "accumulated pass of the step, from 0; null outside a pass"),
    ]
)

TIMINGS = pa.schema(
    [
        _field("variant", _WORD, "autotune_off or autotune_on"),
        _field("repeat", pa.int16(), "number of the repeat, from 0"),
        _field("steps", pa.int32(), "optimiser steps timed in the repeat"),
        _field("step_ms", pa.float64(), "time of a step in ms, by device events"),
        _field("data_ms", pa.float64(), "wait for data per step in ms"),
        _field("sm_mhz_before", pa.float64(), "SM clock before the repeat in MHz"),
        _field("sm_mhz_after", pa.float64(), "SM clock after the repeat in MHz"),
        _field("throttle", pa.string(), "reasons for throttling seen during the repeat; empty if none"),
        _field("host_hash", pa.string(), "hash that tells hosts apart without naming them"),
    ]
)

STEPS = pa.schema(
    [
        _field("step", pa.int64(), "optimiser step, from 0"),
        _field("epoch", pa.int32(), "epoch, from 0"),
        _field("loss", pa.float64(), "training loss of the step"),
        _field("step_ms", pa.float64(), "time of the step in ms, by device events"),
        _field("data_ms", pa.float64(), "wait for data in ms"),
        _field("peak_bytes", pa.int64(), "peak of allocated device memory in bytes"),
    ]
)

WEIGHTS = pa.schema(
    [
        _field("architecture", pa.string(), "GPU of the cell"),
        _field("target", pa.string(), "optimisation target of the cell"),
        _field(
            "launch_id", pa.int32(), "the measured launch; null for a configuration that was not measured"
        ),
        _field("key", pa.string(), "launch configuration"),
        _field("class", _WORD, "kernel class"),
        _field("measured", pa.bool_(), "whether the capture measured this configuration"),
        _field("launches", pa.int32(), "how many launches of its configuration in the step it stands for"),
        _field("gpu_time_ns", pa.float64(), "their GPU time in ns; profiled where the step has no timeline"),
        _field(
            "weight",
            pa.float64(),
            "what its counters count in the step's totals, unmeasured configurations of its class included; "
            "null where not measured",
        ),
    ]
)
"""What each measured launch of a whole step stands for: a total is the sum of its counters times `weight`."""

COMPARE = pa.schema(
    [
        _field("architecture", pa.string(), "GPU of the cell"),
        _field("target", pa.string(), "optimisation target of the cell"),
        _field("scope", _WORD, "what the row speaks of: step, class or kernel"),
        _field("name", pa.string(), "which class or kernel; empty for a step"),
        _field("metric", pa.string(), "name in the catalogue of the comparison"),
        _field("value", pa.float64(), "the figure; null with a reason if it is missing"),
        _field("unit", pa.string(), "its unit"),
        _field(
            "coverage", pa.float64(), "share 0 to 1 of the step's GPU time behind the figure; null if unknown"
        ),
        _field("window", pa.string(), "the window it was taken from; null for whole steps"),
        _field("source", _WORD, "measured or reported; null where there is no value"),
        _field("reason", pa.string(), "why value is null"),
    ]
)
"""The shape of every table under results/compare/."""

VERDICTS = pa.schema(
    [
        _field("claim", pa.string(), "identifier of the claim"),
        _field("architecture", pa.string(), "GPU of the cell"),
        _field("target", pa.string(), "optimisation target of the cell"),
        _field("kind", _WORD, "paper_cell, or analogue (its own verdict, never merged)"),
        _field("status", _WORD, "holds, partly, contradicted, not_in_effect or not_measured"),
        _field("measured", pa.float64(), "what was measured"),
        _field("expected", pa.float64(), "what the claim says"),
        _field("tolerance", pa.float64(), "how far the two may lie apart"),
        _field("unit", pa.string(), "unit of measured, expected and tolerance"),
        _field("coverage", pa.float64(), "share 0 to 1 of the step's GPU time behind the measurement"),
        _field("window", pa.string(), "the window it was taken from; null for whole steps"),
        _field("evidence", pa.string(), "what shows that the target was in effect"),
        _field("explanation", pa.string(), "the verdict in a sentence"),
        _field("inputs", pa.list_(pa.string()), "files behind the verdict, as path@sha256"),
    ]
)

TABLES: Mapping[str, pa.Schema] = {
    "launches": LAUNCHES,
    "metrics": METRICS,
    "rules": RULES,
    "session": SESSION,
    "instances": INSTANCES,
    "timeline": TIMELINE,
    "timings": TIMINGS,
    "steps": STEPS,
    "weights": WEIGHTS,
    "compare": COMPARE,
    "verdicts": VERDICTS,
}


def with_metadata(schema: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
    """Return `schema` with file metadata: the schema version and what the caller adds.

    Parameters
    ----------
    schema
        One of this module's schemas.
    metadata
        Further entries, for instance ``source_sha256``. Keys are stored as ``gpuatlas.<key>``.
    """
    entries = {"gpuatlas.schema_version": str(SCHEMA_VERSION)}
    entries.update({f"gpuatlas.{key}": value for key, value in metadata.items()})
    return schema.with_metadata(entries)
