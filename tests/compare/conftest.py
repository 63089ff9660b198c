from pathlib import Path

import pytest
from tests import studies

from gpuatlas.compare.run import compare
from gpuatlas.compare.verdicts import write_claims

CLAIMS = studies.ROOT / "config" / "claims.yaml"


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three recorded windows, converted, compared, judged. Do not write into it."""
    results = studies.windows(tmp_path_factory.mktemp("recorded") / "results")
    compare(results)
    write_claims(results, CLAIMS)
    return results
