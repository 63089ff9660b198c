"""Three real Slurm clusters that share a database, and a fourth without accounting, in namespaces of their own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuatlas.supervise import descendants

HERE = Path(__file__).parent
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "unshare", "nsenter", "tmux")


def reason_to_skip() -> str | None:
    """Why the clusters cannot be brought up here; None if they can."""
    if os.environ.get("GPUATLAS_SYSTEM_TESTS") != "1":
        return "set GPUATLAS_SYSTEM_TESTS=1 to bring up real Slurm clusters"
    if os.geteuid() != 0:
        return "needs root"
    if Path("/etc/slurm/slurm.conf").exists() or Path("/etc/slurm-llnl/slurm.conf").exists():
        return "Slurm is configured here: its configuration is left alone"
    missing = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    return f"tests/slurm/install.sh has not been run ({', '.join(missing)} missing)" if missing else None


@dataclass
class Rig:
    """The running clusters."""

    folder: Path
    init: int
    process: subprocess.Popen[str]

    @classmethod
    def start(cls) -> "Rig":
        folder = Path(tempfile.mkdtemp(prefix="gpuatlas-slurm-", dir="/var/tmp"))
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", str(HERE / "rig.sh")],
            env={"B": str(folder), "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        rig = cls(folder, descendants(process.pid)[0] if said == "READY" else 0, process)
        if said != "READY":
            rig.stop()
            raise RuntimeError(f"the clusters did not come up: {said}")
        return rig

    def stop(self) -> None:
        self.process.kill()  # --kill-child: the namespace's first process dies, and with it all others
        self.process.wait()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.daemons():
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemons(self) -> list[str]:
        """Command lines of processes that still use the rig's folder."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in line and "nsenter" not in line:
                found.append(line)
        return found

    def start_command(
        self,
        command: list[str],
        cwd: Path,
        output: Path,
        environment: Mapping[str, str] | None = None,
        cluster: str = "",
    ) -> "Driver":
        programs = Path(sys.executable).parent
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "GPUATLAS_"))}
        env |= {
            "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "USER": "root",
            "GPUATLAS_ACCOUNT": "abc123",
        }
        env |= {
            "GPUATLAS_SCRATCH": str(self.folder / "scratch"),
            "OMP_NUM_THREADS": "2",
            **(environment or {}),
        }
        enter = ["nsenter", f"--target={self.init}", "--mount", "--net", "--pid"]
        # Where the tests run in the background of a shell, it has them ignore SIGINT.
        enter += ["env", "--default-signal=INT", "-C", str(cwd)]
        if cluster:
            # A login node of that cluster: its configuration is the default one, also where SLURM_* is stripped.
            bind = f'mount --bind "{self.folder}/{cluster}/etc" /etc/slurm && exec "$@"'
            enter += ["unshare", "--mount", "--propagation", "private", "bash", "-c", bind, "login"]
        with output.open("w") as file:
            process = subprocess.Popen([*enter, *command], env=env, stdout=file, stderr=subprocess.STDOUT)
        return Driver(process, output)

    def ask(self, *command: str, cluster: str = "") -> str:
        """Output of a Slurm command on the login node."""
        prefix = ["env", f"SLURM_CONF={self.folder}/{cluster}/etc/slurm.conf"] if cluster else []
        enter = ["nsenter", f"--target={self.init}", "--mount", "--net", "--pid"]
        done = subprocess.run([*enter, *prefix, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def daemon_pid(self, cluster: str, daemon: str) -> int:
        """The pid of a daemon inside the rig."""
        return int((self.folder / cluster / f"{daemon}.pid").read_text())

    def shell(self, script: str) -> None:
        """Run a script of the test itself inside the rig."""
        enter = ["nsenter", f"--target={self.init}", "--mount", "--net", "--pid", "bash", "-euc", script]
        subprocess.run(enter, check=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

    def start_slurmd(self, cluster: str) -> None:
        self.shell(
            f"unshare --mount --propagation private bash -c "
            f"'mount --bind {self.folder}/{cluster}/etc /etc/slurm && exec slurmd'"
        )


@dataclass
class Driver:
    """A Snakemake that runs on a login node."""

    process: subprocess.Popen[bytes]
    output: Path

    def signal(self, number: int) -> None:
        """Signal Snakemake itself: below nsenter, which forks into the PID namespace."""
        for pid in descendants(self.process.pid):
            if b"snakemake" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, number)
                return
        raise AssertionError("Snakemake is not running")

    def wait(self, seconds: float) -> int:
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise AssertionError(f"still running after {seconds} s:\n{self.text()}") from error

    def stop(self) -> None:
        for pid in [*descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def text(self) -> str:
        return self.output.read_text(errors="replace")


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.3)
