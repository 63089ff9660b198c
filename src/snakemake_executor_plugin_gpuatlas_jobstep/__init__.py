"""Runs a job's step below srun, under `gpuatlas.supervise`; used by the executor `gpuatlas` alone."""

import sys

import snakemake_executor_plugin_slurm_jobstep as jobstep
from snakemake_executor_plugin_slurm_jobstep import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


class Executor(jobstep.Executor):
    """The plugin's jobstep executor whose task hands SIGTERM on to all that descends from it."""

    def get_python_executable(self) -> str:
        """Return what precedes ``-m snakemake`` in the command that srun starts."""
        return f"{sys.executable} -m gpuatlas.supervise {sys.executable}"
