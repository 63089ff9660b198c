"""One spelling for a kernel's name, and the key of a launch configuration.

Nsight Compute and the CUPTI-based profilers (torch.profiler) demangle with different libraries::

    void f<(int)4, std::array<char *, (unsigned long)2>>(int, T2)          Nsight Compute
    void f<4, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)        torch.profiler

`normalise` brings both to ``f<4,std::array<char*,2>>``. It keeps the qualified name, the template arguments
and the parameters of lambdas. It drops return types and parameter lists (Nsight Compute writes them with
template placeholders, ``T2``), casts and suffixes of literals, and white space.
"""

import re
from functools import lru_cache
from hashlib import blake2b

_ATOMS = (
    (re.compile(r"\(anonymous namespace\)|\(anonymous\)|<unnamed>|\{anonymous\}"), "$anonymous"),
    (re.compile(r"\boperator\s*\(\s*\)"), "operator$call"),
    (re.compile(r"\boperator\s*\[\s*\]"), "operator$index"),
)
_TOKEN = re.compile(r"[A-Za-z_$~][\w$]*|\d[\w.]*|::|\S")
_WORD = re.compile(r"[A-Za-z_$~]")
_INTEGER = re.compile(r"(\d+)(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU])$")
_BUILTIN = {
    "unsigned",
    "signed",
    "long",
    "short",
    "int",
    "char",
    "double",
    "float",
    "bool",
    "__int64",
    "__int128",
}
_QUALIFIERS = {"const", "volatile"}
_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}


class _UnbalancedError(Exception):
    """The name's brackets do not pair."""


class _Parser:
    """Recursive descent over the tokens of one name."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        position = self.at + ahead
        return self.tokens[position] if position < len(self.tokens) else ""

    def skip_group(self) -> int:
        """Return the position after the bracket group that starts here, without moving."""
        stack = []
        for position in range(self.at, len(self.tokens)):
            token = self.tokens[position]
            if token in _CLOSING:
                stack.append(_CLOSING[token])
            elif stack and token == stack[-1]:
                stack.pop()
                if not stack:
                    return position + 1
            elif token in ")]}":
                raise _UnbalancedError
        raise _UnbalancedError

    def arguments(self, closing: str) -> list[str]:
        """Read comma-separated types or values up to `closing`, which is consumed."""
        self.at += 1
        found: list[str] = []
        while self.peek() != closing:
            if not self.peek():
                raise _UnbalancedError
            found.append(self.argument(closing))
            if self.peek() == ",":
                self.at += 1
        self.at += 1
        return found

    def argument(self, closing: str) -> str:  # noqa: PLR0912
        """Read one type, value or name: up to a comma or `closing` at this level."""
        parts: list[str] = []
        pending_const = False
        while (token := self.peek()) and token not in (",", closing):
            previous = parts[-1] if parts else ""
            if token == "(":
                self.parenthesis(parts)
                continue
            if token == "<":
                parts.append("<" + ",".join(self.arguments(">")) + ">")
                continue
            if token in "[{" and self.peek(1) == "lambda":
                parts.append(self.lambda_type())
                continue
            self.at += 1
            if token in _QUALIFIERS:
                if token == "const" and not parts:
                    pending_const = True
                elif previous and (previous in "*&" or self.peek() in (",", closing, "*", "&", "")):
                    parts.append(" " + token)
                continue
            if token in "*&" and pending_const:
                parts.append(" const")
                pending_const = False
            if _WORD.match(token) and _ends_word(previous):
                if token in _BUILTIN and previous.strip() in _BUILTIN:
                    token = " " + token
                else:  # what stands before a second word is a return type
                    parts.clear()
            elif match := _INTEGER.match(token):
                token = match.group(1)
            parts.append({"true": "1", "false": "0"}.get(token, token))
        if pending_const:
            parts.append(" const")
        return "".join(parts)

    def parenthesis(self, parts: list[str]) -> None:
        """Read a cast, a parameter list (both dropped) or a bracketed expression (kept without brackets)."""
        after = self.skip_group()
        following = "".join(self.tokens[after : after + 2])
        if parts and _ends_word(parts[-1]):
            self.at = after
            while self.peek() in _QUALIFIERS or self.peek() in ("noexcept", "&"):
                self.at += 1
        elif re.match(r"-?\d", following):
            self.at = after
        else:
            parts.append(",".join(self.arguments(")")))

    def lambda_type(self) -> str:
        """Read ``[lambda(int) (instance 1)]`` or ``{lambda(int)#1}``."""
        closing = _CLOSING[self.peek()]
        self.at += 2
        parameters = self.arguments(")") if self.peek() == "(" else []
        number = ""
        while (token := self.peek()) != closing:
            if not token:
                raise _UnbalancedError
            number = token if token.isdigit() else number
            self.at += 1
        self.at += 1
        return "{lambda(" + ",".join(parameters) + ")#" + number + "}"


def _ends_word(part: str) -> bool:
    """Tell whether `part` ends a name or a type, so that a following word or bracket begins something new."""
    return bool(part) and part != "::" and (part[-1].isalnum() or part[-1] in "_$>}*&")


@lru_cache(maxsize=65536)
def normalise(name: str) -> str:
    """Return the one spelling of a kernel's demangled name.

    Parameters
    ----------
    name
        A demangled name, or a plain name of an ``extern "C"``, Triton or Fortran kernel.

    Returns
    -------
    str
        The normalised name. ``normalise(normalise(name)) == normalise(name)``. A name whose brackets do not
        pair is returned without white space.
    """
    text = name
    for pattern, atom in _ATOMS:
        text = pattern.sub(atom, text)
    parser = _Parser(_TOKEN.findall(text))
    try:
        result = parser.argument("")
        if parser.peek():
            raise _UnbalancedError
    except (_UnbalancedError, RecursionError):
        result = "".join(text.split())
    return result.replace("$anonymous", "{anonymous}").replace("$call", "()").replace("$index", "[]")


def launch_key(name: str, grid: tuple[int, int, int], block: tuple[int, int, int]) -> str:
    """Return the key of a launch configuration: 16 hexadecimal digits.

    Parameters
    ----------
    name
        Demangled name, in any profiler's spelling; the function name where there is no demangled one.
    grid, block
        Blocks a grid and threads a block in x, y, z.
    """
    text = f"{normalise(name)}|{'x'.join(map(str, grid))}|{'x'.join(map(str, block))}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
