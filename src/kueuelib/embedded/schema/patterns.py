"""Matching texts against the `pattern` of a schema, in bounded time whatever the pattern is."""

from __future__ import annotations

from kueuelib.embedded.cel.budget import Budget, deadline_in
from kueuelib.embedded.cel.regex import Pattern

OBJECT_SECONDS = 2.0
"""For all patterns of one object: a single-threaded server serves nobody else meanwhile."""

OBJECT_UNITS = 1_000_000_000
SHORT = 64
"""Texts up to this length are remembered: names and quantities come again and again."""

MOST_KNOWN = 4096

_known: dict[tuple[Pattern, str], bool] = {}


class Matcher:
    """Matches the texts of one object, and stops when that has taken too long."""

    def __init__(self) -> None:
        self._budget: Budget | None = None

    def matches(self, pattern: Pattern, text: str) -> bool:
        """Whether the pattern is found in the text.

        Raises:
            BudgetExceeded: the texts of the object have taken too long together.
        """
        short = len(text) <= SHORT
        if short:
            known = _known.get((pattern, text))
            if known is not None:
                return known
        if self._budget is None:
            self._budget = Budget(OBJECT_UNITS, deadline_in(OBJECT_SECONDS))
        found = pattern.matches(text, self._budget.spend)
        if short:
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[pattern, text] = found
        return found
