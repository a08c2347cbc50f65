"""Regular expressions in the dialect of Go, matched by RE2: no backtracking, no look-around."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import re2

from kueuelib.embedded.cel.errors import EvalError

MEMORY: Final = 2 * 2**20
"""The maximum number of bytes of a compiled pattern, including its cache."""
SHORT = 64
"""Results for texts up to this length are cached, because names and quantities repeat."""
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
    """A valid pattern.

    Raises:
        BadPattern: the text is not a regular expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise BadPattern("expression too large", text[:100])
        if _BAD_BYTE.search(text):
            raise BadPattern("invalid escape sequence", r"\C")  # RE2 knows it, Go does not
        try:
            self._program = re2.compile(_bytes(text), _OPTIONS)
        except re2.error as error:
            message = error.args[0].decode(errors="replace")
            problem, _, where = message.partition(": ")
            raise BadPattern(_GO_TEXTS.get(problem, problem), where) from error

    def matches(self, text: str) -> bool:
        """Whether the pattern matches somewhere in the text."""
        return _matches_short(self, text) if len(text) <= SHORT else self.is_in(text)

    def is_in(self, text: str) -> bool:
        """The same, without the cache."""
        return self._program.search(_bytes(text)) is not None

    def find_all(self, text: str) -> Iterator[str]:
        """Every match, from left to right, none overlapping."""
        text, last_end = _bytes(text).decode(), -1
        for match in self._program.finditer(text):
            start, end = match.span()
            if end > start or start != last_end:
                yield text[start:end]
            last_end = end


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


@lru_cache(maxsize=4096)
def _matches_short(pattern: Pattern, text: str) -> bool:
    return pattern.is_in(text)


@lru_cache(maxsize=4096)
def compile_pattern(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        BadPattern: it is not a regular expression.
    """
    return Pattern(text)
