"""Units from names; NVIDIA's reader agrees wherever it says anything, but for what is written down here."""

from collections import Counter

import pytest

from gpuatlas.tables.kinds import is_text, number_in
from gpuatlas.tables.units import unit

UNITS = {
    "gpu__time_duration.sum": "ns",
    "gpu__time_duration": "ns",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_read.sum.per_second": "byte/s",
    "dram__bytes.sum.pct_of_peak_sustained_elapsed": "%",
    "dram__cycles_elapsed.avg.per_second": "hz",
    "gpc__cycles_elapsed.max": "cycle",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    "sm__inst_executed.sum": "inst",
    "sm__inst_executed.avg.per_cycle_active": "inst/cycle",
    "smsp__inst_executed.sum.per_second": "inst/s",
    "sm__pipe_tensor_cycles_active.sum": "cycle",
    "sm__cycles_active.avg": "cycle",
    "l1tex__t_sector_hit_rate.pct": "%",
    "lts__t_sectors_op_read.sum": "sector",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "request",
    "l1tex__t_bytes.sum.per_second": "byte/s",
    "launch__grid_size": "",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block_static": "byte/block",
    "launch__occupancy_limit_registers": "block",
    "launch__waves_per_multiprocessor": "",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "",
    "pmsampling:sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed": "%",
    "FBPA.TriageA.dramc__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "device__attribute_max_gpu_frequency_khz": "khz",
    "device__attribute_l2_cache_size": "byte",
    "device__attribute_multiprocessor_count": "",
    "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum.per_second": "op/s",
    "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed": None,
    "made_up": None,
    "": None,
}


@pytest.mark.parametrize("name", UNITS)
def test_unit(name):
    assert unit(name) == UNITS[name]


def test_nvidia_agrees():
    ncu_report = pytest.importorskip("ncu_report", reason="needs gpuatlas[nvidia]")
    from tests.ncurep.report_files import WINDOWS

    action = ncu_report.load_report(str(WINDOWS["opt1"])).range_by_idx(0).action_by_idx(0)
    found: Counter[str] = Counter()
    differ = {}
    for name in action.metric_names():
        theirs = action.metric_by_name(name).unit().rstrip("s").lower()
        ours = unit(name)
        if is_text(name) or not theirs:
            found["they say nothing"] += 1
        elif ours is None:
            found["we say nothing"] += 1
        elif ours == theirs or (ours, theirs) in ACCEPTED:
            found["agree"] += 1
        else:
            differ[name] = (ours, theirs)
    assert found["agree"] > 400
    assert len(differ) <= 0.05 * found["agree"], differ


ACCEPTED = {
    ("byte/s", "byte/"),  # the plural's s taken off
    ("thread inst", "inst"),  # instructions of threads are not instructions of warps
    ("thread inst/cycle", "inst/cycle"),
    ("", "inst"),  # averages of one count per another have no unit
    ("", "cycle"),
    ("", "block"),  # dimensions
    ("", "cluster"),
}


def test_texts():
    assert is_text("launch__kernel_name")
    assert is_text("breakdown:x")
    assert is_text("group:x")
    assert not is_text("launch__grid_size")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12.0),
        ("-1.5", -1.5),
        ("1e3", 1000.0),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("12 GB", None),
        ("x", None),
    ],
)
def test_number_in(text, number):
    assert number_in(text) == number
