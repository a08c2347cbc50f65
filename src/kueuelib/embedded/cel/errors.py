"""The errors of expressions, and the limits of their cost."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kueuelib.errors import KueuelibError


@attrs.frozen
class Issue:
    """One mistake in an expression.

    Attributes:
        position: the index of the character in the text.
        message: what is wrong.
    """

    position: int
    message: str


class CelError(KueuelibError):
    """The base class of errors in expressions."""


class CompileError(CelError):
    """The expression cannot be compiled; the text is that of the Go compiler."""

    def __init__(self, source: str, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("\n".join(_shown(source, issue) for issue in self.issues))


class EvalError(CelError):
    """The expression has no value for this input, for example `no such key: a`."""


class BudgetExceeded(CelError):
    """The evaluation cost more than it may."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


LONGEST_SHOWN = 2000


def _shown(source: str, issue: Issue) -> str:
    before = source[: issue.position]
    line = before.count("\n") + 1
    column = issue.position - (before.rfind("\n") + 1)
    head = f"ERROR: <input>:{line}:{column + 1}: {issue.message}"
    text = source.split("\n")[line - 1]
    if len(text) > LONGEST_SHOWN:
        return head
    return f"{head}\n | {text}\n | {'.' * column}^"


# ---- limits the cost of an evaluation, in the units of Kubernetes --------------------------------

CALL_LIMIT = 2_000_000
"""Cost units of one expression."""

OBJECT_LIMIT = 20_000_000
"""Cost units of all rules of one object."""


class CostBudget:
    """Counts down.

    Args:
        units: of cost.
    """

    __slots__ = ("left",)

    def __init__(self, units: int = CALL_LIMIT) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        """Spends units.

        Raises:
            BudgetExceeded: nothing is left.
        """
        self.left -= units
        if self.left < 0:
            raise BudgetExceeded


def traversal(*values: object) -> int:
    """The cost of reading texts, bytes and lists once: a tenth of a unit for each element."""
    total = 0
    for value in values:
        if isinstance(value, str | bytes | list | dict):
            total += len(value)
    return total // 10 + 1
