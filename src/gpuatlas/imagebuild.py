"""Builds and records the images of `containers/`: for Docker, as an archive that travels, for Apptainer."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuatlas import console
from gpuatlas.config import read_yaml, validate
from gpuatlas.errors import ConfigError, GpuatlasError, MachineRefused
from gpuatlas.files import whole, write_json
from gpuatlas.images import Image, docker_digest, file_digest, read_record, record_path

PACKAGES = "/opt/gpuatlas/packages.txt"
FOLDER = Path("containers")
SCRIPTS = ("install.sh", "check.py")


def load_stack(root: Path, name: str) -> dict[str, Any]:
    """Read one stack of containers/stacks.yaml.

    Raises
    ------
    ConfigError
        If the file is wrong or has no such stack.
    """
    stacks = read_yaml(root / FOLDER / "stacks.yaml")
    validate(stacks, read_yaml(root / "workflow/schemas/stacks.schema.yaml"), "containers/stacks.yaml")
    if name not in stacks:
        raise ConfigError(
            f"config key 'stack': {name!r} is not in containers/stacks.yaml; it has {', '.join(stacks)}"
        )
    stack: dict[str, Any] = stacks[name]
    return stack


def build_arguments(stack: Mapping[str, Any], given: Sequence[str]) -> dict[str, str]:
    """Return the recipe's arguments: the stack's, overridden by ``NAME=VALUE`` pairs."""
    arguments = {"BASE": stack["base"], "NCU": stack["ncu"], "PIP_OPTIONS": ""}
    for pair in given:
        name, separator, value = pair.partition("=")
        if not separator or name not in {*arguments, "BOOTSTRAP"}:
            raise ConfigError(f"--build-arg {pair}: write NAME=VALUE with NAME one of {', '.join(arguments)}")
        arguments[name] = value
    return arguments


def recipe_digest(root: Path, recipe: str, stack: str, arguments: Mapping[str, str]) -> str:
    """Return the SHA-256 of all that decides what an image holds: recipe, scripts, lock, arguments."""
    digest = hashlib.sha256()
    for part in (recipe, *SCRIPTS, f"locks/{stack}.txt"):
        digest.update((root / FOLDER / part).read_bytes())
    digest.update(json.dumps(dict(arguments), sort_keys=True).encode())
    return "sha256:" + digest.hexdigest()


def build_docker(
    root: Path, stack: str, out: Path, *, given: Sequence[str] = (), network: str = "default"
) -> Image:
    """Build a stack's Docker image and write its record to `out`.

    Raises
    ------
    ConfigError, MachineRefused, GpuatlasError
        If the stack is unknown, Docker is not there, or the build fails.
    """
    arguments = build_arguments(load_stack(root, stack), given)
    recipe = recipe_digest(root, "Dockerfile", stack, arguments)
    reference = f"gpuatlas/{stack}:{recipe.removeprefix('sha256:')[:12]}"
    command = [
        "docker",
        "build",
        "--network",
        network,
        "--tag",
        reference,
        "--file",
        str(root / FOLDER / "Dockerfile"),
    ]
    for name, value in {**arguments, "STACK": stack, "RECIPE": recipe}.items():
        command += ["--build-arg", f"{name}={value}"]
    console.note(f"Building {reference}")
    _run([*command, str(root / FOLDER)])
    packages = _output(["docker", "run", "--rm", "--network", "none", reference, "cat", PACKAGES])
    image = Image(
        path=out,
        stack=stack,
        runtime="docker",
        reference=reference,
        digest=docker_digest(reference, out),
        recipe=recipe,
        packages=tuple(packages.split()),
    )
    write_json(out, image.as_json())
    return image


def save_archive(record: Path, out: Path) -> None:
    """Write a recorded Docker image as an archive, which Apptainer reads at sites without Docker."""
    image = read_record(record)
    with whole(out) as temporary:
        _run(["docker", "save", "--output", str(temporary), image.reference])


def build_sif(
    root: Path, stack: str, out: Path, *, source: str, archive: Path | None = None, given: Sequence[str] = ()
) -> Image:
    """Build a stack's Apptainer image and its record.

    Parameters
    ----------
    source
        ``archive`` (of the Docker image), ``definition`` (containers/gpuatlas.def; needs user namespaces) or
        ``registry`` (the stack's reference).

    Raises
    ------
    ConfigError, MachineRefused, GpuatlasError
        If the stack is unknown or has no reference, Apptainer is not there, or the build fails.
    """
    entry = load_stack(root, stack)
    arguments = build_arguments(entry, given)
    recipe = recipe_digest(root, "gpuatlas.def", stack, arguments)
    options: list[str] = []
    if source == "archive":
        origin = f"docker-archive:{archive or FOLDER / 'images' / f'{stack}.docker.tar'}"
        recipe = ""
    elif source == "registry":
        if not entry["registry"]:
            raise ConfigError(
                f"containers/stacks.yaml: key '{stack}.registry' is empty, so the image cannot be pulled; "
                "set it, or set container.source in the site file to archive"
            )
        origin = entry["registry"]
        recipe = ""
    else:
        origin = str(root / FOLDER / "gpuatlas.def")
        for name, value in {**arguments, "STACK": stack, "RECIPE": recipe}.items():
            options += ["--build-arg", f"{name}={value}"]
    out.parent.mkdir(parents=True, exist_ok=True)
    console.note(f"Building {out} from {source}")
    # A name that ends in .sif: Apptainer chooses the format by it.
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        temporary = Path(folder) / out.name
        if source == "definition":
            context = _context(root, stack, Path(folder) / "build")
            options += ["--build-arg", f"BUILD={context}"]
        _run([apptainer(), "build", *options, str(temporary), origin])
        temporary.replace(out)
    return record_sif(out, stack=stack, recipe=recipe)


def _context(root: Path, stack: str, folder: Path) -> Path:
    """Collect what the recipe copies into the image, as the Dockerfile does."""
    (folder / "locks").mkdir(parents=True)
    for part in (*SCRIPTS, "stacks.yaml", f"locks/{stack}.txt"):
        shutil.copy2(root / FOLDER / part, folder / part)
    return folder


def sif_labels(path: Path) -> dict[str, str]:
    """Return the labels of a SIF, read by spython."""
    from spython.main import get_client

    # spython calls `singularity`; where only Apptainer is installed, a link of that name stands in.
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ["PATH"]
        if shutil.which("singularity") is None:
            (Path(folder) / "singularity").symlink_to(str(shutil.which(apptainer())))
            os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
        try:
            seen = get_client(quiet=True).inspect(str(path))
        finally:
            os.environ["PATH"] = before
    try:
        labels: dict[str, str] = seen["attributes"]["labels"]
    except (TypeError, KeyError) as error:
        raise GpuatlasError(f"{path}: its labels cannot be read; is it an Apptainer image?") from error
    return labels


def record_sif(path: Path, *, stack: str, recipe: str = "") -> Image:
    """Write the record of a SIF: digest, packages, and what its labels say about its recipe."""
    label = sif_labels(path)
    packages = _output([apptainer(), "exec", "--contain", str(path), "cat", PACKAGES])
    seen = path.stat()
    image = Image(
        path=path,
        stack=label.get("org.gpuatlas.stack", stack),
        runtime="apptainer",
        reference=path.name,
        digest=file_digest(path),
        recipe=label.get("org.gpuatlas.recipe", recipe),
        packages=tuple(packages.split()),
    )
    image = replace(image, size=seen.st_size, mtime_ns=seen.st_mtime_ns)
    write_json(record_path(path), image.as_json())
    return image


def apptainer() -> str:
    """Return the command of Apptainer, or of Singularity where a site has that.

    Raises
    ------
    MachineRefused
        If neither is installed.
    """
    for name in ("apptainer", "singularity"):
        if shutil.which(name):
            return name
    raise MachineRefused(
        "apptainer is not installed on this machine; load its module or build in a job (build_on: compute)"
    )


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError as error:
        raise MachineRefused(f"{command[0]} is not installed on this machine; install it") from error
    except subprocess.CalledProcessError as error:
        raise GpuatlasError(
            f"{command[0]} {command[1]} failed with exit status {error.returncode}; its messages are above"
        ) from error


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        raise GpuatlasError(f"{command[0]} {command[1]} failed: {error.stderr.strip()[-300:]}") from error
