"""One run at a time in a state folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuatlas.errors import ConfigError
from gpuatlas.files import make_folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make `folder` and keep it to this process; the lock ends with the process, however that ends.

    Raises
    ------
    ConfigError
        Another process keeps it.
    """
    make_folder(folder)
    # Open for writing: NFS locks no other. The file stays, as removing it would let two processes in.
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise ConfigError(
                f"{folder} is in use by another run; wait for its end, or use another --state."
            ) from error
        except OSError:
            pass  # a file system without locks, such as Lustre mounted so: nothing is known of others
        yield
