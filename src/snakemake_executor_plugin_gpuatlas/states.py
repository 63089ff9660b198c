"""Asks Slurm for the states of jobs, cluster by cluster, and says them in one word each."""

import os
import subprocess
from collections.abc import Iterable
from datetime import datetime, timedelta

# squeue's words (its manual, "job state codes") for jobs that have ended. All others are of jobs that will
# still do something: also COMPLETING, which a requeued job is until its processes are gone.
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
# Ends after which Slurm may start the job again; sacct says so only once it has.
MAYBE_REQUEUED = frozenset({"NODE_FAIL", "PREEMPTED"})


def states_command(tool: str, cluster: str, name: str) -> list[str]:
    """Return the command that lists the jobs called `name` on `cluster` (empty: the login node's own).

    `tool` is ``sacct``, or ``squeue`` where Slurm keeps no accounting.
    """
    where = [f"--clusters={cluster}"] if cluster else []
    if tool == "squeue":
        return ["squeue", *where, "--noheader", "--states=all", "--format=%i|%T", f"--name={name}"]
    since = f"{datetime.now() - timedelta(days=14):%Y-%m-%dT%H:00}"
    options = ["--allocations", "--parsable2", "--noheader", "--format=JobIdRaw,State"]
    return ["sacct", *where, *options, f"--starttime={since}", "--endtime=now", f"--name={name}"]


def parse(output: str) -> dict[str, str]:
    """Return states by job id, of lines ``id|state``.

    ``CANCELLED by 1000`` is CANCELLED, and ``CANCELLED+`` is how sacct marks a word that it cut.
    """
    states = {}
    for line in output.splitlines():
        job, _, state = line.strip().partition("|")
        if job.isdigit() and state:
            states[job] = state.split()[0].rstrip("+")
    return states


def ask(tool: str, cluster: str, name: str) -> dict[str, str]:
    """Return the states of the jobs called `name` on one cluster.

    Raises
    ------
    OSError, subprocess.SubprocessError
        If Slurm does not answer.
    """
    command = states_command(tool, cluster, name)
    return parse(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def live(cluster: str, name: str) -> dict[str, tuple[str, float]]:
    """Return the live jobs called `name` on one cluster, by comment (rule and wildcards).

    Each is its id and its submission time in seconds since 1970.

    Raises
    ------
    OSError, subprocess.SubprocessError
        If Slurm does not answer.
    """
    command = states_command("squeue", cluster, name)
    command[command.index("--format=%i|%T")] = "--format=%i|%T|%V|%k"
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    output = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=environment
    ).stdout
    rows = [line.strip().split("|", 3) for line in output.splitlines() if line.count("|") >= 3]
    return {comment: (job, float(submitted)) for job, state, submitted, comment in rows if state not in ENDED}


def cancel_commands(jobs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the commands that cancel jobs (id, cluster), each on its own cluster alone."""
    by_cluster: dict[str, list[str]] = {}
    for job, cluster in jobs:
        by_cluster.setdefault(cluster, []).append(job)
    return [
        ["scancel", *([f"--clusters={cluster}"] if cluster else []), *ids]
        for cluster, ids in by_cluster.items()
    ]
