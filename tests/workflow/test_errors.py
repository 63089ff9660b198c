"""Bad input to the workflow: one sentence of ours on standard error, and the right exit status."""

import os
import re
import subprocess

import pytest
from tests.workflow.conftest import edit


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
        ("config.yaml", "site: auto", "site: ../config", r"config/sites/\.\./config\.yaml"),
        ("config.yaml", "stack: common", "stack: comon", r"'comon' is not in containers/stacks\.yaml; it has common"),
        ("config.yaml", "size: 128", "size: big", r"key 'workload\.size'"),
        ("config.yaml", "network: whole_head_128", "network: brats_192", r"key 'workload\.network': .*four modalities"),
        ("config.yaml", "epochs: 25", "epochs: 25\n  device: gpu", r"key 'train\.device': 'gpu' is not one of"),
        ("config.yaml", "epochs: 25", "epochs: 25\n  iterations: 2", r"key 'train': .*exactly one of epochs and iterations"),

        ("config.yaml", "recordings: {}", "recordings: {a100/opt1: none.ncu-rep}", r"none\.ncu-rep\) does not exist"),
        ("config.yaml", "recordings: {}", "recordings: {b100/opt1: Snakefile}", r"cell 'b100/opt1' is not in this study"),
        ("architectures.yaml", "site: expanse", "site: expense", r"'v100\.site': unknown 'expense'; did you mean 'expanse'"),
        ("targets.yaml", "precision: ieee", "precision: fp32", r"config/targets\.yaml: key 'baseline\.precision'"),
        ("config.yaml", "recordings_dir: recordings", "recordings_dir: recordingz", r"there is no folder 'recordingz'"),
        ("config.yaml", "recordings: {}", "recordings: {1: x}", r"config/config\.yaml: key 1 is not a text"),
        ("config.yaml", "site: auto", "site: [auto", r"config/config\.yaml: is not valid YAML \(line"),
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


def test_a_claim_of_an_unknown_metric(project, snakemake):
    claims = project / "config" / "claims.yaml"
    metric = re.search(r"metric: (\w+)", claims.read_text())[1]
    edit(claims, f"metric: {metric}", f"metric: {metric}x")
    done = snakemake(project, "--profile", "profiles/local", check=False)
    assert done.returncode == 2
    [line] = our_lines(done)
    assert "claims.yaml" in line
    assert f"{metric}x" in line
    assert metric in line


@pytest.mark.parametrize("damage", ["empty", "cut in half"])
def test_a_damaged_recording(project, snakemake, damage):
    report = project / "recordings/h200/opt1/report.ncu-repz"
    content = report.read_bytes()
    report.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    target = "results/cells/h200/opt1/cell.json"
    done = snakemake(project, target, "--profile", "profiles/local", check=False)
    assert done.returncode == 3
    [line] = our_lines(done)
    assert "recordings/h200/opt1/report.ncu-repz" in line
    assert not (project / "results").exists()
    assert "Traceback" not in done.stdout + done.stderr


def test_a_report_of_another_architecture(project, snakemake):
    config = project / "config" / "config.yaml"
    edit(config, "recordings: {}", "recordings: {a100/opt1: recordings/h200/opt1/report.ncu-repz}")
    done = snakemake(project, "results/cells/a100/opt1/cell.json", "--profile", "profiles/local", check=False)
    assert done.returncode == 3
    [line] = our_lines(done)
    assert "NVIDIA H200 (compute capability 9.0), but cell a100/opt1 is of 8.0" in line
    assert not (project / "results").exists()


@pytest.mark.parametrize("missing", ["plan.json", "environment.json", "report.ncu-repz"])
def test_a_recording_that_is_not_whole(project, snakemake, missing):
    (project / "recordings/h200/opt1" / missing).unlink()
    done = snakemake(project, "-n", "--profile", "profiles/local", check=False)
    assert done.returncode == 2
    [line] = our_lines(done)
    assert f"recordings/h200/opt1/{missing}: is no regular file" in line


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("a100/opt1", "cell a100/opt1 is absent: no recording here"),
        ("h200/opt9", "did you mean 'h200/opt"),
        ("a100/compile", "is not in this study; add compile to targets in config/config.yaml"),
    ],
)
def test_a_cell_that_cannot_be_had(project, snakemake, cell, says):
    done = snakemake(
        project, "-n", f"results/cells/{cell}/cell.json", "--profile", "profiles/local", check=False
    )
    assert done.returncode == 2
    [line] = our_lines(done)
    assert says in line
    assert "Traceback" not in done.stdout + done.stderr


def test_a_cell_whose_architecture_and_target_are_left_out(project, snakemake):
    edit(project / "config" / "config.yaml", "[v100, a100, h100, h200]", "[h100, h200]")
    target = "results/cells/a100/compile/cell.json"
    done = snakemake(project, "-n", target, "--profile", "profiles/local", check=False)
    assert done.returncode == 2
    [line] = our_lines(done)
    assert "add a100 to architectures and compile to targets in config/config.yaml" in line


def test_an_output_folder_that_is_a_file(project, snakemake):
    (project / "results").write_text("")
    done = snakemake(project, "--profile", "profiles/local", check=False)
    assert done.returncode == 1
    [line] = our_lines(done)
    assert line.startswith("gpuatlas: results: is a file")


@pytest.mark.skipif(
    os.geteuid() != 0 or "GPUATLAS_SYSTEM_TESTS" not in os.environ,
    reason="mounts a read-only folder: root and GPUATLAS_SYSTEM_TESTS=1",
)
def test_an_output_folder_that_cannot_be_written(project, snakemake):
    results = project / "results"
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", results], check=True)
    try:
        done = snakemake(project, "--profile", "profiles/local", check=False)
    finally:
        subprocess.run(["umount", results], check=True)
    assert done.returncode == 1
    [line] = our_lines(done)
    assert line.startswith("gpuatlas: results: this folder cannot be written")
    assert "Traceback" not in done.stdout + done.stderr
