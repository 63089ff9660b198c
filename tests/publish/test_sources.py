"""What a study is given, looked at before anything runs: two steps of which one file is not what it should be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.studies import ROOT, WINDOWS
from tests.workflow.recordings import add_refused, add_step

from gpuatlas.config import Study, read_yaml, resolve
from gpuatlas.errors import InputRefused
from gpuatlas.publish.cell import describe
from gpuatlas.publish.sources import check_sources
from gpuatlas.tables.convert import convert

ARCHITECTURES = ROOT / "config" / "architectures.yaml"
TARGETS = ROOT / "config" / "targets.yaml"


def study_of(recordings: Path, **settings: object) -> Study:
    """The project's own study, with other recordings."""
    config = read_yaml(ROOT / "config" / "config.yaml")
    return resolve(config | {"recordings_dir": str(recordings)} | settings, ROOT)


@pytest.fixture(scope="session")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of two steps. Do not write into them."""
    folder = tmp_path_factory.mktemp("steps") / "recordings"
    for target in ("baseline", "opt1"):
        add_step(folder / "h200" / target, target, times=3)
    return folder


@pytest.fixture
def recordings(steps: Path, tmp_path: Path) -> Path:
    shutil.copytree(steps, tmp_path / "recordings")
    return tmp_path / "recordings"


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def change(path: Path, **entries: object) -> None:
    """Change or, where it is Ellipsis, remove entries of a JSON file."""
    content = json.loads(path.read_text()) | entries
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def rows(path: Path, number: int, start: int = 0) -> None:
    pq.write_table(pq.read_table(path).slice(start, number), path)


def refusal(recordings: Path) -> str:
    """The one sentence with which the study is refused."""
    with pytest.raises(InputRefused) as caught:
        check_sources(study_of(recordings))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_steps_as_recorded_are_accepted(recordings):
    add_refused(recordings / "h200/opt12", "opt12")
    shutil.copytree(WINDOWS / "baseline", recordings / "h200/opt2")
    check_sources(study_of(recordings))


@pytest.mark.parametrize(
    "name", ["timing/timings.parquet", "timing/evidence.json", "timing/environment.json"]
)
def test_files_of_two_cells_swapped(recordings, name):
    swap(recordings / "h200/baseline" / name, recordings / "h200/opt1" / name)
    said = refusal(recordings)
    assert said.startswith(f"{recordings}/h200/baseline/{name}: is of target 'opt1', but cell h200/baseline")


def test_the_folders_of_two_cells_swapped(recordings):
    swap(recordings / "h200/baseline", recordings / "h200/opt1")
    assert "is of target 'opt1', but cell h200/baseline is of 'baseline'" in refusal(recordings)


@pytest.mark.parametrize("file", ["timings.parquet", "timeline.parquet"])
def test_the_timing_of_another_network(recordings, file):
    path = recordings / "h200/opt1/timing" / file
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"gpuatlas.network": b"small_64"}), path)
    assert f"{path}: is of network 'small_64', but the study is of 'whole_head_128'" in refusal(recordings)


def test_the_environment_of_another_gpu(recordings):
    path = recordings / "h200/opt1/timing/environment.json"
    gpu = json.loads(path.read_text())["gpu"]
    change(path, gpu=gpu | {"name": "NVIDIA A100-SXM4-80GB", "cc": "8.0"})
    assert "environment.json: measured on NVIDIA A100-SXM4-80GB (compute capability 8.0)" in refusal(
        recordings
    )


def no_longer_a_number(path: Path) -> None:
    table = pq.read_table(path)
    at = table.column_names.index("step_ms")
    pq.write_table(table.set_column(at, "step_ms", table["step_ms"].cast(pa.string())), path)


@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        ("timing/timings.parquet", lambda path: rows(path, 0), "holds no row"),
        ("timing/timings.parquet", lambda path: rows(path, 5, 5), "holds no row of variant autotune_off"),
        ("timing/timings.parquet", no_longer_a_number, "column 'step_ms' holds string, not double"),
        (
            "timing/timings.parquet",
            lambda path: pq.write_table(pa.table({"a": [1]}), path),
            "has no column 'variant'",
        ),
        ("timing/timeline.parquet", lambda path: cut(path, 5000), "is not a readable Parquet table"),
        ("timing/evidence.json", lambda path: path.write_text("{}"), "'target' is a required property"),
        ("timing/evidence.json", lambda path: change(path, in_effect="yes"), "'yes' is not one of"),
        ("environment.json", lambda path: path.write_text("{}"), "'gpu' is a required property"),
        ("plan.json", lambda path: path.write_text("{}"), "'mode' is a required property"),
        ("plan.json", lambda path: change(path, coverage_time="x"), "key 'coverage_time': 'x' is not of type"),
        ("plan.json", lambda path: change(path, gpu_time_ns=float("nan")), "nan is no finite number"),
        ("plan.json", lambda path: change(path, launches_measured=4), "states launches_measured 4, but"),
        ("plan.json", lambda path: change(path, parts=[{"launches": 4}]), "its parts hold 4 launches, but"),
        ("plan.json", lambda path: change(path, parts=[{"launches": 105, "again": 1}]), "1 is less than"),
        ("plan.json", lambda path: change(path, parts=[{"launches": 105, "skip": 3}]), "3 is not one of"),
        ("plan.json", lambda path: change(path, parts=[{"launches": 105, "again": 2, "second": [None]}]),
         "None is not of type 'integer'"),
        ("plan.json", lambda path: change(path, parts=[{"launches": 105, "again": 2, "second": [105]}]),
         "key 'parts/0/second': names launches that the part does not hold"),
        ("plan.json", lambda path: change(path, parts=[{"launches": 105, "again": None, "second": [3]}]),
         "key 'parts/0/second': names launches that the part does not hold"),
    ],
)  # fmt: skip
def test_a_damaged_file(recordings, file, damage: Callable[[Path], None], says):
    path = recordings / "h200/opt1" / file
    damage(path)
    said = refusal(recordings)
    assert said.startswith(f"{path}: ")
    assert says in said
    assert "; " in said


def test_a_timeline_of_fewer_launches(recordings):
    rows(recordings / "h200/opt1/timing/timeline.parquet", 30)
    assert (
        "h200/opt1/plan.json: states configs_total 105, but the report and the timeline beside it give 30"
        in (refusal(recordings))
    )


@pytest.mark.parametrize("whole_step", [True, False])
def test_the_plan_of_another_cell(recordings, tmp_path, whole_step):
    if not whole_step:
        shutil.rmtree(recordings)
        shutil.copytree(WINDOWS.parent, recordings)
    shutil.copy(recordings / "h200/baseline/plan.json", recordings / "h200/opt1/plan.json")
    assert f"{recordings}/h200/opt1/plan.json: states " in refusal(recordings)


def test_the_plan_of_a_smaller_window_is_refused_with_the_tables(tmp_path):
    capture = tmp_path / "cells/h200/baseline/capture"
    shutil.copytree(WINDOWS / "baseline", capture)
    shutil.copy(WINDOWS / "opt12/plan.json", capture)
    partition = {"architecture": "h200", "target": "baseline"}
    convert([capture / "report.ncu-repz"], tmp_path / "tables", partition=partition)
    with pytest.raises(InputRefused, match=r"plan\.json: states configs_measured 102, but .* give 109"):
        describe(
            "h200/baseline", origin="recorded", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )


@pytest.mark.parametrize(
    "table", ["launches", "metrics", "session"]
)  # fmt: skip
def test_a_cut_table(tmp_path, table):
    capture = tmp_path / "cells/h200/opt1/capture"
    shutil.copytree(WINDOWS / "opt1", capture)
    partition = {"architecture": "h200", "target": "opt1"}
    convert([capture / "report.ncu-repz"], tmp_path / "tables", partition=partition)
    path = tmp_path / "tables" / table / "architecture=h200/target=opt1/part.parquet"
    cut(path, 100)
    with pytest.raises(InputRefused) as caught:
        describe(
            "h200/opt1", origin="recorded", results=tmp_path, architectures=ARCHITECTURES, targets=TARGETS
        )
    assert str(caught.value).startswith(f"{path}: is not a readable Parquet table; delete it")


def test_recordings_that_no_cell_can_have_are_told(recordings, capsys):
    check_sources(study_of(recordings))
    assert capsys.readouterr().err == ""
    for name in ("h200/opt_12", "h200/something", "b200/opt1", ".cache"):
        (recordings / name).mkdir(parents=True)
    check_sources(study_of(recordings))
    stray, misspelt, unlike = capsys.readouterr().err.splitlines()
    assert (
        stray
        == f"{recordings}/b200: not used, for there is no architecture of this name; did you mean 'h200'?"
    )
    assert misspelt.startswith(f"{recordings}/h200/opt_12: not used, for there is no target of this name")
    assert misspelt.endswith("; did you mean 'opt12'?")
    assert "h200/something: not used" in unlike
    assert "; valid: baseline, opt1, " in unlike
