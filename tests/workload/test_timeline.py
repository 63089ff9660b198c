"""The join of launches with operators, modules and phases, on the trace of a real step."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gpuatlas.errors import GpuatlasError
from gpuatlas.names import launch_key
from gpuatlas.tables import schema
from gpuatlas.workload import build_network
from gpuatlas.workload.apply import apply
from gpuatlas.workload.inputs import step_volumes
from gpuatlas.workload.step import TrainingStep
from gpuatlas.workload.targets import load_target
from gpuatlas.workload.timeline import record, timeline_table

TARGETS = Path(__file__).parents[2] / "config" / "targets.yaml"
LEAVES = (
    "aten::_convolution",
    "aten::convolution_backward",
    "aten::native_group_norm",
    "aten::addcdiv_",
)


@pytest.fixture(scope="module")
def trace():
    """The trace of one real step on the CPU: its operators, threads, ranges and sequence numbers."""
    torch.manual_seed(0)
    device = torch.device("cpu")
    prepared = apply(load_target(TARGETS, "baseline"), build_network("small_64"), device)
    step = TrainingStep(prepared, seed=0)
    volumes = step_volumes(8, 2, device)
    step.run(volumes)
    found = record(step, volumes)
    hooks = [hook for module in prepared.network.modules() for hook in module._forward_hooks]
    assert not hooks, "recording leaves no hooks behind"
    return found


def launched(trace, operators):
    """The trace with a launch call inside each of `operators`, and its kernel a while later, as on a GPU."""
    events = list(trace["traceEvents"])
    origin = min(float(event["ts"]) for event in events if event.get("ph") == "X")
    added = []
    for event in events:
        if event.get("cat") != "cpu_op" or event["name"] not in operators:
            continue
        number = len(added) // 2 + 1
        moment = float(event["ts"]) + 0.001  # before the operators inside it
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": event["tid"]}
        added.append({**call, "ts": moment, "dur": 0.0, "args": {"correlation": number}})
        kernel = {"ph": "X", "cat": "kernel", "name": f"void {event['name'].split('::')[1]}_kernel<float>()"}
        detail = {"correlation": number, "grid": [number, 1, 1], "block": [128, 2, 1], "stream": 7}
        # The device runs behind the host, by more and more.
        added.append({**kernel, "ts": origin + 3 * (moment - origin), "dur": 2.5, "tid": 7, "args": detail})
    return {"traceEvents": events + added}


def test_join_of_a_real_step(trace):
    table = timeline_table(launched(trace, LEAVES))
    assert table.schema.equals(schema.TIMELINE)
    rows = table.to_pylist()
    assert [row["order"] for row in rows] == list(range(len(rows)))
    assert rows[0]["start_ns"] == 0
    assert all(a["start_ns"] <= b["start_ns"] for a, b in pairwise(rows))
    assert {row["duration_ns"] for row in rows} == {2500.0}
    assert {(row["stream"], row["block_x"], row["block_y"]) for row in rows} == {(7, 128, 2)}
    first = rows[0]
    assert first["key"] == launch_key(first["name"], (first["grid_x"], 1, 1), (128, 2, 1))

    phases = [(row["phase"], row["pass_index"]) for row in rows]
    order = [phase for i, phase in enumerate(phases) if i == 0 or phase != phases[i - 1]]
    assert order == [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("optimizer", None)]


def test_operators_and_modules(trace):
    rows = timeline_table(launched(trace, LEAVES)).to_pylist()
    network = build_network("small_64")
    convolutions = [
        name
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Conv3d | torch.nn.Conv1d)
    ]
    norms = [name for name, module in network.named_modules() if isinstance(module, torch.nn.GroupNorm)]

    def modules(operator, phase, number=0):
        return [
            row["module"]
            for row in rows
            if (row["op"], row["phase"], row["pass_index"]) == (operator, phase, number)
        ]

    for number in (0, 1):
        forward = modules("aten::_convolution", "forward", number)
        assert sorted(forward) == sorted(convolutions), "each convolution of a pass, by its module"
        assert sorted(modules("aten::native_group_norm", "forward", number)) == sorted(norms)
        backward = modules("aten::convolution_backward", "backward", number)
        assert len(backward) == len(convolutions)
        ordinary = [name for name in convolutions if not name.endswith(("qkv", "proj_out"))]
        assert sorted(name for name in backward if name in ordinary) == sorted(ordinary)
        # The gradients inside recomputed attention belong to operators of the recomputation.
        assert backward.index("out.2") < backward.index("input_blocks.0.0")
    recomputed = modules("aten::_convolution", "backward")
    assert 0 < len(recomputed) < 10, "attention runs again in the backward pass"
    assert all(module is not None and ".1." in module for module in recomputed), recomputed
    assert {row["op"] for row in rows if row["phase"] == "optimizer"} <= {"aten::addcdiv_"}


def test_copies_are_no_launches(trace):
    ready = launched(trace, LEAVES)
    kernels = timeline_table(ready).num_rows
    ready["traceEvents"].append(
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1.0, "dur": 1.0, "tid": 7, "args": {}}
    )
    assert timeline_table(ready).num_rows == kernels


def event(category, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def kernel(correlation, ts, name="k"):
    return event(
        "kernel", name, ts, 1.0, 9, correlation=correlation, grid=[1, 1, 1], block=[32, 1, 1], stream=7
    )


def test_backward_thread_graph_and_lost_calls():
    trace = {
        "traceEvents": [
            {"ph": "M", "name": "process_name"},
            event("user_annotation", "gpuatlas::forward", 0, 10),
            event("user_annotation", "module::out.2", 1, 4),
            event("cpu_op", "aten::conv3d", 2, 2, **{"Sequence number": 5}),
            event("cuda_runtime", "cudaLaunchKernel", 3, 0.1, correlation=1),
            event("cuda_runtime", "cudaGraphLaunch", 8, 0.1, correlation=2),
            event("user_annotation", "gpuatlas::backward", 10.5, 10),
            # Another thread, as autograd's on a GPU; the phase is told by time.
            event("cpu_op", "autograd::engine::evaluate_function: X", 12, 3, 2, **{"Sequence number": 5}),
            event("cpu_op", "aten::convolution_backward", 12, 2, 2),
            event("cuda_driver", "cuLaunchKernelEx", 13, 0.1, 2, correlation=3),
            event("cuda_runtime", "cudaLaunchKernel", 30, 0.1, correlation=4),
            kernel(3, 40.0),
            kernel(1, 20.0),
            kernel(2, 25.0),
            kernel(2, 26.0),
            kernel(4, 50.0),
            kernel(99, 60.0),
        ]
    }
    rows = timeline_table(trace).to_pylist()
    told = [(row["op"], row["module"], row["phase"], row["pass_index"]) for row in rows]
    assert told == [
        ("aten::conv3d", "out.2", "forward", 0),
        ("cudaGraphLaunch", None, "forward", 0),
        ("cudaGraphLaunch", None, "forward", 0),
        ("aten::convolution_backward", "out.2", "backward", 0),
        ("cudaLaunchKernel", None, "other", None),
        (None, None, "other", None),
    ]
    assert [row["start_ns"] for row in rows] == [0, 5000, 6000, 20000, 30000, 40000]


def test_a_trace_without_kernels_is_an_error(trace):
    with pytest.raises(GpuatlasError, match="saw no kernel launch"):
        timeline_table(trace)
    assert json.dumps(trace)[0] == "{"
