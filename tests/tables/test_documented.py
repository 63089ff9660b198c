"""What docs/convert.md says to type runs, in its order, with what `make setup` installs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ncurep.report_files import ROOT, unpack

PAGE = (ROOT / "docs/convert.md").read_text()
BLOCKS = re.findall(r"^```(console|python)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SMALL = unpack(ROOT / "tests/data/ncurep/small.ncu-repz")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    (folder / "runs").mkdir()
    for name in ("profile", "a100", "h100", "a", "b", "runs/1", "runs/2"):
        (folder / f"{name}.ncu-rep").write_bytes(SMALL)
    (folder / "cut.ncu-rep").write_bytes(SMALL[:-5])
    return folder


def test_every_command_runs(folder):
    commands = 0
    for language, text in BLOCKS:
        if language == "python":
            done = run([sys.executable, "-c", text], folder)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            continue
        for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
            commands += 1
            done = run(["bash", "-c", command], folder)
            expected = 3 if command.startswith("gpuatlas check") else 0  # one of them is cut
            assert done.returncode == expected, f"{command}\n{done.stderr}"
            if "groupby" in command:
                assert re.search(r"a100 +3\nh100 +3", done.stdout)
            if "--partial" in command:
                assert "2 launches, " in done.stdout
                assert ", 1 launch lost" in done.stdout
    assert commands >= 10
