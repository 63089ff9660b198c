"""What a dry run plans: the cells of each site, one cell alone, and what a change makes stale."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.workflow.conftest import edit

from gpuatlas.figures import CLAIM_FIGURES

CAPTURE = re.compile(r"Profiling (\S+) with Nsight Compute at (.*)")
CELL_JOBS = {"time_cell": 1, "train_cell": 1, "capture_cell": 1, "convert": 1, "describe": 1, "phantom": 1}
FIGURE_JOBS = {"figure", "report_page", "workflow_report", "all"}


def jobs(done: subprocess.CompletedProcess[str]) -> Counter[str]:
    """Jobs by rule, from the last table of job statistics."""
    table = (done.stdout + done.stderr).rsplit("Job stats:", 1)[1].split("total", 1)[0]
    return Counter({m[1]: int(m[2]) for m in re.finditer(r"^(\w+) +(\d+)$", table, re.MULTILINE)})


def stages(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Rules that would run, those of the figures as one."""
    return {"figure" if rule.startswith("figure_") else rule for rule in jobs(done)}


def text(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_all_sites_capture_every_unrecorded_cell_where_it_belongs(project, snakemake):
    done = snakemake(project, "-n", "--profile", "profiles/slurm", "--config", "site=all")
    planned = dict(CAPTURE.findall(text(done)))
    expected = {
        "v100": ("expanse", "partition gpu-shared", "1 GPU by --gpus", "containers/images/common.sif"),
        "a100": (
            "jetstream2",
            "partition gpu",
            "1 GPU a100 by --gres",
            "containers/images/common.docker.json",
        ),
        "h100": ("stampede3", "partition h100", "whole node", "containers/images/common.sif"),
    }
    assert set(planned) == {f"{a}/{t}" for a in expected for t in ("baseline", "opt1", "opt2", "opt12")}
    for cell, where in planned.items():
        for part in expected[cell.split("/")[0]]:
            assert part in where, (cell, where)


def test_one_cell_needs_its_own_jobs_only(project, snakemake):
    target = "results/cells/a100/opt1/cell.json"
    done = snakemake(project, "-n", target, "--profile", "profiles/slurm", "--config", "site=jetstream2")
    assert jobs(done) == Counter({**CELL_JOBS, "docker_image": 1})
    assert set(dict(CAPTURE.findall(text(done)))) == {"a100/opt1"}


def test_without_training_no_cell_trains(project, snakemake):
    config = project / "config" / "config.yaml"
    config.write_text(re.sub(r"train:\n  epochs: 25\n", "train: false\n", config.read_text()))
    target = "results/cells/v100/baseline/cell.json"
    done = snakemake(project, "-n", target, "--profile", "profiles/slurm", "--config", "site=expanse")
    assert "train_cell" not in jobs(done)
    assert jobs(done)["capture_cell"] == 1


def test_a_cell_runs_on_the_gpu_alone(project, snakemake):
    """On a machine that shows no GPU, training and timing are refused, not done on the CPU."""
    edit(project / "config" / "sites" / "local.yaml", "architectures: []", "architectures: [a100]")
    edit(project / "config" / "config.yaml", "    volumes: 64\n    size: 128", "    volumes: 2\n    size: 16")
    edit(project / "config" / "config.yaml", "  size: 128", "  size: 16")
    target = "results/cells/a100/opt1/cell.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        done = snakemake(
            project, target, "--profile", "profiles/local", "--config", "site=local", check=False
        )
    assert done.returncode == 1
    for stage in ("train", "timing"):
        said = (project / f"logs/{stage}/a100/opt1.log").read_text().splitlines()
        assert [line for line in said if line.startswith("gpuatlas: ")] == [
            "gpuatlas: This process sees no CUDA GPU; run on a GPU node, or with --device cpu."
        ], said
    assert not list((project / "results").glob("cells/*/*/t*/*"))


def test_locally_only_recordings_are_replayed(project, snakemake):
    planned = jobs(snakemake(project, "-n", "--profile", "profiles/local"))
    assert planned["replay"] == 3
    assert planned["convert"] == 3
    assert "capture_cell" not in planned


def test_a_finished_run_has_nothing_to_do(finished, snakemake):
    done = snakemake(finished, "-n", "--profile", "profiles/local")
    assert "Nothing to be done" in text(done)


@pytest.mark.parametrize(
    "lost",
    [
        "results/tables/launches/architecture=h200/target=opt1/part.parquet",
        "results/cells/h200/opt1/capture/plan.json",
        "results/compare/summary.csv",
        "results/figures/stalls.pdf",
        "results/config.json",
    ],
)
def test_a_lost_result_is_made_again(finished, snakemake, lost):
    (finished / lost).unlink()
    done = snakemake(finished, "-n", "--profile", "profiles/local")
    assert "Nothing to be done" not in text(done)


def change(path: Path) -> None:
    comment = "<!-- changed -->" if path.suffix == ".j2" else "# changed"
    path.write_text(path.read_text() + f"\n{comment}\n")


@pytest.mark.parametrize(
    ("changed", "redone"),
    [
        ("src/gpuatlas/figures/__init__.py", FIGURE_JOBS),
        ("src/gpuatlas/publish/report.py", {"report_page", "workflow_report", "all"}),
        ("workflow/report/roofline.rst", {"report_page", "workflow_report", "all"}),
        ("config/claims.yaml", {"claims", *FIGURE_JOBS}),
        ("src/gpuatlas/compare/kernels.py", {"compare", "claims", *FIGURE_JOBS}),
        ("src/gpuatlas/tables/write.py", {"convert", "describe", "compare", "claims", *FIGURE_JOBS}),
    ],
)
def test_a_changed_module_redoes_its_stage_and_nothing_upstream(finished, snakemake, changed, redone):
    change(finished / changed)
    planned = stages(snakemake(finished, "-n", "--profile", "profiles/local"))
    assert planned == redone


def test_the_claims_redraw_what_shows_them(finished, snakemake):
    change(finished / "config/claims.yaml")
    figures = {
        rule for rule in jobs(snakemake(finished, "-n", "--profile", "profiles/local")) if "figure_" in rule
    }
    assert figures == {f"figure_{name}" for name in CLAIM_FIGURES}


def test_a_figure_module_redraws_its_own_figure_only(finished, snakemake):
    change(finished / "src/gpuatlas/figures/roofline.py")
    planned = jobs(snakemake(finished, "-n", "--profile", "profiles/local"))
    assert set(planned) == {"figure_roofline", "report_page", "workflow_report", "all"}


def test_a_target_more_trains_and_profiles_nothing_again(finished, snakemake):
    path = finished / "config/targets.yaml"
    held = path.read_text()
    path.write_text(held + held[held.index("\nopt1:") :].split("\nopt2:")[0].replace("opt1:", "mine:"))
    planned = jobs(snakemake(finished, "-n", "--profile", "profiles/local"))
    assert planned["describe"] == 3  # they tell what the target is
    assert not {"smoke_train", "capture_cell", "replay", "time_cell", "train_cell"} & set(planned)


def test_a_target_s_own_definition_makes_its_training_stale(project, snakemake):
    # What the training makes does not matter here, only when it is made again.
    edit(project / "workflow/rules/train.smk", "(OMP_NUM_THREADS", "touch {output}; exit 0; (OMP_NUM_THREADS")
    run = ["results/smoke/loss.json", "--profile", "profiles/local"]
    snakemake(project, *run)
    path = project / "config/targets.yaml"
    edit(path, "label: Baseline", "label: As published")
    assert "Nothing to be done" in text(snakemake(project, "-n", *run))
    edit(path, "autotune: false", "autotune: true")
    assert set(jobs(snakemake(project, "-n", *run))) == {"smoke_train"}


def test_a_cell_is_not_stale_because_other_targets_are_edited(project, snakemake):
    """Snakemake knows nothing of these files but their times."""
    cell = "results/cells/a100/opt1"
    options = [f"{cell}/cell.json", "--profile", "profiles/slurm", "--config", "site=jetstream2"]
    made = [
        "containers/images/common.docker.json",
        *(f"{cell}/train/{name}" for name in ("steps.parquet", "loss.json", "sample.nii.gz", "sample.png")),
        *(f"{cell}/{stage}/environment.json" for stage in ("train", "timing")),
        *(f"{cell}/timing/{name}" for name in ("timings.parquet", "timeline.parquet", "evidence.json")),
        *(f"{cell}/capture/{name}" for name in ("report.ncu-repz", "plan.json", "environment.json")),
    ]
    phantom = yaml.safe_load((project / "config/config.yaml").read_text())["data"]["phantom"]
    made.insert(0, "data/phantom_{volumes}x{size}_seed{seed}/dataset.json".format(**phantom))
    for number, name in enumerate(made):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (2_000_000_000 + number,) * 2)
    path = project / "config/targets.yaml"
    path.write_text(path.read_text() + "# edited\n")
    os.utime(path, (2_100_000_000,) * 2)
    assert set(jobs(snakemake(project, "-n", *options))) == {"convert", "describe"}
    (project / f"{cell}/timing/timings.parquet").unlink()
    planned = {"time_cell", "capture_cell", "convert", "describe"}
    assert set(jobs(snakemake(project, "-n", *options))) == planned


def test_a_python_whose_path_holds_a_space(project, tmp_path):
    """Rules that Snakemake would start itself again for."""
    link = tmp_path / "an environment"
    link.symlink_to(sys.prefix)
    command = [link / "bin/python", "-m", "snakemake", "results/study.json", "results/unpacked.txt"]
    environment = os.environ | {
        "PATH": f"{link}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(project / "src"),
    }
    done = subprocess.run(
        [*command, "--profile", "profiles/local"],
        check=False,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_decoder_converts_again_and_captures_nothing(finished, snakemake):
    change(finished / "src/gpuatlas/ncurep/__init__.py")
    planned = jobs(snakemake(finished, "-n", "--profile", "profiles/local"))
    assert planned["convert"] == 3
    assert not {"capture_cell", "replay", "time_cell", "train_cell"} & set(planned)


def test_timing_timeline_and_capture_share_what_the_compiler_tuned(project, snakemake):
    target = "results/cells/a100/opt1/cell.json"
    done = snakemake(
        project, "-n", "-p", target, "--profile", "profiles/slurm", "--config", "site=jetstream2"
    )
    folder = 'env TORCHINDUCTOR_CACHE_DIR="$PWD"/results/cells/a100/opt1/.state/compiled gpuatlas '
    commands = re.findall(
        rf"gpuatlas launch [^\n]* -- {re.escape(folder)}(\w+)", text(done).replace(" && ", "\n")
    )
    assert sorted(commands) == ["capture", "timeline", "timing"]
    assert text(done).count("TORCHINDUCTOR_CACHE_DIR") == len(commands)
