"""A report as a whole: what its headers say, and its launches one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuatlas.ncurep.blocks import Payload, walk
from gpuatlas.ncurep.messages import LATEST, Session, StringTable
from gpuatlas.ncurep.source import Damaged, Reader, Source, identify
from gpuatlas.ncurep.wire import Content, WireError, decode_text, parse


@dataclass
class Device:
    """A GPU of the machine that wrote the report."""

    id: int
    name: str
    attributes: dict[str, int | float | str]


@dataclass
class SessionInfo:
    """What the session blocks say; fields that a slim report has lost are empty."""

    created: int | None = None
    """Seconds since 1970."""
    versions: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    command_line: list[str] = field(default_factory=list)

    @property
    def ncu_version(self) -> str:
        """Version of the Nsight Compute that wrote the report, such as 2025.3.1.0; empty before 2020."""
        return self.versions.get("Nsight Compute Target", "").split(" ")[0]

    @property
    def notes(self) -> list[str]:
        """What is missing that every report has."""
        return [] if self.devices else ["the report names no device: what told of it may be damaged"]

    @property
    def device_name(self) -> str:
        """Names of the devices, joined."""
        return ", ".join(device.name for device in self.devices)


@dataclass
class Outline:
    """What the headers of a report say, read in a first pass that leaves the payloads out."""

    source: Source
    names: list[str]
    """Metric names; a metric's name id is its place here."""
    session: SessionInfo
    launches: int
    blocks: int
    unpacked: int
    """Size of the unpacked report in bytes."""
    payload: int
    """Bytes of the payloads (results and sources)."""
    extended: int = 0
    """Blocks whose header holds fields that this version does not know."""
    payloads: list[Payload] = field(default_factory=list)
    """Where the launches are: reading them need not parse the headers again."""
    damage: Damaged | None = None
    """Why the walk ended early; only if asked to bear it."""
    content: memoryview | None = None
    """The unpacked report, if asked to keep what was unpacked at once."""


MAX_NAMES = 100_000
"""Reports have up to a few thousand metrics; one that names more than this is damaged or made to do harm."""
_REASONS = 3
LAUNCHES_ENTRY = "gpuatlas launches"
"""Session entry by which a slim report tells its number of launches: a cut between two blocks shows."""


def outline(path: Path, *, partial: bool = False, keep: bool = False) -> Outline:
    """Read what the headers of a report say.

    Parameters
    ----------
    path
        A report, packed or not.
    partial
        Bear a report that is cut: what follows the damage is left out, and `Outline.damage` says why.
    keep
        Keep what was unpacked at once (a packed report of moderate size), so that reading the launches need
        not unpack it again.

    Raises
    ------
    InputRefused
        If the file is no report, is damaged, or holds no launch.
    """
    source = identify(path)
    found = Outline(source, [], SessionInfo(), 0, 0, 0, 0)
    with Reader(source) as reader:
        if keep:
            found.content = reader.content
        try:
            for block in walk(reader):
                try:
                    found.extended += _read_header(block.header, found) or block.extended
                except WireError as error:
                    reader.refuse(f"a block header is wrong: {error}", block.offset)
                found.blocks += 1
                found.launches += block.payload.results
                found.payload += block.payload.size
                if block.payload.size:
                    found.payloads.append(block.payload)
                block.skip()
        except Damaged as error:
            if not partial:
                raise
            found.damage = error
        found.unpacked = reader.offset
        if not found.launches and found.damage is None:
            reader.refuse("it holds no launch; profile at least one kernel")
        expected = found.session.versions.get(LAUNCHES_ENTRY)
        if expected is not None and expected != str(found.launches) and found.damage is None:
            damage = Damaged(source, reader.offset, f"it holds {found.launches} launches of {expected}")
            if not partial:
                raise damage
            found.damage = damage
    return found


def _read_header(header: Any, found: Outline) -> bool:
    """Add what a block's header says; return whether its session holds unknown fields."""
    if header.strings:
        table, _ = parse(StringTable, header.strings)
        if len(found.names) + len(table.strings) > MAX_NAMES:
            raise WireError(f"there are more than {MAX_NAMES} metric names")
        found.names.extend(decode_text(name, "a metric's name") for name in table.strings)
    if not header.session:
        return False
    message, extended = parse(Session, header.session)
    info = found.session
    if message.HasField("created"):
        if message.created > LATEST:
            raise WireError("the creation time is out of range")
        info.created = int(message.created)
    for version in message.versions:
        info.versions[decode_text(version.name, "a version's name")] = decode_text(version.value, "a version")
    for device in message.devices:
        attributes = {
            decode_text(item.name, "a device attribute's name"): _value(item.value)
            for item in device.attributes
        }
        info.devices.append(Device(int(device.id), decode_text(device.name, "a device's name"), attributes))
    info.command_line.extend(part.decode(errors="replace") for part in message.command_line)
    return extended


def _value(value: Any) -> int | float | str:
    for name in ("uint64", "double", "uint32", "float"):
        if value.HasField(name):
            number: int | float = getattr(value, name)
            return number
    return decode_text(value.text, "a device attribute")


@dataclass
class RawLaunch:
    """One result of a report, not yet decoded."""

    data: Content
    offset: int
    """Where it begins in the unpacked report."""


@dataclass
class Loss:
    """What had to be left out of a damaged report."""

    launches: int = 0
    at_least: bool = False
    """Whether more may be lost: where a report is cut that does not tell its launches, nobody knows."""
    reasons: list[str] = field(default_factory=list)
    """The first few of what was found wrong."""

    def tell(self, reason: str) -> None:
        """Note what was found wrong."""
        if len(self.reasons) < _REASONS:
            self.reasons.append(reason)


def launches(report: Outline, loss: Loss | None = None) -> Iterator[RawLaunch]:
    """Iterate over the launches of a report, in its order, one at a time.

    Parameters
    ----------
    report
        Its outline.
    loss
        Given for a damaged report: what is lost where the report's framing ends is counted here.

    Raises
    ------
    Damaged
        Where the framing is broken, without `loss`.
    """
    with Reader(report.source, report.content) as reader:
        seen = 0
        try:
            for payload in report.payloads:
                reader.skip(payload.offset - reader.offset, "what stands before a block's payload")
                for data in payload.result_entries(reader):
                    seen += 1
                    yield RawLaunch(data, reader.offset - len(data))
            if report.damage:
                raise report.damage
        except Damaged as error:
            if loss is None:
                raise
            # Where the outline ended, it has said why; here it may show a few bytes later.
            first = report.damage if report.damage and report.damage.offset <= error.offset else error
            loss.tell(first.reason)
            told = report.session.versions.get(LAUNCHES_ENTRY, "")
            loss.at_least = not (told.isdecimal() and len(told) < 10)
            announced = report.launches if loss.at_least else int(told)
            loss.launches += max(announced - seen, 0)
            return
