"""Reports made of given values, to read back."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from gpuatlas.ncurep.rewrite import new_header, write_block, write_start
from gpuatlas.ncurep.wire import write_bytes, write_integer

Value = str | int | float | None
"""A stored text, uint64 or double; None where nothing is stored."""


def encode(value: str | int | float) -> bytes:
    if isinstance(value, str):
        return write_bytes(1, value.encode())
    if isinstance(value, int):
        return write_integer(5, value)
    return b"\x19" + struct.pack("<d", value)


@dataclass
class Metric:
    name: int
    value: Value
    instances: list[tuple[Value, Value]] = field(default_factory=list)
    flag: int | None = 0

    def encoded(self) -> bytes:
        out = write_integer(1, self.name)
        if self.value is not None:
            out += write_bytes(2, encode(self.value))
        for correlation, value in self.instances:
            parts = b"" if correlation is None else write_bytes(1, encode(correlation))
            parts += b"" if value is None else write_bytes(2, encode(value))
            out += write_bytes(3, parts)
        return out if self.flag is None else out + write_integer(4, self.flag)


def dimensions(x: int, y: int, z: int) -> bytes:
    return write_integer(1, x) + write_integer(2, y) + write_integer(3, z)


def result(
    metrics: list[Metric], *, name: str = "kernel", demangled: str = "", rules: bytes = b"", time: int = 7
) -> bytes:
    return b"".join(
        [
            write_integer(1, 11),
            write_bytes(5, name.encode()),
            write_bytes(6, name.encode()),
            write_bytes(7, demangled.encode()),
            write_bytes(10, dimensions(2, 3, 4)),
            write_bytes(11, dimensions(64, 2, 1)),
            *(write_bytes(13, metric.encoded()) for metric in metrics),
            write_integer(14, time),
            write_bytes(17, write_bytes(1, b"SpeedOfLight") + write_bytes(2, b"Speed") + write_integer(3, 1)),
            rules,
            write_integer(22, 1),
            write_integer(23, 7),
        ]
    )


def write(path: Path, names: list[str], launches: list[list[Metric]], **options: object) -> Path:
    with path.open("wb") as file:
        write_start(file)
        write_block(file, new_header(names), [])
        for metrics in launches:
            write_block(file, new_header(), [result(metrics, **options)])
    return path
