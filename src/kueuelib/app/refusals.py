"""What is refused of a configuration file: all of it in one error, so that one run finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from kueuelib.errors import ConfigError


@attrs.frozen
class Refusal:
    """One thing in a file that cannot be honoured.

    Attributes:
        problem: what is wrong, with the name of its key.
        fix: what to do about it.
    """

    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.fix}"


def refuse_any(source: str, refusals: Iterable[Refusal]) -> None:
    """Refuses a file if there is a reason; several are lines below each other.

    Args:
        source: names the file.
        refusals: what was found.

    Raises:
        ConfigError: there is at least one.
    """
    match [*refusals]:
        case []:
            return
        case [one]:
            raise ConfigError(source, one.problem, one.fix)
        case several:
            lines = "".join(f"\n  {each}" for each in several)
            raise ConfigError(source, f"{len(several)} keys are refused", f"correct all of:{lines}")


def refusal_of(attempt: Callable[[str], Any]) -> Iterator[Refusal]:
    """What a function that raises a `ConfigError` refuses.

    Args:
        attempt: called with what to call the file; its errors may name a key after that.
    """
    try:
        attempt("")
    except ConfigError as error:
        key = error.subject.removeprefix(": ")
        yield Refusal(f"{key}: {error.problem}" if key else error.problem, error.fix)
