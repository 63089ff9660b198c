"""Every kernel launch of one unprofiled step, with the phase, operator and module that launched it.

torch.profiler records the step through CUPTI; its trace is then joined: a kernel belongs to the host event
that made its launch call, and that call to the operators and ranges open on its thread at that moment.
Phases are told by time, not by thread: autograd launches the backward pass from a thread of its own.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from gpuatlas.errors import GpuatlasError
from gpuatlas.names import launch_key
from gpuatlas.tables import schema
from gpuatlas.workload.clock import synchronize
from gpuatlas.workload.step import PHASE, TrainingStep

PHASES = ("forward", "backward", "optimizer")
MODULE = "module::"
"""Prefix of the ranges that mark the network's modules."""

_AUTOGRAD = "autograd::engine::evaluate_function: "


def record(step: TrainingStep, volumes: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Run one step under torch.profiler and return its trace, as Kineto writes it.

    Parameters
    ----------
    step
        Warmed up, so that no compilation or search for algorithms is recorded.
    volumes
        The pairs of one step, on the device.
    """
    device = step.prepared.device
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities):
            synchronize(device)  # the first use of CUPTI sets it up
    # Inside a compiled network there are no modules, and a hook would break its graph.
    ranges = [] if step.prepared.target.compile != "none" else _mark_modules(step.prepared.network)
    try:
        synchronize(device)
        with torch.profiler.profile(activities=activities) as profiler:
            step.run(volumes)
            synchronize(device)
    finally:
        for remove in ranges:
            remove()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    return trace


def timeline_table(trace: dict[str, Any]) -> pa.Table:
    """Return the launches of a trace as the timeline table, in the order in which they ran.

    Copies and fills by the driver (memcpy, memset) are no kernel launches and are left out, as in Nsight
    Compute.

    Raises
    ------
    GpuatlasError
        The trace holds no kernel, or kernels whose launch calls it lost.
    """
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=_start)
    if not kernels:
        raise GpuatlasError("The profiler saw no kernel launch: no GPU work ran, or CUPTI is not permitted.")
    host = _Host(events)
    first = _start(kernels[0])
    rows = [_row(order, event, host, first) for order, event in enumerate(kernels)]
    return pa.Table.from_pylist(rows, schema=schema.TIMELINE)


def _row(order: int, kernel: dict[str, Any], host: "_Host", first: float) -> dict[str, Any]:
    detail = kernel["args"]
    grid, block = tuple(detail["grid"]), tuple(detail["block"])
    call = host.launch_call(detail.get("correlation"))
    phase, pass_index = host.phase_at(_start(call)) if call else ("other", None)
    sizes = dict(
        zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), grid + block, strict=True)
    )
    return {
        "order": order,
        "key": launch_key(kernel["name"], grid, block),
        "name": kernel["name"],
        **sizes,
        "start_ns": round((_start(kernel) - first) * 1e3),
        "duration_ns": float(kernel["dur"]) * 1e3,
        "stream": int(detail["stream"]),
        "op": host.operator_of(call) if call else None,
        "module": host.module_of(call) if call else None,
        "phase": phase,
        "pass_index": pass_index,
    }


@dataclass(frozen=True)
class _Open:
    """What is open on a thread at a launch call: innermost operator and module, and whose gradient it is."""

    operator: str | None = None
    module: str | None = None
    gradient_of: int | None = None


class _Host:
    """The host's side of a trace: launch calls, and what was open around each of them."""

    def __init__(self, events: Iterable[dict[str, Any]]):
        self._calls: dict[int, dict[str, Any]] = {}
        self._around: dict[int, _Open] = {}
        phases: dict[str, list[tuple[float, float]]] = {name: [] for name in PHASES}
        threads: dict[Any, list[dict[str, Any]]] = {}
        for event in events:
            category, name = event.get("cat"), event["name"]
            if category in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {}):
                self._calls[event["args"]["correlation"]] = event
            elif category == "user_annotation" and name.startswith(PHASE):
                phases[name.removeprefix(PHASE)].append((_start(event), _end(event)))
                continue
            elif category not in ("cpu_op", "user_annotation"):
                continue
            threads.setdefault(event.get("tid"), []).append(event)
        self._phases = {name: sorted(spans) for name, spans in phases.items()}
        self._module_by_sequence: dict[int, str] = {}
        for open_events in threads.values():
            self._walk(open_events)

    def _walk(self, events: list[dict[str, Any]]) -> None:
        """Go through a thread's events in time, keeping the stack of those that are open."""
        stack: list[tuple[float, _Open]] = []
        # Of events that begin together the longer one is outside.
        for event in sorted(events, key=lambda e: (_start(e), -float(e["dur"]))):
            while stack and stack[-1][0] <= _start(event):
                stack.pop()
            around = stack[-1][1] if stack else _Open()
            category, name = event["cat"], event["name"]
            if category in ("cuda_runtime", "cuda_driver"):
                self._around[event["args"]["correlation"]] = around
                continue
            if category == "user_annotation":
                if name.startswith(MODULE):
                    around = replace(around, module=name.removeprefix(MODULE))
            else:
                sequence = event.get("args", {}).get("Sequence number")
                gradient_of = sequence if name.startswith(_AUTOGRAD) else around.gradient_of
                around = _Open(name, around.module, gradient_of)
                if around.module is not None and sequence is not None:
                    # The last operator with a number is the one whose gradient bears it.
                    self._module_by_sequence[sequence] = around.module
            stack.append((_end(event), around))

    def launch_call(self, correlation: int | None) -> dict[str, Any] | None:
        return self._calls.get(correlation) if correlation is not None else None

    def phase_at(self, time: float) -> tuple[str, int | None]:
        """Return the phase that `time` lies in, and which accumulated pass it belongs to."""
        for name, spans in self._phases.items():
            for index, (begin, end) in enumerate(spans):
                if begin <= time <= end:
                    return name, None if name == "optimizer" else index
        return "other", None

    def operator_of(self, call: dict[str, Any]) -> str:
        """Return the innermost operator, or the call itself (a graph's launch) where none is open."""
        around = self._around[call["args"]["correlation"]]
        return (around.operator or str(call["name"])).removeprefix(_AUTOGRAD)

    def module_of(self, call: dict[str, Any]) -> str | None:
        """Return the module whose forward made the call, or whose gradient it computes."""
        around = self._around[call["args"]["correlation"]]
        if around.module is not None or around.gradient_of is None:
            return around.module
        return self._module_by_sequence.get(around.gradient_of)


def _start(event: dict[str, Any]) -> float:
    """Return the start of an event in µs."""
    return float(event["ts"])


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"]) + float(event["dur"])


def _mark_modules(network: nn.Module) -> list[Callable[[], None]]:
    """Open a profiler range around each module's forward; return what removes the hooks.

    Recomputation in the backward pass is not marked: it may end in the middle of a module, and its launches
    are told by the gradient that asked for them.
    """
    spans: list[Any] = []
    handles = []

    def enter(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any) -> None:
            if name == "" or spans:  # the network's own range is open during the forward pass only
                span = torch.profiler.record_function(MODULE + name)
                span.__enter__()  # type: ignore[no-untyped-call]
                spans.append(span)

        return hook

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        if spans:
            spans.pop().__exit__(None, None, None)

    for name, module in network.named_modules():
        handles += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave)]
    return [handle.remove for handle in handles]
