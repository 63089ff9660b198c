"""What tells of the host, the user or the process is left out of results, or replaced."""

import re
from typing import Any

from gpuatlas.ncurep.messages import Rule
from gpuatlas.ncurep.wire import BYTES, Content, fields, read_varint, write_bytes, write_integer

_THREAD, _ADDRESSES, _RULES, _NVTX = 1, (3, 4), 19, 21
_PRIVATE = {28, 31}
"""Fields whose content may come from the host; a number above the known ones counts too."""
_HIGHEST_PUBLIC = 35
_NVTX_THREADS, _NVTX_THREAD = 2, 1
_TEXTS = {("RuleMessage", "text"), ("RuleMessage", "title"), ("FocusMetric", "info"), ("RuleTable", "title")}
"""Texts of a rule that its author or an exception's traceback may have put paths into."""
_FOLDERS = re.compile(rb"(?<![\w/:.<])(?:[A-Za-z]:)?[/\\](?=[^\s/\\])(?:[^/\\\n\"'<>|:*?]+[/\\])+")
"""The folders of an absolute path, which may hold spaces; no URL and no ratio of units."""


class Redaction:
    """Redacts the results of one report.

    Thread ids and host addresses become 1, 2, 3, … in the order of their first appearance, so that what was
    equal stays equal. Of absolute paths in the texts of rules only the file names are kept.
    """

    def __init__(self) -> None:
        self._threads: dict[int, int] = {}
        self._addresses: dict[int, int] = {}

    def result(self, result: Content) -> bytes:
        """Return a result without what tells of the host."""
        out: list[Content] = []
        for field in fields(result):
            content = result[field.content : field.end]
            if field.number == _THREAD:
                out.append(write_integer(_THREAD, _renumbered(content, self._threads)))
            elif field.number in _ADDRESSES:
                out.append(write_integer(field.number, _renumbered(content, self._addresses)))
            elif field.number == _RULES:
                out.append(write_bytes(_RULES, _without_folders(Rule.DESCRIPTOR, bytes(content))))
            elif field.number == _NVTX:
                out.append(write_bytes(_NVTX, self._nvtx(bytes(content))))
            elif field.number not in _PRIVATE and field.number <= _HIGHEST_PUBLIC:
                out.append(result[field.start : field.end])
        return b"".join(out)

    def _nvtx(self, nvtx: bytes) -> bytes:
        out = []
        for field in fields(nvtx):
            raw = nvtx[field.start : field.end]
            if field.number == _NVTX_THREADS:
                thread = nvtx[field.content : field.end]
                raw = write_bytes(_NVTX_THREADS, b"".join(self._nvtx_thread(thread)))
            out.append(raw)
        return b"".join(out)

    def _nvtx_thread(self, thread: bytes) -> list[bytes]:
        return [
            write_integer(_NVTX_THREAD, _renumbered(thread[field.content : field.end], self._threads))
            if field.number == _NVTX_THREAD
            else thread[field.start : field.end]
            for field in fields(thread)
        ]


def _renumbered(content: Content, known: dict[int, int]) -> int:
    number, _ = read_varint(content, 0)
    return known.setdefault(number, len(known) + 1)


def _without_folders(descriptor: Any, message: bytes) -> bytes:
    """Return a message whose texts name files without their folders."""
    out = []
    for field in fields(message):
        declared = descriptor.fields_by_number.get(field.number)
        raw = message[field.start : field.end]
        if declared is not None and field.wire == BYTES:
            content = message[field.content : field.end]
            if declared.message_type is not None:
                raw = write_bytes(field.number, _without_folders(declared.message_type, content))
            elif (descriptor.name, declared.name) in _TEXTS:
                raw = write_bytes(field.number, _FOLDERS.sub(b"", content))
        out.append(raw)
    return b"".join(out)
