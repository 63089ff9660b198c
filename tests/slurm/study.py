"""Copies of the project whose site files fit the test clusters."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SITES = ("expanse", "jetstream2", "stampede3")


def copy_study(folder: Path, parts: Sequence[str], changes: Mapping[str, Mapping[str, Any]]) -> Path:
    """Copy `parts` of the project to `folder`; the sites' clusters have their names, jobs are small, no containers.

    `changes` are of ``slurm`` keys by site.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        source = ROOT / part
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "images")
            shutil.copytree(source, folder / part, ignore=skip, dirs_exist_ok=True)
        else:
            shutil.copy2(source, folder / part)
    # No recordings: every cell is to be captured.
    (folder / "resources/recordings").mkdir(parents=True, exist_ok=True)
    for name in SITES:
        path = folder / "config/sites" / f"{name}.yaml"
        site = yaml.safe_load(path.read_text())
        site["container"]["runtime"] = "none"
        site["container"]["modules"] = []
        slurm = site["slurm"]
        slurm |= {"cluster": name, "cpus": 2, "stop_warning_s": 10, "status": "sacct"}
        slurm["mem_mb"] = min(slurm["mem_mb"], 2000)
        slurm |= changes.get(name, {})
        path.write_text(yaml.safe_dump(site))
    return folder


def give_runtime(project: Path, site: str, runtime: str, **more: Any) -> None:
    """Let a site of a copied study run images by `runtime`; `more` are further ``container`` keys."""
    path = project / "config/sites" / f"{site}.yaml"
    content = yaml.safe_load(path.read_text())
    content["container"] |= {"runtime": runtime, "command": runtime} | more
    path.write_text(yaml.safe_dump(content))


def case(
    folder: Path,
    cells: Sequence[str],
    *,
    ticks: int = 3,
    command: str = "",
    commands: Mapping[str, str] | None = None,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Path:
    """Make the folder of a small workflow (case.smk)."""
    copy_study(folder, ["workflow", "config", "profiles", "containers"], changes or {})
    shutil.copy2(HERE / "case.smk", folder / "Snakefile")
    shutil.copy2(HERE / "ticks.py", folder / "ticks.py")
    content = {
        "cells": cells,
        "command": command or f"python ticks.py {ticks}",
        "commands": commands or {},
        **more,
    }
    (folder / "case.json").write_text(json.dumps(content))
    return folder


def journal(folder: Path, cell: str) -> list[tuple[int, str]]:
    """What ticks.py did: each tick with the job that did it."""
    lines = (folder / ".state" / f"{cell}.journal").read_text().splitlines()
    return [(int(tick), job) for tick, job in (line.split() for line in lines)]
