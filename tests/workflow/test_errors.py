"""Bad input to the workflow: one sentence of ours on standard error, and the right exit status."""

import re
from pathlib import Path

import pytest


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content, f"{path} no longer holds {old!r}"
    path.write_text(content.replace(old, new, 1))


def our_lines(done) -> list[str]:
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("gpuatlas: ")]


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("config.yaml", "stack: common", "stak: common", r"config/config\.yaml: unknown key 'stak'; did you mean 'stack'"),
        ("config.yaml", "  mode: configs", "  mdoe: configs", r"unknown key 'capture\.mdoe'; did you mean 'mode'"),
        ("config.yaml", "[v100, a100", "[v100, a1000", r"'a1000' is not in config/architectures\.yaml; did you mean 'a100'"),
        ("config.yaml", "opt12]", "opt21]", r"'opt21' is not in config/targets\.yaml; did you mean 'opt"),
        ("config.yaml", "site: auto", "site: expance", r"config/sites/expance\.yaml; did you mean 'expanse'"),
        ("config.yaml", "size: 128", "size: big", r"key 'workload\.size'"),
        ("config.yaml", "recordings: {}", "recordings: {a100/opt1: none.ncu-rep}", r"none\.ncu-rep\) does not exist"),
        ("config.yaml", "recordings: {}", "recordings: {b100/opt1: Snakefile}", r"cell 'b100/opt1' is not in this study"),
        ("architectures.yaml", "site: expanse", "site: expense", r"'v100\.site': unknown 'expense'; did you mean 'expanse'"),
        ("targets.yaml", "precision: ieee", "precision: fp32", r"config/targets\.yaml: key 'baseline\.precision'"),
        ("sites/expanse.yaml", "partition: gpu-shared", "partitoin: gpu-shared", r"config/sites/expanse\.yaml: .*partitoin"),
    ],
)  # fmt: skip
def test_wrong_configuration(project, snakemake, file, old, new, says):
    edit(project / "config" / file, old, new)
    done = snakemake(project, "-n", "--profile", "profiles/local", check=False)
    assert done.returncode == 2
    [line] = our_lines(done)
    assert re.search(says, line), line
    assert "Traceback" not in done.stdout + done.stderr


def test_a_claim_of_an_unknown_metric(finished, snakemake):
    claims = finished / "config" / "claims.yaml"
    metric = re.search(r"metric: (\w+)", claims.read_text())[1]
    edit(claims, f"metric: {metric}", f"metric: {metric}x")
    done = snakemake(finished, "--profile", "profiles/local", check=False)
    assert done.returncode == 1
    [line] = set(our_lines(done))
    assert "claims.yaml" in line
    assert f"{metric}x" in line
    assert metric in line


@pytest.mark.parametrize("damage", ["empty", "cut in half"])
def test_a_damaged_recording(project, snakemake, damage):
    report = project / "resources/recordings/h200/opt1/report.ncu-repz"
    content = report.read_bytes()
    report.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    target = "results/cells/h200/opt1/cell.json"
    done = snakemake(project, target, "--profile", "profiles/local", check=False)
    assert done.returncode == 1
    [line] = set(our_lines(done))
    assert "report.ncu-repz" in line
    assert not list((project / "results").rglob("part.parquet"))
    assert "Traceback" not in done.stdout + done.stderr


def test_a_report_of_another_architecture(project, snakemake):
    config = project / "config" / "config.yaml"
    edit(config, "recordings: {}", "recordings: {a100/opt1: resources/recordings/h200/opt1/report.ncu-repz}")
    done = snakemake(project, "results/cells/a100/opt1/cell.json", "--profile", "profiles/local", check=False)
    assert done.returncode == 1
    [line] = set(our_lines(done))
    assert "NVIDIA H200 (compute capability 9.0), but cell a100/opt1 is of 8.0" in line
