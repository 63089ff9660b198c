"""The protobuf wire format: reading and writing fields, and strict parsing of whole messages."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, EncodeError

from gpuatlas.ncurep.messages import EXTENSIBLE

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Content = bytes | memoryview
"""A part of a report; a view of it where the whole is in memory."""


class WireError(Exception):
    """Bytes that are no valid message; the message says why."""


class Field(NamedTuple):
    """One field as it stands in a message."""

    number: int
    wire: int
    start: int
    """Where its tag begins."""
    content: int
    """Where its value begins (behind the length for bytes)."""
    end: int


def read_varint(data: Content | bytearray, at: int) -> tuple[int, int]:
    """Return the integer at `at` and the position behind it."""
    value = shift = 0
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    while True:
        if at >= len(data):
            raise WireError("an integer is cut")
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            raise WireError("it holds an integer that is too long")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def write_varint(value: int) -> bytes:
    """Return `value` as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_bytes(number: int, content: Content) -> bytes:
    """Return a length-delimited field."""
    return write_varint(number << 3 | BYTES) + write_varint(len(content)) + content


def write_integer(number: int, value: int) -> bytes:
    """Return a varint field."""
    return write_varint(number << 3 | VARINT) + write_varint(value)


def fields(data: Content) -> Iterator[Field]:
    """Iterate over the fields of a message, not over those of messages inside it."""
    at, size = 0, len(data)
    while at < size:
        start = at
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise WireError("a field has the number 0")
        content = at
        if wire == VARINT:
            _, at = read_varint(data, at)
        elif wire == BYTES:
            length, content = read_varint(data, at)
            at = content + length
        elif wire == FIXED64:
            at += 8
        elif wire == FIXED32:
            at += 4
        else:
            raise WireError(f"field {number} has the wire type {wire}")
        if at > size:
            raise WireError(f"field {number} is cut")
        yield Field(number, wire, start, content, at)


def decode_text(raw: bytes, what: str) -> str:
    """Decode UTF-8 strictly."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"{what} is not UTF-8") from error


def parse(kind: Any, data: bytes) -> tuple[Any, bool]:
    """Parse a message strictly.

    Parameters
    ----------
    kind
        A class of `messages`.
    data
        The whole message.

    Returns
    -------
    message
        The parsed message, without unknown fields.
    extended
        Whether it held fields that this version does not know but may accept.

    Raises
    ------
    WireError
        If it does not parse, lacks a required field, holds a field twice or encodes it oddly, or holds an
        unknown field among the known ones: that is a damaged tag.
    """
    try:
        message = kind.FromString(data)
        message.DiscardUnknownFields()
        size = message.ByteSize()  # that a required field is missing shows here at the latest
    except (DecodeError, EncodeError) as error:
        raise WireError("it does not parse or lacks a required field") from error
    if size == len(data):
        return message, False
    if _known_size(kind.DESCRIPTOR, data) != size:
        raise WireError("a field stands twice or is encoded oddly")
    return message, True


def _known_size(descriptor: Any, data: bytes) -> int:
    """Return the size of `data` without its unknown fields; refuse those that cannot be a newer writer's."""
    known = descriptor.fields_by_number
    highest = 0 if descriptor.name in EXTENSIBLE else max(known)
    size = 0
    for field in fields(data):
        declared = known.get(field.number)
        if declared is None:
            if field.number < highest:
                raise WireError(f"{descriptor.name} holds the unknown field {field.number}")
        elif field.wire != _WIRE[declared.type]:
            raise WireError(f"field {field.number} of {descriptor.name} has the wire type {field.wire}")
        elif declared.message_type is None:
            size += field.end - field.start
        else:
            inner = _known_size(declared.message_type, data[field.content : field.end])
            size += len(write_varint(field.number << 3)) + len(write_varint(inner)) + inner
    return size


# FieldDescriptor type -> wire type: double, float, uint64, message, bytes, uint32
_WIRE = {1: FIXED64, 2: FIXED32, 4: VARINT, 11: BYTES, 12: BYTES, 13: VARINT}
