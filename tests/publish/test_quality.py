"""Quality runs as a cell's: taken in, refused, and judged.

The runs in tests/data/quality are real ones of `gpuatlas.workload.quality.train_and_judge`: one step at 16³ of
one phantom on a CPU, three seeds of baseline and one of opt1, compared by benchmarks/bench_workload.py. The
card, which a CPU run has none of, is put in here, and so are other results where a test needs them.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests import studies

from gpuatlas.compare.run import compare
from gpuatlas.compare.verdicts import write_claims
from gpuatlas.errors import InputRefused
from gpuatlas.figures.claims_overview import draw
from gpuatlas.figures.inputs import Inputs
from gpuatlas.figures.style import use_style
from gpuatlas.files import sha256
from gpuatlas.publish.quality import import_quality
from gpuatlas.workload import distance

REAL = studies.ROOT / "tests" / "data" / "quality"
CLAIMS = studies.ROOT / "config" / "claims.yaml"
ARCHITECTURES = studies.ROOT / "config" / "architectures.yaml"
H100 = {"name": "NVIDIA H100 80GB HBM3", "cc": "9.0", "sm_count": 132}
METRICS = ("quality_distance", "quality_distance_samples")


def change(path: Path, **entries: object) -> None:
    """Change entries of a run's record; `gpu` lies in its environment."""
    record = json.loads(path.read_text())
    if "gpu" in entries:
        record["environment"]["gpu"] = entries.pop("gpu")
    path.write_text(json.dumps(record | entries))


def again(folder: Path) -> Path:
    """Compare the runs again, as benchmarks/bench_workload.py does."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("quality-*/quality.json"))]
    path = folder / "quality.json"
    path.write_text(json.dumps(distance.compare(runs)))
    return path


@pytest.fixture
def runs(tmp_path):
    """The real runs, as if on an H100."""
    folder = tmp_path / "runs"
    shutil.copytree(REAL, folder)
    for path in folder.glob("quality-*/quality.json"):
        change(path, gpu=H100)
    return folder


def good_samples(folder: Path, opt1: float = 0.92) -> None:
    """Let the samples of every run beat a blurred phantom, those of baseline's seeds by 0.90, 0.92, 0.94."""
    for seed in range(3):
        path = folder / f"quality-baseline-{seed}" / "quality.json"
        change(path, ms_ssim=[0.90 + 0.02 * seed], ms_ssim_blurred=[0.5])
    change(folder / "quality-opt1-0" / "quality.json", ms_ssim=[opt1], ms_ssim_blurred=[0.5])


def take(source: Path, results: Path, cell: str = "h100/opt1") -> Path:
    return import_quality(source, cell, results=results, architectures=ARCHITECTURES)


def judged(results: Path, source: Path) -> tuple[dict, dict]:
    """Return the verdict and the rows of h100/opt1 in a study without any capture, after `source` is taken."""
    studies.write_study(results, {})
    take(source, results)
    compare(results)
    write_claims(results, CLAIMS)
    verdicts = pq.read_table(results / "claims" / "verdicts.parquet").to_pylist()
    [verdict] = [v for v in verdicts if (v["claim"], v["architecture"]) == ("opt1-quality", "h100")]
    rows = {
        row["metric"]: row
        for row in pq.read_table(results / "compare" / "summary.parquet").to_pylist()
        if (row["architecture"], row["target"]) == ("h100", "opt1") and row["metric"] in METRICS
    }
    return verdict, rows


def test_the_comparison_of_the_real_runs_is_made_from_them(tmp_path):
    shutil.copytree(REAL, tmp_path / "runs")
    assert json.loads(again(tmp_path / "runs").read_text()) == json.loads((REAL / "quality.json").read_text())


def test_what_is_taken_names_its_runs(runs, tmp_path):
    path = take(runs / "quality.json", tmp_path / "results")
    assert path == tmp_path / "results/cells/h100/opt1/quality/quality.json"
    taken = json.loads(path.read_text())
    assert taken["loss"] == json.loads((REAL / "quality.json").read_text())["loss"]
    assert taken["source"] == {"name": "quality.json", "sha256": sha256(runs / "quality.json")}
    assert [(run["target"], run["seed"], run["steps"], run["gpu"]) for run in taken["runs"]] == [
        ("baseline", 0, 1, H100["name"]),
        ("baseline", 1, 1, H100["name"]),
        ("baseline", 2, 1, H100["name"]),
        ("opt1", 0, 1, H100["name"]),
    ]
    assert taken["runs"][3]["sha256"] == sha256(runs / "quality-opt1-0" / "quality.json")


def test_the_verdict_says_distance_card_steps_and_minutes(runs, tmp_path):
    good_samples(runs)
    for path in runs.glob("quality-baseline-*/quality.json"):
        change(path, steps=5310, seconds=240.0)
    change(runs / "quality-opt1-0" / "quality.json", steps=5300, seconds=60.0)
    results = tmp_path / "results"
    verdict, rows = judged(results, again(runs))
    assert verdict["status"] == "holds"
    # Of the real runs: |0.78812206 - 0.78818393| / 0.00009837, and opt1 the better one.
    assert rows["quality_distance"]["value"] == pytest.approx(-0.62897, abs=1e-5)
    assert rows["quality_distance_samples"]["value"] == pytest.approx(0, abs=1e-9)
    assert rows["quality_distance"]["unit"] == verdict["unit"] == "spreads"
    assert verdict["measured"] == rows["quality_distance"]["value"]
    assert verdict["coverage"] is None
    for words in (
        "is -0.629 spreads (claim: at most 2 spreads): holds",
        "NVIDIA H100 80GB HBM3, small_64 at 16³, volumes: 1",
        "opt1: 1 seed, 5300 steps in 1.0 min",
        "baseline: 3 seeds, 5310 steps in 4.0 min each; wall clock, no step times",
    ):
        assert words in verdict["explanation"]
    taken = results / "cells/h100/opt1/quality/quality.json"
    assert f"cells/h100/opt1/quality/quality.json@{sha256(taken)}" in verdict["inputs"]
    assert "NVIDIA H100 80GB HBM3" in (results / "claims" / "verdicts.md").read_text()


@pytest.mark.parametrize(("loss", "status"), [(0.7883, "holds"), (0.7884, "contradicted"), (0.5, "holds")])
def test_only_what_is_worse_contradicts(runs, tmp_path, loss, status):
    good_samples(runs, opt1=0.92 if status == "holds" else 0.5)
    change(runs / "quality-opt1-0" / "quality.json", loss=loss)
    verdict, rows = judged(tmp_path / "results", again(runs))
    assert verdict["status"] == status
    assert (rows["quality_distance"]["value"] > 2) == (status == "contradicted")
    assert (rows["quality_distance_samples"]["value"] > 2) == (status == "contradicted")


def test_samples_that_beat_no_blurred_phantom_leave_half_a_verdict(runs, tmp_path):
    verdict, rows = judged(tmp_path / "results", runs / "quality.json")
    assert verdict["status"] == "partly"
    reason = "baseline's samples do not beat a blurred phantom: the runs are too short"
    assert rows["quality_distance_samples"]["value"] is None
    assert rows["quality_distance_samples"]["reason"] == reason
    assert verdict["explanation"].endswith(f"1 of 2 checks not measured: {reason}")


def test_too_few_seeds_are_not_measured(runs, tmp_path):
    shutil.rmtree(runs / "quality-baseline-2")
    verdict, _ = judged(tmp_path / "results", again(runs))
    assert (verdict["status"], verdict["measured"]) == ("not_measured", None)
    assert verdict["explanation"] == "baseline has 2 seeds; a spread needs 3"


def test_no_run_of_the_target_is_not_measured(runs, tmp_path):
    shutil.rmtree(runs / "quality-opt1-0")
    verdict, _ = judged(tmp_path / "results", again(runs))
    assert verdict["explanation"] == "no run of opt1"


def test_seeds_without_a_spread_are_not_measured(runs, tmp_path):
    for path in runs.glob("quality-baseline-*/quality.json"):
        change(path, loss=0.5)
    verdict, _ = judged(tmp_path / "results", again(runs))
    assert verdict["status"] == "not_measured"
    assert "baseline's seeds do not differ: there is no spread" in verdict["explanation"]


@pytest.mark.parametrize(("steps", "words"), [(106, "1.06"), (300, "3"), (94, "0.94")])
def test_unequal_steps_are_not_compared(runs, tmp_path, steps, words):
    for path in runs.glob("quality-baseline-*/quality.json"):
        change(path, steps=100)
    change(runs / "quality-opt1-0" / "quality.json", steps=steps)
    verdict, _ = judged(tmp_path / "results", again(runs))
    assert verdict["status"] == "not_measured"
    assert f"opt1 ran {words} times baseline's steps" in verdict["explanation"]


def test_it_is_drawn_though_the_cell_has_no_capture(runs, tmp_path):
    good_samples(runs)
    judged(tmp_path / "results", again(runs))
    use_style()
    _, rows = draw(Inputs(tmp_path / "results"))
    statuses = {(row["claim"], row["architecture"]): row["status"] for row in rows}
    assert statuses["opt1-quality", "h100"] == "holds"
    assert statuses["opt1-quality", "h200"] == "not_measured"


def refusal(runs: Path, tmp_path: Path, cell: str = "h100/opt1") -> str:
    """Return the sentence with which the comparison is refused, once that nothing was written."""
    with pytest.raises(InputRefused) as caught:
        take(runs / "quality.json", tmp_path / "results", cell)
    assert not (tmp_path / "results").exists()
    return str(caught.value)


def test_runs_of_another_architecture_are_refused(runs, tmp_path):
    assert "NVIDIA H100 80GB HBM3 (compute capability 9.0), but cell a100/opt1 is of 8.0" in refusal(
        runs, tmp_path, "a100/opt1"
    )
    shutil.rmtree(runs)
    shutil.copytree(REAL, runs)
    assert "measured on a CPU (compute capability unknown), but cell h100/opt1 is of 9.0" in refusal(
        runs, tmp_path
    )


def test_a_comparison_of_another_target_is_refused(runs, tmp_path):
    assert "compares 'opt1' with baseline, but cell h100/opt2 is of 'opt2'" in refusal(
        runs, tmp_path, "h100/opt2"
    )


def test_a_comparison_without_its_runs_is_refused(runs, tmp_path):
    shutil.rmtree(runs / "quality-opt1-0")
    assert "has no run of opt1 beside it (quality-opt1-SEED/quality.json)" in refusal(runs, tmp_path)


def test_a_comparison_older_than_its_runs_is_refused(runs, tmp_path):
    change(runs / "quality-baseline-1" / "quality.json", loss=0.7)
    assert "loss: baseline_mean is stated as 0.788183" in refusal(runs, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("mean", 0.5, "loss: mean is stated as 0.5, but the runs beside it give 0.788"),
        ("baseline_sd", 1.0, "loss: baseline_sd is stated as 1.0, but the runs beside it give 9.8"),
        ("distance", 0.01, "loss: distance is stated as 0.01, but the runs beside it give 0.628"),
        ("distance", None, "loss: distance is stated as None, but the runs beside it give 0.628"),
        ("distance", "abc", "key 'loss.distance': 'abc' is not of type"),
        ("distance", ..., "key 'loss': 'distance' is a required property"),
        ("status", "not measured", "loss: status is stated as not measured, but the runs beside it give measured"),
        ("status", "good", "key 'loss.status': 'good' is not one of"),
    ],
)  # fmt: skip
def test_every_figure_is_computed_again(runs, tmp_path, key, value, says):
    path = runs / "quality.json"
    comparison = json.loads(path.read_text())
    if value is ...:
        del comparison["loss"][key]
    else:
        comparison["loss"][key] = value
    path.write_text(json.dumps(comparison))
    assert says in refusal(runs, tmp_path)


def test_samples_that_beat_no_blurred_phantom_cannot_be_called_measured(runs, tmp_path):
    path = runs / "quality.json"
    comparison = json.loads(path.read_text())
    comparison["ms_ssim"] = comparison["loss"]
    path.write_text(json.dumps(comparison))
    assert "ms_ssim: status is stated as measured, but the runs beside it give not measured" in (
        refusal(runs, tmp_path)
    )


@pytest.mark.parametrize(("seed", "says"), [(1, "is of seed 1, and so is"), (7, "holds the same run as")])
def test_a_run_counts_once(runs, tmp_path, seed, says):
    shutil.copytree(runs / "quality-baseline-1", runs / "quality-baseline-7")
    change(runs / "quality-baseline-7/quality.json", seed=seed)
    again(runs)
    said = refusal(runs, tmp_path)
    assert f"quality-baseline-7/quality.json: {says} {runs}/quality-baseline-1/quality.json" in said


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"seconds": -1.0}, "key 'seconds': -1.0 is less than the minimum of 0"),
        ({"seed": float("inf")}, "key 'seed': inf is no finite number"),
        ({"loss": float("nan")}, "key 'loss': nan is no finite number"),
        ({"ms_ssim": []}, "key 'ms_ssim': "),
        ({"steps": 0}, "key 'steps': 0 is less than the minimum of 1"),
        ({"target": "baseline"}, "is of target 'baseline', but was made under 'opt1'"),
    ],
)
def test_a_run_that_cannot_be(runs, tmp_path, entries, says):
    if "target" in entries:
        entries |= {"seed": 9}
    change(runs / "quality-opt1-0/quality.json", **entries)
    said = refusal(runs, tmp_path)
    assert said.startswith(f"{runs}/quality-opt1-0/quality.json: ")
    assert says in said


def test_runs_that_were_not_made_alike_are_refused(runs, tmp_path):
    change(runs / "quality-opt1-0" / "quality.json", gpu={**H100, "name": "NVIDIA H100 PCIe"})
    said = refusal(runs, tmp_path)
    assert "runs differ in gpu (NVIDIA H100 80GB HBM3, NVIDIA H100 PCIe)" in said
    change(runs / "quality-opt1-0" / "quality.json", gpu=H100, size=32)
    assert "runs differ in size (16, 32)" in refusal(runs, tmp_path)


@pytest.mark.parametrize("file", ["quality.json", "quality-opt1-0/quality.json"])
@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "is not valid JSON"), ("[]", "JSON object"), ("{}", "is a required property")],
)
def test_damaged_files_are_refused(runs, tmp_path, file, content, says):
    (runs / file).write_text(content if content != "{}" else '{"target": "opt1"}')
    said = refusal(runs, tmp_path)
    assert str(runs / file) in said
    assert says in said
    assert "\n" not in said


def test_the_command(runs, tmp_path):
    command = [str(Path(sys.executable).parent / "gpuatlas"), "quality", str(runs / "quality.json")]
    command += ["--cell", "h100/opt1", "--results", str(tmp_path), "--architectures", str(ARCHITECTURES)]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "cells/h100/opt1/quality/quality.json").is_file()
    done = subprocess.run(
        [*command[:3], "--cell", "b100/opt1"], check=False, capture_output=True, text=True, cwd=studies.ROOT
    )
    assert done.returncode == 2
    assert "has no architecture 'b100'" in done.stderr
