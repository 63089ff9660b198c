"""Importing a report and describing a cell: what the manifest says, and what is refused."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.workflow.recordings import SYNTHETIC, add_refused, add_step
from typer.testing import CliRunner

from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.publish.cell import describe
from gpuatlas.publish.importing import import_report
from gpuatlas.tables.convert import convert
from gpuatlas.tables.refused import write_refused

ROOT = Path(__file__).parents[2]
WINDOWS = ROOT / "tests" / "data" / "windows" / "h200"
ARCHITECTURES = ROOT / "config" / "architectures.yaml"
TARGETS = ROOT / "config" / "targets.yaml"


def cell(results: Path, name: str, *, imported: bool = False) -> Path:
    """A cell's folder and tables from a recorded window."""
    architecture, target = name.split("/")
    folder = results / "cells" / name
    if imported:
        import_report(WINDOWS / "opt1" / "report.ncu-repz", folder / "capture")
    else:
        shutil.copytree(WINDOWS / "opt1", folder / "capture")
    partition = {"architecture": architecture, "target": target}
    convert([folder / "capture" / "report.ncu-repz"], results / "tables", partition=partition)
    return folder


def test_the_manifest_of_a_window(tmp_path):
    folder = cell(tmp_path, "h200/opt1")
    (folder / ".state").mkdir()
    (folder / ".state" / "checkpoint.pt").write_bytes(b"x")
    manifest = describe(
        "h200/opt1", origin="recorded", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    assert json.loads((folder / "cell.json").read_text()) == manifest
    assert manifest["launches"] == 105
    assert manifest["gpu_time_ns"] == pytest.approx(1_996_512)
    assert manifest["device"] == {"name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132}
    assert manifest["versions"]["ncu"] == "2025.3.1.0"
    assert manifest["window"]
    assert not manifest["comparable"]
    assert manifest["evidence"]["in_effect"] == "unknown"
    report = folder / "capture" / "report.ncu-repz"
    assert manifest["files"]["capture/report.ncu-repz"] == hashlib.sha256(report.read_bytes()).hexdigest()
    assert set(manifest["files"]) == {
        "capture/environment.json",
        "capture/plan.json",
        "capture/report.ncu-repz",
    }


def test_a_whole_step_is_comparable_a_part_of_a_gpu_is_not(tmp_path):
    folder = cell(tmp_path, "h200/opt1")
    add_step(tmp_path / "step", "opt1", times=3, left_out_ns=59885.36)  # 1 % of the step
    shutil.copy(tmp_path / "step/plan.json", folder / "capture")
    unweighted = describe(
        "h200/opt1", origin="captured", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    assert not unweighted["comparable"]
    assert "no timeline" in unweighted["notes"][-1]
    shutil.copytree(tmp_path / "step/timing", folder / "timing")
    whole = describe(
        "h200/opt1", origin="captured", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    assert whole["comparable"]
    assert whole["coverage"] == {"time": pytest.approx(0.9901, abs=1e-4), "launches": 315 / 316}
    assert whole["notes"] == [SYNTHETIC]
    assert whole["scaled_time"] == 0
    assert whole["step"]["launches"] == 316
    assert whole["step"]["gpu_time_ns"] == pytest.approx(3 * 1_996_512 + 59885.36)
    assert whole["step"]["median_ms"] > 452
    longer = folder / "timing" / "timeline.parquet"
    table = pq.read_table(longer)
    column = table.column_names.index("duration_ns")
    keys = table["key"].to_pylist()
    times = table["duration_ns"].to_pylist()
    last = len(keys) - 1 - keys[::-1].index(keys[0])
    times[last], times[0] = 0.6 * (times[0] + times[last]), 0.4 * (times[0] + times[last])
    pq.write_table(table.set_column(column, table.schema.field(column), [times]), longer)
    scaled = describe(
        "h200/opt1", origin="captured", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    assert scaled["scaled_time"] == pytest.approx(times[last] / sum(times) + times[last] / 1.2 / sum(times))
    assert "in launches longer or shorter by a fifth than the measured launch" in scaled["notes"][-1]
    part = tmp_path / "architectures.yaml"
    part.write_text(ARCHITECTURES.read_text().replace("sm_counts: [132]", "sm_counts: [264]"))
    sliced = describe("h200/opt1", origin="captured", results=tmp_path, architectures=part, targets=TARGETS)
    assert not sliced["comparable"]
    assert "not a whole H200" in sliced["notes"][0]


def test_a_cell_whose_counters_were_refused(tmp_path):
    folder = tmp_path / "cells/h200/opt1"
    add_refused(folder / "capture", "opt1")
    (folder / "capture/timing").rename(folder / "timing")
    plan = folder / "capture/plan.json"
    reason = json.loads(plan.read_text())["refused"]
    write_refused(plan, reason, tmp_path / "tables", partition={"architecture": "h200", "target": "opt1"})
    manifest = describe(
        "h200/opt1", origin="captured", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    assert manifest["refused"] == reason
    assert (manifest["launches"], manifest["gpu_time_ns"], manifest["coverage"]) == (None, None, None)
    assert not manifest["comparable"]
    assert manifest["evidence"]["in_effect"] == "true"
    assert manifest["device"] == {"name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132}
    assert manifest["step"]["launches"] == 3326
    assert reason in manifest["notes"][0]
    record = json.loads((folder / "capture/environment.json").read_text())
    record["gpu"]["cc"] = "8.0"
    (folder / "capture/environment.json").write_text(json.dumps(record))
    with pytest.raises(InputRefused, match=r"but cell h200/opt1 is of 9\.0"):
        describe(
            "h200/opt1", origin="captured", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )
    record["gpu"] = None
    (folder / "capture/environment.json").write_text(json.dumps(record))
    with pytest.raises(InputRefused, match="does not tell the name"):
        describe(
            "h200/opt1", origin="captured", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )


def test_an_import_says_that_its_coverage_is_unknown(tmp_path):
    folder = cell(tmp_path, "h200/opt1", imported=True)
    manifest = describe(
        "h200/opt1", origin="imported", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    assert manifest["launches"] == 105
    assert manifest["coverage"] is None
    assert not manifest["comparable"]
    assert "imported, coverage unknown" in manifest["notes"][0]
    plan = json.loads((folder / "capture/plan.json").read_text())
    given = hashlib.sha256((WINDOWS / "opt1" / "report.ncu-repz").read_bytes()).hexdigest()
    assert plan["source"] == {"name": "report.ncu-repz", "sha256": given}
    assert manifest["source"] == plan["source"]
    gpu = json.loads((folder / "capture/environment.json").read_text())["gpu"]
    assert (gpu["name"], gpu["cc"], gpu["sm_count"]) == ("NVIDIA H200", "9.0", 132)


@pytest.mark.parametrize(
    ("target", "in_effect", "told"),
    [
        ("opt1", "unknown", None),
        ("opt2", "false", "tensor_time_max asks for 0.02"),
        ("opt12", "unknown", None),
    ],
)
def test_the_kernels_names_of_an_import_can_speak_against_its_target(tmp_path, target, in_effect, told):
    cell(tmp_path, f"h200/{target}", imported=True)
    manifest = describe(
        f"h200/{target}", origin="imported", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
    )
    evidence = manifest["evidence"]
    assert (evidence["in_effect"], evidence["source"]) == (in_effect, ["kernel names of an import"])
    assert {check["name"].rsplit("_", 1)[0]: check["ok"] for check in evidence["checks"]} == {
        "tensor_time": in_effect != "false",
        "channels_last": None,
    }
    assert any(told in note for note in manifest["notes"]) if told else len(manifest["notes"]) == 1


def test_describing_needs_no_torch():
    code = "import sys, gpuatlas.publish.cell; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_report_of_another_architecture_is_refused(tmp_path):
    folder = cell(tmp_path, "a100/opt1")
    with pytest.raises(InputRefused, match=r"NVIDIA H200 \(compute capability 9.0\), but cell a100/opt1"):
        describe(
            "a100/opt1", origin="recorded", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )
    assert not (folder / "cell.json").exists()


def test_an_unknown_architecture(tmp_path):
    with pytest.raises(ConfigError, match="no architecture 'b100'"):
        describe(
            "b100/opt1", origin="recorded", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )


def test_a_cut_report_imports_to_nothing(tmp_path):
    content = (WINDOWS / "opt1" / "report.ncu-repz").read_bytes()
    cut = tmp_path / "cut.ncu-repz"
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputRefused, match=r"cut\.ncu-repz"):
        import_report(cut, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True


def test_damaged_plan(tmp_path):
    folder = cell(tmp_path, "h200/opt1")
    (folder / "capture/plan.json").write_text("{")
    with pytest.raises(InputRefused, match=r"plan\.json: is not valid JSON"):
        describe(
            "h200/opt1", origin="recorded", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )


def test_commands_return_the_documented_exit_status(tmp_path, monkeypatch, capsys):
    from gpuatlas import cli

    monkeypatch.setattr("sys.argv", ["gpuatlas", "import", "Makefile", "--out", str(tmp_path / "out")])
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("gpuatlas: Makefile: ")
    assert CliRunner().invoke(cli.app, ["--help"]).exit_code == 0
