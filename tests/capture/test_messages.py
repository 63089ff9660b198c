from pathlib import Path

import pytest

from gpuatlas.capture.messages import diagnose, invocation, lost_metrics, profiled

LOST = (
    "==WARNING== Unable to access the following 3 metrics: ctc__rx_bytes_data_user.sum, "
    "ctc__rx_bytes_data_user.sum.per_second, mcc__cycles_active.avg."
)
MIG = (
    "==WARNING== Unable to access the following 2 metrics: pcie__read_bytes.avg.per_second, pcie__write_bytes.sum. "
    "If profiling on a MIG instance, it is not possible to collect metrics from GPU units that are shared with other "
    "MIG instances."
)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU …",
            "permission",
        ),
        ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure …", "busy"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "library"),
        ("==ERROR== unrecognised option '--no-such-option'. Use --help for further details.", "option"),
        ("==ERROR== The application returned an error code (1).", "application"),
        ("==WARNING== No kernels were profiled.", "empty"),
        ("==ERROR== Invalid kernel identifier ::regex:a:^(1|3)$", "identifier"),
        ("==ERROR== the argument ('::regex:a:^(1|3)$') for option '--kernel-id' is invalid.", "identifier"),
        ('==ERROR== Failed to profile "fill" in process 12', "kernel"),
    ],
)
def test_known_messages(line, code):
    found = diagnose(f"epoch 1\n{line}\n")
    assert found is not None
    assert found.code == code
    assert found.remedy


def test_the_cause_comes_before_what_follows_from_it():
    text = "==ERROR== Profiling failed because a driver resource was unavailable.\n==WARNING== No kernels were profiled.\n"
    found = diagnose(text)
    assert found is not None
    assert found.code == "busy"


def test_what_the_program_prints_is_no_message():
    assert diagnose("torch: out of memory\nNo kernels were profiled\n") is None


def test_lost_metrics():
    assert lost_metrics(LOST) == [
        "ctc__rx_bytes_data_user.sum",
        "ctc__rx_bytes_data_user.sum.per_second",
        "mcc__cycles_active.avg",
    ]
    assert lost_metrics(MIG) == ["pcie__read_bytes.avg.per_second", "pcie__write_bytes.sum"]
    assert lost_metrics("all fine") == []


def test_progress_lines():
    line = '==PROF== Profiling "distribution_elementwise_grid..." - 0: 0%....50%....100% - 37 passes\n'
    assert profiled(line) == ("distribution_elementwise_grid...", 37)
    assert profiled('==PROF== Profiling "f" - 3: 0%....50%....100% - 1 pass') == ("f", 1)
    assert profiled("==PROF== Connected to process 1") is None


RECORDED = Path(__file__).parent.parent / "data" / "capture"


@pytest.mark.parametrize(
    ("name", "code", "launches"),
    [
        ("option", "option", 0),
        ("section", "section", 0),
        ("nothing", "empty", 0),
        ("metric", None, 18),  # an unknown metric is no error: its absence shows in the report alone
        ("skip", None, 5),
        ("configs", None, 6),
        ("name", None, 6),
        ("kernel_id", None, 2),
    ],
)
def test_what_the_real_one_said(name, code, launches):
    text = (RECORDED / f"said_{name}.txt").read_text(encoding="utf-8")
    found = diagnose(text)
    assert (found.code if found else None) == code
    lines = [told for line in text.splitlines() if (told := profiled(line))]
    assert len(lines) == launches
    assert {passes for _, passes in lines} <= {1}
    assert lost_metrics(text) == []


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1:7:reduce_kernel:4", 4),
        ("1:7:_ZN2at6native13reduce_kernelILi512E:13", 13),
        ("12:34:void at::native::fill<4>(int):102", 102),
        ("reduce_kernel", None),
        ("at::native::fill:3", None),
        ("1:7:reduce_kernel:", None),
    ],
)
def test_invocations(name, number):
    assert invocation(name) == number
