"""Quality runs in the workflow: those of a recording and those of the user are taken, judged, and forgotten."""

import json
import shutil
from pathlib import Path

import pytest

REAL = Path(__file__).parents[1] / "data" / "quality"
VERDICTS = "results/claims/verdicts.csv"


def put(folder: Path, gpu: str) -> None:
    """Put the real comparison there, its runs as if made on `gpu` (they are a CPU's)."""
    shutil.copytree(REAL, folder)
    for path in folder.glob("quality-*/quality.json"):
        record = json.loads(path.read_text())
        record["environment"]["gpu"] = {"name": gpu, "cc": "9.0", "sm_count": 132}
        path.write_text(json.dumps(record))


def give(project: Path, cells: str) -> None:
    config = project / "config" / "config.yaml"
    text = config.read_text()
    at = text.index("\nquality: ") + 1
    config.write_text(text[:at] + f"quality: {cells}" + text[text.index("\n", at) :])


def verdict(project: Path, cell: str) -> str:
    [line] = [
        line
        for line in (project / VERDICTS).read_text().splitlines()
        if line.startswith(f'"opt1-quality","{cell}"')
    ]
    return line


def test_runs_are_judged_until_they_leave_the_study(finished, snakemake):
    put(finished / "recordings/h200/opt1/quality", "NVIDIA H200")
    put(finished / "runs", "NVIDIA H100 PCIe")
    give(finished, "{h100/opt1: runs/quality.json}")
    snakemake(finished, VERDICTS, "--profile", "profiles/local")
    assert "NVIDIA H200, small_64" in verdict(finished, "h200")
    assert "NVIDIA H100 PCIe, small_64" in verdict(finished, "h100")
    manifest = json.loads((finished / "results/cells/h200/opt1/cell.json").read_text())
    assert "quality/quality.json" in manifest["files"]
    give(finished, "{}")
    snakemake(finished, VERDICTS, "--profile", "profiles/local")
    assert not (finished / "results/cells/h100/opt1/quality").exists()
    assert "absent" in verdict(finished, "h100")
    assert "NVIDIA H200, small_64" in verdict(finished, "h200")


@pytest.mark.parametrize(
    ("cells", "status", "says"),
    [
        (
            "{h100/opt1: none.json}",
            2,
            "key 'quality': the comparison of h100/opt1 (none.json) does not exist",
        ),
        ("{b100/opt1: runs/quality.json}", 2, "key 'quality': cell 'b100/opt1' is not in this study"),
        ("{a100/opt1: runs/quality.json}", 3, "but cell a100/opt1 is of 8.0"),
    ],
)
def test_wrong_runs_are_one_sentence(project, snakemake, cells, status, says):
    put(project / "runs", "NVIDIA H100 PCIe")
    give(project, cells)
    done = snakemake(project, VERDICTS, "--profile", "profiles/local", check=False)
    assert done.returncode == status
    [line] = [line for line in done.stderr.splitlines() if line.startswith("gpuatlas: ")]
    assert says in line
    assert not (project / "results").exists()
