"""`snakemake --profile profiles/slurm` on real clusters: dispatch, and each thing that Slurm does to jobs."""

import pytest
from tests.slurm.cases import CASES


@pytest.mark.system
@pytest.mark.parametrize("name", CASES)
def test_case(running, name):
    running[name].result()
