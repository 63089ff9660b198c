"""What a launch says of itself: names, dimensions, NVTX ranges, sections."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuatlas.ncurep.messages import LATEST, Nvtx
from gpuatlas.ncurep.wire import WireError, decode_text, parse, read_varint

_INT32, _INT64 = 2**31 - 1, 2**63 - 1
DEFAULT_DOMAIN = "<default domain>"
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchInfo:
    """One launch."""

    function: str
    demangled: str
    """The function name where the report has no demangled one (extern "C", Triton, Fortran)."""
    mangled: str
    grid: Triple
    block: Triple
    context: int
    stream: int
    device: int
    nvtx: str | None
    sections: tuple[str, ...]
    started: int | None
    """Seconds since 1970."""
    extended: bool
    """Whether its NVTX state holds fields that this version does not know."""


@lru_cache(maxsize=65536)
def _text(raw: bytes) -> str:
    return decode_text(raw, "a name or a rule's text")


@lru_cache(maxsize=65536)
def _section_identifier(head: bytes) -> str:
    """Return the first field of a section, its identifier, from the section's first bytes.

    A section goes on with a name and a number; a rule, which begins alike, does not.
    """
    if head[:1] != b"\x0a":
        raise WireError("a section has no identifier")
    size, at = read_varint(head, 1)
    identifier = head[at : at + size]
    name = at + size
    if head[name : name + 1] == b"\x12":
        size, at = read_varint(head, name + 1)
        name = at + size
    if head[name : name + 1] != b"\x18":
        raise WireError("a section does not begin with an identifier, a name and a number")
    return decode_text(identifier, "a section's identifier")


def launch_info(message: Any) -> LaunchInfo:
    """Return what a launch's `Result` message says of itself.

    Raises
    ------
    WireError
        If it has no name, a text in it is not UTF-8, a number is out of range, or a section has no
        identifier.
    """
    function = _text(message.function)
    if not function:
        raise WireError("it has no name")
    grid, block = message.grid, message.block
    if max(grid.x, grid.y, grid.z, block.x, block.y, block.z, message.device) > _INT32:
        raise WireError("a dimension or the device is beyond what CUDA knows")
    if max(message.context, message.stream) > _INT64 or message.time > LATEST:
        raise WireError("a context, a stream or the time is out of range")
    nvtx, extended = _nvtx(message.nvtx, message.thread) if message.HasField("nvtx") else (None, False)
    return LaunchInfo(
        function=function,
        demangled=_text(message.demangled) or function,
        mangled=_text(message.mangled),
        grid=(grid.x, grid.y, grid.z),
        block=(block.x, block.y, block.z),
        context=message.context,
        stream=message.stream,
        device=message.device,
        nvtx=nvtx,
        sections=tuple([_section_identifier(section[:512]) for section in message.sections]),
        started=message.time if message.HasField("time") else None,
        extended=extended,
    )


@lru_cache(maxsize=4096)
def _nvtx(raw: bytes, launching: int) -> tuple[str, bool]:
    """Return the push/pop ranges open on the launching thread; and whether fields are unknown.

    Ranges are written domain:a/b, and domains are joined by ';'. The default domain has no prefix; nothing
    open is the empty string.
    """
    message, extended = parse(Nvtx, raw)
    names = {domain.id: _text(domain.name) for domain in message.domains}
    parts = []
    for thread in message.threads:
        if thread.thread != launching:
            continue
        for state in thread.states:
            if ranges := "/".join(_text(entry.text) for entry in state.ranges):
                domain = names.get(state.domain, DEFAULT_DOMAIN)
                parts.append(ranges if domain == DEFAULT_DOMAIN else f"{domain}:{ranges}")
    return ";".join(parts), extended
