"""What one step launches: the timeline of an unprofiled step, and its launch configurations."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpuatlas.errors import InputRefused
from gpuatlas.names import normalise

_COLUMNS = ("order", "key", "name", "duration_ns", "phase")


@dataclass(frozen=True)
class Configuration:
    """A launch configuration of the step.

    Attributes
    ----------
    key
        Launch key (see `gpuatlas.names.launch_key`).
    function
        Base name of the kernel, as Nsight Compute's ``--kernel-name-base function`` matches it.
    launches
        How often the step launches it.
    time_ns
        GPU time of all these launches, in ns.
    phases
        The phases of the step that launch it: forward, backward, optimizer, other.
    """

    key: str
    function: str
    launches: int
    time_ns: float
    phases: frozenset[str]

    @property
    def duration_ns(self) -> float:
        """Mean GPU time of one launch, in ns."""
        return self.time_ns / self.launches


@dataclass(frozen=True)
class Timeline:
    """All kernel launches of one step, in order; the sequences have one element a launch."""

    keys: tuple[str, ...]
    names: tuple[str, ...]
    durations_ns: tuple[float, ...]
    phases: tuple[str, ...]

    @property
    def gpu_time_ns(self) -> float:
        """GPU time of the step: the sum over its launches, in ns."""
        return sum(self.durations_ns)

    def configurations(self) -> list[Configuration]:
        """Return the launch configurations, those with the most GPU time first."""
        positions: dict[str, list[int]] = {}
        for position, key in enumerate(self.keys):
            positions.setdefault(key, []).append(position)
        found = [
            Configuration(
                key,
                function_base(self.names[at[0]]),
                len(at),
                sum(self.durations_ns[position] for position in at),
                frozenset(self.phases[position] for position in at),
            )
            for key, at in positions.items()
        ]
        return sorted(found, key=lambda one: -one.time_ns)

    def fingerprint(self) -> str:
        """Return 16 hex digits that tell what the step launches, whatever it took."""
        return blake2b("\n".join(self.keys).encode(), digest_size=8).hexdigest()


def function_base(name: str) -> str:
    """Return a kernel's base name: without return type, namespaces, template arguments and parameters.

    This is Nsight Compute's default for ``--kernel-name``: ``at::native::fill<4, float>(…)`` is ``fill``.
    """
    text = normalise(name)
    depth, start, end = 0, 0, len(text)
    for position, character in enumerate(text):
        if character in "<({[":
            if depth == 0 and character == "<":
                end = position
            depth += 1
        elif character in ">)}]":
            depth -= 1
        elif depth == 0 and character == ":":
            start, end = position + 1, len(text)
    return text[start:end]


def read_timeline(
    path: Path, target: str | None = None, *, network: str | None = None, size: int | None = None
) -> Timeline:
    """Read ``timeline.parquet``.

    Parameters
    ----------
    target, network, size
        What it is wanted of, the size in voxels; None takes a timeline of any.

    Raises
    ------
    InputRefused
        If the file is missing, damaged, of another target, network or size, or holds no launch.
    """
    try:
        table = pq.read_table(path, columns=list(_COLUMNS)).sort_by("order")
    except FileNotFoundError as error:
        raise InputRefused(
            f"{path}: there is no such file; give the folder that gpuatlas timeline wrote as --timing"
        ) from error
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise InputRefused(f"{path}: is not a readable timeline; run gpuatlas timeline again") from error
    # Timelines that others wrote need not say what they are of.
    told = table.schema.metadata or {}
    wanted = {"target": target, "network": network, "size": None if size is None else str(size)}
    for key, value in wanted.items():
        found = told.get(f"gpuatlas.{key}".encode(), b"").decode()
        if value is not None and found not in ("", value):
            raise InputRefused(
                f"{path}: is of {key} '{found}' and not '{value}'; give what gpuatlas timeline wrote for "
                f"'{value}' as --timing"
            )
    if table.num_rows == 0:
        raise InputRefused(f"{path}: holds no launch of the step; run gpuatlas timeline again on a GPU")
    return timeline_of(
        table["key"].to_pylist(),
        table["name"].to_pylist(),
        table["duration_ns"].to_pylist(),
        table["phase"].cast(pa.string()).to_pylist(),
    )


def timeline_of(
    keys: Sequence[str],
    names: Sequence[str],
    durations_ns: Sequence[float | None],
    phases: Sequence[str | None],
) -> Timeline:
    """Return a timeline of columns; an unmeasured launch counts no time."""
    return Timeline(
        tuple(keys),
        tuple(names),
        tuple(float(duration or 0.0) for duration in durations_ns),
        tuple(phase or "other" for phase in phases),
    )
