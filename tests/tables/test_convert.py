"""Reports to Parquet: what is in the files, and that they are whole or absent."""

import gzip
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ncurep.report_files import CORPUS, ROOT, WINDOWS, unpack
from tests.ncurep.synthetic import Metric, result, write

from gpuatlas.errors import ConfigError, GpuatlasError, InputRefused
from gpuatlas.names import launch_key
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.report import Outline, outline
from gpuatlas.ncurep.rewrite import new_header, write_block, write_start
from gpuatlas.ncurep.slim import slim
from gpuatlas.tables import schema
from gpuatlas.tables.convert import convert
from gpuatlas.tables.write import parse_partition, table_path

SMALL = ROOT / "tests/data/ncurep/small.ncu-repz"
TINY = ROOT / "tests/data/ncurep/tiny.ncu-repz"
EXPECTED = {"baseline": (109, 44.786208), "opt1": (105, 1.996512), "opt12": (102, 8.359168)}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    for name, path in WINDOWS.items():
        convert([path], folder, partition={"architecture": "h200", "target": name})
    return folder


def part(folder: Path, table: str, target: str) -> Path:
    return folder / f"{table}/architecture=h200/target={target}/part.parquet"


@pytest.mark.parametrize("target", EXPECTED)
def test_recorded_windows(windows, target):
    count, milliseconds = EXPECTED[target]
    launches = pq.ParquetFile(part(windows, "launches", target)).read()
    assert launches.num_rows == count
    assert sum(launches["duration_ns"].to_pylist()) / 1e6 == pytest.approx(milliseconds, abs=1e-9)
    assert launches["launch_id"].to_pylist() == list(range(count))
    for row in launches.to_pylist():
        grid, block = (tuple(row[f"{part}_{axis}"] for axis in "xyz") for part in ("grid", "block"))
        assert row["key"] == launch_key(row["demangled"], grid, block)


@pytest.mark.parametrize("target", EXPECTED)
def test_tables_are_small(windows, target):
    size = sum(
        part(windows, table, target).stat().st_size for table in ("launches", "metrics", "rules", "session")
    )
    assert size <= 0.015 * len(unpack(WINDOWS[target]))


@pytest.mark.parametrize("target", EXPECTED)
@pytest.mark.parametrize("table", ["launches", "metrics", "rules", "session"])
def test_schema_and_metadata(windows, table, target):
    file = pq.ParquetFile(part(windows, table, target))
    assert file.schema_arrow.remove_metadata() == schema.TABLES[table].remove_metadata()
    metadata = file.schema_arrow.metadata
    assert metadata[b"gpuatlas.schema_version"] == b"1"
    assert metadata[b"gpuatlas.ncu_version"] == b"2025.3.1.0"
    assert metadata[b"gpuatlas.device"] == b"NVIDIA H200"
    assert len(metadata[b"gpuatlas.source_sha256"]) == 64
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_pandas_duckdb_and_polars_read_the_partitions(windows):
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    query = (
        f"SELECT target, sum(value) / 1e6 FROM read_parquet('{windows}/metrics/**/*.parquet', hive_partitioning = true) "
        "WHERE metric = 'gpu__time_duration.sum' GROUP BY target"
    )
    by_duckdb = dict(duckdb.sql(query).fetchall())
    frame = pandas.read_parquet(windows / "metrics")
    frame = frame[frame["metric"] == "gpu__time_duration.sum"]
    by_pandas = (frame.groupby("target", observed=True)["value"].sum() / 1e6).to_dict()
    scan = polars.scan_parquet(windows / "metrics/**/*.parquet", hive_partitioning=True)
    by_polars = dict(
        scan.filter(polars.col("metric") == "gpu__time_duration.sum")
        .group_by("target")
        .agg(polars.col("value").sum() / 1e6)
        .collect()
        .rows()
    )
    for found in (by_duckdb, by_pandas, by_polars):
        assert set(found) == set(EXPECTED)
        for target, (_, milliseconds) in EXPECTED.items():
            assert found[target] == pytest.approx(milliseconds)


def metrics(path: Path, folder: Path) -> list[dict]:
    convert([path], folder)
    return pq.read_table(folder / "metrics.parquet").to_pylist()


def test_null_nan_and_zero_are_three_things(tmp_path):
    names = ["b", "a", "c", "d"]
    path = write(
        tmp_path / "r.ncu-rep", names, [[Metric(0, None), Metric(1, math.nan), Metric(2, 0.0), Metric(3, 0)]]
    )
    rows = {row["metric"]: row for row in metrics(path, tmp_path)}
    assert list(rows) == ["a", "b", "c", "d"]
    assert math.isnan(rows["a"]["value"])
    assert rows["b"]["value"] is None
    assert rows["c"]["value"] == rows["d"]["value"] == 0.0
    table = pq.read_table(tmp_path / "metrics.parquet")
    assert table["value"].null_count == 1
    launches = pq.read_table(tmp_path / "launches.parquet")
    assert launches["duration_ns"].to_pylist() == [None]


def test_the_last_of_a_launches_equal_names_counts(tmp_path):
    names = ["gpu__time_duration.sum", "x"]
    path = write(
        tmp_path / "r.ncu-rep",
        names,
        [[Metric(0, 5.0), Metric(1, 1.0), Metric(0, 6.0)], [Metric(1, 2.0), Metric(1, None), Metric(0, 7.0)]],
    )
    rows = [(row["launch_id"], row["metric"], row["value"]) for row in metrics(path, tmp_path)]
    assert rows == [
        (0, "gpu__time_duration.sum", 6.0), (0, "x", 1.0), (1, "gpu__time_duration.sum", 7.0), (1, "x", None),
    ]  # fmt: skip
    assert pq.read_table(tmp_path / "launches.parquet")["duration_ns"].to_pylist() == [6.0, 7.0]


def test_check_counts_the_metrics_that_are_converted(tmp_path):
    twice = [Metric(0, 1.0), Metric(1, 2.0), Metric(0, 3.0), Metric(2, 4.0)]
    path = write(tmp_path / "r.ncu-rep", ["x", "y", "x"], [twice, twice[:2]])
    assert check(path).metrics == convert([path], tmp_path / "out").converted[0].metrics == 4


def test_a_report_that_is_replaced_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path, other = tmp_path / "r.ncu-rep", tmp_path / "other.ncu-rep"
    path.write_bytes(unpack(TINY))
    other.write_bytes(unpack(TINY).replace(b"launch__grid_size", b"launch__grid_sizf"))

    def outline_and_replace(path: Path, **options: bool) -> Outline:
        found = outline(path, **options)
        other.replace(path)
        return found

    monkeypatch.setattr("gpuatlas.tables.convert.outline", outline_and_replace)
    with pytest.raises(InputRefused, match="changed while it was read"):
        convert([path], tmp_path / "out")
    assert not (tmp_path / "out/launches.parquet").exists()


def test_paths_that_are_not_utf_8(tmp_path):
    folder = tmp_path / os.fsdecode(b"o\xff")
    folder.mkdir()
    report = folder / os.fsdecode(b"r\xfe.ncu-repz")
    report.write_bytes(TINY.read_bytes())
    assert convert([report, report], tmp_path / "out").converted[1].launches == 2
    with pytest.raises(ConfigError, match="not UTF-8"):
        convert([report], folder / "out")
    assert sorted(folder.iterdir()) == [report]
    assert slim(report, folder / "slim.ncu-repz").launches == 2
    assert check(folder / "slim.ncu-repz").launches == 2


def test_a_folder_in_the_place_of_an_earlier_table(tmp_path):
    convert([TINY], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    (tmp_path / "instances.parquet").mkdir()
    with pytest.raises(ConfigError, match=r"instances\.parquet: a folder"):
        convert([SMALL], tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def test_what_was_unpacked_of_a_cut_packed_report_is_kept(tmp_path):
    whole = SMALL.read_bytes()
    cut = tmp_path / "cut.ncu-repz"
    cut.write_bytes(whole[: len(whole) * 9 // 10])
    done = convert([cut], tmp_path / "out", partial=True).converted[0]
    assert (done.launches, done.lost) == (2, 1)


def test_partial_and_check_say_the_same_of_a_cut(tmp_path):
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(unpack(SMALL)[:-100])
    with pytest.raises(InputRefused) as refused:
        check(path)
    (reason,) = convert([path], tmp_path / "out", partial=True).converted[0].notes
    assert str(refused.value) == f"{path}: damaged report, {reason}."


def test_one_name_one_kind(tmp_path):
    """Doubles, integers and numbers in texts of one name become one kind; a text's name holds no number."""
    names = ["launch__grid_size", "launch__kernel_name", "numa__id_cpu", "numa__note"]
    path = write(
        tmp_path / "r.ncu-rep",
        names,
        [
            [Metric(0, 12.0), Metric(1, 0), Metric(2, "3"), Metric(3, "far")],
            [Metric(0, 12), Metric(1, "render"), Metric(2, 3), Metric(3, 2.0)],
        ],
    )
    first, second = [], []
    for row in metrics(path, tmp_path):
        (second if row["launch_id"] else first).append((row["value"], row["text"]))
    assert first == [(12.0, None), (None, None), (3.0, None), (None, "far")]
    assert second == [(12.0, None), (None, "render"), (3.0, None), (2.0, None)]


@pytest.mark.parametrize(
    ("integer", "text"),
    [(2**53, None), (2**53 + 1, "9007199254740993"), (2**64 - 1, "18446744073709551615"), (2**53 - 1, None)],
)
def test_large_integers_keep_their_digits(tmp_path, integer, text):
    path = write(tmp_path / "r.ncu-rep", ["x"], [[Metric(0, integer)]])
    (row,) = metrics(path, tmp_path)
    assert (row["value"], row["text"]) == (float(integer), text)


def test_texts_and_large_integers_side_by_side(tmp_path):
    launch = [Metric(0, "first"), Metric(1, 2**60), Metric(2, "third"), Metric(3, 5)]
    path = write(tmp_path / "r.ncu-rep", ["a", "b", "c", "d"], [launch, launch])
    assert [row["text"] for row in metrics(path, tmp_path)] == ["first", str(2**60), "third", None] * 2


def test_large_doubles_have_no_text(tmp_path):
    (row,) = metrics(write(tmp_path / "r.ncu-rep", ["x"], [[Metric(0, 1e300)]]), tmp_path)
    assert (row["value"], row["text"]) == (1e300, None)


def test_instances(tmp_path):
    instances = [(16, 1.5), ("FFMA", 2), (None, None), (2**64 - 1, math.nan)]
    path = write(
        tmp_path / "r.ncu-rep", ["b", "a"], [[Metric(0, 1.0, instances), Metric(1, 2.0, [(7, 3.0)])]]
    )
    convert([path], tmp_path, instances=True)
    rows = pq.read_table(tmp_path / "instances.parquet").to_pylist()
    assert repr([tuple(row.values()) for row in rows]) == repr(
        [
            (0, "a", 0, 7, None, 3.0),
            (0, "b", 0, 16, None, 1.5),
            (0, "b", 1, None, "FFMA", 2.0),
            (0, "b", 2, None, None, None),
            (0, "b", 3, 2**64 - 1, None, math.nan),
        ]
    )
    convert([path], tmp_path)
    assert not (tmp_path / "instances.parquet").exists()  # it would belong to another conversion


def length_of(data: bytearray, function: bytes) -> int:
    """Where a launch's base name (field 6) tells its length."""
    return data.index(b"\x32" + bytes([len(function)]) + function) + 1


def test_several_reports_are_numbered_in_order_and_one_that_fails_leaves_the_others_whole(tmp_path):
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(unpack(SMALL)[:-5])
    late = tmp_path / "late.ncu-rep"  # its headers are fine, a launch in it is not
    data = bytearray(unpack(SMALL))
    data[length_of(data, b"nchwToNhwcKernel")] ^= 1
    late.write_bytes(data)
    out = tmp_path / "out"
    done = convert([SMALL, cut, late, TINY], out, instances=True, jobs=2)
    assert [report.launches for report in done.converted] == [3, 2]
    assert sorted(str(error).split(":")[0] for error in done.refused) == [str(cut), str(late)]
    launches = pq.read_table(out / "launches.parquet")
    assert launches["report"].to_pylist() == [0, 0, 0, 2, 2]
    identifiers = launches["launch_id"].to_pylist()
    assert identifiers == [0, 1, 2, 6, 7]
    for table in ("metrics", "rules", "instances"):
        assert set(pq.read_table(out / f"{table}.parquet")["launch_id"].to_pylist()) <= set(identifiers)
    convert([TINY], tmp_path / "alone")
    alone = pq.read_table(tmp_path / "alone/metrics.parquet").drop_columns("launch_id")
    joined = pq.read_table(out / "metrics.parquet")
    assert (
        joined.slice(joined.num_rows - alone.num_rows).drop_columns("launch_id").to_pylist()
        == alone.to_pylist()
    )
    assert len(joined.schema.metadata[b"gpuatlas.source_sha256"].split(b",")) == 2
    keys = pq.read_table(out / "session.parquet")["key"].to_pylist()
    assert len(keys) == len(set(keys))
    assert sorted(path.name for path in out.iterdir()) == [
        "instances.parquet", "launches.parquet", "metrics.parquet", "rules.parquet", "session.parquet",
    ]  # fmt: skip


def test_damage_converts_to_nothing_and_leaves_what_was_there(tmp_path):
    out = tmp_path / "out"
    convert([TINY], out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    cut = tmp_path / "cut.ncu-rep"
    for data in (unpack(SMALL)[:-1], unpack(SMALL)[:200_000], b"", unpack(TINY)[:9000]):
        cut.write_bytes(data)
        with pytest.raises(InputRefused):
            convert([cut], out)
        with pytest.raises(InputRefused):
            convert([cut], tmp_path / "fresh")
        with pytest.raises(InputRefused):
            convert([cut, cut], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert not (tmp_path / "fresh").exists()


def test_partial_keeps_the_whole_launches(tmp_path):
    data = unpack(SMALL)
    whole = tmp_path / "whole"
    convert([SMALL], whole)
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(data[:-5])
    done = convert([cut], tmp_path / "out", partial=True)
    assert (done.converted[0].launches, done.converted[0].lost) == (2, 1)
    assert "cut" in done.converted[0].notes[0]
    expected = pq.read_table(whole / "metrics.parquet", filters=[("launch_id", "<", 2)])
    assert pq.read_table(tmp_path / "out/metrics.parquet").to_pylist() == expected.to_pylist()

    cut.write_bytes(data[: data.index(b"CatArrayBatchedCopy")])
    done = convert([cut], tmp_path / "out", partial=True)
    assert (done.converted[0].launches, done.converted[0].lost) == (
        1,
        2,
    )  # a slim report tells how many there were

    middle = bytearray(data)
    middle[length_of(middle, b"CatArrayBatchedCopy_vectorized")] ^= 1
    cut.write_bytes(middle)
    done = convert([cut], tmp_path / "out", partial=True)
    assert (done.converted[0].launches, done.converted[0].lost) == (2, 1)
    names = pq.read_table(tmp_path / "out/launches.parquet")["function"].to_pylist()
    assert names == ["distribution_elementwise_grid_stride_kernel", "nchwToNhwcKernel"]

    cut.write_bytes(data[: data.index(b"distribution_elementwise_grid")])
    with pytest.raises(InputRefused):
        convert([cut], tmp_path / "none", partial=True)
    assert not list(tmp_path.glob("none/*.parquet"))


def test_partial_of_a_whole_report_loses_nothing(tmp_path):
    done = convert([SMALL], tmp_path, partial=True)
    assert (done.converted[0].launches, done.converted[0].lost, done.converted[0].notes) == (3, 0, [])


def test_partial_says_what_it_knows_of_the_loss(tmp_path):
    """Only slim reports tell how many launches they have; of others, more may be lost than is seen."""
    path, names = tmp_path / "r.ncu-rep", ["x"]
    for launches, cut, words in (
        (3, 5, "2 launches, 2 metric values, at least 1 launch lost"),
        (2, 5, "1 launch, 1 metric value, at least 1 launch lost"),
        (2, 0, "2 launches, 2 metric values, 0 launches lost"),
    ):
        write(path, names, [[Metric(0, 1.0)]] * launches)
        path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
        done = gpuatlas("convert", path, "--out", tmp_path / "out", "--partial")
        assert done.stdout == f"{path}: {words}\n"
        assert done.stderr.count(str(path)) == done.stderr.count("\n") == (2 if cut else 1)
    with path.open("ab") as file:
        file.write(b"\x40\0\0\0")
    done = gpuatlas("convert", path, "--out", tmp_path / "out", "--partial")
    assert "2 launches, 2 metric values, an unknown number of launches lost" in done.stdout


def test_every_refused_report_is_named(tmp_path):
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(unpack(TINY)[:-1])
    with pytest.raises(InputRefused) as caught:
        convert([path, tmp_path / "absent"], tmp_path / "out")
    assert f"{path}: damaged report" in str(caught.value)
    assert f"{tmp_path / 'absent'}: cannot be read" in str(caught.value)


def test_where_a_packed_report_is_damaged(tmp_path):
    path, data = tmp_path / "r.ncu-rep", unpack(TINY)
    place = len(data) - 6007  # the last block's payload
    for pack, words in ((bytes, ""), (gzip.compress, " of the unpacked report")):
        path.write_bytes(pack(data[:-1]))
        with pytest.raises(InputRefused) as caught:
            convert([path], tmp_path / "out")
        assert f"at byte {place}{words}: a block's payload is cut" in str(caught.value)
        assert str(caught.value).count(str(path)) == 1


def test_no_rules_and_silent_rules(tmp_path):
    convert([write(tmp_path / "r.ncu-rep", ["x"], [[Metric(0, 1.0)]])], tmp_path)
    assert pq.read_table(tmp_path / "rules.parquet").num_rows == 0  # not collected
    convert([SMALL], tmp_path)
    rows = pq.read_table(tmp_path / "rules.parquet").to_pylist()
    silent = [row for row in rows if row["kind"] is None]
    assert silent
    assert all(row["message"] is None and row["speedup_percent"] is None for row in silent)
    assert any(
        row["speedup_kind"] in ("local", "global") and 0 < row["speedup_percent"] <= 100 for row in rows
    )


@pytest.mark.skipif(not CORPUS, reason="the corpus of other GPUs' reports is not beside this checkout")
def test_one_dataset_of_many_versions_has_one_schema(tmp_path):
    done = convert(CORPUS, tmp_path)
    assert len(done.converted) == len(CORPUS)
    table = pq.read_table(tmp_path / "metrics.parquet")
    assert table.num_rows == sum(report.metrics for report in done.converted)
    assert len(set(pq.read_table(tmp_path / "launches.parquet")["report"].to_pylist())) == len(CORPUS)


def test_partition_words():
    assert parse_partition(["architecture=h200", "target=opt1"]) == {"architecture": "h200", "target": "opt1"}
    assert table_path(Path("o"), "rules", {"a": "1"}) == Path("o/rules/a=1/part.parquet")
    for wrong in (["x"], ["=1"], ["a="], ["a=../b"], ["a=."], ["a=1", "a=2"], ["a=b/c"], ["launch_id=1"]):
        with pytest.raises(ConfigError, match="--partition"):
            parse_partition(wrong)


def gpuatlas(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "gpuatlas.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_commands(tmp_path):
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(unpack(TINY)[:-1])
    done = gpuatlas(
        "convert", TINY, "--out", tmp_path, "--partition", "architecture=h200", "--partition", "target=opt1"
    )
    assert done.returncode == 0, done.stderr
    assert "2 launches" in done.stdout
    assert part(tmp_path, "metrics", "opt1").exists()
    done = gpuatlas("convert", cut, "--out", tmp_path / "none")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
    done = gpuatlas("convert", cut, TINY, "--out", tmp_path / "some")
    assert done.returncode == 3
    assert (tmp_path / "some/metrics.parquet").exists()
    done = gpuatlas("check", TINY, cut, SMALL)
    assert done.returncode == 3
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [str(TINY), str(cut), str(SMALL)]
    assert gpuatlas("check", TINY).returncode == 0
    assert gpuatlas("slim", TINY, "--out", tmp_path / "x.txt").returncode == 2
    assert (
        gpuatlas("slim", TINY, "--out", tmp_path / "x.ncu-repz", "--redact", "--drop-instances").returncode
        == 0
    )
    done = gpuatlas("info", tmp_path / "x.ncu-repz")
    assert "NVIDIA H200" in done.stdout
    assert len(done.stdout.splitlines()) < 45
    assert gpuatlas("convert", TINY, "--out", tmp_path, "--partition", "x").returncode == 2
    copy = tmp_path / "copy.ncu-repz"
    copy.write_bytes(TINY.read_bytes())
    done = gpuatlas("convert", TINY, SMALL, copy, "--out", tmp_path / "twice")
    assert f"{copy}: the same report as {TINY}; its launches count twice" in done.stderr


def large(folder: Path) -> Path:
    """Write a report whose conversion lasts long enough to be ended in its middle."""
    path = folder / "big.ncu-rep"
    launch = result([Metric(number, float(number)) for number in range(400)])
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header([f"m{number}" for number in range(400)]), [])
        for _ in range(400):
            write_block(file, new_header(), [launch] * 40)
    return path


def interrupted(folder: Path, number: int) -> tuple[Path, int]:
    """End a conversion by a signal while it writes; return its report and its exit status."""
    big = large(folder)
    command = [sys.executable, "-m", "gpuatlas.cli", "convert", str(big), "--out", str(folder / "out")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not list(folder.glob("out/.metrics*.part")):
        assert process.poll() is None, "it ended before it could be ended"
        time.sleep(0.005)
    os.kill(process.pid, number)
    return big, process.wait()


def test_killed_in_the_middle_leaves_no_table(tmp_path):
    """A killed conversion leaves no file under a table's name, and the next one is not disturbed."""
    big, _ = interrupted(tmp_path, signal.SIGKILL)
    assert not list(tmp_path.glob("out/[!.]*"))
    done = convert([big], tmp_path / "out")
    assert done.converted[0].metrics == 6_400_000


def test_terminated_in_the_middle_leaves_nothing(tmp_path):
    _, status = interrupted(tmp_path, signal.SIGTERM)
    assert status == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("out/*"))
    assert not list(tmp_path.glob("out/.*"))


def several(folder: Path) -> tuple[subprocess.Popen, list[Path]]:
    """Start to convert two large reports; return the process, and the others' folders in /proc, at work."""
    big = large(folder)
    command = [sys.executable, "-m", "gpuatlas.cli", "convert", str(big), str(big), "-j2", "--out"]
    process = subprocess.Popen(
        [*command, str(folder / "out")], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while not list(folder.glob("out/.convert-*/*/.metrics*.part")):
        assert process.poll() is None, "it ended before it could be ended"
        time.sleep(0.005)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, [Path("/proc") / child for child in children]


def end(processes: list[Path]) -> bool:
    """Whether processes end within some seconds; of one that has, at most a zombie is left."""
    for _ in range(200):
        if not any(path.exists() and (path / "cmdline").read_bytes() for path in processes):
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_ends_several_conversions_silently(tmp_path):
    process, children = several(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (128 + signal.SIGINT, "")
    assert not list((tmp_path / "out").iterdir())
    assert end(children)


def test_processes_that_convert_end_with_a_killed_parent(tmp_path):
    process, children = several(tmp_path)
    assert len(children) >= 2
    process.kill()
    assert end(children)
    process.communicate()


def test_names_that_are_not_utf8(tmp_path):
    """As a file's name can be; in a table it is escaped."""
    odd = tmp_path / os.fsdecode(b"odd\xff.ncu-rep")
    odd.write_bytes(unpack(TINY))
    for reports in ([odd], [TINY, odd]):
        convert(reports, tmp_path / "out")
        session = dict(
            zip(*pq.read_table(tmp_path / "out/session.parquet").to_pydict().values(), strict=True)
        )
        assert session["source" if len(reports) == 1 else "report/1/source"] == "odd\\xff.ncu-rep"
    for coding in ("utf-8", "ascii"):
        command = [sys.executable, "-m", "gpuatlas.cli", "convert", odd, "--out", tmp_path / "out"]
        environment = {**os.environ, "PYTHONIOENCODING": f"{coding}:strict"}
        done = subprocess.run(command, capture_output=True, env=environment, check=True)
        assert b"2 launches" in done.stdout


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path):
    """A limit on the size of files fails as a full disk does: in the middle of writing."""
    out = tmp_path / "out"
    script = f"ulimit -f 20; exec {sys.executable} -m gpuatlas.cli convert {WINDOWS['opt1']} --out {out}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{out}/metrics.parquet: cannot be written (File too large)" in done.stderr
    assert not list(out.iterdir())


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_in_the_way_is_named_before_anything_is_written(tmp_path, count):
    out = tmp_path / "out"
    (out / "metrics.parquet").mkdir(parents=True)
    with pytest.raises(GpuatlasError, match=r"out/metrics\.parquet: a folder stands .* remove or rename it"):
        convert([TINY] * count, out)
    assert [path.name for path in out.iterdir()] == ["metrics.parquet"]
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below"):
        with pytest.raises(GpuatlasError, match="a file stands where a folder is needed; name another"):
            convert([TINY] * count, place)


def test_temporary_files_do_not_stay(tmp_path):
    convert([TINY], tmp_path, instances=True)
    assert not list(tmp_path.glob(".*"))
    assert pa.total_allocated_bytes() < 50 << 20
