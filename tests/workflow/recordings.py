"""Synthetic recordings: a recorded window taken for a whole step. Test input, measured nowhere as it stands."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.capture.blocks import read
from tests.capture.conftest import write_timeline
from tests.studies import ROOT, WINDOWS

from gpuatlas.capture.join import join, read_measured
from gpuatlas.capture.messages import CountersRefused
from gpuatlas.capture.ncu import Settings
from gpuatlas.capture.plan import parse_mode
from gpuatlas.capture.program import Job
from gpuatlas.capture.refused import write_refusal
from gpuatlas.capture.result import Request
from gpuatlas.capture.timeline import read_timeline
from gpuatlas.tables.convert import convert

MEASURED = ROOT / "tests" / "data" / "measured" / "h200"
SYNTHETIC = "synthetic test input: a window taken for a whole step"


def add_step(folder: Path, target: str, *, times: int, left_out_ns: float = 0.0) -> None:
    """Write a recording of a step that launches each launch of the window `times` times, and one kernel more.

    Its report is the window's, its step times and evidence those of the target; the further kernel takes
    `left_out_ns` and is not in the report, as one that a budget left out.
    """
    window = WINDOWS / target
    shutil.copytree(window, folder)
    shutil.copytree(MEASURED / target, folder / "timing")
    convert([window / "report.ncu-repz"], folder / "converted")
    durations = pq.read_table(folder / "converted" / "launches.parquet")["duration_ns"].to_pylist()
    shutil.rmtree(folder / "converted")
    timeline = folder / "timing" / "timeline.parquet"
    recording = read(window / "report.ncu-repz")
    write_timeline(timeline, recording, list(range(len(durations))) * times, durations * times)
    if left_out_ns:
        rows = pq.read_table(timeline)
        more = rows.slice(0, 1).to_pylist()[0] | {
            "order": rows.num_rows,
            "key": "0" * 16,
            "name": "left_out_elementwise_kernel",
            "duration_ns": left_out_ns,
        }
        pq.write_table(pa.concat_tables([rows, pa.Table.from_pylist([more], schema=rows.schema)]), timeline)
    covered = join(read_timeline(timeline), read_measured(folder / "report.ncu-repz").keys)
    plan = {
        "schema": 1,
        "mode": "configs",
        "window": None,
        "configs_total": covered.configs_total,
        "configs_measured": covered.configs_measured,
        "launches_total": covered.launches_total,
        "launches_measured": len(durations),
        "gpu_time_ns": covered.gpu_time_ns,
        "coverage_time": covered.coverage_time,
        "coverage_launches": covered.coverage_launches,
        "unmatched_time": 0.0,
        "flags": [SYNTHETIC],
    }
    (folder / "plan.json").write_text(json.dumps(plan))


def add_refused(folder: Path, target: str) -> None:
    """Write the recording of a cell as a capture leaves it where counters are refused."""
    shutil.copytree(MEASURED / target, folder / "timing")
    request = Request(
        job=Job("config/targets.yaml", target, "whole_head_128", 128, 0, "cuda", False, ""),
        timeline=folder / "timing" / "timeline.parquet",
        mode=parse_mode("configs"),
        budget_s=None,
        settings=Settings(("SpeedOfLight",), (), "kernel", "all", "none"),
        state=folder / ".state",
        out=folder,
        scratch=folder,
    )
    reason = "the driver lets administrators alone read performance counters"
    write_refusal(request, folder / "timing", CountersRefused(f"{reason}: ask them", reason))
