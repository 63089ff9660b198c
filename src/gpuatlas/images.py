"""Container images and their records: a cell runs in the image whose digest was recorded, and in no other.

The record of a Docker image is the file that stands for it (``containers/images/STACK.docker.json``); an
Apptainer image ``STACK.sif`` has its record beside it (``STACK.sif.json``). Fields: schema, stack, runtime,
reference, digest (Docker's image ID, or the SHA-256 of the SIF), recipe (SHA-256 of all that the image was
built from), packages, and for a SIF its size and time of modification, so that an unchanged file need not
be read again before a submission.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuatlas.config import violation
from gpuatlas.errors import ConfigError, InputRefused, MachineRefused
from gpuatlas.files import read_json, sha256

SCHEMA_VERSION = 1
DOCKER_SUFFIX = ".docker.json"
SIF_SUFFIX = ".sif"
_DIGEST = "sha256:[0-9a-f]+"
_SCHEMA = {
    "type": "object",
    "required": ["schema", "stack", "runtime", "reference", "digest", "recipe", "packages"],
    "properties": {
        "schema": {"const": SCHEMA_VERSION},
        "stack": {"type": "string", "minLength": 1},
        "runtime": {"enum": ["apptainer", "docker"]},
        "reference": {"type": "string"},
        "digest": {"type": "string", "pattern": rf"^{_DIGEST}(?!\n)$"},
        "recipe": {"type": "string", "pattern": rf"^({_DIGEST})?(?!\n)$"},
        "packages": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "integer", "minimum": 0},
        "mtime_ns": {"type": "integer", "minimum": 0},
    },
    # An argument of Docker's command, and no option of it.
    "if": {"properties": {"runtime": {"const": "docker"}}},
    "then": {"properties": {"reference": {"pattern": r"^[A-Za-z0-9]\S*(?!\n)$"}}},
}


@dataclass(frozen=True)
class Image:
    """An image as recorded; `path` is the file that the workflow knows it by."""

    path: Path
    stack: str
    runtime: str
    reference: str
    digest: str
    recipe: str
    packages: tuple[str, ...]
    size: int | None = None
    mtime_ns: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the record."""
        record = {
            "schema": SCHEMA_VERSION,
            "stack": self.stack,
            "runtime": self.runtime,
            "reference": self.reference,
            "digest": self.digest,
            "recipe": self.recipe,
            "packages": list(self.packages),
        }
        if self.size is not None:
            record |= {"size": self.size, "mtime_ns": self.mtime_ns}
        return record


def record_path(path: Path) -> Path:
    """Return where the record of an image lies."""
    return path if path.name.endswith(DOCKER_SUFFIX) else path.with_name(path.name + ".json")


def read_record(path: Path) -> Image:
    """Read the record of the image `path` (a ``.sif`` or a ``.docker.json``).

    Raises
    ------
    InputRefused
        If the image or its record is missing or is not one.
    """
    for needed in (path, record_path(path)):
        if not needed.is_file():
            raise InputRefused(
                f"{needed}: the image is missing; build it ({_build_command(path)}) or correct "
                "container.image "
                "in the site file"
            )
    remedy = f"build the image again ({_build_command(path)})"
    record = read_json(record_path(path), remedy)
    wrong = violation(record, _SCHEMA)
    runtime = "docker" if path.name.endswith(DOCKER_SUFFIX) else "apptainer"
    if wrong is None and record["runtime"] != runtime:
        wrong = f"key 'runtime': {record['runtime']} does not run a file of this name"
    if wrong is not None:
        raise InputRefused(f"{record_path(path)}: is not the record of an image ({wrong}); {remedy}")
    return Image(
        path=path,
        stack=record["stack"],
        runtime=runtime,
        # A SIF is where it lies now; a Docker image is named in its record.
        reference=record["reference"] if runtime == "docker" else str(path.resolve()),
        digest=record["digest"],
        recipe=record["recipe"],
        packages=tuple(record["packages"]),
        size=record.get("size"),
        mtime_ns=record.get("mtime_ns"),
    )


def require_runtime(image: Image, name: str, site: Mapping[str, Any]) -> None:
    """Refuse an image that the site `name` does not run.

    Raises
    ------
    ConfigError
        If it is of another runtime than the site's.
    """
    runtime = site["container"]["runtime"]
    if image.runtime != runtime:
        raise ConfigError(
            f"config/sites/{name}.yaml: key 'container.runtime': {runtime} does not run {image.path}, an "
            f"image of {image.runtime}; give an image of {runtime}, or correct the runtime"
        )


def require_stack(image: Image, stack: str) -> None:
    """Refuse an image of another stack than the study's.

    Raises
    ------
    ConfigError
        If it is one.
    """
    if image.stack != stack:
        raise ConfigError(
            f"config/config.yaml: key 'stack': {stack} is not the stack of {image.path}, which holds "
            f"{image.stack}; give an image of {stack}, or set stack: {image.stack}"
        )


def verify(image: Image, *, quick: bool = False) -> None:
    """Refuse an image that is not the recorded one.

    Parameters
    ----------
    quick
        Take a SIF of the recorded size and time of modification for unchanged, without reading it.

    Raises
    ------
    InputRefused
        If the digest is not the recorded one, or Docker does not know the image.
    MachineRefused
        If Docker is needed and not there.
    """
    if image.runtime == "docker":
        found = docker_digest(image.reference, image.path)
    else:
        seen = image.path.stat()
        if quick and (seen.st_size, seen.st_mtime_ns) == (image.size, image.mtime_ns):
            return
        found = file_digest(image.path)
    if found != image.digest:
        raise InputRefused(
            f"{image.path}: is not the recorded image ({found[:19]}… instead of "
            f"{image.digest[:19]}…); build it again "
            f"({_build_command(image.path)}) or set accept_changed_image: true in config/config.yaml"
        )


def _build_command(path: Path) -> str:
    return f"snakemake --force {path}"


def file_digest(path: Path) -> str:
    """Return ``sha256:`` and the SHA-256 of a file."""
    return f"sha256:{sha256(path)}"


def docker_digest(reference: str, path: Path) -> str:
    """Return Docker's image ID of `reference`, whose record is `path`.

    Raises
    ------
    InputRefused
        If Docker has no such image.
    MachineRefused
        If Docker cannot be asked.
    """
    try:
        done = subprocess.run(
            ["docker", "image", "inspect", "--format", "{{.Id}}", reference],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise MachineRefused(
            "docker is not installed on this machine; install it or change container.runtime in the site file"
        ) from error
    if done.returncode == 0:
        return done.stdout.strip()
    if "no such image" in done.stderr.lower():
        raise InputRefused(
            f"{path}: Docker has no image {reference} here; build it again ({_build_command(path)})"
        )
    raise MachineRefused(f"Docker does not answer ({done.stderr.strip().splitlines()[-1]}); start its daemon")
