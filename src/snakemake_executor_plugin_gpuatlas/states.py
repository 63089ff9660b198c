"""Asks Slurm for the states of jobs, cluster by cluster, and says them in one word each."""

import subprocess
from collections.abc import Iterable
from datetime import datetime, timedelta

# States of jobs that will still do something.
LIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "PREEMPTED", "STOPPED"}
)


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


def live(cluster: str, name: str) -> dict[str, str]:
    """Return the ids of the live jobs called `name` on one cluster, by comment: rule and wildcards.

    Raises
    ------
    OSError, subprocess.SubprocessError
        If Slurm does not answer.
    """
    command = states_command("squeue", cluster, name)
    command[command.index("--format=%i|%T")] = "--format=%i|%T|%k"
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [line.strip().split("|", 2) for line in output.splitlines() if line.count("|") >= 2]
    return {comment: job for job, state, comment in rows if state in LIVE}


def cancel_commands(jobs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the commands that cancel jobs (id, cluster), each on its own cluster alone."""
    by_cluster: dict[str, list[str]] = {}
    for job, cluster in jobs:
        by_cluster.setdefault(cluster, []).append(job)
    return [
        ["scancel", *([f"--clusters={cluster}"] if cluster else []), *ids]
        for cluster, ids in by_cluster.items()
    ]
