"""The results of Nsight Compute's rules: advice, focus metrics, estimated speed-ups."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuatlas.ncurep.messages import Rule
from gpuatlas.ncurep.wire import WireError, decode_text, parse

MESSAGE_KINDS = {0: "none", 1: "ok", 2: "warning", 3: "error", 4: "optimization"}
SPEEDUP_KINDS = {0: "unknown", 1: "local", 2: "global"}
SEVERITIES = {0: "default", 1: "low", 2: "high"}


@dataclass(frozen=True, slots=True)
class Focus:
    """A metric that a rule says to watch."""

    name: str
    value: float | None
    severity: str | None
    info: str | None


@dataclass(frozen=True, slots=True)
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


def rule_results(message: Any) -> tuple[list[RuleResult], bool]:
    """Return the results of the rules applied to a launch, one a message; and whether fields are unknown.

    Raises
    ------
    WireError
        If one does not parse strictly, or a text in it is not UTF-8, or a kind is unknown.
    """
    found: list[RuleResult] = []
    extended = False
    for raw in message.rules:
        results, unknown = _results(raw)
        found.extend(results)
        extended |= unknown
    return found, extended


# A step launches the same kernels over and over, and their rules often say the same.
@lru_cache(maxsize=8192)
def _results(raw: bytes) -> tuple[tuple[RuleResult, ...], bool]:
    rule, extended = parse(Rule, raw)
    section, name = _text(rule.section), _text(rule.identifier)
    items = tuple(_item(section, name, item) for item in rule.body.items)
    return items or (RuleResult(section, name, None, None, None, None, None, ()),), extended


def _item(section: str, name: str, item: Any) -> RuleResult:
    title = text = kind = speedup_kind = percent = None
    if item.HasField("message"):
        title = _text(item.message.title) or None
        text = _text(item.message.text)
        kind = _word(MESSAGE_KINDS, item.message.kind, "a rule message's kind")
    if item.HasField("speedup"):
        speedup_kind = _word(SPEEDUP_KINDS, item.speedup.kind, "an estimated speed-up's kind")
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


def _text(raw: bytes) -> str:
    return decode_text(raw, "a rule's text")


def _word(words: dict[int, str], number: int, what: str) -> str:
    if number not in words:
        raise WireError(f"{what} is {number}, which is unknown")
    return words[number]
