"""Which metrics are texts and which are numbers, by name.

The kind that a report stores is no guide: it changes with the writer's version. ``launch__*`` are doubles up
to 2024.2 and integers later; ``launch__kernel_name`` is an integer 0 in 2024.3 and a text from 2025.1. One
dataset of many versions needs one kind a name, so:

* a metric named here is a text: a number stored under its name is not its value and becomes null;
* every other metric is a number: integers and doubles become the same double, and a text that spells a number
  becomes that number. A text that does not stays in ``text`` with a null value.
"""

import numpy as np
import numpy.typing as npt

_TEXTS = {
    "device__attribute_confidential_computing_mode",
    "device__attribute_display_name",
    "launch__cluster_scheduling_policy",
    "launch__execution_model",
    "launch__func_cache_config",
    "launch__kernel_name",
    "launch__tpc_enabled",
}
_TEXT_PREFIXES = ("breakdown:", "group:")
EXACT = np.uint64(2**53)
"""Integers above this are not exact as a double; their digits are kept in ``text``."""


def is_text(name: str) -> bool:
    """Tell whether a metric holds a text (a name, a word, or a list of other metrics)."""
    return name in _TEXTS or name.startswith(_TEXT_PREFIXES)


def text_mask(names: list[str]) -> npt.NDArray[np.bool_]:
    """Return for each name whether it is a text."""
    return np.fromiter(map(is_text, names), np.bool_, len(names))


def number_in(text: str) -> float | None:
    """Return the number that `text` spells in plain decimal notation, or None."""
    try:
        return float(text) if text.strip().lstrip("+-")[:1].isdigit() else None
    except ValueError:
        return None
