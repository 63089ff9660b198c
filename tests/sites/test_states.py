"""How Slurm is asked for the states of jobs, and how its answers are read."""

import pytest

pytest.importorskip("snakemake_executor_plugin_slurm")

from snakemake_executor_plugin_gpuatlas.states import ask, cancel_commands, live, parse, states_command


def test_states_are_one_word():
    sacct = "17|COMPLETED\n18|CANCELLED by 1000\n19|CANCELLED+\n20|NODE_FAIL\n"
    assert parse(sacct) == {"17": "COMPLETED", "18": "CANCELLED", "19": "CANCELLED", "20": "NODE_FAIL"}


def test_squeue_prints_its_cluster_first():
    assert parse("CLUSTER: stampede3\n4|RUNNING\n\n") == {"4": "RUNNING"}


def test_a_requeued_job_has_its_last_state():
    assert parse("4|PREEMPTED\n4|PENDING\n") == {"4": "PENDING"}


def test_each_cluster_is_asked_by_itself():
    assert "--clusters=east" in states_command("sacct", "east", "run")
    assert not any("clusters" in part for part in states_command("sacct", "", "run"))
    assert "--name=run" in states_command("squeue", "east", "run")
    assert not any(part.startswith("--start") for part in states_command("squeue", "east", "run"))


def test_jobs_are_cancelled_where_they_are():
    assert cancel_commands([("5", "east"), ("5", "west"), ("6", "east"), ("7", "")]) == [
        ["scancel", "--clusters=east", "5", "6"],
        ["scancel", "--clusters=west", "5"],
        ["scancel", "7"],
    ]


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """An squeue that says what a real one said, for the parsing of its lines."""
    program = tmp_path / "squeue"
    lines = [
        "CLUSTER: east",
        "7|RUNNING|1795996211|rule_train_cell_wildcards_a100_opt1",
        "8|COMPLETED|1795996212|rule_x",
        "9|PENDING|1795996213|a|b",
        "10|COMPLETING|1795996214|rule_y",
    ]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_live_jobs_are_known_by_rule_and_wildcards(squeue):
    assert live("east", "run") == {
        "rule_train_cell_wildcards_a100_opt1": ("7", 1795996211),
        "a|b": ("9", 1795996213),
        "rule_y": ("10", 1795996214),
    }


def test_no_answer_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="sacct"):
        ask("sacct", "", "run")
