"""What is written is what is read, for any values."""

import math
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ncurep import both
from tests.ncurep.synthetic import Metric, result, write

from gpuatlas.errors import InputRefused
from gpuatlas.ncurep import chunk as chunk_module
from gpuatlas.ncurep.chunk import _without_bodies, decode_report
from gpuatlas.ncurep.metrics import DOUBLE, NONE, TEXT, UINT64
from gpuatlas.ncurep.report import outline
from gpuatlas.ncurep.rewrite import new_header, write_block, write_start
from gpuatlas.ncurep.wire import WireError, fields, read_varint, write_bytes, write_integer, write_varint

NAMES = [f"metric_{number}" for number in range(200)]
STORED = st.one_of(
    st.text(max_size=200), st.integers(0, 2**64 - 1), st.floats(), st.sampled_from([math.nan, -0.0, 0.0, 0])
)
VALUES = st.one_of(st.none(), STORED)
METRICS = st.builds(
    Metric,
    name=st.integers(0, len(NAMES) - 1),
    value=VALUES,
    instances=st.lists(st.tuples(VALUES, VALUES), max_size=5),
    flag=st.sampled_from([None, 0, 1]),
)
LAUNCHES = st.lists(st.lists(METRICS, min_size=1, max_size=12), min_size=1, max_size=6)


def read(values, row):
    kind = values.kind[row]
    if kind == NONE:
        return None
    if kind == TEXT:
        return values.text[row]
    if kind == UINT64:
        assert values.number[row] == float(values.integer[row])
        return int(values.integer[row])
    assert kind == DOUBLE
    return float(values.number[row])


def bits(value):
    return struct.pack("<d", value) if isinstance(value, float) else value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(launches=LAUNCHES, group=st.sampled_from([1, 60, 8 << 20]), large=st.sampled_from([0, 80, 64 << 10]))
def test_round_trip(tmp_path, monkeypatch, launches, group, large):
    monkeypatch.setattr(chunk_module, "_CHUNK_BYTES", group)  # one launch at a time, some, all
    monkeypatch.setattr(chunk_module, "_LARGE", large)  # with the bodies of sections left out, and not
    path = write(tmp_path / "r.ncu-rep", NAMES, launches)
    found, instances = [], []
    for part in decode_report(outline(path), instances=True):
        metrics = part.metrics
        rows = [(int(metrics.name[row]), read(metrics.values, row)) for row in range(len(metrics.name))]
        inner = [[] for _ in rows]
        for number, owner in enumerate(part.instances.owner.tolist()):
            assert part.instances.index[number] == len(inner[owner])
            inner[owner].append(
                (read(part.instances.correlation, number), read(part.instances.value, number))
            )
        begin = 0
        for count in metrics.counts.tolist():
            assert set(metrics.launch[begin : begin + count]) == {len(found)} or group != 8 << 20
            found.append(rows[begin : begin + count])
            instances.append(inner[begin : begin + count])
            begin += count
    assert [[(n, bits(v)) for n, v in rows] for rows in found] == [
        [(metric.name, bits(metric.value)) for metric in metrics] for metrics in launches
    ]
    assert [[[(bits(c), bits(v)) for c, v in values] for values in rows] for rows in instances] == [
        [[(bits(c), bits(v)) for c, v in metric.instances] for metric in metrics] for metrics in launches
    ]


@given(st.integers(0, 2**64 - 1))
def test_varint(number):
    raw = write_varint(number)
    assert read_varint(raw, 0) == (number, len(raw))
    for size in range(len(raw)):
        with pytest.raises(WireError):
            read_varint(raw[:size], 0)


def test_varint_too_long():
    with pytest.raises(WireError):
        read_varint(b"\xff" * 11, 0)


@given(st.binary(max_size=80))
def test_fields_cover_the_message_or_refuse(raw):
    try:
        found = list(fields(raw))
    except WireError:
        return
    assert [field.start for field in found] == [0, *(field.end for field in found)][: len(found)]
    assert not found or found[-1].end == len(raw)


def refused(path, launches, words, **options):
    write(path, NAMES, launches, **options)
    with pytest.raises(InputRefused, match=words):
        list(decode_report(outline(path)))


def test_what_is_no_launch(tmp_path):
    path = tmp_path / "r.ncu-rep"
    refused(path, [[Metric(0, 1.0)], []], "no metrics")
    refused(path, [[Metric(0, 1.0)]], "no name", name="")
    refused(path, [[Metric(200, 1.0)]], "name id 200, and there are 200")
    refused(path, [[Metric(1 << 60, 1.0)]], "name id")
    refused(path, [[Metric(0, 1.0, flag=2)]], "unknown field")
    refused(path, [[Metric(0, 1.0)]], "out of range", time=1 << 50)


def test_metrics_must_stand_together(tmp_path):
    whole = result([Metric(0, 1.0)])
    path = tmp_path / "r.ncu-rep"
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(NAMES), [whole + write_bytes(13, Metric(1, 2.0).encoded())])
    with pytest.raises(InputRefused, match="do not stand together"):
        list(decode_report(outline(path)))


def test_string_tables_add_up_even_behind_their_use(tmp_path):
    path = tmp_path / "r.ncu-rep"
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(["a", "b"]), [result([Metric(0, 1.0), Metric(2, 3.0)])])
        write_block(file, new_header(["c"]), [])
        write_block(file, new_header(["d"]), [result([Metric(3, 4.0)])])
    report = outline(path)
    assert report.names == ["a", "b", "c", "d"]
    assert sum(len(part.metrics.name) for part in decode_report(report)) == 3


def test_fields_of_a_newer_writer_are_noted(tmp_path):
    path = tmp_path / "r.ncu-rep"
    newer = result([Metric(0, 1.0)]) + write_bytes(99, b"new") + write_integer(100, 5)
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(NAMES), [newer, result([Metric(0, 1.0)])])
    (part,) = decode_report(outline(path))
    assert part.extended == 1
    assert len(part.infos) == 2


@pytest.mark.parametrize("number", [12, 20, 24, 30])
def test_fields_that_no_writer_has_are_damage(tmp_path, number):
    path = tmp_path / "r.ncu-rep"
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(NAMES), [result([Metric(0, 1.0)]) + write_bytes(number, b"x")])
    with pytest.raises(InputRefused, match=f"unknown field {number}"):
        list(decode_report(outline(path)))


def test_a_field_that_stands_twice_is_damage(tmp_path):
    path = tmp_path / "r.ncu-rep"
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(NAMES), [result([Metric(0, 1.0)]) + write_integer(23, 8)])
    with pytest.raises(InputRefused, match="twice"):
        list(decode_report(outline(path)))


@given(
    st.lists(st.sampled_from([0, 1, 123, 124, 125, 126, 16_000, 16_376, 16_377, 16_378, 70_000]), max_size=4)
)
def test_a_large_launch_is_walked_over(lengths):
    """Entries whose size takes one, two and three bytes."""
    metrics = [Metric(1, "x" * length, flag=None) for length in (3, *lengths)]
    launch = result(metrics)
    end = both.metrics_end(launch)
    assert launch[:end].endswith(b"".join(write_bytes(13, metric.encoded()) for metric in metrics))
    shortened = _without_bodies(memoryview(launch), end)
    assert shortened == launch  # its section is no longer than a head


def test_a_large_launch_keeps_the_head_of_its_sections(tmp_path):
    launch = result([Metric(0, 1.0)])
    section = next(field for field in fields(launch) if field.number == 17)
    body = launch[section.content : section.end] + write_bytes(9, bytes(100_000))
    large = launch[: section.start] + write_bytes(17, body) + launch[section.end :]
    path = tmp_path / "r.ncu-rep"
    for entry, words in (
        (large, None),
        (large.replace(write_bytes(17, body)[:5], b"\x8a\x01" + b"\xbb\x8d\x86\x00", 1), "oddly"),
        (large[:-1] + b"\xff", "cut"),
    ):
        with path.open("wb") as file:
            write_start(file)
            write_block(file, new_header(NAMES), [entry])
        if words is None:
            (part,) = decode_report(outline(path))
            assert part.infos[0].sections == ("SpeedOfLight",)
            assert part.metrics.values.number.tolist() == [1.0]
        else:
            with pytest.raises(InputRefused, match=words):
                list(decode_report(outline(path)))


def test_a_size_in_more_bytes_than_it_needs_is_damage(tmp_path):
    whole = result([Metric(0, 1.0), Metric(0, 2.0)])
    short = write_bytes(13, Metric(0, 1.0).encoded())
    assert whole.count(short) == 1
    odd = short[:1] + bytes([short[1] | 0x80, 0]) + short[2:]
    path = tmp_path / "r.ncu-rep"
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(NAMES), [whole.replace(short, odd)])
    with pytest.raises(InputRefused, match="encoded oddly"):
        list(decode_report(outline(path)))
