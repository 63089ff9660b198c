"""Files that are whole or absent (written under a temporary name beside their own, then renamed)."""

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuatlas.errors import GpuatlasError, InputRefused

_PIECE = 8 << 20
"""Files are hashed in such pieces: large, so that a thread that hashes seldom waits for the interpreter."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they do not exist.

    Raises
    ------
    GpuatlasError
        If a file is in the way.
    OSError
        If it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise GpuatlasError(
            f"{path}: a file stands where a folder is needed; name another folder or remove the file."
        ) from error


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let the error of a full disk name `path`: a write does not know its file, and a copy names its source.

    Raises
    ------
    OSError
        As the block raises it; where there is no space for `path`, naming it.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` if the block succeeds and removed if it fails.

    Raises
    ------
    GpuatlasError
        If a folder stands at `path`, or a file where its folder is needed.
    OSError
        If the folder cannot be written, or `path` finds no space; it names the file.
    """
    make_folder(path.parent)
    if path.is_dir():  # seen before anything is written, for those who write several files together
        raise GpuatlasError(f"{path}: a folder stands where the file goes; remove or rename it.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        with named(path):
            yield temporary
            # mkstemp makes files private; what is written here is as public as the umask lets any file be.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object) -> None:
    """Write `content` as indented JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str = "restore the file") -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    InputRefused
        If the file cannot be read or holds anything else; `remedy` is what the sentence says to do.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputRefused(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise InputRefused(f"{path}: is not valid JSON; {remedy}") from error
    if not isinstance(content, dict):
        raise InputRefused(f"{path}: must hold a JSON object; {remedy}")
    return content


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits."""
    digest, buffer = hashlib.sha256(), bytearray(_PIECE)
    with path.open("rb", buffering=0) as stream, memoryview(buffer) as view:
        while size := stream.readinto(buffer):
            digest.update(view[:size])
    return digest.hexdigest()
