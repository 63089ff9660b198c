"""What was measured on an H200 (whole_head_128 at 128³): each target shows there, and does not pass for another."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gpuatlas.compare.kernels import classify
from gpuatlas.tables import schema
from gpuatlas.workload.evidence import Formats, judge
from gpuatlas.workload.targets import load_target

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "tests" / "data" / "measured" / "h200"
TARGETS = ("baseline", "opt1", "opt2", "opt12", "compile", "compile_bf16")


def observed(name: str):
    evidence = json.loads((MEASURED / name / "evidence.json").read_text())
    formats = Formats(**evidence["formats"]) if evidence["formats"] else None
    return formats, pq.read_table(MEASURED / name / "timeline.parquet")


def in_effect(target: str, measured: str) -> str:
    formats, timeline = observed(measured)
    return judge(load_target(ROOT / "config" / "targets.yaml", target), formats, timeline)["in_effect"]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_is_in_effect_in_its_own_step(target):
    assert in_effect(target, target) == "true"


@pytest.mark.parametrize(
    ("target", "measured"),
    [
        ("opt1", "baseline"),
        ("opt2", "baseline"),
        ("opt12", "opt1"),
        ("opt12", "opt2"),
        ("baseline", "opt1"),
        ("baseline", "opt2"),
        ("opt1", "opt12"),
        ("compile", "opt1"),
        ("compile_bf16", "compile"),
    ],
)
def test_a_target_that_changed_nothing_is_found_out(target, measured):
    assert in_effect(target, measured) == "false"


@pytest.mark.parametrize("target", TARGETS)
def test_the_timeline_holds_both_passes_forward_and_backward(target):
    _, timeline = observed(target)
    assert timeline.schema.equals(schema.TIMELINE, check_metadata=False)
    launches = timeline.to_pylist()
    assert {launch["pass_index"] for launch in launches if launch["phase"] != "optimizer"} >= {0, 1}
    assert {"forward", "backward", "optimizer"} <= {launch["phase"] for launch in launches}
    classes = {classify(launch["name"]) for launch in launches if launch["phase"] == "backward"}
    assert {"conv_dgrad", "conv_wgrad"} <= classes
    assert all(launch["duration_ns"] > 0 for launch in launches)


def test_the_layout_alone_costs_time():
    def median(target: str) -> float:
        rows = pq.read_table(MEASURED / target / "timings.parquet").to_pylist()
        values = sorted(row["step_ms"] for row in rows if row["variant"] == "autotune_off")
        assert len(values) >= 5
        return values[len(values) // 2]

    assert median("opt2") > 1.1 * median("baseline")
    assert median("opt12") > median("opt1")
