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
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from tests import studies

from gpuatlas.compare.run import TABLES, compare
from gpuatlas.compare.verdicts import write_claims
from gpuatlas.config import load_named
from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.figures import CLAIM_FIGURES, FIGURES
from gpuatlas.figures.draw import draw
from gpuatlas.figures.inputs import Inputs
from gpuatlas.figures.priority import told_apart
from gpuatlas.figures.style import BLUE, CLASSES, Bar, bars, ink, short, use_style

CLAIMS = studies.ROOT / "config" / "claims.yaml"
KINDS = ("svg", "png", "pdf", "csv")
COLUMN, PAGE, TALLEST = 3.5, 7.16, 9.0  # inches: a column of a page, both of its columns
SMALLEST = 6.0  # points
UNLIKE_BARS = ("study_matrix", "roofline", "claims_overview")


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


@pytest.fixture(scope="module")
def wide(recorded, tmp_path_factory):
    """Every target of the project on one GPU of a long name: a window, imports, targets not in effect."""
    results = tmp_path_factory.mktemp("wide") / "results"
    targets = load_named(studies.ROOT, "targets")
    studies.write_study(results, {})
    study = json.loads((results / "study.json").read_text())
    study["targets"] = targets
    study["architectures"] = {
        "h200": study["architectures"]["h200"] | {"label": "RTX 6000 Ada"},
        "a100": study["architectures"]["a100"],
    }
    study["cells"] = [
        {
            "cell": f"{a}/{t}",
            "architecture": a,
            "target": t,
            "origin": "absent" if a == "a100" else "imported",
        }
        for a in study["architectures"]
        for t in targets
    ]
    (results / "study.json").write_text(json.dumps(study))
    evidence = {"in_effect": "false", "checks": []}
    for number, target in enumerate(targets):
        window = "first launches of a run" if number == 0 else None
        studies.add_step(
            results, recorded, f"h200/{target}", like="opt12", origin="imported", window=window,
            comparable=False, coverage=None, evidence=evidence,
        )  # fmt: skip
    return judged(results)


@pytest.fixture(scope="module")
def many(recorded, tmp_path_factory):
    """Every target of the project on three GPUs: more captures than a page has room for in one column."""
    results = tmp_path_factory.mktemp("many") / "results"
    targets = load_named(studies.ROOT, "targets")
    studies.write_study(results, {})
    study = json.loads((results / "study.json").read_text())
    study["targets"] = targets
    del study["architectures"]["h100"]
    names = [(a, t) for a in study["architectures"] for t in targets]
    study["cells"] = [{"architecture": a, "target": t, "origin": "captured"} for a, t in names]
    (results / "study.json").write_text(json.dumps(study))
    for architecture, target in names:
        studies.add_step(results, recorded, f"{architecture}/{target}", like="opt12")
    assert len(names) > 16
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
    """Return what is written in a figure; of tick labels, which matplotlib keeps in store, those within view."""
    panels = figure.findobj(Axes)
    ticks = {id(text) for axes in panels for axis in (axes.xaxis, axes.yaxis) for text in axis.findobj(Text)}
    shown = [t for t in figure.findobj(Text) if t.get_text().strip() and id(t) not in ticks]
    for axes in panels:
        if not axes.axison:
            continue
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            if not axis.get_tick_params().get("labelbottom", True):
                continue
            places = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
            shown += [
                label for at, label in places if min(low, high) <= at <= max(low, high) and label.get_text()
            ]
    return shown


@pytest.mark.parametrize("study", ["recorded", "empty", "full", "wide", "many"])
@pytest.mark.parametrize("name", FIGURES)
def test_it_fits_a_page_and_nothing_is_cut_off_too_small_or_overlapping(name, study, request):
    figure, _ = drawn(request.getfixturevalue(study), name)
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canvas.draw()
    renderer, frame = canvas.get_renderer(), figure.bbox
    width, height = figure.get_size_inches()
    assert width == pytest.approx(COLUMN) or (study == "many" and width == pytest.approx(PAGE))
    assert height <= TALLEST
    shown = texts(figure)
    assert shown
    boxes = [text.get_window_extent(renderer) for text in shown]
    for text, box in zip(shown, boxes, strict=True):
        assert within(box, frame), text
        assert text.get_fontsize() >= SMALLEST, text
    for axes in figure.findobj(Axes):
        assert within(axes.get_tightbbox(renderer), frame), axes
    for one, other in combinations(range(len(boxes)), 2):
        clash = boxes[one].shrunk(0.98, 0.9).overlaps(boxes[other].shrunk(0.98, 0.9))
        assert not clash, (shown[one], shown[other])


def test_no_number_lies_on_a_bar_of_another_line(full):
    figure, _ = drawn(full, "kernel_breakdown")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.findobj(Axes):
        bars = [patch.get_window_extent() for container in axes.containers for patch in container]
        for text in axes.texts:
            box = text.get_window_extent(canvas.get_renderer())
            assert sum(bar.width > 0 and box.shrunk(1, 0.6).overlaps(bar) for bar in bars) <= 1, text


@pytest.mark.parametrize("study", ["recorded", "full", "wide", "many"])
@pytest.mark.parametrize("name", [name for name in FIGURES if name not in UNLIKE_BARS])
def test_a_number_stands_behind_its_bar_or_on_a_plain_end_of_it(name, study, request):
    figure, _ = drawn(request.getfixturevalue(study), name)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.findobj(Axes):
        bars = [patch for container in axes.containers for patch in container]
        plain = [patch for patch in axes.patches if patch not in bars and not patch.get_hatch()]
        for text in axes.texts:
            box = text.get_window_extent(canvas.get_renderer()).shrunk(1, 0.6)
            under = [bar for bar in bars if bar.get_width() and box.overlaps(bar.get_window_extent())]
            for bar in under:
                extent = bar.get_window_extent()
                assert extent.x0 <= box.x0, text
                assert box.x1 <= extent.x1, text
            held = [patch for patch in plain if box.overlaps(patch.get_window_extent())]
            assert bool(under) == bool(held), text
            for patch in held:
                extent = patch.get_window_extent()
                assert extent.x0 <= box.x0, text
                assert box.x1 <= extent.x1, text


@pytest.mark.parametrize("value", [0.0, 3.0, 30.0, 48.0, 52.0, 70.0, 97.0, 100.0, 130.0])
@pytest.mark.parametrize("reported", [None, 2.0, 50.0, 93.0, 100.0])
def test_a_number_keeps_clear_of_the_mark_of_a_reported_one_and_within_the_panel(value, reported):
    use_style()
    figure = Figure(figsize=(0.6, 0.105))
    axes = figure.add_axes((0, 0, 1, 1))
    bars(axes, [Bar("", value, BLUE, "xxxx", reported=reported)], 100, 0.6)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    [text] = axes.texts
    box = text.get_window_extent(canvas.get_renderer())
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1 + 0.03 * figure.dpi
    for line in axes.lines:
        assert not box.shrunk(0.98, 1).overlaps(line.get_window_extent())


def test_numbers_have_three_digits_and_two_decimals_at_most():
    written = {0: "0", 0.004: "<0.01", 0.1: "0.10", 4.8: "4.80", 9.996: "10.0", 64.4: "64.4", 99.96: "100"}
    written |= {535.2: "535", 3350: "3350"}
    assert {value: short(value) for value in written} == written


def test_a_number_on_a_bar_is_legible_on_every_colour():
    assert ink(BLUE) == "white"
    assert {ink(look.colour) for look in CLASSES.values() if look.colour != BLUE} == {"black"}


def test_kernels_of_a_panel_have_different_labels(recorded):
    figure, rows = drawn(recorded, "priority")
    for target in studies.RECORDED:
        names = {row["name"] for row in rows if row["target"] == target}
        assert len(set(told_apart(sorted(names)))) == len(names) > 4
    said = [text.get_text() for text in texts(figure)]
    assert "sm90 fprop tf32 nhwc 64x64x32" in said
    assert "nchwToNhwc<float,float,float,0,1,0>" in said
    assert "nchwToNhwc<float,float,float,0,1,2>" in said


def test_kernels_of_one_name_are_told_apart_by_what_differs():
    xmma = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize64x64x8_{}_g1_ffma"
    split = "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize{}_execute_segment_k_on"
    long = "scan<std::array<unsigned long long,4>,std::plus<unsigned long long>,{}>"
    assert told_apart([xmma.format("stage3"), "fill<int>", xmma.format("stage4")]) == [
        "sm80 fprop f32 nchw 64x64x8 …stage3",
        "fill",
        "sm80 fprop f32 nchw 64x64x8 …stage4",
    ]
    assert told_apart([split.format("64x64x32"), split.format("256x128x32")]) == [
        "sm90 wgrad tf32 64x64x32 seg-k",
        "sm90 wgrad tf32 256x128x32 seg-k",
    ]
    assert told_apart([long.format(1), long.format(2)]) == ["scan …1", "scan …2"]
    assert told_apart([long.format("a" * 60), long.format("b" * 60)]) == ["scan (1)", "scan (2)"]


def test_titles_of_priorities_are_those_of_the_other_figures(full):
    said = [text for text in texts(drawn(full, "priority")[0]) if text.get_fontweight() == "bold"]
    assert {text.get_text() for text in said} == {"V100", "A100", "H100", "H200"}
    assert {text.get_fontsize() for text in said} == {7.5}


def test_windows_are_titled_as_such_and_said_to_be_incomparable(recorded):
    for name in FIGURES:
        if name in ("study_matrix", "claims_overview"):
            continue
        figure, _ = drawn(recorded, name)
        said = " ".join(" ".join(t.get_text() for t in texts(figure)).split())
        assert "Windows: first launches only, not comparable." in said, name
        assert said.split().count("window") == len(studies.RECORDED), name
        a100 = "opt2, opt12" if name == "pipe_utilization" else "(all)"  # whose other cells are reported
        assert f"absent: V100 (all) · A100 {a100} · H100 (all) · H200 opt2" in said, name


def test_a_figure_without_data_says_so(empty):
    for name in FIGURES:
        figure, rows = drawn(empty, name)
        said = " ".join(t.get_text() for t in texts(figure))
        assert "absent" in said, name
        if name not in ("study_matrix", "claims_overview"):
            measured = [row for row in rows if row.get("source") == "measured" and row["value"] is not None]
            assert measured == []
            if name != "pipe_utilization":  # it still shows what the paper reports
                assert "No data: no cell has a profile" in said, name


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


def faces(figure) -> list[tuple[set[bool], int]]:
    """Return for each panel with bars whether its bars are hollow, and its number of hatched stubs."""
    found = []
    for axes in figure.findobj(Axes):
        patches = [patch for container in axes.containers for patch in container]
        stubs = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_hatch() and p not in patches]
        if patches:
            found.append(({patch.get_facecolor()[3] == 0 for patch in patches}, len(stubs)))
    return found


def test_reported_numbers_are_hollow_measured_ones_filled_and_unreported_ones_quiet(recorded):
    figure, _ = drawn(recorded, "pipe_utilization")
    said = [t.get_text() for t in texts(figure)]
    assert said.count("reported") == 2
    assert said.count("n/r") == 6
    assert faces(figure) == [({True}, 0)] * 2 + [({False}, 0)] * 3


def test_a_reported_number_beside_a_measured_one_is_a_hollow_mark(full):
    figure, rows = drawn(full, "pipe_utilization")
    marks = {line.get_xdata()[0]: line for axes in figure.findobj(Axes) for line in axes.lines}
    assert set(marks) == {1.45, 9.98}
    assert all(line.get_markerfacecolor() == "white" for line in marks.values())
    assert sum(row["source"] == "reported" for row in rows) == 2


def test_a_target_that_is_not_in_effect_is_marked(wide, full):
    said = [t.get_text() for t in texts(drawn(wide, "memory")[0])]
    assert "opt1†" in said
    notes = " ".join(said)
    assert "†: target NOT in effect (h200/baseline, " in notes
    assert "imported" in said
    assert "Imported: coverage unknown, not comparable." in notes
    said = [t.get_text() for t in texts(drawn(wide, "study_matrix")[0])]
    assert "coverage ?" in said
    assert "coverage unknown" in said
    said = [t.get_text() for t in texts(drawn(full, "memory")[0])]
    assert "opt1" in said
    assert said.count("step 99.0%") == 16
    assert not any("†" in text for text in said)


def test_a_metric_that_was_not_collected_is_hatched_and_said(recorded, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(recorded, results)
    path = studies.table(results, "metrics", "h200", "opt1")
    kept = pq.read_table(path, partitioning=None, filters=[("metric", "!=", "lts__t_sector_hit_rate.pct")])
    pq.write_table(kept, path)
    figure, _ = drawn(judged(results), "memory")
    said = [t.get_text() for t in texts(figure)]
    assert said.count("n/c") == 1
    assert any("n/c: not collected." in text for text in said)


def legend_of(figure):
    [legend] = [axes.get_legend() for axes in figure.findobj(Axes) if axes.get_legend()]
    return legend


def test_a_legend_names_only_what_is_drawn(recorded):
    figure, _ = drawn(recorded, "roofline")
    lines = [line for axes in figure.findobj(Axes) if axes.axison for line in axes.lines]
    plotted, named = (
        {(line.get_marker(), line.get_color()) for line in found if line.get_marker() != "None"}
        for found in (lines, legend_of(figure).get_lines())
    )
    assert plotted == named
    figure, _ = drawn(recorded, "study_matrix")
    assert [text.get_text() for text in legend_of(figure).get_texts()] == ["window", "absent"]


def looks(patches) -> set[tuple]:
    return {(patch.get_facecolor(), patch.get_hatch() or "") for patch in patches if patch.get_fill()}


@pytest.mark.parametrize("name", ["priority", "stalls"])
def test_colours_that_no_label_tells_are_in_the_legend(name, recorded):
    figure, _ = drawn(recorded, name)
    bars = [patch for axes in figure.findobj(Axes) for container in axes.containers for patch in container]
    assert looks(bars) == looks(legend_of(figure).get_patches())


def test_a_captured_cell_is_not_drawn_as_absent_where_another_one_is_missing(recorded, tmp_path):
    studies.write_study(tmp_path, {"h200/baseline": "captured"})
    studies.add_step(tmp_path, recorded, "h200/baseline", like="baseline")
    figure, rows = drawn(judged(tmp_path), "claims_overview")
    told = {row["claim"]: row["explanation"] for row in rows if row["architecture"] == "h200"}
    assert told["migration"].startswith("absent: ")
    assert "?" in [text.get_text() for text in texts(figure)]


def test_question_marks_are_explained(recorded, full, wide):
    said = [text.get_text() for text in texts(drawn(recorded, "claims_overview")[0])]
    assert "captured, but the claim needs more" in said
    meaning = "in effect: ? = the evidence does not tell whether the target took effect."
    for study, unknown in ((recorded, True), (full, False), (wide, False)):
        said = [text.get_text() for text in texts(drawn(study, "study_matrix")[0])]
        assert ("in effect: ?" in said) == (meaning in said) == unknown


def test_peaks_have_units_and_as_many_digits_everywhere(recorded):
    said = [text.get_text() for text in texts(drawn(recorded, "roofline")[0])]
    assert "TF32 515\nFP32 64.4\nDRAM 4.80" in said
    assert {"TF32 peak (TFLOP/s)", "FP32 peak (TFLOP/s)", "DRAM peak (TB/s)"} <= set(said)


def test_notes_fill_little_of_a_figure(recorded):
    for name in ("memory", "occupancy_ipc"):
        figure, _ = drawn(recorded, name)
        lowest = min(axes.get_position().y0 for axes in figure.findobj(Axes) if axes.axison)
        assert lowest * figure.get_figheight() < 0.5, name


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


def test_which_figures_need_the_claims(recorded, tmp_path):
    """The workflow draws the others again only when a comparison has changed."""
    results = tmp_path / "results"
    shutil.copytree(recorded, results)
    shutil.rmtree(results / "claims")
    for name in FIGURES:
        if name in CLAIM_FIGURES:
            with pytest.raises(InputRefused, match="claims"):
                draw(results, [name])
        else:
            draw(results, [name])
