import os
import shutil
import stat
from pathlib import Path

import pytest
from tests.capture.conftest import GPU, show_gpu

from gpuatlas.capture.machine import Machine
from gpuatlas.capture.preflight import Finding, inspect, refused

SITE = {"container": {"runtime": "apptainer", "command": "apptainer", "modules": []}}


@pytest.fixture
def machine(tmp_path: Path) -> "Built":
    return Built(tmp_path)


class Built:
    """A machine of real files and commands, with one thing wrong at a time."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.proc = folder / "proc"
        (self.proc / "driver" / "nvidia").mkdir(parents=True)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.params("0")
        self.memory(64)
        self.gpu()
        self.command(
            "ncu", 'case $1 in --version) echo "Version 2025.3.1.0 (build 1)";; *) echo "ga100, gh100";; esac'
        )

    def params(self, only: str) -> None:
        (self.proc / "driver" / "nvidia" / "params").write_text(
            f"ResmanDebugLevel: 0\nRmProfilingAdminOnly: {only}\n"
        )

    def memory(self, gib: int) -> None:
        (self.proc / "meminfo").write_text(f"MemTotal: 999 kB\nMemAvailable: {gib * 1024 * 1024} kB\n")

    def process(self, name: str) -> None:
        (self.proc / "42").mkdir()
        (self.proc / "42" / "comm").write_text(name + "\n")

    def gpu(self, **fields: str) -> None:
        show_gpu(self.bin, GPU | {key.replace("__", "."): value for key, value in fields.items()})

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def findings(self, site: dict | None = None) -> dict[str, Finding]:
        machine = Machine(proc=self.proc, path=str(self.bin), temporary=self.temporary)
        found = inspect(machine, site)
        assert len({finding.check for finding in found}) == len(found)
        for finding in found:
            assert finding.what
            if finding.level in ("warning", "refused"):
                assert finding.why, finding
                assert finding.ask, finding
        return {finding.check: finding for finding in found}


def _levels(found: dict[str, Finding]) -> dict[str, str]:
    return {check: finding.level for check, finding in found.items() if finding.level != "ok"}


def test_a_good_machine(machine):
    found = machine.findings()
    assert _levels(found) == {}
    assert "NVIDIA H200" in found["gpu"].what
    assert "2025.3.1.0" in found["ncu"].what
    assert refused(list(found.values())) is None


def test_no_gpu(machine):
    machine.command("nvidia-smi", "exit 9")
    found = machine.findings()
    assert found["gpu"].level == "refused"
    assert refused(list(found.values())) is found["gpu"]
    assert "mig" not in found


def test_no_ncu(machine):
    (machine.bin / "ncu").unlink()
    assert machine.findings()["ncu"].level == "refused"


def test_an_ncu_without_volta(machine):
    machine.gpu(name="Tesla V100-SXM2-32GB", compute_cap="7.0", memory__free="32000")
    finding = machine.findings()["chip"]
    assert finding.level == "refused"
    assert "7.0" in finding.what
    machine.command(
        "ncu", 'case $1 in --version) echo "Version 2024.1.0.0";; *) echo "gv100, tu102, gh100";; esac'
    )
    assert machine.findings()["ncu"].level == "ok"


def test_counters_for_administrators(machine):
    machine.params("1")
    finding = machine.findings()["counters"]
    assert finding.level == "warning"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finding.ask
    shutil.rmtree(machine.proc / "driver")
    assert machine.findings()["counters"].level == "unknown"


@pytest.mark.parametrize("name", ["nv-hostengine", "dcgm-exporter"])
def test_dcgm(machine, name):
    machine.process(name)
    finding = machine.findings()["dcgm"]
    assert finding.level == "warning"
    assert "dcgmi profile --pause" in finding.ask


def test_a_temporary_folder_that_cannot_be_used(machine):
    machine.temporary.rmdir()
    found = machine.findings()
    assert found["tmpdir"].level == "refused"
    assert found["disk"].level == "refused"
    assert "GPUATLAS_SCRATCH" in found["tmpdir"].ask


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/shm").is_dir(), reason="needs root to mount noexec")
def test_a_temporary_folder_mounted_noexec(machine):
    mounted = os.system(f"mount -t tmpfs -o noexec,size=1m tmpfs {machine.temporary} 2>/dev/null") == 0
    if not mounted:
        pytest.skip("this machine permits no mounts")
    try:
        found = machine.findings()
    finally:
        os.system(f"umount {machine.temporary}")
    assert found["tmpdir"].level == "refused"
    assert found["disk"].level == "refused"
    assert "noexec" in found["tmpdir"].ask


def test_little_memory(machine):
    machine.memory(4)
    assert _levels(machine.findings()) == {"memory": "warning"}
    machine.gpu(memory__free="9000")
    assert machine.findings()["gpu_memory"].level == "warning"


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("GRID A100X-40C", "unknown"),
        ("GRID A100X-20C", "refused"),
        ("NVIDIA A100X-10C", "refused"),
        ("NVIDIA A100-SXM4-40GB", "ok"),
        ("Tesla V100-SXM2-32GB", "ok"),
        ("NVIDIA H100 80GB HBM3", "ok"),
    ],
)
def test_virtual_gpus(machine, name, level):
    machine.gpu(name=name)
    assert machine.findings()["vgpu"].level == level


def test_mig(machine):
    machine.gpu(mig__mode__current="Enabled")
    assert machine.findings()["mig"].level == "refused"


@pytest.mark.parametrize(
    ("mask", "level"), [("0x4", "ok"), ("0x1", "ok"), ("0x40", "warning"), ("0x80", "warning")]
)
def test_throttling(machine, mask, level):
    machine.gpu(clocks_event_reasons__active=mask)
    assert machine.findings()["clocks"].level == level


def test_older_drivers_name_the_reasons_otherwise(machine):
    answers = {key: value for key, value in GPU.items() if not key.startswith("clocks_event")}
    answers["clocks_throttle_reasons.active"] = "0x20"
    cases = "".join(f'  --query-gpu={key}) echo "{value}";;\n' for key, value in answers.items())
    machine.command("nvidia-smi", f"case $2 in\n{cases}  *) exit 2;;\nesac")
    assert "thermal" in machine.findings()["clocks"].what
    machine.command(
        "nvidia-smi", f'case $2 in\n  --query-gpu=name) echo "{GPU["name"]}";;\n  *) exit 2;;\nesac'
    )
    assert machine.findings()["clocks"].level == "unknown"


def test_the_container_runtime(machine):
    assert machine.findings(SITE)["container"].level == "refused"
    modules = {"container": {**SITE["container"], "modules": ["tacc-apptainer"]}}
    finding = machine.findings(modules)["container"]
    assert finding.level == "warning"
    assert "tacc-apptainer" in finding.ask
    machine.command("apptainer", "exit 0")
    assert machine.findings(SITE)["container"].level == "ok"
    assert machine.findings({"container": {"runtime": "none", "modules": []}})["container"].level == "ok"


@pytest.mark.parametrize(("status", "level"), [(0, "ok"), (1, "refused")])
def test_docker_s_daemon_must_answer(machine, status, level):
    machine.command("docker", f'[ "$1" = info ] && exit {status}')
    site = {"container": {"runtime": "docker", "command": "docker", "modules": []}}
    assert machine.findings(site)["container"].level == level
