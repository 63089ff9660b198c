"""What a capture keeps between interruptions: its finished parts, each a slim report with what it cost.

A part counts once its record (``part-000.json``) exists; the record is written after the report.
"""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuatlas.files import write_json

_NO_SECOND, _NO_SECOND_LOG = "no-second.json", "no-second.log"


@dataclass(frozen=True)
class Record:
    """One finished part.

    Attributes
    ----------
    functions, skip, count
        What was asked for (see `gpuatlas.capture.plan.Part`).
    launches
        Launches that its report holds.
    modelled_s
        Seconds that the launches should have taken by the model, before any correction.
    startup_s, profile_s
        Seconds that the start-up and the launches took.
    passes
        Passes a launch, as text, and how many launches took as many.
    lost
        Metrics that Nsight Compute could not access.
    again, second
        Which launch of its configuration was measured besides the first, counted from 1, and which of the
        part's launches, counted from 0, are such. None and () where each was measured once.
    """

    functions: tuple[str, ...] | None
    skip: int | None
    count: int | None
    launches: int
    modelled_s: float
    startup_s: float
    profile_s: float
    passes: dict[str, int]
    lost: tuple[str, ...]
    again: int | None = None
    second: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the part."""
        return self.startup_s + self.profile_s


@dataclass(frozen=True)
class GivenUp:
    """Why a capture goes on without second measurements, from which part on, and the seconds that it lost."""

    reason: str
    part: int
    seconds: float


@dataclass
class State:
    """The finished parts of one capture, in a folder of their own."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    predicted_s: float | None = None
    probe_s: float | None = None
    given_up: GivenUp | None = None

    def report(self, number: int) -> Path:
        """Return where the slim report of a part lies."""
        return self.folder / f"part-{number:03d}.ncu-repz"

    def log(self, number: int) -> Path:
        """Return where the profiler's output of a part lies."""
        return self.folder / f"part-{number:03d}.log"

    def reports(self) -> list[Path]:
        """Return the reports of the finished parts."""
        return [self.report(number) for number in range(len(self.records))]

    def add(self, record: Record) -> None:
        """Count a part whose report has been written, and that it went without second measurements."""
        if self.given_up is not None:
            write_json(self.folder / _NO_SECOND, asdict(self.given_up))
        write_json(self.folder / f"part-{len(self.records):03d}.json", asdict(record))
        self.records.append(record)

    def predict(self, seconds: float, probe_s: float) -> None:
        """Keep the prediction made before the first part, and the start-up of the probe behind it."""
        self.predicted_s, self.probe_s = seconds, probe_s
        write_json(self.folder / "prediction.json", {"predicted_s": seconds, "probe_s": probe_s})

    @property
    def spent_s(self) -> float:
        """Seconds that the finished parts took, and one that was given up."""
        lost = self.given_up.seconds if self.given_up is not None else 0.0
        return lost + sum(record.seconds for record in self.records)

    @property
    def functions(self) -> set[str]:
        """Base names of the kernels that finished parts asked for by name."""
        return {name for record in self.records for name in record.functions or ()}

    @property
    def everything(self) -> bool:
        """Whether a finished part asked for every kernel."""
        return any(record.functions is None and record.count is None for record in self.records)

    def give_up_second(self, reason: str, seconds: float) -> None:
        """Go without second measurements from the next part on; kept once that part has ended well.

        The log of the part that was given up is kept beside.
        """
        self.given_up = GivenUp(reason, len(self.records), seconds)
        with suppress(FileNotFoundError):
            self.log(len(self.records)).replace(self.folder / _NO_SECOND_LOG)

    @property
    def launches(self) -> int:
        """Launches in the finished parts."""
        return sum(record.launches for record in self.records)

    @property
    def passes(self) -> int | None:
        """Commonest number of passes a launch so far; None before the first part."""
        total: Counter[str] = Counter()
        for record in self.records:
            total.update(record.passes)
        return int(total.most_common(1)[0][0]) if total else None


def open_state(folder: Path, identity: dict[str, Any]) -> tuple[State, bool]:
    """Return the state of a capture, and whether an older one of another kind was discarded.

    Parameters
    ----------
    folder
        Where the parts lie; made if need be.
    identity
        What the parts are of: parts of another target, step, tool or set of metrics are not gone on with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "capture.json"
    same = _read(known) == json.loads(json.dumps(identity))
    stale = [path for path in folder.iterdir() if path.name.startswith(("part-", "prediction", "no-second"))]
    if not same:
        for path in stale:
            path.unlink()
        write_json(known, identity)
        return State(folder), bool(stale)
    state = State(folder)
    said = _read(folder / "prediction.json")
    if said is not None and all(_is_seconds(said.get(name)) for name in ("predicted_s", "probe_s")):
        state.predicted_s, state.probe_s = said["predicted_s"], said["probe_s"]
    while (held := _read(folder / f"part-{len(state.records):03d}.json")) is not None:
        if not state.report(len(state.records)).is_file():
            break
        record = _record(held)
        if record is None:
            break
        state.records.append(record)
    for path in folder.glob("part-*.json"):  # after one that does not count: it may be of another plan
        if path.name >= f"part-{len(state.records):03d}":
            path.unlink()
    told = _read(folder / _NO_SECOND)
    if told is not None and _is_seconds(told.get("seconds")):
        with suppress(KeyError, TypeError, ValueError):
            state.given_up = GivenUp(str(told["reason"]), int(told["part"]), told["seconds"])
    return state, False


def _record(held: dict[str, Any]) -> Record | None:
    """Return a part's record; None if it is none, or of a version that measured otherwise."""
    try:
        functions = held.pop("functions")
        named = tuple(functions) if functions is not None else None
        lost, second = tuple(held.pop("lost")), tuple(held.pop("second", ()))
        record = Record(functions=named, lost=lost, second=second, **held)
        passes = [*map(int, record.passes), *record.passes.values()]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    numbers = (record.launches, record.skip or 0, record.count or 0, record.again or 2, *second, *passes)
    times = (record.modelled_s, record.startup_s, record.profile_s)
    sound = (
        not isinstance(functions, str)
        and all(isinstance(name, str) for name in (*(named or ()), *lost))
        and all(type(number) is int and number >= 0 for number in numbers)
        and all(map(_is_seconds, times))
        and record.modelled_s > 0
        and (record.skip is None or record.count is not None)
        and (record.again or 2) >= 2
        and (record.again is not None or not second)
        and all(at < record.launches for at in second)
    )
    return record if sound else None


def _is_seconds(value: object) -> bool:
    """Whether a value that was read is a time that can be: no NaN, nothing endless."""
    return type(value) in (int, float) and 0 <= value < 1e9  # type: ignore[operator]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) else None
