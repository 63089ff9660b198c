"""The compiled decoder says what the one in numpy says, of whole reports and of damaged ones."""

import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ncurep import both
from tests.ncurep.report_files import CORPUS, ROOT, WINDOWS
from tests.ncurep.synthetic import result
from tests.ncurep.test_decode import METRICS, NAMES

from gpuatlas.ncurep import chunk, instep, metrics
from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.metrics import PAD
from gpuatlas.ncurep.report import outline
from gpuatlas.ncurep.wire import WireError, write_bytes

HEADER = Path(sysconfig.get_path("include")) / "Python.h"
pytestmark = pytest.mark.skipif(
    metrics._native is None and not (shutil.which("cc") and HEADER.is_file()),
    reason="no C compiler or no Python.h: numpy decodes alone here",
)


def test_it_is_built():
    assert metrics._native is not None


@pytest.mark.parametrize("instances", [False, True])
@pytest.mark.parametrize(
    "path", [*WINDOWS.values(), *CORPUS], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_real_reports(path, instances):
    assert chunk.decode_metrics is both.decode_metrics
    assert sum(len(part.infos) for part in decode_report(outline(path, keep=True), instances=instances)) > 0


def grouped(launches: list[bytes]) -> tuple[bytearray, list[int], list[int]]:
    raw, starts, ends = bytearray(), [], []
    for launch in launches:
        starts.append(len(raw))
        raw += launch
        ends.append(len(raw))
        raw.append(0)
    return raw + bytes(PAD), starts, ends


DAMAGE = st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=12))
ODD = [
    b"\x6a\x84\x00\x08\x01\x20\x00\x70\x07",  # a size in more bytes than it needs
    b"\x08\x0b" + write_bytes(13, b"\x08\x00\x12\x0a\x28" + b"\xff" * 8 + b"\x7f"),  # 63 bits
    b"\x08\x0b" + write_bytes(13, b"\x08\x00\x12\x0b\x28" + b"\xff" * 9 + b"\x02"),  # 65 bits
    b"\x08\x0b\x6a" + b"\xff" * 9 + b"\x01",  # a size of nearly 2**64
    b"\x65\x6a\x02\x08\x00",  # a wire type that is no message's before the metrics
    b"\x6a\x02\x08\x00\x6a",  # a tag without a size
    b"\x6a\x09\x08\x00\x12\x05\x15\x01\x00\xa0\x7f",  # a signalling NaN
    b"\x6a\x00",
    b"\x6a",
    b"",
]


def compare(
    launches: list[bytes] | tuple[bytearray, list[int], list[int]], names: int, instances: bool
) -> None:
    raw, starts, ends = grouped(launches) if isinstance(launches, list) else launches
    with suppress(WireError):
        both.decode_metrics(raw, starts, ends, names, instances=instances)
    with suppress(WireError):
        both.metrics_end(bytes(raw[: ends[0]]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("few", [0, instep._FEW])
@pytest.mark.parametrize("launch", ODD, ids=bytes.hex)
def test_odd_launches(monkeypatch, launch, few):
    monkeypatch.setattr(instep, "_FEW", few)
    for instances in (False, True):
        compare([launch], 2, instances)
        compare([b"\x08\x0b" + launch, launch], 2, instances)


@settings(max_examples=800, deadline=None)
@given(
    launches=st.lists(st.lists(METRICS, min_size=1, max_size=6).map(result), min_size=1, max_size=4),
    damages=st.lists(DAMAGE, max_size=3),
    names=st.sampled_from([1, len(NAMES)]),
    instances=st.booleans(),
    few=st.sampled_from([0, 2, instep._FEW]),
)
def test_damaged_launches(launches, damages, names, instances, few):
    raw, starts, ends = grouped(launches)
    for where, content in damages:
        at = int(where * ends[-1])
        for place, byte in enumerate(content, at):
            if place < ends[-1] and place not in ends:
                raw[place] = byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instep, "_FEW", few)
        compare((raw, starts, ends), names, instances)


def test_a_launch_outside_the_buffer():
    for starts, ends in (([0], [99]), ([5], [4]), ([-1], [3])):
        with pytest.raises(IndexError):
            metrics.decode_metrics(bytearray(40), starts, ends, 1, instances=False)


def test_without_it_numpy_decodes(tmp_path):
    """As where there was no compiler: the same tables."""
    script = """
import sys
sys.modules["gpuatlas.ncurep._native"] = None  # importing it fails
from pathlib import Path
from gpuatlas.ncurep import metrics
assert metrics._native is None
from gpuatlas.tables.convert import convert
convert([Path(sys.argv[1])], Path(sys.argv[2]), instances=True)
"""
    report = str(WINDOWS["opt1"])
    subprocess.run([sys.executable, "-c", script, report, str(tmp_path / "numpy")], check=True, cwd=ROOT)
    command = [sys.executable, "-m", "gpuatlas.cli", "convert", report, "--instances"]
    subprocess.run([*command, "--out", str(tmp_path / "compiled")], check=True, cwd=ROOT)
    names = sorted(path.name for path in (tmp_path / "numpy").iterdir())
    assert names == [
        "instances.parquet",
        "launches.parquet",
        "metrics.parquet",
        "rules.parquet",
        "session.parquet",
    ]
    for name in names:
        assert (tmp_path / "numpy" / name).read_bytes() == (tmp_path / "compiled" / name).read_bytes()
