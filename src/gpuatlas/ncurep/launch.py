"""What a launch says besides its metrics: names, dimensions, NVTX ranges, sections, rules."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuatlas.ncurep.report import LATEST, Launch, decode_text
from gpuatlas.ncurep.wire import WireError, read_varint

MESSAGE_KINDS = {0: "none", 1: "ok", 2: "warning", 3: "error", 4: "optimization"}
SPEEDUP_KINDS = {0: "unknown", 1: "local", 2: "global"}
SEVERITIES = {0: "default", 1: "low", 2: "high"}
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


@dataclass(frozen=True)
class Focus:
    """A metric that a rule says to watch."""

    name: str
    value: float | None
    severity: str | None
    info: str | None


@dataclass(frozen=True)
class RuleResult:
    """One message of a rule; or the rule alone where it had nothing to say."""

    section: str
    rule: str
    title: str | None
    message: str | None
    kind: str | None
    speedup_kind: str | None
    speedup_percent: float | None
    focus: tuple[Focus, ...]


@lru_cache(maxsize=65536)
def _text(raw: bytes) -> str:
    return decode_text(raw, "a name or a rule's text")


@lru_cache(maxsize=65536)
def _section_identifier(head: bytes) -> str:
    """Return the first field of a section, its identifier, from the section's first bytes."""
    if head[:1] != b"\x0a":
        raise WireError("a section has no identifier")
    size, at = read_varint(head, 1)
    if size > len(head) - at:
        raise WireError("a section's identifier is cut")
    return decode_text(head[at : at + size], "a section's identifier")


def launch_info(launch: Launch) -> LaunchInfo:
    """Return what a launch says of itself.

    Raises
    ------
    WireError
        If a text in it is not UTF-8 or a section has no identifier.
    """
    message = launch.message
    function = _text(message.function)
    grid, block = message.grid, message.block
    if max(grid.x, grid.y, grid.z, block.x, block.y, block.z, message.device) > _INT32:
        raise WireError("a dimension or the device is beyond what CUDA knows")
    if max(message.context, message.stream) > _INT64 or message.time > LATEST:
        raise WireError("a context, a stream or the time is out of range")
    return LaunchInfo(
        function=function,
        demangled=_text(message.demangled) or function,
        mangled=_text(message.mangled),
        grid=(grid.x, grid.y, grid.z),
        block=(block.x, block.y, block.z),
        context=message.context,
        stream=message.stream,
        device=message.device,
        nvtx=_nvtx(message) if message.HasField("nvtx") else None,
        sections=tuple(_section_identifier(section[:200]) for section in message.sections),
        started=message.time if message.HasField("time") else None,
    )


def _nvtx(message: Any) -> str:
    """Return the push/pop ranges open on the launching thread: domain:a/b, domains joined by ';'.

    The default domain has no prefix; nothing open is the empty string.
    """
    names = {domain.id: _text(domain.name) for domain in message.nvtx.domains}
    parts = []
    for thread in message.nvtx.threads:
        if thread.thread != message.thread:
            continue
        for state in thread.states:
            if ranges := "/".join(_text(entry.text) for entry in state.ranges):
                domain = names.get(state.domain, DEFAULT_DOMAIN)
                parts.append(ranges if domain == DEFAULT_DOMAIN else f"{domain}:{ranges}")
    return ";".join(parts)


def rule_results(launch: Launch) -> list[RuleResult]:
    """Return the results of the rules applied to a launch, a row a message.

    Raises
    ------
    WireError
        If a text in them is not UTF-8 or a kind is unknown.
    """
    found = []
    for rule in launch.message.rules:
        section, name = _text(rule.section), _text(rule.identifier)
        items = rule.body.items if rule.HasField("body") else ()
        for item in items:
            found.append(_rule_item(section, name, item))
        if not items:
            found.append(RuleResult(section, name, None, None, None, None, None, ()))
    return found


def _rule_item(section: str, name: str, item: Any) -> RuleResult:
    title = text = kind = speedup_kind = percent = None
    if item.HasField("message"):
        message = item.message
        text = _text(message.text)
        title = _text(message.title) or None
        kind = _word(MESSAGE_KINDS, message.kind, "a rule message's kind")
    if item.HasField("speedup"):
        speedup_kind = _word(SPEEDUP_KINDS, item.speedup.kind, "a speed-up's kind")
        percent = item.speedup.percent
    focus = tuple(
        Focus(
            _text(entry.name),
            entry.value if entry.HasField("value") else None,
            _word(SEVERITIES, entry.severity, "a focus metric's severity")
            if entry.HasField("severity")
            else None,
            _text(entry.info) if entry.HasField("info") else None,
        )
        for entry in item.focus
    )
    return RuleResult(section, name, title, text, kind, speedup_kind, percent, focus)


def _word(words: dict[int, str], number: int, what: str) -> str:
    if number not in words:
        raise WireError(f"{what} is {number}, which is unknown")
    return words[number]
