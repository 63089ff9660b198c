"""Docker's daemon in namespaces of its own, with a base image that debootstrap makes, and Apptainer beside it."""

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpuatlas.supervise import descendants

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
USER = "gpuatlas-test"
BASE = "local/debian:bookworm"
STACK = "ci"
LIGHT = "light"
PROGRAMS = ("dockerd", "docker", "debootstrap", "apptainer", "mksquashfs", "unshare", "nsenter")


def reason_to_skip() -> str | None:
    """Why containers cannot be tested here; None if they can."""
    if os.environ.get("GPUATLAS_SYSTEM_TESTS") != "1":
        return "set GPUATLAS_SYSTEM_TESTS=1 to build and run real images"
    if os.geteuid() != 0:
        return "needs root"
    missing = [
        name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None
    ]
    if missing or subprocess.run(["id", USER], capture_output=True, check=False).returncode:
        return f"tests/containers/install.sh has not been run ({', '.join(missing) or USER} missing)"
    if installed("nvidia-cublas"):  # its wheels would go into the image, and they are several GB
        return "needs a CPU build of torch: make TORCH_INDEX=https://download.pytorch.org/whl/cpu setup"
    return None


@dataclass
class Docker:
    """The running daemon."""

    folder: Path
    init: int
    process: subprocess.Popen[str]

    @classmethod
    def start(cls) -> "Docker":
        folder = Path(tempfile.mkdtemp(prefix="gpuatlas-docker-", dir="/var/tmp"))
        folder.chmod(0o755)
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", str(HERE / "rig.sh")],
            env={"B": str(folder), "PYTHON": sys.base_prefix, "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        for name in ("scratch", "apptainer-cache", "apptainer-tmp"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
        docker = cls(folder, descendants(process.pid)[0] if said == "READY" else 0, process)
        if said != "READY":
            docker.stop()
            raise RuntimeError(f"Docker did not start: {said}")
        return docker

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def stop(self) -> None:
        for pid in descendants(self.process.pid):
            if b"dockerd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, 15)
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline and (self.folder / "docker.pid").exists():
                    time.sleep(0.1)
                break
        self.process.kill()
        self.process.wait()
        for _ in range(50):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.1)
        for group in Path("/sys/fs/cgroup").glob("**/gpuatlas-tests"):
            group.rmdir()

    def run(
        self,
        command: list[str],
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root or as the unprivileged user."""
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin",
            "DOCKER_HOST": self.host,
            "DOCKER_BUILDKIT": "0",
            # LZ4 takes half the time of gzip's fastest level, for a quarter more space.
            "APPTAINER_MKSQUASHFS_ARGS": "-comp lz4",
            "APPTAINER_CACHEDIR": str(self.folder / "apptainer-cache"),
            "APPTAINER_TMPDIR": str(self.folder / "apptainer-tmp"),
            "GPUATLAS_SCRATCH": str(self.folder / "scratch"),
            "LANG": "C.UTF-8",
            **(environment or {}),
        }
        enter = ["nsenter", f"--target={self.init}", "--mount", "--pid", "env", "-C", str(cwd)]
        if user is not None:
            env |= {"HOME": f"/home/{user}", "USER": user}
            enter += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return subprocess.run([*enter, *command], env=env, capture_output=True, text=True, check=False)

    def must(self, command: list[str], cwd: Path, **options: str) -> str:
        done = self.run(command, cwd, user=options.get("user"))
        assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout


def import_base(docker: Docker) -> None:
    """Make Debian 12 from the package archive and import it: no registry is asked."""
    rootfs = docker.folder / "rootfs"
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(rootfs)],
        check=True, capture_output=True, env=os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin"},
    )  # fmt: skip
    pipe = subprocess.Popen(
        ["tar", "-C", str(rootfs), "--exclude=./dev/*", "-c", "."], stdout=subprocess.PIPE
    )
    done = subprocess.run(
        ["docker", "import", "-", BASE], stdin=pipe.stdout, env=os.environ | {"DOCKER_HOST": docker.host},
        check=False, capture_output=True,
    )  # fmt: skip
    assert pipe.wait() == 0
    assert done.returncode == 0, done.stderr
    shutil.rmtree(rootfs)


def make_stack(project: Path, wheels: Path) -> None:
    """Add the stack `ci` (and `light`, a few of its packages): the packages of `common` in the versions that this Python has, and their wheels.

    It stands for `common`, whose CUDA wheels are several GB. The recipe, its script, and the way from lock to image are
    the project's own, Nsight Compute included (`light` has none, and no torch).
    """
    locked = re.findall(r"^([a-z0-9-]+)==", (ROOT / "containers/locks/common.txt").read_text(), re.MULTILINE)
    names = [name for name in locked if not name.startswith("nvidia-") and name != "triton"]
    versions = {name: importlib.metadata.version(name) for name in names if installed(name)}
    wheels.mkdir()
    pins = [f"{name}=={version.partition('+')[0]}" for name, version in versions.items()]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            wheels,
            *pins,
        ],
        check=True,
    )
    locks = {STACK: "", LIGHT: ""}
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        line = f"{name.replace('_', '-')}=={version.replace('%2B', '+')} --hash=sha256:{digest}\n"
        locks[STACK] += line
        locks[LIGHT] += line if name.lower() in ("pyyaml", "rich", "pygments", "mdurl") else ""
    stacks = project / "containers/stacks.yaml"
    text = stacks.read_text()
    for stack, lock in locks.items():
        (project / "containers/locks" / f"{stack}.txt").write_text(lock)
        has_torch = "torch==" in lock
        entry = yaml.safe_load(text)["common"] | {"base": BASE, "cuda": "", "cudnn": ""}
        entry["torch"] = versions["torch"].partition("+")[0] if has_torch else ""
        entry["ncu"] = entry["ncu"] if has_torch else ""
        text += yaml.safe_dump({stack: entry})
    stacks.write_text(text)


def installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
