"""Every value that we read equals what NVIDIA's own reader says."""

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.ncurep.report_files import CORPUS, WINDOWS, unpack

from gpuatlas.tables.convert import convert

ncu_report = pytest.importorskip("ncu_report", reason="needs gpuatlas[nvidia]")

FILES = [*WINDOWS.values(), *CORPUS]
KINDS = {0: "none", 1: "ok", 2: "optimization", 3: "warning", 4: "error"}
SPEEDUPS = {0: "unknown", 1: "local", 2: "global"}
STRING, FLOAT, DOUBLE = 2, 3, 4


def test_the_corpus_is_there():
    if not CORPUS:
        pytest.skip("the corpus of other GPUs' reports may not be published and is not beside this checkout")
    assert len(CORPUS) == 11


@pytest.fixture(
    scope="module", params=FILES, ids=lambda path: path.name if path in CORPUS else path.parent.name
)
def pair(request, tmp_path_factory):
    """The tables of a report, and the same report's actions in NVIDIA's reader."""
    folder = tmp_path_factory.mktemp("cross")
    plain = folder / "report.ncu-rep"
    plain.write_bytes(unpack(request.param))
    convert([request.param], folder, instances=request.param in CORPUS)
    context = ncu_report.load_report(str(plain))
    only = context.range_by_idx(0)
    tables = {path.stem: pq.read_table(path) for path in folder.glob("*.parquet")}
    return tables, [only.action_by_idx(number) for number in range(only.num_actions())]


def test_launches(pair):
    tables, actions = pair
    rows = tables["launches"].to_pylist()
    assert len(rows) == len(actions)
    for row, action in zip(rows, actions, strict=True):
        assert row["function"] == action.name(0)
        assert row["demangled"] == action.name(1)
        assert row["mangled"] == action.name(2)
        for part in ("grid", "block"):
            for axis in "xyz":
                metric = action.metric_by_name(f"launch__{part}_dim_{axis}")
                if metric is not None:
                    assert row[f"{part}_{axis}"] == metric.as_uint64()
        assert list(row["sections"]) == [section.identifier() for section in action.sections()]
        duration = action.metric_by_name("gpu__time_duration.sum") or action.metric_by_name(
            "gpu__time_duration"
        )
        assert same(row["duration_ns"], duration.as_double() if duration else None)
        assert row["nvtx"] == nvtx_of(action)


def nvtx_of(action):
    state = action.nvtx_state()
    if state is None:
        return None
    parts = []
    for identifier in state.domains():
        domain = state.domain_by_id(identifier)
        if ranges := "/".join(domain.push_pop_ranges()):
            name = domain.name()
            parts.append(ranges if name == "<default domain>" else f"{name}:{ranges}")
        assert not domain.start_end_ranges()
    return ";".join(parts)


def same(a, b):
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


def test_metrics(pair):
    tables, actions = pair
    table = tables["metrics"]
    columns = {name: table[name].to_pylist() for name in ("launch_id", "metric", "value", "text")}
    rows = {}
    for launch, name, value, text in zip(*columns.values(), strict=True):
        assert rows.setdefault((launch, name), (value, text)) == (value, text) or math.isnan(value)
    assert len(rows) == table.num_rows == sum(len(set(action.metric_names())) for action in actions)
    values = texts = nulls = 0
    for launch, action in enumerate(actions):
        for name in action.metric_names():
            value, text = rows[launch, name]
            metric = action.metric_by_name(name)
            if not metric.has_value():
                assert (value, text) == (None, None), name
                nulls += 1
            elif metric.kind() == STRING:
                assert (value, text) == (None, metric.as_string()), name
                texts += 1
            elif name == "launch__kernel_name":
                assert metric.as_uint64() == 0  # ncu 2024.3 stores no name but a number: a text has no number
                assert (value, text) == (None, None)
            elif metric.kind() in (FLOAT, DOUBLE):
                assert same(value, metric.as_double()), name
                assert text is None
                values += 1
            else:
                integer = metric.as_uint64()
                assert value == float(integer), name
                assert text == (str(integer) if integer > 2**53 else None), name
                values += 1
    assert values > 10 * texts
    assert texts


def test_metrics_are_sorted(pair):
    tables, _ = pair
    table = tables["metrics"]
    keys = list(zip(table["launch_id"].to_pylist(), table["metric"].to_pylist(), strict=True))
    assert keys == sorted(keys)


def test_rules(pair):
    tables, actions = pair
    spoken = [row for row in tables["rules"].to_pylist() if row["kind"] is not None]
    expected = []
    for launch, action in enumerate(actions):
        for result in action.rule_results_as_dicts():
            message = result["rule_message"]
            speedup = result.get("speedup_estimation", {})
            if not message["message"] and KINDS[message["type"]] == "none":
                continue  # a table without a message: a row that says nothing
            expected.append(
                {
                    "launch_id": launch,
                    "section": result["section_identifier"],
                    "rule": result["rule_identifier"],
                    "title": message["title"] or None,
                    "message": message["message"],
                    "kind": KINDS[message["type"]],
                    "speedup_kind": SPEEDUPS[speedup["type"]] if speedup else None,
                    "speedup_percent": speedup.get("speedup"),
                    "focus_metrics": [
                        (focus["name"], focus["value"], focus["severity"], focus["info"])
                        for focus in result.get("focus_metrics", ())
                    ],
                }
            )
    severities = {"default": 0, "low": 1, "high": 2}
    for row in spoken:
        row["focus_metrics"] = [
            (focus["name"], focus["value"], severities[focus["severity"]], focus["info"] or "")
            for focus in row["focus_metrics"]
        ]
    assert spoken == expected


def test_instances(pair):
    tables, actions = pair
    if "instances" not in tables:
        pytest.skip("compared on the corpus; the recordings hold the same metrics many times over")
    found = {}
    for row in tables["instances"].to_pylist():
        found.setdefault((row["launch_id"], row["metric"]), []).append(row)
    total = 0
    for launch, action in enumerate(actions):
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            rows = found.pop((launch, name), [])
            assert len(rows) == metric.num_instances(), name
            ids = metric.correlation_ids() if metric.has_correlation_ids() else None
            for number, row in enumerate(rows):
                assert row["index"] == number
                kind = metric.kind(number)
                expected = (
                    metric.as_double(number) if kind in (FLOAT, DOUBLE) else float(metric.as_uint64(number))
                )
                if kind != STRING:
                    assert same(row["value"], expected), name
                if ids is None:
                    assert row["correlation_id"] is None
                elif ids.kind(number) == STRING:
                    assert row["correlation_text"] == ids.as_string(number)
                else:
                    assert row["correlation_id"] == ids.as_uint64(number)
                total += 1
    assert not found
    assert total == tables["instances"].num_rows > 0


def test_the_file_says_where_it_comes_from(pair):
    tables, actions = pair
    session = dict(
        zip(tables["session"]["key"].to_pylist(), tables["session"]["value"].to_pylist(), strict=True)
    )
    assert session["launches"] == str(len(actions))
    device = actions[0].metric_by_name("device__attribute_display_name").as_string()
    assert session["device/0/name"] == device
    metadata = tables["metrics"].schema.metadata
    assert metadata[b"gpuatlas.device"].decode() == device
    assert metadata[b"gpuatlas.source_sha256"].decode() == session["source_sha256"]
    assert json.loads(metadata[b"gpuatlas.schema_version"]) == 1
    assert Path(session["source"]).suffix in (".ncu-repz", ".xz")
