"""The clusters, brought up once; the cases run on them side by side, since they sleep rather than compute."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.slurm.cases import CASES
from tests.slurm.rig import Rig, reason_to_skip


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    running = Rig.start()
    try:
        yield running
    finally:
        running.stop()
        assert not running.daemons()
        assert not running.folder.exists()


@pytest.fixture(scope="session")
def running(
    rig: Rig, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[None]"]]:
    """The selected cases, started in the order of cases.py."""
    parameters = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {spec.params["name"] for spec in parameters if spec is not None and "name" in spec.params}
    with ThreadPoolExecutor(max_workers=8) as pool:
        yield {
            name: pool.submit(run, rig, tmp_path_factory.mktemp(name))
            for name, run in CASES.items()
            if name in wanted
        }
