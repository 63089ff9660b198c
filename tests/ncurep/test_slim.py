"""Slim and merged reports read as before, in our reader and in NVIDIA's."""

import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ncurep.report_files import CORPUS, ROOT, WINDOWS, unpack
from tests.ncurep.synthetic import Metric, result, write

from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.info import as_dict, info
from gpuatlas.ncurep.report import LAUNCHES_ENTRY, outline
from gpuatlas.ncurep.rewrite import new_header, write_block, write_start
from gpuatlas.ncurep.slim import merge, slim
from gpuatlas.ncurep.wire import fields, write_bytes, write_integer, write_varint
from gpuatlas.tables.convert import convert

SMALL = ROOT / "tests/data/ncurep/small.ncu-repz"
TINY = ROOT / "tests/data/ncurep/tiny.ncu-repz"


def tables(path: Path, folder: Path, instances: bool) -> dict[str, list[dict]]:
    convert([path], folder, instances=instances)
    names = ["launches", "metrics", "rules", *(["instances"] if instances else [])]
    return {name: repr(pq.read_table(folder / f"{name}.parquet").to_pylist()) for name in names}


def nvidia(path: Path) -> list[tuple]:
    """Everything that NVIDIA's reader says of a report's launches, but no instances."""
    ncu_report = pytest.importorskip("ncu_report", reason="needs gpuatlas[nvidia]")
    only = ncu_report.load_report(str(path)).range_by_idx(0)
    found = []
    for number in range(only.num_actions()):
        action = only.action_by_idx(number)
        values = [
            (name, repr(action.metric_by_name(name).value())) for name in sorted(set(action.metric_names()))
        ]
        names = tuple(action.name(base) for base in range(3))
        found.append((names, values, repr(action.rule_results_as_dicts())))
    return found


@pytest.mark.parametrize(
    "path", [SMALL, WINDOWS["opt1"], *CORPUS[:3]], ids=lambda path: path.parent.name + path.stem
)
@pytest.mark.parametrize("suffix", [".ncu-rep", ".ncu-repz"])
def test_slim_reads_as_before(path, suffix, tmp_path):
    if suffix == ".ncu-rep" and path in WINDOWS.values():
        pytest.skip("once is enough for 70 MB")
    out = tmp_path / f"slim{suffix}"
    done = slim(path, out, redact=True)
    assert done.launches == check(path).launches == check(out).launches
    assert outline(out).session.versions[LAUNCHES_ENTRY] == str(done.launches)
    instances = path not in WINDOWS.values()
    assert tables(out, tmp_path / "b", instances) == tables(path, tmp_path / "a", instances)
    plain = tmp_path / "plain.ncu-rep"
    plain.write_bytes(unpack(path))
    assert nvidia(out) == nvidia(plain)


def test_drop_instances(tmp_path):
    out = tmp_path / "slim.ncu-repz"
    slim(SMALL, out, drop_instances=True)
    assert tables(out, tmp_path / "b", False) == tables(SMALL, tmp_path / "a", False)
    assert check(SMALL).instances > 1000
    assert check(out).instances == 0
    assert outline(out).unpacked < outline(SMALL).unpacked
    assert [launch[0] for launch in nvidia(out)] == [launch[0] for launch in nvidia(SMALL)]


def test_slimming_twice_is_slimming_once(tmp_path):
    once, twice = tmp_path / "1.ncu-rep", tmp_path / "2.ncu-rep"
    slim(SMALL, once, redact=True)
    slim(once, twice, redact=True)
    assert once.read_bytes() == twice.read_bytes()


def run(script: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


SLIM = f"{sys.executable} -m gpuatlas.cli slim"


def test_the_report_itself_is_not_overwritten(tmp_path):
    report, link = tmp_path / "r.ncu-rep", tmp_path / "l.ncu-rep"
    report.write_bytes(unpack(SMALL))
    link.symlink_to(report)
    for out in (report, link):
        with pytest.raises(ConfigError, match="name another file"):
            slim(report, out)
    assert report.read_bytes() == unpack(SMALL)


def test_packing_does_not_enlarge_and_says_where_nothing_is_saved(tmp_path):
    slim(SMALL, tmp_path / "plain.ncu-rep")
    packed = tmp_path / "packed.ncu-rep"
    content = (tmp_path / "plain.ncu-rep").read_bytes()
    packed.write_bytes(pa.Codec("zstd", compression_level=22).compress(content, asbytes=True))
    done = slim(packed, tmp_path / "again.ncu-repz")
    assert done.after == done.before
    assert "not smaller than" in run(f"{SLIM} {packed} --out {tmp_path}/again.ncu-repz").stderr
    assert ".ncu-repz is packed" in run(f"{SLIM} {packed} --out {tmp_path}/again.ncu-rep").stderr
    assert not run(f"{SLIM} {tmp_path}/plain.ncu-rep --out {tmp_path}/again.ncu-repz").stderr


def test_a_report_that_is_replaced_meanwhile_is_refused(tmp_path, monkeypatch):
    path, other = tmp_path / "r.ncu-repz", tmp_path / "other.ncu-repz"
    shutil.copy(WINDOWS["opt1"], path)
    shutil.copy(SMALL, other)

    def outline_and_replace(path, **options):
        found = outline(path, **options)
        other.replace(path)
        return found

    monkeypatch.setattr("gpuatlas.ncurep.slim.outline", outline_and_replace)
    with pytest.raises(InputRefused, match="changed while it was read"):
        slim(path, tmp_path / "out.ncu-repz")
    shutil.copy(SMALL, other)
    with pytest.raises(InputRefused, match="changed while it was read"):
        merge([path], tmp_path / "out.ncu-repz")
    assert not (tmp_path / "out.ncu-repz").exists()


def test_a_full_disk_names_the_new_report(tmp_path):
    out = tmp_path / "out/r.ncu-rep"
    done = run(f"ulimit -f 20; exec {SLIM} {SMALL} --out {out}")
    assert done.returncode == 1
    assert f"File too large: {out}\n" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(out.parent.iterdir())


def test_a_cancelled_job_leaves_nothing(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen([*SLIM.split(), str(WINDOWS["opt1"]), "--out", str(out / "r.ncu-repz")])
    while not list(out.glob(".*")):
        assert process.poll() is None, "it ended before it could be ended"
        time.sleep(0.005)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert not list(out.iterdir())


SECRETS = {
    "host": "node-17.cluster.example",
    "user": "/home/ada",
    "process": "/opt/train/bin/python",
    "address": "10.1.2.3",
    "environment": "API_TOKEN=abc123",
    "command line": "ncu --set full",
}


def with_secrets(path: Path) -> None:
    """Add to a report's first session what full reports say of the host, and code to its last block."""
    data = unpack(SMALL)
    header_at = 10
    size = struct.unpack_from("<I", data, header_at)[0]
    header = data[header_at + 4 : header_at + 4 + size]
    secret = {name: text.encode() for name, text in SECRETS.items()}
    session = b"".join(
        [
            write_bytes(3, write_bytes(1, secret["host"]) + write_bytes(2, secret["address"])),
            write_bytes(4, write_bytes(1, secret["host"])),
            write_bytes(9, write_bytes(1, secret["process"]) + write_bytes(3, secret["environment"])),
            write_bytes(10, write_bytes(1, secret["user"])),
            write_bytes(11, secret["command line"]),
        ]
    )
    parts = []
    for field in fields(header):
        raw = header[field.start : field.end]
        if field.number == 3:
            raw = write_bytes(3, header[field.content : field.end] + session)
        parts.append(raw)
    parts.append(write_bytes(6, write_integer(1, 4711) + write_bytes(2, secret["host"])))
    parts.append(write_bytes(11, b"a newer writer's " + secret["host"]))
    header = b"".join(parts)
    code = b"\x7fELF" + bytes(5000)
    tail = write_integer(1, 1) + write_integer(2, 0) + write_bytes(4, b"") + write_integer(5, len(code) + 4)
    block = struct.pack("<I", len(tail)) + tail + struct.pack("<I", len(code)) + code
    path.write_bytes(
        data[:header_at] + struct.pack("<I", len(header)) + header + data[header_at + 4 + size :] + block
    )


def test_redact_leaves_nothing_of_the_host(tmp_path):
    full, kept, redacted = tmp_path / "full.ncu-rep", tmp_path / "kept.ncu-rep", tmp_path / "redacted.ncu-rep"
    with_secrets(full)
    assert outline(full).session.command_line == [SECRETS["command line"]]
    slim(full, kept)
    slim(full, redacted, redact=True)
    for name, text in SECRETS.items():
        assert text.encode() in kept.read_bytes(), name
        assert text.encode() not in redacted.read_bytes(), name
    for path in (kept, redacted):
        assert b"\x7fELF" not in path.read_bytes()
        assert tables(path, tmp_path / path.stem, False) == tables(SMALL, tmp_path / "a", False)
    assert as_dict(info(full))["bytes by part"]["embedded code"] > 5000
    assert as_dict(info(kept))["bytes by part"]["embedded code"] == 0


def test_redact_numbers_threads_and_addresses_anew_and_keeps_no_folder(tmp_path):
    text = "failed\n/home/ada/NVIDIA Nsight Compute/Sections/SpeedOfLight.py:90\nC:\\Users\\ada\\x.py:1"
    text += " at 3 inst/cycle, see @url:L1/TEX:https://docs.nvidia.com/a/b.html@"
    message = write_bytes(1, text.encode()) + write_integer(2, 3)
    rule = write_bytes(1, b"SOL") + write_bytes(3, write_bytes(1, write_bytes(1, message)))
    thread, pointer = 1460086, 94382490797888
    state = write_integer(1, 0) + write_bytes(3, write_bytes(1, b"step"))
    nvtx = write_bytes(2, write_integer(1, thread) + write_bytes(2, state))
    launches = [
        write_integer(1, number)
        + write_integer(3, pointer)
        + write_integer(4, pointer)
        + without_thread(result([Metric(0, 1.5)], rules=write_bytes(19, rule) + write_bytes(21, nvtx)))
        for number in (thread, thread + 1)
    ]
    full, out = tmp_path / "full.ncu-rep", tmp_path / "out.ncu-rep"
    with full.open("wb") as file:
        write_start(file)
        write_block(file, new_header(["a"]), launches)
    slim(full, out, redact=True)
    assert b"ada" not in out.read_bytes()
    for number in (thread, pointer):
        assert write_varint(number) in full.read_bytes()
        assert write_varint(number) not in out.read_bytes()
    chunk = next(decode_report(outline(out)))
    assert [info.nvtx for info in chunk.infos] == ["step", ""]
    kept = "failed\nSpeedOfLight.py:90\nx.py:1 at 3 inst/cycle, see @url:L1/TEX:https://docs.nvidia.com/a/b.html@"
    assert [rules[0].message for rules in chunk.rules] == [kept, kept]


def without_thread(launch: bytes) -> bytes:
    return b"".join(launch[field.start : field.end] for field in fields(launch) if field.number != 1)


@pytest.mark.skipif(not CORPUS, reason="the corpus of other GPUs' reports is not beside this checkout")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem[:12])
def test_redacted_reports_of_many_versions_open_in_nvidias_reader(path, tmp_path):
    plain, out = tmp_path / "plain.ncu-rep", tmp_path / "out.ncu-rep"
    plain.write_bytes(unpack(path))
    slim(plain, out, redact=True)
    assert b"/root/" not in out.read_bytes()
    if "h800" not in path.name:  # whose rules failed, and told so with their paths
        assert nvidia(out) == nvidia(plain)


def test_merge_of_parts_with_other_string_tables(tmp_path):
    parts = [SMALL, TINY, SMALL]
    out = tmp_path / "whole.ncu-repz"
    done = merge(parts, out)
    assert done.launches == check(out).launches == 3 + 2 + 3
    whole = pq.read_table(
        convert([out], tmp_path / "m").converted and tmp_path / "m/metrics.parquet"
    ).to_pylist()
    expected, first = [], 0
    for number, part in enumerate(parts):
        convert([part], tmp_path / str(number))
        for row in pq.read_table(tmp_path / f"{number}/metrics.parquet").to_pylist():
            expected.append(row | {"launch_id": row["launch_id"] + first})
        first += outline(part).launches
    assert repr(whole) == repr(expected)
    assert nvidia(out) == [launch for part in parts for launch in nvidia(part)]


def test_merge_adds_new_names(tmp_path):
    a = write(tmp_path / "a.ncu-rep", ["x", "y"], [[Metric(0, 1.0), Metric(1, 2)]])
    b = write(tmp_path / "b.ncu-rep", ["z", "x"], [[Metric(0, 3.0), Metric(1, 4)]])
    merge([a, b], tmp_path / "m.ncu-rep")
    assert outline(tmp_path / "m.ncu-rep").names == ["x", "y", "z"]
    convert([tmp_path / "m.ncu-rep"], tmp_path / "out")
    rows = pq.read_table(tmp_path / "out/metrics.parquet").to_pylist()
    assert [(row["launch_id"], row["metric"], row["value"]) for row in rows] == [
        (0, "x", 1.0), (0, "y", 2.0), (1, "x", 4.0), (1, "z", 3.0),
    ]  # fmt: skip


def test_nothing_is_written_from_damage(tmp_path):
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(unpack(SMALL)[:-1])
    for call in (lambda out: slim(cut, out), lambda out: merge([SMALL, cut], out)):
        with pytest.raises(InputRefused):
            call(tmp_path / "out" / "r.ncu-rep")
        assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not CORPUS, reason="the corpus of other GPUs' reports is not beside this checkout")
def test_parts_of_different_captures_do_not_merge(tmp_path):
    with pytest.raises(InputRefused, match="merge parts of one capture"):
        merge([SMALL, CORPUS[0]], tmp_path / "m.ncu-rep")
