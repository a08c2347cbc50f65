"""The macros over lists and maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.running import NO_OVERLOAD, Env, Run, decided, put


@attrs.frozen(eq=False)
class Comprehension:
    """A compiled loop.

    Attributes:
        source: computes the list or map.
        slots: the places of the one or two variables.
        condition: which items count, None for all.
        body: the test or the result.
        cost: of one turn.
    """

    source: Run
    slots: tuple[int, ...]
    condition: Run | None
    body: Run
    cost: int

    def turns(self, env: Env) -> Iterator[Any]:
        """Sets the variables for each item in turn; yields its (first) value."""
        values = self.source(env)
        spend, cost = env[0].spend, self.cost
        if len(self.slots) == 1:
            (slot,) = self.slots
            if not isinstance(values, list | dict):
                raise EvalError(NO_OVERLOAD)
            for value in values:
                spend(cost)
                env[slot] = value
                yield value
            return
        first, second = self.slots
        if isinstance(values, dict):
            pairs: Any = values.items()
        elif isinstance(values, list):
            pairs = enumerate(values)
        else:
            raise EvalError(NO_OVERLOAD)
        for key, value in pairs:
            spend(cost)
            env[first], env[second] = key, value
            yield key

    def counts(self, env: Env) -> bool:
        """Whether the present item fulfils the condition."""
        return self.condition is None or _true(self.condition(env))


def _true(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvalError(NO_OVERLOAD)


def _quantified(loop: Comprehension, *, decides: bool) -> Run:
    """`all` and `exists`: the same test for every item."""
    body = loop.body
    return lambda env: decided((body for _ in loop.turns(env)), env, decides=decides)


def _map(loop: Comprehension) -> Run:
    return lambda env: [loop.body(env) for _ in loop.turns(env) if loop.counts(env)]


def _transform_entry(loop: Comprehension) -> Run:
    def run(env: Env) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for _ in loop.turns(env):
            if loop.counts(env):
                entry = loop.body(env)
                if not isinstance(entry, dict):
                    raise EvalError(NO_OVERLOAD)
                for key, value in entry.items():
                    put(entries, key, value)
        return entries

    return run


MACROS: Final[Mapping[str, Callable[[Comprehension], Run]]] = {
    "all": lambda loop: _quantified(loop, decides=False),
    "exists": lambda loop: _quantified(loop, decides=True),
    "exists_one": lambda loop: lambda env: sum(_true(loop.body(env)) for _ in loop.turns(env)) == 1,
    "filter": lambda loop: lambda env: [item for item in loop.turns(env) if _true(loop.body(env))],
    "map": _map,
    "transformList": _map,
    "transformMap": lambda loop: (
        lambda e: {key: loop.body(e) for key in loop.turns(e) if loop.counts(e)}
    ),
    "transformMapEntry": _transform_entry,
}
"""The functions that run macros."""
