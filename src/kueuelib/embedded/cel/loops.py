"""The macros over lists and maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.running import NO_OVERLOAD, Env, Run, decided, put


@attrs.frozen(eq=False)
class Plan:
    """A loop before it runs.

    Attributes:
        source: gives the list or map.
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
        """Sets the variables for each item in turn; gives its (first) value."""
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


def _quantified(plan: Plan, *, decides: bool) -> Run:
    """`all` and `exists`: the same test for every item."""
    body = plan.body
    return lambda env: decided((body for _ in plan.turns(env)), env, decides=decides)


def _exists_one(plan: Plan) -> Run:
    return lambda env: sum(_true(plan.body(env)) for _ in plan.turns(env)) == 1


def _map(plan: Plan) -> Run:
    return lambda env: [plan.body(env) for _ in plan.turns(env) if plan.counts(env)]


def _filter(plan: Plan) -> Run:
    return lambda env: [item for item in plan.turns(env) if _true(plan.body(env))]


def _transform_map(plan: Plan) -> Run:
    return lambda env: {key: plan.body(env) for key in plan.turns(env) if plan.counts(env)}


def _transform_entry(plan: Plan) -> Run:
    def run(env: Env) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in plan.turns(env):
            if plan.counts(env):
                entry = plan.body(env)
                if not isinstance(entry, dict):
                    raise EvalError(NO_OVERLOAD)
                for key, value in entry.items():
                    put(found, key, value)
        return found

    return run


MACROS: Final[Mapping[str, Callable[[Plan], Run]]] = {
    "all": lambda plan: _quantified(plan, decides=False),
    "exists": lambda plan: _quantified(plan, decides=True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entry,
}
"""What runs a macro."""
