"""Snakemake's Slurm executor with its known faults worked around: ``executor: gpuatlas`` in profiles/slurm.

A thin layer over snakemake-executor-plugin-slurm 2.8. What it changes, and why:

* A job that somebody cancels hangs the run for ever: sacct says ``CANCELLED by 1000``, which the plugin
  compares with ``CANCELLED`` since 2.4.0
  (https://github.com/snakemake/snakemake-executor-plugin-slurm/blob/v2.8.0/snakemake_executor_plugin_slurm/job_status_query.py).
  Here the run ends, and the job is not submitted again: who cancels a job means it.
* States are kept by job id over ``sacct --clusters all``, so that a failed job is taken for successful
  where another cluster has a job of the same id
  (https://github.com/snakemake/snakemake-executor-plugin-slurm/pull/56). Here each job's own cluster is
  asked, and a second job of an id that is in use is cancelled and refused.
* Ctrl-C runs ``scancel ID --clusters=all``, which also kills a stranger job of yours with that id
  (https://github.com/snakemake/snakemake-executor-plugin-slurm/issues/397). Here each job is cancelled on
  its cluster.
* Without accounting sacct never reports a job, and squeue forgets ended ones
  (https://github.com/snakemake/snakemake-executor-plugin-slurm/pull/336). Here the site file chooses
  (``slurm.status``), and a job that squeue has forgotten is judged by its outputs, which are written last
  and whole, after its submission.
* A job that is cancelled while it is requeued has no further record, and sacct says ``REQUEUED`` for ever.
  Here squeue is asked too, and its word ends the job.
* One cluster that does not answer leaves all jobs without a state. Here the others' are seen.
* While the controller is down each submission fails at once and costs an attempt. Here it is put off.
* A driver that was killed leaves its jobs running, and the next run submits them again: two jobs write the
  same files. Here they are taken over.
* Without an account the plugin guesses one from your last job. Here Slurm takes your default.
* ``--export=ALL`` is sbatch's default, and some sites ask not to give the option (Stampede3).
* In the job, the step runs under `gpuatlas.supervise`, which hands Slurm's SIGTERM on to the training.
"""

import asyncio
import contextlib
import shlex
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as slurm
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from snakemake_executor_plugin_gpuatlas.states import ENDED, MAYBE_REQUEUED, ask, cancel_commands, live

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

RUN_NAME = Path(".snakemake") / "slurm_run_name"
# squeue may miss a job for a moment; after so long it has forgotten it.
FORGOTTEN_AFTER_S = 30.0
# Between tries to submit while Slurm does not answer; then the attempt has failed. Ten minutes in all.
PAUSES_S = (10, 20, 40, 80, 150, 300)

plain_submit_command = slurm.get_submit_command


def submit_command(job: JobExecutorInterface, *arguments: Any, **options: Any) -> str:
    """Return the plugin's sbatch command without ``--export=ALL``."""
    return plain_submit_command(job, *arguments, **options).replace(" --export=ALL", "", 1)


def cluster_of(job: JobExecutorInterface) -> str:
    """Return the cluster that a job is sent to; empty for the login node's own."""
    return str(job.resources.get("clusters") or "")


class Executor(slurm.Executor):
    """The plugin's executor with the changes that the module describes."""

    def __post_init__(self, test_mode: bool = False) -> None:
        """Take the job name of this folder's earlier runs, so that their jobs are seen."""
        if self.workflow.executor_settings.array_jobs:
            raise WorkflowError(
                "job arrays are not supported by this executor; leave --gpuatlas-array-jobs out"
            )
        self._submitted: dict[str, SubmittedJobInfo] = {}
        self._states: dict[str, str] = {}
        self._missing_since: dict[str, float] = {}
        self._sent: dict[JobExecutorInterface, float] = {}
        super().__post_init__(test_mode)
        RUN_NAME.parent.mkdir(exist_ok=True)
        if not RUN_NAME.is_file():
            RUN_NAME.write_text(f"gpuatlas-{uuid.uuid4()}\n")
        self.run_uuid = RUN_NAME.read_text().strip()
        # The plugin calls these two by their names in its own module.
        slurm.get_submit_command = submit_command
        slurm.query_job_status = self._query

    def additional_general_args(self) -> str:
        """Return what starts the step inside the job: our jobstep executor."""
        return "--executor gpuatlas-jobstep --jobs 1"

    # ------------------------------------------------------------ submission

    def get_account_arg(self, job: JobExecutorInterface) -> Iterator[str]:
        """Yield the account option; none where the site file names none."""
        if job.resources.get("slurm_account"):
            yield from super().get_account_arg(job)
        else:
            yield ""

    def get_partition_arg(self, job: JobExecutorInterface) -> str:
        """Return the partition option; none where the site file names none."""
        return super().get_partition_arg(job) if job.resources.get("slurm_partition") else ""

    def run_job(self, job: JobExecutorInterface, tries: int = 0) -> None:
        """Submit a job, or take over the one that an earlier run of this folder left in Slurm.

        While Slurm does not answer, that is put off: a controller that is restarted costs no attempt.
        """
        self._sent[job] = time.time()
        try:
            live_jobs = live(cluster_of(job), self.run_uuid)
        except OSError as error:
            self._report_job_error_threadsafe(SubmittedJobInfo(job), f"squeue cannot be run ({error}). ")
            return
        except subprocess.SubprocessError as error:
            self._put_off(job, tries, _reason(error))
            return
        # Snakemake's own note of the id is lost when the job starts: the Snakemake inside writes it anew.
        left = None if job.is_group() or job.attempt > 1 else live_jobs.get(_comment(job))
        if left is None:
            super().run_job(job)
            return
        number, self._sent[job] = left
        self.logger.info(
            f"Job {job.jobid} was left in Slurm by an earlier run (SLURM jobid {number}): waiting for it."
        )
        folder = self.slurm_logdir / f"rule_{job.name}" / slurm.get_job_wildcards(job)
        info = SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": folder / f"{number}.log"})
        self._report_job_submission_threadsafe(info)

    def _put_off(self, job: JobExecutorInterface, tries: int, reason: str) -> None:
        where = f"Slurm on {cluster_of(job)}" if cluster_of(job) else "Slurm"
        if tries == len(PAUSES_S):
            self._report_job_error_threadsafe(SubmittedJobInfo(job), f"{where} does not answer ({reason}). ")
            return
        pause = PAUSES_S[tries]
        self.logger.warning(
            f"Job {job.jobid} is not submitted yet: {where} does not answer ({reason}); "
            f"next try in {pause} s."
        )

        def submit() -> None:
            # The pool refuses once the run has ended.
            with contextlib.suppress(RuntimeError):
                self._job_submission_executor.submit(self.run_job, job, tries + 1)

        # Not in the pool's own threads, which submit to the other clusters meanwhile.
        timer = threading.Timer(pause, submit)
        timer.daemon = True
        timer.start()

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """Remember a job; refuse it if another cluster has one of the same id."""
        number = job_info.external_jobid
        if number is not None:
            other = self._submitted.get(number)
            if other is not None and cluster_of(other.job) != cluster_of(job_info.job):
                self._cancel([job_info])
                there = cluster_of(other.job) or "this cluster"
                here = cluster_of(job_info.job) or "this cluster"
                msg = (
                    f"SLURM jobid {number} is in use on {there} as well as on {here}, so one job's state "
                    "could be taken for the other's: the new job was cancelled. "
                )
                self.report_job_error(job_info, msg=msg)
                return
            self._submitted[number] = job_info
        super().report_job_submission(job_info, register_job=register_job)

    # ------------------------------------------------------------ states

    def get_status_command(self) -> str:
        """Return how states are asked for; `_query` asks as each job's site file says."""
        return (
            "sacct" if any(self._tool(info.job) == "sacct" for info in self._submitted.values()) else "squeue"
        )

    def _tool(self, job: JobExecutorInterface) -> str:
        return str(job.resources.get("slurm_status") or "sacct")

    async def _query(self, command: str, logger: Any) -> tuple[dict[str, str] | None, float | None]:
        """Stand in for the plugin's query: states by job id, each from its own cluster; None: no answer."""
        del command
        started = time.monotonic()
        places = {(self._tool(info.job), cluster_of(info.job)) for info in self._submitted.values()}
        # Side by side: a cluster that does not answer holds up no other.
        answers = await asyncio.gather(
            *(asyncio.to_thread(self._states_at, tool, cluster, logger) for tool, cluster in places)
        )
        answered = [states for states in answers if states is not None]
        if places and not answered:
            return None, None
        states = {number: state for found in answered for number, state in found.items()}
        self._states |= states
        return states, time.monotonic() - started

    def _states_at(self, tool: str, cluster: str, logger: Any) -> dict[str, str] | None:
        """Return the states of this run's jobs on one cluster; None if it does not answer."""
        jobs = {
            number: info
            for number, info in list(self._submitted.items())
            if (self._tool(info.job), cluster_of(info.job)) == (tool, cluster)
        }
        try:
            recorded = ask("sacct", cluster, self.run_uuid) if tool == "sacct" else {}
        except (OSError, subprocess.SubprocessError) as error:
            logger.debug(f"sacct does not answer for {cluster}: {_reason(error)}")
            return None
        states = {number: recorded[number] for number in jobs if number in recorded}
        # sacct says REQUEUED, RUNNING, … for ever where no later record follows: of a job that was cancelled
        # while it was requeued, or that its controller lost. The controller knows better.
        unsure = [number for number in jobs if states.get(number) not in ENDED - MAYBE_REQUEUED]
        if not unsure:
            return states
        try:
            queued = ask("squeue", cluster, self.run_uuid)
        except (OSError, subprocess.SubprocessError) as error:
            logger.debug(f"squeue does not answer for {cluster}: {_reason(error)}")
            return states if tool == "sacct" else None
        for number in unsure:
            state = queued.get(number)
            if state is None:
                state = self._forgotten(number, jobs[number])
            else:
                self._missing_since.pop(number, None)
            if state in MAYBE_REQUEUED:
                # It was not: the plugin would wait.
                states[number] = "FAILED"
            elif state in ENDED or (state is not None and number not in states):
                states[number] = state
        return states

    def _forgotten(self, number: str, info: SubmittedJobInfo) -> str | None:
        """Return how a job ended that squeue no longer knows; None while that is not sure."""
        since = self._missing_since.setdefault(number, time.monotonic())
        if time.monotonic() - since < FORGOTTEN_AFTER_S:
            return None
        return "COMPLETED" if _outputs_since(info.job, self._sent[info.job]) else "FAILED"

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **options: Any) -> None:
        """Report a failed job; one that was cancelled is not tried again."""
        if self._states.get(job_info.external_jobid or "") == "CANCELLED":
            job_info.job.attempt = job_info.job.restart_times + 1
        super().report_job_error(job_info, msg, **options)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel jobs, each on its own cluster."""
        self._cancel(active_jobs)

    def _cancel(self, infos: list[SubmittedJobInfo]) -> None:
        jobs = [
            (info.external_jobid, cluster_of(info.job)) for info in infos if info.external_jobid is not None
        ]
        for command in cancel_commands(jobs):
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                self.logger.warning(
                    f"Jobs may still be in the queue ({_reason(error)}); cancel them: {shlex.join(command)}"
                )


def _comment(job: JobExecutorInterface) -> str:
    """Return the comment that the plugin gives a job."""
    wildcards = slurm.get_job_wildcards(job)
    return f"rule_{job.name}_wildcards_{wildcards}" if wildcards else f"rule_{job.name}"


def _outputs_since(job: JobExecutorInterface, sent: float) -> bool:
    """Return whether all outputs are there and none is older than the submission."""
    paths = [Path(path) for path in job.output]
    return all(path.exists() and path.stat().st_mtime >= sent for path in paths)


def _reason(error: Exception) -> str:
    """Return what a command that failed said, in one line."""
    said = str(getattr(error, "stderr", None) or "").strip() or str(error)
    return said.splitlines()[-1]
