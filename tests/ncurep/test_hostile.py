"""What is no whole report is refused with one sentence, quickly, and without reading what must not be read."""

import gzip
import lzma
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.ncurep.report_files import ROOT, unpack
from tests.ncurep.synthetic import Metric, result, write

from gpuatlas.errors import InputRefused
from gpuatlas.ncurep import chunk, instep, source
from gpuatlas.ncurep.blocks import walk
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.info import info
from gpuatlas.ncurep.metrics import MOST_METRICS
from gpuatlas.ncurep.report import Loss, outline
from gpuatlas.ncurep.rewrite import new_header, write_block, write_start
from gpuatlas.ncurep.source import Reader
from gpuatlas.ncurep.wire import write_bytes, write_integer

TINY = unpack(ROOT / "tests/data/ncurep/tiny.ncu-repz")
SMALL = unpack(ROOT / "tests/data/ncurep/small.ncu-repz")


def refused(path: Path) -> str:
    begin = time.perf_counter()
    with pytest.raises(InputRefused) as caught:
        check(path)
    assert time.perf_counter() - begin < 5
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.fixture
def report(tmp_path):
    def write(data: bytes, name: str = "r.ncu-rep") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def test_cut_at_every_byte(report):
    path = report(TINY)
    assert check(path).launches == 2
    for size in range(len(TINY) - 1, -1, -1):
        os.truncate(path, size)
        with pytest.raises(InputRefused):
            check(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"text\n" * 9, "not an Nsight Compute report"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "not an Nsight Compute report"),
        (b"SQLite format 3\0" + bytes(99), "not an Nsight Compute report"),
        (bytes(4096), "not an Nsight Compute report"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not an Nsight Compute report"),
        (b"PK\x03\x04" + bytes(99), "not an Nsight Compute report"),
        (b"NVS\0" + TINY[4:], "not an Nsight Compute report"),
        (b"\0" + TINY, "not an Nsight Compute report"),
        (b"NVR\0", "cut"),
        (TINY[:10], "no launch"),
        (TINY[:8] + b"\x08\x01" + TINY[10:], "version 1"),
        (TINY[:8] + b"\x08\x63" + TINY[10:], "version 99"),
        (TINY[:4] + struct.pack("<I", 0xFFFFFFF0) + TINY[8:], "announced"),
        (TINY + bytes(4), "lacks a required field"),
        (TINY + bytes(100), "lacks a required field"),
        (TINY + b"garbage", "announced"),
        (TINY + TINY, "announced"),
        (b"\xff" * 200_000, "not an Nsight Compute report"),
        (b"NVR\0" + os.urandom(200_000), "announced"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_other_files(report, data, words):
    assert words in refused(report(data))


def test_lengths_that_lie(report):
    block = TINY.index(b"\x08\x00\x10\x01")  # the header of the first result's block
    for length in (0x7FFFFFFF, 0xFFFFFFFF, 1 << 27):
        data = bytearray(TINY)
        data[block - 4 : block] = struct.pack("<I", length)
        refused(report(bytes(data)))
    header = write_integer(1, 0) + write_integer(2, 1) + write_bytes(4, b"")
    for payload in (1 << 62, 1 << 40, 1 << 31, 3, 0):
        head = header + write_integer(5, payload)
        refused(report(TINY[:10] + struct.pack("<I", len(head)) + head + TINY[10:]))
    many = write_integer(1, 0) + write_integer(2, 1 << 40) + write_bytes(4, b"") + write_integer(5, 4)
    refused(report(TINY[:10] + struct.pack("<I", len(many)) + many + bytes(4)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file(report):
    path = report(TINY)
    path.chmod(0)
    assert "Permission denied" in refused(path)


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    fifo = tmp_path / "fifo.ncu-rep"
    os.mkfifo(fifo)
    assert "not a regular file" in refused(fifo)
    assert "not a regular file" in refused(tmp_path)
    assert "not a regular file" in refused(Path("/dev/null"))
    assert "not a regular file" in refused(Path("/dev/zero"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "cannot be read" in refused(loop)
    assert "No such file" in refused(tmp_path / "absent.ncu-rep")
    assert "cannot be read" in refused(tmp_path / "a\0b")


def test_what_the_system_cannot_read(tmp_path, report):
    """Memory at address 0, as for a broken disk: an error in reading, not in opening."""
    path = tmp_path / "broken.ncu-rep"
    path.symlink_to("/proc/self/mem")
    assert "cannot be read (Input/output error)" in refused(path)


def test_launches_that_hold_nothing(report):
    number = 2_000_000
    header = (
        write_integer(1, 0) + write_integer(2, number) + write_bytes(4, b"") + write_integer(5, 4 * number)
    )
    block = struct.pack("<I", len(header)) + header + bytes(4 * number)
    assert "more entries than its payload can hold" in refused(report(lzma.compress(TINY + block, preset=0)))


def test_very_many_damaged_launches(report, monkeypatch):
    """Where damage is borne, a report of nothing but damage is still refused, and its reasons are few."""
    monkeypatch.setattr(chunk, "_MOST_DAMAGED", 20)
    path = report(b"")
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(["a"]), [bytes(30)] * 50)
    loss = Loss()
    with pytest.raises(InputRefused, match="more than 20 launches are damaged"):
        list(chunk.decode_report(outline(path), loss))
    assert len(loss.reasons) == 3


@pytest.mark.parametrize("metrics", [MOST_METRICS, MOST_METRICS + 1])
def test_more_metrics_than_any_launch_has(tmp_path, metrics):
    path = write(tmp_path / "r.ncu-rep", ["a"], [[Metric(0, None, flag=None)] * metrics] * 2)
    if metrics <= MOST_METRICS:
        assert check(path).metrics == 2
    else:
        assert "more metrics than any launch has" in refused(path)


def test_check_holds_no_instances_in_memory(tmp_path):
    """Two million of them in four megabytes."""
    metric = Metric(0, None, flag=None)
    encoded = metric.encoded() + b"\x1a\x00" * 2_000_000
    whole = result([metric, metric])
    entry = write_bytes(13, metric.encoded())
    path = tmp_path / "r.ncu-rep"
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(["a"]), [whole.replace(entry, write_bytes(13, encoded), 1)])
    script = (
        "import sys; from pathlib import Path; from gpuatlas.ncurep.check import check;"
        "from tests.ncurep.report_files import peak_mib;"
        "print(check(Path(sys.argv[1])).instances, peak_mib())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    instances, peak = map(int, done.stdout.split())
    assert instances == 2_000_000
    assert peak < 120  # as a table they would take 100 MB more


def test_told_by_content_not_by_name(report):
    for name in ("a.txt", "b.ncu-repz", "c", "ü x.ncu-rep", "d.nsight-cuprof-report"):
        assert check(report(TINY, name)).launches == 2
    zstd = pa.Codec("zstd").compress(TINY, asbytes=True)
    for name, packed in (("a.ncu-rep", zstd), ("b.gz", gzip.compress(TINY)), ("c.bin", lzma.compress(TINY))):
        path = report(packed, name)
        assert check(path).launches == 2
        assert outline(path).unpacked == len(TINY)


PACKINGS = {
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "gzip": gzip.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_packed_and_damaged(report, packing):
    packed = PACKINGS[packing](TINY)
    assert check(report(packed)).launches == 2
    for size in (len(packed) - 1, len(packed) - 5, len(packed) // 2, 12, 6):
        refused(report(packed[:size]))
    refused(report(packed + b"tail"))
    refused(report(packed + packed))
    refused(report(PACKINGS[packing](TINY[:-1])))
    refused(report(PACKINGS[packing](b"")))
    for place in range(7, len(packed), 211):
        damaged = bytearray(packed)
        damaged[place] ^= 0x10
        try:  # zstd without a checksum may unpack to something else, which is then judged as a report
            check(report(bytes(damaged)))
        except InputRefused:
            continue


@pytest.mark.parametrize("packing", PACKINGS)
def test_bomb(report, packing, monkeypatch):
    """A small packed file that announces a large source of zeros."""
    monkeypatch.setattr(source, "MAX_UNPACKED", 64 << 20)
    monkeypatch.setattr(source, "MAX_AT_ONCE", 8 << 20)
    size = 65 << 20
    header = write_integer(1, 1) + write_integer(2, 0) + write_bytes(4, b"") + write_integer(5, size + 4)
    data = TINY[:10] + struct.pack("<I", len(header)) + header + struct.pack("<I", size) + bytes(size)
    path = report(PACKINGS[packing](data + TINY[10:]))
    assert path.stat().st_size < 1 << 20
    assert "unpacks to more" in refused(path)


def test_a_slim_report_that_lacks_a_launch(tmp_path):
    """Cut between two blocks, nothing is wrong but the number of launches that the session tells."""
    last = TINY.rindex(b"\x08\x00\x10\x01\x22\x00\x28") - 4
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(TINY[:last])
    assert "1 launches of 2" in refused(path)


def test_a_million_names(tmp_path):
    path = tmp_path / "names.ncu-rep"

    def write(count: int) -> None:
        table = b"".join(write_bytes(1, b"name_%d" % number) for number in range(count))
        header = write_integer(1, 0) + write_integer(2, 0) + write_bytes(4, table) + write_integer(5, 0)
        with path.open("wb") as file:
            write_start(file)
            file.write(TINY[10:])
            write_block(file, header, [])

    write(1_000_000)
    assert "more than 100000 metric names" in refused(path)
    script = (
        "import sys; from pathlib import Path\n"
        "from gpuatlas.ncurep.report import outline; from tests.ncurep.report_files import peak_mib\n"
        "try: outline(Path(sys.argv[1]))\n"
        "except Exception: print(peak_mib())"
    )
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300
    write(90_000)
    assert check(path).launches == 2


def replaced(old: bytes, new: bytes, *, at: int = 0) -> bytes:
    assert len(old) == len(new)
    place = TINY.index(old, at)
    return TINY[:place] + new + TINY[place + len(old) :]


def test_text_that_is_not_utf8(report):
    assert "not UTF-8" in refused(report(replaced(b"launch__grid_size", b"launch__gr\xffd_size")))
    assert "not UTF-8" in refused(
        report(replaced(b"CatArrayBatchedCopy_vect", b"CatArrayBatchedCo\xfe\xfe_vect"))
    )
    assert "not UTF-8" in refused(report(replaced(b"CachePreferNone", b"CachePreferN\xc0ne")))
    assert "not UTF-8" in refused(report(replaced(b"NVIDIA H200", b"NVIDIA H\x80\x80\x80")))
    assert "not UTF-8" in refused(report(replaced(b"Small Grid", b"Small G\xf5id")))


def test_info_refuses_a_damaged_launch(report):
    with pytest.raises(InputRefused, match="not UTF-8"):
        info(report(replaced(b"CachePreferNone", b"CachePreferN\xc0ne")))


def test_tags_of_another_type(report):
    """Each metric's tags turned into other fields and types: never a launch with a metric less."""
    first = TINY.index(b"\x6a", TINY.index(b"CatArrayBatchedCopy"))
    while TINY[first + 2] != 0x08:
        first = TINY.index(b"\x6a", first + 1)
    for place in (first, first + 2, first + 4, first + 6):
        for bit in range(8):
            data = bytearray(TINY)
            data[place] ^= 1 << bit
            if TINY[place] == 0x28 and data[place] == 0x20:
                continue  # the same number, said to be a uint32
            with pytest.raises(InputRefused):
                check(report(bytes(data)))


def test_tags_of_instances(report):
    """An instance must not get lost either."""
    place = TINY.index(b"\x1a\x09\x0a\x03\x28")
    for bit in range(8):
        data = bytearray(TINY)
        data[place] ^= 1 << bit
        with pytest.raises(InputRefused):
            check(report(bytes(data)))


def decodes(path: Path) -> bool:
    """Whether the report is accepted where nobody wants the instances of its metrics."""
    try:
        return sum(len(found.infos) for found in chunk.decode_report(outline(path))) > 0
    except InputRefused:
        return False


@pytest.mark.parametrize("few", [0, instep._FEW])
@pytest.mark.parametrize("large", [0, chunk._LARGE])
def test_what_follows_an_instances_tag_is_looked_at(tmp_path, monkeypatch, few, large):
    """A flipped length makes instances of the metrics that follow; a flipped tag makes one of the value."""
    monkeypatch.setattr(instep, "_FEW", few)
    monkeypatch.setattr(chunk, "_LARGE", large)
    rows = [Metric(0, 1, [(5, 2.0)]), *(Metric(0, number, flag=None) for number in range(9))]
    path = write(tmp_path / "r.ncu-rep", ["a"], [rows])
    assert decodes(path)
    whole = path.read_bytes()
    length, tag = whole.index(b"\x6a\x19") + 1, whole.index(b"\x12\x02\x28\x07")
    for place, bit in ((length, 32), (tag, 8)):
        data = bytearray(whole)
        data[place] ^= bit
        path.write_bytes(data)
        assert not decodes(path)


def test_what_check_refuses_is_refused_without_instances_too(report):
    chance = random.Random(20261130)
    path = report(SMALL)
    accepted = 0
    with path.open("r+b", buffering=0) as file:
        for place in chance.sample(range(SMALL.index(b"\x6a"), len(SMALL)), 400):
            os.pwrite(file.fileno(), bytes([SMALL[place] ^ 1 << chance.randrange(8)]), place)
            if decodes(path):
                accepted += 1
                check(path)
            os.pwrite(file.fileno(), SMALL[place : place + 1], place)
    assert 0 < accepted < 400


@pytest.mark.parametrize(
    "length", [b"\xff" * 9 + b"\x01", b"\xff" * 8 + b"\x7f", b"\x80" * 9 + b"\x02"], ids=bytes.hex
)
@pytest.mark.parametrize("large", [0, chunk._LARGE])
def test_a_metric_of_an_enormous_length(tmp_path, monkeypatch, length, large):
    monkeypatch.setattr(chunk, "_LARGE", large)
    path = write(tmp_path / "r.ncu-rep", ["a"], [[Metric(0, 1)], [Metric(0, 2)]])
    with Reader(outline(path).source) as reader:
        results = [bytes(data) for block in walk(reader) for data in block.result_entries()]
    metric = results[0].index(b"\x6a\x08\x08")
    results[0] = results[0][: metric + 1] + length + results[0][metric + 2 :]
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(["a"]), results)
    assert not decodes(path)
    loss = Loss()
    assert sum(len(found.infos) for found in chunk.decode_report(outline(path), loss)) == 1
    assert loss.launches == 1


def test_range_replay_is_named(report):
    header = (
        write_integer(1, 0)
        + write_integer(2, 0)
        + write_bytes(4, b"")
        + write_integer(5, 9)
        + write_integer(7, 1)
    )
    block = struct.pack("<I", len(header)) + header + struct.pack("<I", 5) + b"range"
    assert "range or graph replay" in refused(report(TINY + block))
