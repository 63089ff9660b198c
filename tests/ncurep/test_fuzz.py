"""Damaged reports are refused, and what cannot be seen is counted."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ncurep.fuzz import LENGTH_CHANGING
from tests.ncurep.report_files import CORPUS, ROOT

DATA = ROOT / "tests/data/ncurep"
SMALL = [DATA / "small.ncu-repz", DATA / "tiny.ncu-repz"]


def fuzz(seed: int, count: int, files: list[Path], seconds: int) -> dict:
    # A process of its own, so that its memory is its own and a crash is seen.
    command = [sys.executable, "-m", "tests.ncurep.fuzz", str(seed), str(count), *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def judge(found: dict, mutants: int) -> None:
    logging.getLogger(__name__).info("%s", json.dumps(found["outcomes"]))
    outcomes = found["outcomes"]
    assert found["wrong"] == []
    assert found["mutants"] >= mutants
    assert set(outcomes["nothing"]) == {"equal"}
    for how in LENGTH_CHANGING:
        assert set(outcomes[how]) == {"refused"}, how
    assert outcomes["flip a bit"]["value"] > 0  # so that the count of what cannot be seen is no empty word
    assert found["slowest_s"] < 5
    assert found["peak_mib"] < 300


def test_two_thousand_mutants():
    judge(fuzz(20261129, 2100, SMALL, 600), 2000)


@pytest.mark.soak
def test_many_mutants_of_many_reports(request):
    if "soak" not in request.config.getoption("markexpr"):
        pytest.skip("hours long: make soak")
    for seed in range(20):
        judge(fuzz(seed, 5000, [*SMALL, *CORPUS[:1], *CORPUS[-2:]], 7200), 4800)
