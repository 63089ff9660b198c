"""The figures: whole, the same bytes for the same tables, legible, and every number from a table's row."""

import csv
import io
import json
import shutil
import warnings
from importlib import import_module
from itertools import combinations
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from tests import studies

from gpuatlas.compare.run import TABLES, compare
from gpuatlas.compare.verdicts import write_claims
from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.figures import FIGURES
from gpuatlas.figures.draw import draw
from gpuatlas.figures.inputs import Inputs
from gpuatlas.figures.style import use_style

CLAIMS = studies.ROOT / "config" / "claims.yaml"
KINDS = ("svg", "png", "pdf", "csv")
SMALLEST = 6.5  # points


def judged(results: Path) -> Path:
    compare(results)
    write_claims(results, CLAIMS)
    return results


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The three windows, without figures. Do not write into it."""
    return judged(studies.windows(tmp_path_factory.mktemp("figures") / "results"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A study of absent cells only."""
    results = tmp_path_factory.mktemp("empty") / "results"
    studies.write_study(results, {})
    return judged(results)


@pytest.fixture(scope="module")
def full(recorded, tmp_path_factory):
    """A study in which every cell passes for a whole step, made from the windows' tables."""
    results = tmp_path_factory.mktemp("full") / "results"
    like = {"baseline": "baseline", "opt1": "opt1", "opt2": "baseline", "opt12": "opt12"}
    cells = [f"{a}/{t}" for a in studies.ARCHITECTURES for t in studies.TARGETS]
    studies.write_study(results, dict.fromkeys(cells, "captured"))
    for cell in cells:
        studies.add_step(results, recorded, cell, like=like[cell.split("/")[1]])
    return judged(results)


def drawn(results: Path, name: str):
    use_style()
    return import_module(f"gpuatlas.figures.{name}").draw(Inputs(results))


def within(box, frame) -> bool:
    return (
        box.x0 >= frame.x0 - 1
        and box.x1 <= frame.x1 + 1
        and box.y0 >= frame.y0 - 1
        and box.y1 <= frame.y1 + 1
    )


def texts(figure) -> list[Text]:
    """Return what is written in a figure; tick labels apart, some of which matplotlib keeps but does not draw."""
    ticks = {
        id(label)
        for axes in figure.findobj(Axes)
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels(which="both")
    }
    return [
        t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible() and id(t) not in ticks
    ]


@pytest.mark.parametrize("study", ["recorded", "empty", "full"])
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_cut_off_too_small_or_overlapping(name, study, request):
    figure, _ = drawn(request.getfixturevalue(study), name)
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canvas.draw()
    renderer, frame = canvas.get_renderer(), figure.bbox
    shown = texts(figure)
    assert shown
    for text in shown:
        if text.axes is not None and not text.axes.get_visible():
            continue
        assert within(text.get_window_extent(renderer), frame), text
        assert text.get_fontsize() >= SMALLEST or "$" in text.get_text(), text
    panels = [axes for axes in figure.findobj(Axes) if axes.get_visible()]
    for axes in panels:
        assert within(axes.get_tightbbox(renderer), frame), axes  # the tick labels that are drawn, too
        assert all(
            label.get_fontsize() >= SMALLEST for label in axes.get_xticklabels() + axes.get_yticklabels()
        )
    titles = [t for axes in panels if (t := axes._left_title).get_text()]
    groups = [titles, *([t for t in axes.get_yticklabels() if t.get_text()] for axes in panels)]
    for group in groups:
        boxes = [text.get_window_extent(renderer) for text in group]
        for one, other in combinations(range(len(boxes)), 2):
            assert not boxes[one].shrunk(1, 0.8).overlaps(boxes[other].shrunk(1, 0.8)), group[one]


def test_windows_are_titled_as_such_and_said_to_be_incomparable(recorded):
    for name in FIGURES:
        if name in ("study_matrix", "claims_overview"):
            continue
        figure, _ = drawn(recorded, name)
        said = " ".join(" ".join(t.get_text() for t in texts(figure)).split())
        assert "Windows: not comparable with each other." in said, name
        for target in studies.RECORDED:
            assert f"h200/{target} — window: first launches of {target}" in said, name
        assert "absent: V100 baseline, opt1, opt2, opt12" in said, name


def test_a_figure_without_data_says_so(empty):
    for name in FIGURES:
        figure, rows = drawn(empty, name)
        said = " ".join(t.get_text() for t in texts(figure))
        assert "absent" in said, name
        if name not in ("study_matrix", "claims_overview"):
            measured = [row for row in rows if row.get("source") == "measured" and row["value"] is not None]
            assert measured == []
            if name != "pipe_utilization":  # it still shows what the paper reports
                assert "No data: every cell is absent" in said, name


def test_every_number_of_a_figure_is_a_row_of_a_table(recorded):
    inputs = Inputs(recorded)
    known = {tuple(sorted(row.items(), key=str)) for name in TABLES for row in inputs.table(name)}
    known |= {tuple(sorted(row.items(), key=str)) for row in inputs.claims("reported")}
    for name in FIGURES:
        if name in ("study_matrix", "claims_overview"):
            continue
        _, rows = drawn(recorded, name)
        assert rows
        for row in rows:
            assert tuple(sorted(row.items(), key=str)) in known, (name, row)


def test_reported_numbers_are_hollow_and_measured_ones_filled(recorded):
    figure, _ = drawn(recorded, "pipe_utilization")
    faces: dict[bool, set[bool]] = {True: set(), False: set()}
    for axes in figure.findobj(lambda o: hasattr(o, "containers")):
        for container in axes.containers:
            for patch in container:
                reported = "reported in the paper" in axes._left_title.get_text()
                faces[reported].add(patch.get_facecolor()[3] == 0)
    assert faces == {True: {True}, False: {False}}


def test_a_reported_number_beside_a_measured_one_is_a_hollow_mark(full):
    figure, rows = drawn(full, "pipe_utilization")
    marks = {
        (axes._left_title.get_text().split(" ")[0], line.get_xdata()[0]): line
        for axes in figure.findobj(Axes)
        for line in axes.lines
    }
    assert set(marks) == {("a100/baseline", 1.45), ("a100/opt1", 9.98)}
    assert all(line.get_markerfacecolor() == "white" for line in marks.values())
    assert sum(row["source"] == "reported" for row in rows) == 2


def test_cells_of_different_stacks_say_so(full, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(full, results)
    said = " ".join(t.get_text() for t in texts(drawn(results, "memory")[0]))
    assert "stacks differ" not in said
    path = results / "cells" / "a100" / "opt1" / "cell.json"
    cell = json.loads(path.read_text())
    cell["versions"]["ncu"] = "2022.2.0.0"
    path.write_text(json.dumps(cell))
    said = " ".join(t.get_text() for t in texts(drawn(results, "memory")[0]))
    assert "The cells' software stacks differ." in said


def test_files_are_whole_and_the_same_bytes_for_the_same_tables(recorded, tmp_path):
    names = ["study_matrix", "memory", "roofline"]
    found = []
    for number in (1, 2):
        results = tmp_path / str(number)
        shutil.copytree(recorded, results)
        paths = draw(results, names)
        assert [p.name for p in paths] == [f"{name}.{kind}" for name in names for kind in KINDS]
        found.append({path.name: path.read_bytes() for path in paths})
        assert {p.name for p in (results / "figures").iterdir()} == set(found[-1])
    assert found[0] == found[1]
    assert found[0]["memory.svg"].startswith(b"<?xml")
    assert b"<dc:date>" not in found[0]["memory.svg"]
    assert found[0]["memory.png"].startswith(b"\x89PNG")
    assert found[0]["memory.pdf"].startswith(b"%PDF")
    assert b"CreationDate" not in found[0]["memory.pdf"]


def test_ten_times_a_metric_changes_its_figure_and_no_other(recorded, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(recorded, results)
    names = ["memory", "pipe_utilization"]
    before = {path.name: path.read_bytes() for path in draw(results, names)}
    path = studies.table(results, "metrics", "h200", "opt1")
    table = pq.read_table(path, partitioning=None)
    pq.write_table(studies.scaled(table, {"lts__t_sector_hit_rate.pct": 0.1}), path)
    judged(results)
    after = {path.name: path.read_bytes() for path in draw(results, names)}
    differ = {name for name in before if before[name] != after[name]}
    assert differ == {f"memory.{kind}" for kind in KINDS}
    rows = list(csv.DictReader(io.StringIO(after["memory.csv"].decode())))
    values = {(r["target"], r["metric"]): float(r["value"]) for r in rows if r["value"]}
    old = {(r["target"], r["metric"]): r for r in csv.DictReader(io.StringIO(before["memory.csv"].decode()))}
    assert values["opt1", "l2_hit_rate"] == pytest.approx(float(old["opt1", "l2_hit_rate"]["value"]) / 10)
    assert values["opt12", "l2_hit_rate"] == float(old["opt12", "l2_hit_rate"]["value"])


def test_a_value_beyond_the_axis_is_drawn_within_the_figure(recorded, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(recorded, results)
    path = studies.table(results, "metrics", "h200", "opt1")
    table = pq.read_table(path, partitioning=None)
    pq.write_table(studies.scaled(table, {"lts__t_sector_hit_rate.pct": 10.0}), path)
    figure, _ = drawn(judged(results), "memory")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO(), format="png", dpi=100)


def test_verdicts_change_the_overview(full, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(full, results)
    _, before = drawn(results, "claims_overview")
    assert {row["status"] for row in before} >= {"holds", "contradicted"}
    path = studies.table(results, "metrics", "h100", "opt1")
    table = pq.read_table(path, partitioning=None)
    pq.write_table(studies.scaled(table, {"gpc__cycles_elapsed.max": 100.0}), path)
    _, after = drawn(judged(results), "claims_overview")
    flipped = {
        (b["claim"], b["architecture"])
        for b, a in zip(before, after, strict=True)
        if b["status"] != a["status"]
    }
    assert flipped == {("opt1-cycles", "h100")}


def test_errors_are_one_sentence(recorded, tmp_path):
    with pytest.raises(ConfigError, match="no such figure; did you mean 'memory'"):
        draw(recorded, ["memry"])
    results = tmp_path / "results"
    shutil.copytree(recorded, results)
    (results / "compare" / "stalls.parquet").write_bytes(b"")
    with pytest.raises(InputRefused, match=r"stalls\.parquet: is not a readable Parquet table"):
        draw(results, ["stalls"])
