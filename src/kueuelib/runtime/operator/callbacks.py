"""Functions of an author that run inside a cache: their errors are logged, and stop nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.errors import ConfigError
from kueuelib.machinery.store import Delta
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.predicates import Predicate


@attrs.frozen
class Callback:
    """An author's function, called for every change of a kind.

    Attributes:
        subject: the kind that is reconciled.
        name: of the function: the argument of `reconciles`, and the kind that it is called for.
        function: what the author wrote.
    """

    subject: str
    name: str
    function: Callable[[Any], Any]

    def keys(self, delta: Delta[Obj]) -> tuple[ObjectKey, ...]:
        """The keys that a function of `watches=` returns; none if it fails."""
        return self._items(delta, delta.key, ObjectKey, "return a list of ObjectKey")

    def values(self, obj: Obj) -> tuple[Hashable, ...]:
        """The values that a function of `indexes=` returns; none if it fails."""
        return self._items(obj, key_of(obj), object, "return a list of values")

    def passes(self, delta: Delta[Obj]) -> bool:
        """Whether `predicate=` lets a change pass; it does so if the function fails."""
        try:
            answer = self.function(delta)
        except Exception as error:  # noqa: BLE001 - code of others
            self._failed(delta.key, error)
            return True
        if isinstance(answer, bool):
            return answer
        fix = "call the function that makes it" if callable(answer) else "return True or False"
        problem = f"{self.name} returned {answer!r:.60}"
        self._failed(delta.key, ConfigError(self.subject, problem, fix))
        return True

    def _items(self, given: Any, key: ObjectKey, kind: Any, fix: str) -> tuple[Any, ...]:
        try:
            answer = self.function(given)
            items = None
            if isinstance(answer, Iterable) and not isinstance(answer, (str, ObjectKey)):
                items = tuple(dict.fromkeys(answer))
        except Exception as error:  # noqa: BLE001 - code of others
            self._failed(key, error)
            return ()
        if items is None or not all(isinstance(each, kind) for each in items):
            problem = f"{self.name} returned {answer!r:.60}"
            self._failed(key, ConfigError(self.subject, problem, fix))
            return ()
        return items

    def _failed(self, key: ObjectKey, error: Exception) -> None:
        known = isinstance(error, ConfigError)
        text = str(error) if known else f"{self.subject}: {self.name} raised {error!r:.200}"
        get_logger("operator").error(
            "a function of the operator failed",
            error=text,
            object=str(key),
            exc_info=None if known else error,
        )


def predicate_of(subject: str, function: Predicate | None) -> Predicate | None:
    """A predicate that never raises, or None without a function."""
    return None if function is None else Callback(subject, "predicate=", function).passes
