"""Runs a command where a site runs its jobs: modules, image, one GPU, scratch, a clean environment.

The same command runs inside and outside an image. What is run is always an argument list, built from the
site file and the image's record; nothing that a user writes is ever parsed by a shell.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import gpuatlas
from gpuatlas.errors import ConfigError, MachineRefused
from gpuatlas.images import Image, require_runtime

# Where the running gpuatlas is seen inside an image: the image holds the stack, the checkout holds the code.
INSIDE = "/opt/gpuatlas/lib"
# Variables that a job keeps. All others (PYTHONPATH, LD_PRELOAD, a user's own settings) stay outside: they
# make two users' runs differ.
KEPT = frozenset(
    {"CUDA_VISIBLE_DEVICES", "DOCKER_HOST", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME"}
    | {"MKL_NUM_THREADS", "OMP_NUM_THREADS", "PATH", "SHELL", "TERM", "TZ", "USER", "XDG_RUNTIME_DIR"}
)
KEPT_PREFIXES = ("GPUATLAS_", "SLURM_")
# What the module command needs, where there are modules to load.
MODULE_PREFIXES = ("BASH_FUNC_", "LMOD", "MODULE", "__LMOD", "_LMOD", "_ModuleTable", "TACC_")
# Inside an image the host's paths mean nothing.
NOT_INSIDE = frozenset({"DOCKER_HOST", "HOME", "LD_LIBRARY_PATH", "PATH", "SHELL", "XDG_RUNTIME_DIR"})
# A constant; modules and command are its arguments. `module` is a function that login shells define.
LOAD_MODULES = 'n=$1; shift; module load "${@:1:n}" || exit 4; shift "$n"; exec "$@"'


def gpu_of_job(environment: Mapping[str, str], *, present: bool) -> str | None:
    """Return the one GPU that a job uses: the first that Slurm granted, or the machine's first.

    None where the machine has no NVIDIA driver (`present`): there a container runtime fails if asked for one.
    """
    granted = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return (granted or "0") if present else None


def scratch_of(site: Mapping[str, Any], environment: Mapping[str, str]) -> Path:
    """Return the site's scratch folder; ``GPUATLAS_SCRATCH`` overrides it.

    Raises
    ------
    ConfigError
        If it names an environment variable that is not set here.
    """
    pattern = environment.get("GPUATLAS_SCRATCH") or site["scratch"]
    path = pattern
    for name in sorted(environment, key=len, reverse=True):
        path = path.replace(f"${{{name}}}", environment[name]).replace(f"${name}", environment[name])
    if "$" in path:
        raise ConfigError(
            f"scratch {pattern!r} of {site['label']} holds a variable that is not set here; set "
            "GPUATLAS_SCRATCH"
        )
    return Path(path)


def clean_environment(
    environment: Mapping[str, str],
    image: Image | None,
    *,
    site: str,
    tmp: Path,
    gpu: str | None,
    modules: bool,
) -> dict[str, str]:
    """Return the variables of the process that is started, for an image those of the runtime around it."""
    prefixes = KEPT_PREFIXES + (MODULE_PREFIXES if modules else ())
    kept = {k: v for k, v in environment.items() if k in KEPT or k.startswith(prefixes)}
    kept |= {"TMPDIR": str(tmp), "PYTHONNOUSERSITE": "1", "GPUATLAS_SITE": site}
    if gpu is not None:
        kept["CUDA_VISIBLE_DEVICES"] = gpu
    if image is not None:
        kept |= {
            "GPUATLAS_IMAGE_DIGEST": image.digest,
            "GPUATLAS_IMAGE_RECIPE": image.recipe,
            "GPUATLAS_STACK": image.stack,
        }
    return kept


def inside_environment(environment: Mapping[str, str], *, tmp: Path) -> dict[str, str]:
    """Return the variables that a command sees inside an image, of those that `clean_environment` kept."""
    inside = {
        k: v for k, v in environment.items() if k not in NOT_INSIDE and not k.startswith(MODULE_PREFIXES)
    }
    return inside | {"HOME": str(tmp), "PYTHONPATH": INSIDE}


def argument_list(
    site: Mapping[str, Any],
    image: Image | None,
    command: Sequence[str],
    *,
    cwd: Path,
    tmp: Path,
    binds: Sequence[Path],
    gpu: str | None,
    inside: Mapping[str, str],
    user: str,
) -> list[str]:
    """Return the argument list that runs `command` at a site, in `image` where there is one.

    Parameters
    ----------
    cwd
        Working directory, the same inside and outside.
    tmp
        The job's temporary folder, the same inside and outside, and the home inside.
    binds
        Further folders that the command reads.
    gpu
        The GPU to show it, or None on a machine without one.
    inside
        Variables of the command inside the image.
    user
        ``uid:gid`` that owns what a Docker container writes.

    Raises
    ------
    ConfigError
        If a folder's name holds a character that the runtimes take for a separator.
    """
    container = site["container"]
    if image is None:
        arguments = list(command)
    elif image.runtime == "apptainer":
        arguments = _apptainer(container, image, cwd=cwd, tmp=tmp, binds=binds, gpu=gpu) + list(command)
    else:
        arguments = _docker(
            container, image, cwd=cwd, tmp=tmp, binds=binds, gpu=gpu, inside=inside, user=user
        ) + list(command)
    modules = container["modules"]
    if modules:
        return ["bash", "-lc", LOAD_MODULES, "gpuatlas-launch", str(len(modules)), *modules, *arguments]
    return arguments


def _package() -> Path:
    return Path(gpuatlas.__file__).resolve().parent


def _mounts(cwd: Path, tmp: Path, binds: Sequence[Path]) -> list[tuple[Path, str, bool]]:
    """Return what is seen inside: source, name inside, writable."""
    mounts = [(cwd, str(cwd), True), (tmp, str(tmp), True), (_package(), f"{INSIDE}/gpuatlas", False)]
    mounts += [(path, str(path), False) for path in binds]
    for source, _, _ in mounts:
        if set(str(source)) & set(',:"\n'):
            raise ConfigError(
                f"{source}: a container cannot be given a folder whose name holds a comma, colon, "
                "quote or line "
                "break; rename it"
            )
    return mounts


def _apptainer(
    container: Mapping[str, Any],
    image: Image,
    *,
    cwd: Path,
    tmp: Path,
    binds: Sequence[Path],
    gpu: str | None,
) -> list[str]:
    arguments = [container["command"], "exec", "--cleanenv", "--contain"]
    if gpu is not None:
        arguments.append("--nv")
    for source, target, writable in _mounts(cwd, tmp, binds):
        arguments += ["--bind", f"{source}:{target}:{'rw' if writable else 'ro'}"]
    return [*arguments, "--home", str(tmp), "--pwd", str(cwd), *container["options"], image.reference]


def _docker(
    container: Mapping[str, Any],
    image: Image,
    *,
    cwd: Path,
    tmp: Path,
    binds: Sequence[Path],
    gpu: str | None,
    inside: Mapping[str, str],
    user: str,
) -> list[str]:
    # --init: an init forwards signals and reaps; --network none: nothing in a cell may depend on the network;
    # --ipc host: data loaders share memory, and 64 MB, the default, are too few.
    arguments = [
        container["command"],
        "run",
        "--rm",
        "--init",
        "--network",
        "none",
        "--ipc",
        "host",
        "--user",
        user,
    ]
    if gpu is not None:
        arguments += ["--gpus", f"device={gpu}"]
    for source, target, writable in _mounts(cwd, tmp, binds):
        options = "" if writable else ",readonly"
        arguments += ["--mount", f"type=bind,source={source},target={target}{options}"]
    for name, value in sorted(inside.items()):
        # The container sees one GPU, whatever its number outside.
        arguments += ["--env", f"{name}={'0' if name == 'CUDA_VISIBLE_DEVICES' else value}"]
    return [*arguments, "--workdir", str(cwd), *container["options"], image.reference]


def launch(
    name: str,
    site: Mapping[str, Any],
    image: Image | None,
    command: Sequence[str],
    binds: Sequence[Path] = (),
) -> int:
    """Run `command` at the site and return its exit status (128 + N where signal N ended it).

    SIGTERM is handed on, so that the command saves its state; the job's temporary folder is removed after.

    Raises
    ------
    ConfigError
        If the scratch folder or a bind cannot be used, or the site does not run such an image.
    MachineRefused
        If the container runtime is not installed here.
    """
    if image is not None:
        require_runtime(image, name, site)
    tmp = _temporary(scratch_of(site, os.environ))
    try:
        gpu = gpu_of_job(os.environ, present=Path("/dev/nvidiactl").exists())
        modules = site["container"]["modules"]
        environment = clean_environment(os.environ, image, site=name, tmp=tmp, gpu=gpu, modules=bool(modules))
        inside = inside_environment(environment, tmp=tmp)
        arguments = argument_list(
            site,
            image,
            command,
            cwd=Path.cwd(),
            tmp=tmp,
            binds=[path.resolve() for path in binds],
            gpu=gpu,
            inside=inside,
            user=f"{os.getuid()}:{os.getgid()}",
        )
        if image is not None and image.runtime == "apptainer":
            # Not --env, which splits values at commas; the second spelling is SingularityPRO's.
            for prefix in ("APPTAINERENV_", "SINGULARITYENV_"):
                environment |= {prefix + key: value for key, value in inside.items() if key != "HOME"}
        return _run(arguments, environment)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def _temporary(scratch: Path) -> Path:
    """Make the job's own temporary folder: users would share a fixed name, and Nsight Compute locks there."""
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="gpuatlas-", dir=scratch.resolve()))
    except OSError as error:
        raise ConfigError(
            f"scratch {scratch} cannot be used ({error.strerror}); set GPUATLAS_SCRATCH to a folder of yours"
        ) from error


def _run(arguments: list[str], environment: Mapping[str, str]) -> int:
    started: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        del frame
        # SIGINT comes to the whole group; SIGTERM to us alone, unless `gpuatlas.supervise` is above.
        if number == signal.SIGTERM and started and "GPUATLAS_SUPERVISED" not in os.environ:
            started[0].send_signal(number)

    previous = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        process = subprocess.Popen(arguments, env=dict(environment))
        started.append(process)
        status = process.wait()
    except FileNotFoundError as error:
        raise MachineRefused(
            f"{arguments[0]} is not installed on this machine; install it or change container.runtime "
            "in the site file"
        ) from error
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status
