"""Verdicts on cells that pass for whole steps: made from the recorded tables, with metrics multiplied."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from markdown_it import MarkdownIt
from tests import studies

from gpuatlas.compare import catalog
from gpuatlas.compare.claimfile import Check, load_claims
from gpuatlas.compare.claims import _status
from gpuatlas.compare.rows import read_rows
from gpuatlas.compare.run import compare
from gpuatlas.compare.verdicts import INPUTS, plain, write_claims
from gpuatlas.errors import ConfigError
from gpuatlas.tables import schema

CLAIMS = studies.ROOT / "config" / "claims.yaml"
CYCLES = "gpc__cycles_elapsed.max"


@pytest.fixture
def steps(recorded, tmp_path):
    """Return a function that writes cells as whole steps and gives the verdicts back."""

    def run(cells: dict[str, dict], claims: Path = CLAIMS, timings: dict[str, list[float]] | None = None):
        results = tmp_path / "results"
        studies.write_study(results, dict.fromkeys(cells, "captured"))
        for cell, options in cells.items():
            studies.add_step(results, recorded, cell, **{"like": "baseline", **options})
        for cell, times in (timings or {}).items():
            write_timings(results, cell, times)
        compare(results)
        write_claims(results, claims)
        table = pq.read_table(results / "claims" / "verdicts.parquet").to_pylist()
        return {(v["claim"], f"{v['architecture']}/{v['target']}", v["kind"]): v for v in table}

    return run


def write_timings(results, cell, times):
    entries = [
        {"variant": "autotune_off", "repeat": i, "steps": 10, "step_ms": ms, "data_ms": 0.0, "sm_mhz_before": 1e3,
         "sm_mhz_after": 1e3, "throttle": "", "host_hash": "x"}
        for i, ms in enumerate(times)
    ]  # fmt: skip
    path = results / "cells" / cell / "timing" / "timings.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(entries, schema=schema.TIMINGS), path)


@pytest.mark.parametrize(
    ("factor", "status"), [(0.2, "holds"), (0.24, "holds"), (0.6, "partly"), (1.1, "contradicted")]
)
def test_a_verdict_follows_the_measured_ratio(steps, factor, status):
    verdicts = steps({"h100/baseline": {}, "h100/opt1": {"metrics": {CYCLES: factor}}})
    verdict = verdicts["opt1-cycles", "h100/opt1", "paper_cell"]
    assert verdict["status"] == status
    assert verdict["measured"] == pytest.approx(factor)
    assert verdict["expected"] == 0.2
    assert verdict["unit"] == "×"
    assert verdict["coverage"] == 0.99
    assert verdict["window"] is None
    assert "h100/baseline" in verdict["explanation"]
    assert {entry.split("@")[0] for entry in verdict["inputs"]} >= {
        f"tables/metrics/architecture=h100/target={target}/part.parquet" for target in ("baseline", "opt1")
    }


def test_an_analogue_has_verdicts_of_its_own(steps):
    cells = {
        "h100/baseline": {},
        "h100/opt1": {"metrics": {CYCLES: 0.2}},
        "h200/baseline": {},
        "h200/opt1": {"metrics": {CYCLES: 3.0}},
    }
    verdicts = steps(cells)
    assert verdicts["opt1-cycles", "h100/opt1", "paper_cell"]["status"] == "holds"
    assert verdicts["opt1-cycles", "h200/opt1", "analogue"]["status"] == "contradicted"
    assert verdicts["opt1-cycles", "a100/opt1", "paper_cell"]["status"] == "not_measured"
    assert ("opt1-cycles", "h200/opt1", "paper_cell") not in verdicts


def test_a_target_without_effect_is_judged_by_nothing_else(steps):
    idle = {"evidence": {"in_effect": "false", "checks": []}}
    verdicts = steps({"h100/baseline": {}, "h100/opt1": {"metrics": {CYCLES: 0.2}, **idle}})
    assert verdicts["opt1-cycles", "h100/opt1", "paper_cell"]["status"] == "not_in_effect"
    verdicts = steps({"h100/baseline": idle, "h100/opt1": {"metrics": {CYCLES: 0.2}}})
    verdict = verdicts["opt1-cycles", "h100/opt1", "paper_cell"]
    assert verdict["status"] == "not_measured"
    assert "h100/baseline did not take effect" in verdict["explanation"]


def test_a_part_of_a_step_cannot_show_that_a_target_had_no_effect(steps):
    checks = [
        {"name": "tensor_time_min", "observed": 0.123456, "threshold": 0.5, "ok": False},
        {"name": "channels_last_max", "observed": None, "threshold": 0.1, "ok": None},
    ]
    evidence = {"in_effect": "false", "checks": checks, "source": ["kernel names of an import"]}
    imported = {"origin": "imported", "comparable": False, "coverage": None, "evidence": evidence}
    verdict = steps({"h100/baseline": {}, "h100/opt1": imported})["opt1-cycles", "h100/opt1", "paper_cell"]
    assert (verdict["status"], verdict["explanation"]) == ("not_measured", "coverage unknown")
    assert verdict["evidence"] == (
        "in effect: false, from kernel names of an import "
        "(tensor_time_min 0.123 against 0.5: fails; channels_last_max not observed)"
    )


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ({"window": "first 5 launches", "comparable": False, "coverage": None}, "window"),
        ({"window": "first 5 launches", "comparable": True}, "window"),
        ({"comparable": False, "coverage": None}, "coverage unknown"),
        ({"comparable": False}, "not comparable, by the cell's manifest"),
    ],
)
def test_what_is_no_whole_step_is_neither_judged_nor_a_reference(steps, manifest, reason):
    verdicts = steps({"h100/baseline": {}, "h100/opt1": manifest})
    verdict = verdicts["opt1-cycles", "h100/opt1", "paper_cell"]
    assert (verdict["status"], verdict["measured"]) == ("not_measured", None)
    assert verdict["explanation"] == reason
    verdicts = steps({"h100/baseline": manifest, "h100/opt1": {}})
    verdict = verdicts["opt1-cycles", "h100/opt1", "paper_cell"]
    assert (verdict["status"], verdict["measured"]) == ("not_measured", None)
    assert verdict["explanation"] == f"{reason}, h100/baseline"


def test_shares_of_classes_and_two_checks(steps):
    verdicts = steps({"h100/baseline": {}, "v100/baseline": {}, "a100/baseline": {"like": "opt1"}})
    assert verdicts["kernel-mix", "h100/baseline", "paper_cell"]["status"] == "holds"
    assert verdicts["kernel-mix", "h100/baseline", "paper_cell"]["measured"] == pytest.approx(94.88, abs=0.01)
    # The tables of opt1's window: forward convolutions and GEMM are 46 % of its time.
    assert verdicts["kernel-mix", "a100/baseline", "paper_cell"]["status"] == "contradicted"
    assert verdicts["causes", "a100/baseline", "paper_cell"]["status"] == "partly"
    assert verdicts["migration", "h100/baseline", "paper_cell"]["status"] == "holds"


def test_every_check_must_hold(steps):
    reasons = next(c for c in load_claims(CLAIMS) if c.name == "opt1-stalls-a100").checks
    assert len(reasons) == 12
    names = [
        f"smsp__average_warps_issue_stalled_{check.metric.removeprefix('stall_')}_per_issue_active.ratio"
        for check in reasons
    ]
    cells = {"a100/baseline": {}, "a100/opt1": {"metrics": dict.fromkeys(names, 0.5)}}
    assert steps(cells)["opt1-stalls-a100", "a100/opt1", "paper_cell"]["status"] == "holds"
    cells["a100/opt1"]["metrics"][names[3]] = 2.0
    assert steps(cells)["opt1-stalls-a100", "a100/opt1", "paper_cell"]["status"] == "partly"
    cells["a100/opt1"]["metrics"] = dict.fromkeys(names, 2.0)
    assert steps(cells)["opt1-stalls-a100", "a100/opt1", "paper_cell"]["status"] == "contradicted"


def test_speed_is_judged_by_unprofiled_step_times_only(steps):
    cells = {"h100/baseline": {}, "h100/opt2": {"duration": 0.1}}
    key = ("fusion", "h100/opt2", "paper_cell")
    untimed = steps(cells)[key]
    assert (untimed["status"], untimed["measured"]) == ("not_measured", None)
    assert untimed["explanation"].startswith("not timed; besides: Share of GPU time")
    times = {"h100/baseline": [100.0, 101, 99, 100, 100], "h100/opt2": [112.0, 113, 111, 112, 112]}
    assert steps(cells, timings=times)[key]["measured"] == pytest.approx(1.12)
    times["h100/opt2"] = times["h100/opt2"][:4]
    few = steps(cells, timings=times)[key]
    assert few["measured"] is None
    assert "only 4 repeats" in few["explanation"]


def test_quality_is_not_measured_without_a_measurement(steps):
    verdicts = steps({"h100/baseline": {}, "h100/opt1": {}})
    verdict = verdicts["opt1-quality", "h100/opt1", "paper_cell"]
    assert (verdict["status"], verdict["explanation"]) == ("not_measured", "no quality runs")


@pytest.mark.parametrize(
    ("kind", "measured", "status"),
    [
        ("at_least", 49.0, "contradicted"), ("at_least", 50.0, "holds"), ("at_most", 51.0, "contradicted"),
        ("at_most", 50.0, "holds"), ("value", 55.1, "contradicted"), ("value", 45.0, "holds"),
        ("near", 44.9, "contradicted"), ("near", 55.0, "holds"), ("rises", 6.0, "contradicted"),
        ("rises", 6.1, "holds"), ("falls", 0.99, "contradicted"), ("falls", -5.0, "holds"),
        ("ratio", 8.0, "partly"), ("ratio", 9.0, "holds"), ("ratio", 0.5, "contradicted"),
    ],
)  # fmt: skip
def test_kinds(kind, measured, status):
    tolerance = 0.0 if kind in ("at_least", "at_most") else 5.0
    check = Check("gpu_time", (), kind, 50.0, tolerance, None, "opt1", "baseline", None, None)
    assert _status(check, measured, 50.0) == status


def test_a_shortfall_may_count_as_partly():
    check = Check("gpu_time", (), "at_least", 90.0, 0.0, 50.0, "opt1", None, None, None)
    assert [_status(check, value, 90.0) for value in (90.0, 50.0, 49.0)] == [
        "holds",
        "partly",
        "contradicted",
    ]


def changed(tmp_path, change):
    """Return a claims file in a project's config folder with one thing changed."""
    raw = yaml.safe_load(CLAIMS.read_text())
    change(raw)
    folder = tmp_path / "config"
    folder.mkdir()
    for name in ("architectures", "targets"):
        (folder / f"{name}.yaml").write_text((CLAIMS.parent / f"{name}.yaml").read_text())
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump(raw, allow_unicode=True))
    return path


def claim(raw, name):
    return next(entry for entry in raw["claims"] if entry["id"] == name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda raw: claim(raw, "opt1-tensor")["checks"][0].update(metric="tensor_pip"),
            ["claim 'opt1-tensor'", "checks[0].metric", "'tensor_pip'", "did you mean 'tensor_pipe'?"],
        ),
        (
            lambda raw: claim(raw, "opt1-tensor")["reported"][0].update(metric="tensorpipe"),
            ["claim 'opt1-tensor'", "reported[0].metric", "did you mean 'tensor_pipe'?"],
        ),
        (
            lambda raw: claim(raw, "kernel-mix")["checks"][0].update(classes=["conv_fprob"]),
            ["claim 'kernel-mix'", "checks[0].classes", "did you mean 'conv_fprop'?"],
        ),
        (
            lambda raw: claim(raw, "kernel-mix")["checks"][0].update(metric="tensor_pipe"),
            ["claim 'kernel-mix'", "cannot be added"],
        ),
        (lambda raw: claim(raw, "causes").update(target="basline"), ["'target'", "did you mean 'baseline'?"]),
        (
            lambda raw: claim(raw, "migration")["reference"].update(architecture="v10"),
            ["reference.architecture", "did you mean 'v100'?"],
        ),
        (lambda raw: claim(raw, "opt1-l1").pop("reference"), ["claim 'opt1-l1'", "needs a 'reference'"]),
        (lambda raw: claim(raw, "causes").update(id="kernel-mix"), ["used twice"]),
        (
            lambda raw: claim(raw, "causes")["checks"][0].update(tolerence=3),
            ["unknown key", "tolerence", "did you mean 'tolerance'?"],
        ),
        (lambda raw: claim(raw, "causes")["checks"][0].pop("expected"), ["expected"]),
    ],
)
def test_a_wrong_claim_is_one_sentence(tmp_path, change, words):
    path = changed(tmp_path, change)
    with pytest.raises(ConfigError) as caught:
        load_claims(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for word in words:
        assert word in message


def test_the_claims_are_those_of_the_study():
    claims = load_claims(CLAIMS)
    assert len(claims) == 22
    raw = yaml.safe_load((studies.ROOT / "workflow" / "schemas" / "claims.schema.yaml").read_text())

    def undescribed(node, where=""):
        for key, entry in node.get("properties", {}).items():
            if "description" not in entry and "$ref" not in entry:
                yield f"{where}.{key}"
            yield from undescribed(entry, f"{where}.{key}")
            yield from undescribed(entry.get("items", {}), f"{where}.{key}")

    assert list(undescribed(raw)) == []


@pytest.mark.parametrize(
    "text",
    [
        "a | b, *c* and __d__, e_f", "<b>x</b> &lt; y", "1. not a list", "- not a list", "# no heading",
        "`code` [link](url) ![image](url)", "back\\slash \\| pipe", "~~struck~~ $x^2$", "two\nlines",
    ],
)  # fmt: skip
def test_a_claims_text_is_no_markup(text):
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    page = f"> {plain(text)}\n\n| why |\n|---|\n| {plain(text)} |\n"
    shown = [token for token in reader.parse(page) if token.type == "inline"]
    for token in (shown[0], shown[2]):
        assert {child.type for child in token.children} <= {"text", "text_special"}
        assert "".join(child.content for child in token.children) == " ".join(text.split())
    assert len(shown) == 3


def test_the_page_and_the_reported_numbers(steps, tmp_path):
    steps({"h100/baseline": {}, "h100/opt1": {"metrics": {CYCLES: 0.2}}})
    page = (tmp_path / "results" / "claims" / "verdicts.md").read_text()
    for entry in load_claims(CLAIMS):
        assert f"## {entry.name}" in page
        assert entry.text in page
    assert "| h100/opt1 | as in arXiv:2606.19365 | **holds** | 99.0% |" in page
    tensor = page.partition("## opt1-tensor\n")[2].partition("\n| cell")[0]
    assert [line for line in tensor.splitlines() if line.startswith("- ")] == [
        "- Tensor pipe utilisation: 9.98 % ± 2.5 (a quarter of the reported value, in percentage points)",
        "- Tensor pipe utilisation of baseline: 1.45 % ± 0.75 (half of the reported value, in percentage points)",
        "- Tensor pipe utilisation: \\> 1.05 × baseline",
    ]
    assert "- Math-pipe throttle: \\< baseline\n- Long-latency dependency (L1TEX): \\> baseline\n" in page
    reported = pq.read_table(tmp_path / "results" / "claims" / "reported.parquet").to_pylist()
    assert {(r["architecture"], r["target"], r["value"]) for r in reported} == {
        ("a100", "baseline", 1.45),
        ("a100", "opt1", 9.98),
    }
    assert {r["source"] for r in reported} == {"reported"}
    summary = pq.read_table(tmp_path / "results" / "compare" / "summary.parquet").to_pylist()
    assert {(r["source"], r["value"] is None) for r in summary} == {("measured", False), (None, True)}
    assert json.loads((tmp_path / "results" / "study.json").read_text())["cells"]


def test_the_manual_names_every_metric_and_class_that_a_claim_can_be_judged_by(recorded, tmp_path):
    manual = (studies.ROOT / "config" / "README.md").read_text()
    section = manual.partition("### A claim of your own\n")[2]
    names, _, classes = section.partition("|---|---|\n")[2].partition("\n`classes`: ")
    rows = [row for name in INPUTS for row in read_rows(recorded / "compare" / f"{name}.parquet")]
    judged = {row["metric"] for row in rows if row["scope"] == "class" or not row["name"]}
    assert set(re.findall(r"`(\w+)`", names)) == judged
    assert re.findall(r"`(\w+)`", classes) == [entry.name for entry in catalog.load().classes]
    example = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])
    added = load_claims(changed(tmp_path, lambda raw: raw["claims"].extend(example)))
    assert added[-1].name == "my-dram"


def test_a_claim_of_ones_own_is_told_with_its_source(steps, tmp_path):
    own = changed(tmp_path, lambda raw: claim(raw, "opt1-ipc").update(source="lab notebook"))
    steps({"a100/baseline": {}, "a100/opt1": {}}, own)
    page = (tmp_path / "results" / "claims" / "verdicts.md").read_text()
    section = page.partition("## opt1-ipc\n")[2].partition("\n## ")[0]
    assert "| a100/opt1 | as in lab notebook | " in section
    assert "arXiv" not in section
