"""Configuration files that YAML would take and a person did not mean: one sentence that names the file."""

import re
import shutil
from pathlib import Path

import pytest
from tests.studies import ROOT

from gpuatlas.compare.claimfile import load_claims
from gpuatlas.config import read_yaml, resolve
from gpuatlas.errors import ConfigError
from gpuatlas.workload.targets import load_targets


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Everything that the configuration of a study is read from."""
    for part in ("config", "workflow/schemas"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "resources/recordings").mkdir(parents=True)
    return tmp_path


def load(project: Path) -> None:
    """Read every file, as a workflow does at its start."""
    resolve(read_yaml(project / "config/config.yaml"), project)
    load_claims(project / "config/claims.yaml")


def sentence(project: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(project)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_configuration_as_it_is(project):
    load(project)


@pytest.mark.parametrize(
    ("file", "key", "line"),
    [
        ("config.yaml", "targets", "targets: [opt1]"),
        ("claims.yaml", "claims", "claims: []"),
        ("targets.yaml", "opt1", "opt1: {}"),
        ("architectures.yaml", "v100", "v100: {}"),
        ("sites/local.yaml", "scheduler", "scheduler: none"),
        ("sites/local.yaml", "x", "more: {x: 1, x: 1}"),
    ],
)
def test_a_key_given_twice(project, file, key, line):
    path = project / "config" / file
    path.write_text(path.read_text() + f"\n{line}\n")
    last = len(path.read_text().splitlines())
    said = sentence(project)
    assert re.search(rf"{file}: key '{key}' is given twice \(lines \d+ and {last}\); keep one of them", said)


def test_a_key_given_twice_where_a_gpu_reads_the_targets(project):
    path = project / "config/targets.yaml"
    path.write_text(path.read_text() + "\nopt1: {}\n")
    with pytest.raises(ConfigError, match=r"targets\.yaml: key 'opt1' is given twice"):
        load_targets(path)


def test_a_date_that_is_none(project):
    path = project / "config/config.yaml"
    path.write_text(path.read_text() + "\nsince: 2024-99-99\n")
    assert "config.yaml: is not valid YAML" in sentence(project)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize("key", ["expected", "tolerance"])
def test_a_claim_of_no_number(project, key, number):
    path = project / "config/claims.yaml"
    path.write_text(re.sub(rf"{key}: [-\d.]+", f"{key}: {number}", path.read_text(), count=1))
    said = sentence(project)
    assert re.search(rf"claims\.yaml: key 'claims\.\d+\.checks\.\d+\.{key}': \S+ is no finite number", said)


@pytest.mark.parametrize("number", ["0", "-0.2"])
def test_a_claim_of_no_ratio(project, number):
    path = project / "config/claims.yaml"
    path.write_text(
        re.sub(r"(kind: ratio\W+expected: )[-\d.]+", rf"\g<1>{number}", path.read_text(), count=1)
    )
    assert re.search(
        rf"claims\.yaml: claim '\S+': key 'checks\[\d+\]\.expected': {number} is no ratio", sentence(project)
    )


@pytest.mark.parametrize("leads", ["results", "nowhere"])
def test_results_that_are_a_link_to_nothing(project, leads):
    (project / "results").symlink_to(leads)
    assert sentence(project).startswith(f"results: is a link that leads nowhere ({leads}); remove it")


def test_results_that_are_a_link_to_a_folder(project):
    (project / "elsewhere").mkdir()
    (project / "results").symlink_to("elsewhere")
    load(project)


def test_a_recording_without_a_file_of_its_timing(project):
    folder = project / "resources/recordings/h200/opt1"
    shutil.copytree(ROOT / "tests/data/windows/h200/opt1", folder)
    shutil.copytree(ROOT / "tests/data/measured/h200/opt1", folder / "timing")
    load(project)
    (folder / "timing/evidence.json").unlink()
    assert sentence(project).startswith(
        "resources/recordings/h200/opt1/timing/evidence.json: is no regular file"
    )
