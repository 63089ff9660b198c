"""The report page: whole, alone, and saying what the tables say."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import studies

from gpuatlas.compare.claimfile import load_claims
from gpuatlas.compare.run import compare
from gpuatlas.compare.verdicts import write_claims
from gpuatlas.errors import InputRefused
from gpuatlas.figures import FIGURES
from gpuatlas.figures.draw import draw
from gpuatlas.files import sha256
from gpuatlas.publish.report import caption_html, write_report

CLAIMS = studies.ROOT / "config" / "claims.yaml"
CAPTIONS = studies.ROOT / "workflow" / "report"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Page(HTMLParser):
    """Elements, identifiers and references of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        if tag in ("script", "link", "iframe", "object", "embed"):
            self.loads.append(tag)
        if found.get("src"):
            self.loads.append(found["src"])
        for key in ("href", "xlink:href"):
            if key in found:
                (self.links if tag == "a" else self.loads).append(found[key])
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br", "img"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    results = studies.windows(tmp_path_factory.mktemp("report") / "results")
    compare(results)
    write_claims(results, CLAIMS)
    draw(results)
    write_report(results, CAPTIONS)
    return results


@pytest.fixture
def results(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "results"))


def text_of(results: Path) -> str:
    return write_report(results, CAPTIONS).read_text(encoding="utf-8")


def test_the_page_stands_alone_and_is_well_formed(finished):
    text = (finished / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids)), "identifiers of different figures clash"
    for load in page.loads:
        assert load.startswith(("#", "data:image/png;base64,")), load
        assert load[0] != "#" or load[1:] in page.ids, f"{load} points nowhere"
    for link in page.links:
        target = link.removeprefix("#")
        assert target in page.ids if link.startswith("#") else (finished / link).is_file(), link
    for reference in re.findall(r"url\((.*?)\)", text):
        assert reference.strip("\"'")[1:] in page.ids, reference
    assert "@import" not in text


def test_it_shows_every_claim_figure_and_digest(finished):
    text = (finished / "report.html").read_text(encoding="utf-8")
    for claim in load_claims(CLAIMS):
        assert f"<strong>{claim.name}</strong>" in text
        assert claim.text in text
    for name in FIGURES:
        assert f'<figure id="{name}">' in text
        assert f'href="figures/{name}.csv"' in text
        assert caption_html((CAPTIONS / f"{name}.rst").read_text()) in text
    for target, (launches, nanoseconds) in studies.RECORDED.items():
        assert sha256(studies.WINDOWS / target / "report.ncu-repz") in text
        assert f"<td>{launches}</td>" in text
        assert f"{nanoseconds / 1e6:.4g} ms" in text
    assert "NVIDIA H200, cc 9.0, 132 SMs" in text
    assert "h200/baseline, h200/opt1, h200/opt12" in text
    assert "comparable with nothing" in text
    assert "<li>a100/opt1: no recording here</li>" in text
    assert "63 not measured" in text


def test_every_check_of_a_claim_is_among_what_it_expects(finished):
    rows = re.findall(
        r"<strong>([\w-]+)</strong>.*?</td>\s*<td.*?>(.*?)</td>", (finished / "report.html").read_text(), re.S
    )
    expected = {claim: re.sub("<br>", "|", text) for claim, text in rows}
    expected = {claim: re.sub("<.*?>", "", text).split("|") for claim, text in expected.items()}
    assert len(expected) == len(load_claims(CLAIMS))
    assert expected["opt1-tensor"] == [
        "Tensor pipe utilisation: 9.98 % ± 2.5",
        "Tensor pipe utilisation of baseline: 1.45 % ± 0.75",
        "Tensor pipe utilisation: &gt; 1.05 × baseline",
    ]
    assert expected["opt1-quality"] == [
        "Loss of quality by validation loss; Loss of quality by MS-SSIM of samples: ≤ 2 spreads"
    ]
    [stalls] = expected["opt1-stalls-a100"]
    assert stalls.startswith("Long-latency dependency (L1TEX); Short-latency dependency (MIO); ")
    assert stalls.endswith(": &lt; baseline")
    assert expected["opt12-a100"] == [
        "Tensor pipe utilisation: &gt; 1.05 × opt2",
        "Tensor pipe utilisation: &lt; 0.95 × opt1",
    ]
    assert expected["opt1-cycles"] == ["Elapsed SM cycles: 0.2 × baseline, within a factor of 1.25"]
    assert expected["migration"][0] == (
        "Share of GPU time (Convolution, forward + Convolution, data gradient + Convolution, weight gradient + "
        "Convolution, direction not named + Matrix multiplication): as v100, ± 20 %"
    )
    assert stalls.count(";") == 11 + 1  # the last is that of &lt;


def test_claims_that_nothing_judges_are_folded_away_without_repeating_the_verdict(results):
    text = text_of(results)
    assert "No claim is judged here." in text
    assert text.index("<details>") < text.index("<strong>opt1-ipc</strong>") < text.index("</details>")
    assert "not measured (" not in text
    path = results / "claims" / "verdicts.parquet"
    rows = pq.read_table(path)
    judged = [row | {"status": "holds"} if row["claim"] == "opt1-ipc" else row for row in rows.to_pylist()]
    pq.write_table(pa.Table.from_pylist(judged, schema=rows.schema), path)
    text = text_of(results)
    assert Page(text).open == []
    assert (
        text.index("<strong>opt1-ipc</strong>")
        < text.index("<details>")
        < text.index("<strong>causes</strong>")
    )
    assert "arXiv:2606.19365" in text


def test_one_report_that_stands_for_two_cells_is_told(results):
    assert "One report, several cells" not in text_of(results)
    for target in ("baseline", "opt1"):
        path = results / "cells" / "h200" / target / "cell.json"
        source = {"name": f"{target}.ncu-rep", "sha256": "5" * 64}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"source": source}))
    text = text_of(results)
    assert "One report, several cells.</strong> h200/baseline, h200/opt1 were imported" in text


def test_the_axis_of_a_loss_begins_at_0(results):
    folder = results / "smoke"
    folder.mkdir()
    (folder / "loss.json").write_text(json.dumps({"loss": [0.8, 0.806, 0.799]}))
    [points] = re.findall('<polyline points="(.*?)"', text_of(results))
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert max(heights) - min(heights) < 2


def test_a_changed_table_changes_the_page(results):
    before = text_of(results)
    assert before == text_of(results), "the same tables give the same page"
    path = studies.table(results, "launches", "h200", "opt1")
    table = pq.read_table(path, partitioning=None)
    pq.write_table(studies.longer(table.slice(0, 50), 10.0), path)
    metrics = studies.table(results, "metrics", "h200", "opt1")
    kept = pq.read_table(metrics, partitioning=None, filters=[("launch_id", "<", 50)])
    rules = studies.table(results, "rules", "h200", "opt1")
    advice = pq.read_table(rules, partitioning=None, filters=[("launch_id", "<", 50)])
    pq.write_table(kept, metrics)
    pq.write_table(advice, rules)
    compare(results)
    write_claims(results, CLAIMS)
    draw(results, ["kernel_breakdown", "memory"])
    after = text_of(results)
    for name in ("kernel_breakdown", "memory"):
        drawing = re.compile(rf'<figure id="{name}">.*?</figure>', re.DOTALL)
        assert drawing.search(before).group(0) != drawing.search(after).group(0)


def test_training_is_shown_where_it_left_files_and_captioned_as_untrained_in_the_smoke_test(results):
    assert 'id="training"' not in text_of(results)
    smoke, cell = results / "smoke", results / "cells" / "h200" / "opt1" / "train"
    for folder, losses in ((smoke, [1.5, 1.25, 0.75]), (cell, [0.5, 0.4])):
        folder.mkdir(parents=True)
        record = {"network": "whole_head_128", "size": 16, "iterations": len(losses), "loss": losses}
        (folder / "loss.json").write_text(json.dumps(record))
        (folder / "sample.png").write_bytes(PIXEL)
    text = text_of(results)
    assert Page(text).open == []
    assert "The weights are untrained" in text
    assert "whole_head_128, 16³, 3 iterations" in text
    assert "Training loss by step: 1.5 to 0.75." in text
    assert "Training loss by step: 0.5 to 0.4." in text
    assert 'href="smoke/loss.json"' in text
    assert text.count("data:image/png;base64," + base64.b64encode(PIXEL).decode()) == 2
    (smoke / "loss.json").write_text("{")
    with pytest.raises(InputRefused, match=r"loss\.json: is not valid JSON"):
        write_report(results, CAPTIONS)


def test_what_is_written_in_a_table_cannot_become_markup(results):
    path = results / "cells" / "h200" / "opt1" / "cell.json"
    cell = json.loads(path.read_text())
    cell["notes"] = ["<script>alert(1)</script>"]
    path.write_text(json.dumps(cell))
    text = text_of(results)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_missing_figure_is_one_sentence(results):
    (results / "figures" / "memory.svg").unlink()
    with pytest.raises(InputRefused, match=r"memory\.svg: is missing; draw the figures first"):
        write_report(results, CAPTIONS)
