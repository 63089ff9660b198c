"""Serves launches of a real report as a report of its own, by a walk that shares nothing with the decoder."""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from tests.reports import _fields, _varint


@dataclass
class Launch:
    """One recorded result: its block header without a string table, and its message."""

    message: bytes
    function: str
    demangled: str
    mangled: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass
class Recording:
    """A real report, apart: its beginning, session blocks, metric names and launches."""

    head: bytes
    sessions: list[bytes]
    strings: bytes
    names: list[str]
    launches: list[Launch]


def read(path: Path) -> Recording:
    """Take a packed report apart."""
    data = pa.CompressedInputStream(pa.BufferReader(path.read_bytes()), "zstd").read()
    (size,) = struct.unpack_from("<I", data, 4)
    at = 8 + size
    found = Recording(data[:at], [], b"", [], [])
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        start, stop = at + 4, at + 4 + size
        count = payload = 0
        session = b""
        for number, value, begin, end in _fields(data, start, stop):
            if number == 2:
                count = value
            elif number == 3:
                session = data[begin:end]
            elif number == 4 and end > begin:
                found.strings += data[begin:end]
                found.names += [data[b:e].decode() for n, _, b, e in _fields(data, begin, end) if n == 1]
            elif number == 5:
                payload = value
        at = stop
        if not count:
            assert payload == 0, "a session block with a payload"
            if session:
                found.sessions.append(session)
        while at < stop + payload:
            (size,) = struct.unpack_from("<I", data, at)
            found.launches.append(_launch(data[at + 4 : at + 4 + size]))
            at += 4 + size
    return found


def _launch(message: bytes) -> Launch:
    text: dict[int, str] = {}
    triples: dict[int, tuple[int, int, int]] = {}
    for number, _, begin, end in _fields(message, 0, len(message)):
        if number in (5, 6, 7):
            text[number] = message[begin:end].decode()
        elif number in (10, 11):
            held = {n: v for n, v, _, _ in _fields(message, begin, end)}
            triples[number] = (held.get(1, 0), held.get(2, 0), held.get(3, 0))
    return Launch(message, text[6], text.get(7) or text[6], text.get(5) or text[6], triples[10], triples[11])


def build(
    recording: Recording, chosen: Sequence[int], *, metrics: Collection[str] | None, sections: Collection[str]
) -> bytes:
    """Return an unpacked report of the launches `chosen`.

    Parameters
    ----------
    metrics
        Names of the metrics to keep beside what every launch carries; None for all.
    sections
        Identifiers of the sections to keep, with their rules.
    """
    parts = [recording.head]
    parts += [_block(session=session) for session in recording.sessions]
    for position, index in enumerate(chosen):
        message = _reduced(recording, recording.launches[index].message, metrics, sections)
        entry = struct.pack("<I", len(message)) + message
        parts.append(_block(results=1, strings=recording.strings if position == 0 else b"", payload=entry))
    return b"".join(parts)


def retimed(recording: Recording, launch: Launch, duration_ns: float) -> Launch:
    """Return a launch that took another time by its report."""
    message = bytearray(launch.message)
    wanted = recording.names.index("gpu__time_duration.sum")
    for number, _, begin, end in _fields(launch.message, 0, len(message)):
        if number == 13:
            metric = {n: (v, b, e) for n, v, b, e in _fields(launch.message, begin, end)}
            if metric[1][0] == wanted:
                for kind, _, at, _ in _fields(launch.message, *metric[2][1:]):
                    if kind == 3:
                        struct.pack_into("<d", message, at, duration_ns)
    return replace(launch, message=bytes(message))


def _reduced(
    recording: Recording, message: bytes, metrics: Collection[str] | None, sections: Collection[str]
) -> bytes:
    kept = []
    at = 0
    for number, _, begin, end in _fields(message, 0, len(message)):
        field, at = message[at:end], end
        if number == 13 and metrics is not None:
            identifier = next(value for n, value, _, _ in _fields(message, begin, end) if n == 1)
            name = recording.names[identifier]
            if name not in metrics and not name.startswith(("device__", "launch__")):
                continue
        elif number == 17:
            size, start = _varint(message, begin + 1)
            if message[start : start + size].decode() not in sections:
                continue
        elif number == 19:
            owner = next((message[b:e].decode() for n, _, b, e in _fields(message, begin, end) if n == 4), "")
            if owner not in sections:
                continue
        kept.append(field)
    return b"".join(kept)


def _block(*, results: int = 0, session: bytes = b"", strings: bytes = b"", payload: bytes = b"") -> bytes:
    header = _number(1, 0) + _number(2, results)
    if session:
        header += _bytes(3, session)
    header += _bytes(4, strings) + _number(5, len(payload))
    return struct.pack("<I", len(header)) + header + payload


def _number(field: int, value: int) -> bytes:
    return _encode(field << 3) + _encode(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _encode(field << 3 | 2) + _encode(len(value)) + value


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
