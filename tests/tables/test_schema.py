import pyarrow as pa
import pytest

from gpuatlas.tables import schema

DESIGN = {
    "launches": "launch_id key report function demangled mangled grid_x grid_y grid_z block_x block_y block_z "
    "context_id stream_id device_id nvtx sections started_at duration_ns",
    "metrics": "launch_id metric value text unit",
    "rules": "launch_id section rule title message kind speedup_kind speedup_percent focus_metrics",
    "session": "key value",
    "instances": "launch_id metric index correlation_id correlation_text value",
    "timeline": "order key name grid_x grid_y grid_z block_x block_y block_z start_ns duration_ns stream op module "
    "phase pass_index",
    "timings": "variant repeat steps step_ms data_ms sm_mhz_before sm_mhz_after throttle host_hash",
    "steps": "step epoch loss step_ms data_ms peak_bytes",
    "weights": "architecture target launch_id key class measured launches gpu_time_ns weight",
    "compare": "architecture target scope name metric value unit coverage window source reason",
    "verdicts": "claim architecture target kind status measured expected tolerance unit coverage window evidence "
    "explanation inputs",
}


@pytest.mark.parametrize("name", DESIGN)
def test_columns(name):
    table = schema.TABLES[name]
    assert table.names == DESIGN[name].split()
    for field in table:
        assert field.metadata[b"description"], field.name


def test_no_table_is_forgotten():
    assert set(schema.TABLES) == set(DESIGN)


def test_types():
    assert schema.METRICS.field("value").type == pa.float64()
    assert schema.METRICS.field("launch_id").type == schema.WEIGHTS.field("launch_id").type == pa.int32()
    assert schema.LAUNCHES.field("started_at").type == pa.timestamp("ns", tz="UTC")
    assert schema.INSTANCES.field("correlation_id").type == pa.uint64()
    assert pa.types.is_dictionary(schema.METRICS.field("metric").type)


def test_metadata_is_added_and_fields_keep_theirs():
    found = schema.with_metadata(schema.SESSION, {"device": "NVIDIA H200"})
    assert found.metadata == {b"gpuatlas.schema_version": b"1", b"gpuatlas.device": b"NVIDIA H200"}
    assert found.field("key").metadata == schema.SESSION.field("key").metadata
