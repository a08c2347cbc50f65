"""Regular expressions in the dialect of Go, matched by RE2: no backtracking, no look-around.

A user who may create a CustomResourceDefinition may write patterns. The time of RE2 is linear in
the text, but the factor grows with the pattern, and a search cannot be stopped. Therefore a search
pays for its worst case before it starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import re2

from kueuelib.embedded.cel.errors import CostBudget, EvalError

COMPILED: Final = 128
"""The number of compiled patterns that are kept, equal to the library's own limit."""
MEMORY: Final = 2 * 2**20
"""The maximum number of bytes of each, including its cache."""
UNITS_TO_COMPILE: Final = 3
"""The cost of compiling one step of a program."""
STEPS_PER_UNIT = 60
"""Steps of a search that one unit of cost pays for; RE2 takes 200 to 300 million in a second."""

Spend = Callable[[int], None]
_GO_TEXTS: Final = {
    "no argument for repetition operator": "missing argument to repetition operator",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
    "pattern too large - compile failed": "expression too large",
}
_LONGEST = 10_000
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = MEMORY
_BAD_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")


class BadPattern(EvalError):
    """A text is not a regular expression; the message is that of Go."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{where}`")


class Pattern:
    """A valid pattern; its compiled form takes much memory and may have been dropped.

    Attributes:
        size: steps of its program.

    Raises:
        BadPattern: the text is not a regular expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise BadPattern("expression too large", text[:100])
        if _BAD_BYTE.search(text):
            raise BadPattern("invalid escape sequence", r"\C")  # RE2 knows it, Go does not
        self._bytes = _bytes(text)
        try:
            self.size = _program(self._bytes).programsize
        except re2.error as error:
            told = error.args[0].decode(errors="replace")
            problem, _, where = told.partition(": ")
            raise BadPattern(_GO_TEXTS.get(problem, problem), where) from error

    def matches(self, text: str, spend: Spend) -> bool:
        """Whether the pattern matches somewhere in the text."""
        return next(self._spans(_bytes(text), spend), None) is not None

    def find_all(self, text: str, spend: Spend) -> Iterator[str]:
        """Every match, from left to right, none overlapping."""
        text, last_end = _bytes(text).decode(), -1
        for start, end in self._spans(text, spend):
            if end > start or start != last_end:
                yield text[start:end]
            last_end = end

    def _spans(self, text: str | bytes, spend: Spend) -> Iterator[tuple[int, int]]:
        before = _program.cache_info().misses
        program = _program(self._bytes)
        if _program.cache_info().misses != before:
            spend(self.size * UNITS_TO_COMPILE)
        spend(1 + len(text) * self.size // STEPS_PER_UNIT)
        for match in program.finditer(text):
            yield match.span()
            spend(1 + (len(text) - match.end()) * self.size // STEPS_PER_UNIT)


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


@lru_cache(maxsize=COMPILED)
def _program(text: bytes) -> Any:
    return re2.compile(text, _OPTIONS)


@lru_cache(maxsize=4096)
def compile_pattern(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        BadPattern: it is not a regular expression.
    """
    return Pattern(text)


# ---- matches texts against the `pattern` of a schema, in bounded time for any pattern ------------

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
        self._budget: CostBudget | None = None

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
            self._budget = CostBudget(OBJECT_UNITS)
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
