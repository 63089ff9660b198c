"""Changes a real report byte by byte, by a walk of its own that shares nothing with the project's decoder."""

import struct
from collections.abc import Iterator


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, value, start, end) of a message; `value` counts for varints only."""
    at = start
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value = 0
        begin = at
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 2:
            size, begin = _varint(data, at)
            at = begin + size
        elif kind == 5:
            at += 4
        else:
            raise ValueError(f"wire type {kind}")
        yield number, value, begin, at


def scale_metric(report: bytes, name: str, factor: float) -> tuple[bytes, int]:
    """Multiply every stored double of one metric; return the new report and how many values changed."""
    changed = bytearray(report)
    (size,) = struct.unpack_from("<I", report, 4)
    at = 8 + size
    names: list[str] = []
    results: list[tuple[int, int]] = []
    while at < len(report):
        (size,) = struct.unpack_from("<I", report, at)
        sources = count = payload = 0
        for number, value, begin, end in _fields(report, at + 4, at + 4 + size):
            if number == 1:
                sources = value
            elif number == 2:
                count = value
            elif number == 5:
                payload = value
            elif number == 4:
                names += [report[b:e].decode() for n, _, b, e in _fields(report, begin, end) if n == 1]
        at += 4 + size
        stop, entry = at + payload, 0
        while at < stop:
            (size,) = struct.unpack_from("<I", report, at)
            if sources <= entry < sources + count:
                results.append((at + 4, at + 4 + size))
            at += 4 + size
            entry += 1
    wanted = names.index(name)
    total = 0
    for start, stop in results:
        for number, _, begin, end in _fields(report, start, stop):
            if number != 13:
                continue
            metric = {n: (v, b, e) for n, v, b, e in _fields(report, begin, end)}
            if metric[1][0] != wanted:
                continue
            for kind, _, value_begin, _ in _fields(report, *metric[2][1:]):
                if kind == 3:
                    (old,) = struct.unpack_from("<d", report, value_begin)
                    struct.pack_into("<d", changed, value_begin, old * factor)
                    total += 1
    return bytes(changed), total
