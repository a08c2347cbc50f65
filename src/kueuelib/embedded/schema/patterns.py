"""Matches texts against the `pattern` of a schema, in bounded time for any pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kueuelib.embedded.cel.budget import Budget
from kueuelib.embedded.cel.regex import BadPattern, Pattern, compile_pattern

OBJECT_UNITS = 8_000_000
"""The budget for all patterns of one object, at most 2 s, because the server blocks meanwhile."""

DEFINITION_SIZE = 250_000
"""The maximum number of steps of all patterns of one definition: 0.2 s to compile. Ours have at
most 124.
"""

SHORT = 64
"""Results for texts up to this length are cached, because names and quantities repeat."""

MOST_KNOWN = 4096

_known: dict[tuple[Pattern, str], bool] = {}


class Matcher:
    """Matches the texts of one object within a budget."""

    def __init__(self) -> None:
        self._budget: Budget | None = None

    def matches(self, pattern: Pattern, text: str) -> bool:
        """Whether the pattern is found in the text.

        Raises:
            BudgetExceeded: the texts of the object together cost too much.
        """
        short = len(text) <= SHORT
        if short:
            known = _known.get((pattern, text))
            if known is not None:
                return known
        if self._budget is None:
            self._budget = Budget(OBJECT_UNITS)
        matched = pattern.matches(text, self._budget.spend)
        if short:
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[pattern, text] = matched
        return matched


def are_too_large(schemas: Any) -> bool:
    """Whether the patterns in schemas are too large together; invalid ones do not count."""
    left = DEFINITION_SIZE
    for text in set(_patterns(schemas)):
        try:
            left -= compile_pattern(text).size
        except BadPattern:
            continue
        if left < 0:
            return True
    return False


def _patterns(raw: Any) -> Iterator[str]:
    rest = [raw]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            pattern = node.get("pattern")
            if isinstance(pattern, str):
                yield pattern
            rest += node.values()
        elif isinstance(node, list):
            rest += node
