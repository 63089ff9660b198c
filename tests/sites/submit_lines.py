"""Print as JSON the sbatch line of every job that the workflow sends to Slurm; run in a project's folder.

usage: python submit_lines.py ATTEMPT TARGET… (site=all)
"""

import json
import logging
import sys
from pathlib import Path

import snakemake_executor_plugin_slurm as slurm
import yaml
from snakemake.api import SnakemakeApi
from snakemake.settings.enums import Quietness
from snakemake.settings.types import ConfigSettings, DAGSettings, OutputSettings, ResourceSettings

import snakemake_executor_plugin_gpuatlas as ours


def main(attempt: int, targets: list[str]) -> None:
    # The one part that asks Slurm: whether an account exists.
    slurm.validate_account = lambda account, logger: account
    profile = yaml.safe_load(Path("profiles/slurm/config.yaml").read_text())
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL}, dryrun=True)) as api:
        workflow_api = api.workflow(
            resource_settings=ResourceSettings(
                nodes=profile["jobs"], default_resources=profile["default-resources"]
            ),
            config_settings=ConfigSettings(config={"site": "all"}),
            snakefile=Path("Snakefile"),
        )
        dag_api = workflow_api.dag(DAGSettings(targets=set(targets)))
        workflow = dag_api.workflow_api._workflow
        workflow._prepare_dag(forceall=False, ignore_incomplete=True, lock_warn_only=True)
        workflow._build_dag()
        settings = ours.ExecutorSettings(requeue=profile["gpuatlas-requeue"], status_command="sacct")
        executor = object.__new__(ours.Executor)
        executor._partitions = None
        executor.logger = logging.getLogger()
        lines = []
        for job in workflow.dag.needrun_jobs():
            if job.rule.name in workflow._localrules or job.rule.norun:
                continue
            job.attempt = attempt
            slurm.validate_slurm_extra(job)
            parameters = {
                "run_uuid": "NAME",
                "slurm_logfile": "LOG",
                "comment_str": "COMMENT",
                "account": next(executor.get_account_arg(job)),
                "partition": executor.get_partition_arg(job),
                "workdir": "WORKDIR",
            }
            line = ours.submit_command(job, parameters, settings=settings) + slurm.set_gres_string(job)
            lines.append({"rule": job.rule.name, "wildcards": dict(job.wildcards.items()), "line": line})
    sys.stdout.write(json.dumps(lines))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
