"""The building blocks of compiled expressions.

An environment is a list: the budget at place 0, then the variables. A block is a function of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.types import Overload
from kueuelib.embedded.cel.values import NONE, Optional, has_key

Env = list[Any]
Run = Callable[[Env], Any]

NO_OVERLOAD = "no such overload"


def select(operand: Run, field: str) -> Run:
    """`operand.field`."""

    def run(env: Env) -> Any:
        value = operand(env)
        if isinstance(value, dict):
            try:
                return value[field]
            except KeyError:
                raise EvalError(f"no such key: {field}") from None
        if isinstance(value, Optional):
            return optional_field(value, field)
        raise EvalError(NO_OVERLOAD)

    return run


def optional_field(holder: Any, field: Any) -> Optional:
    """The field or item of a value that may lack it, or be absent itself."""
    if isinstance(holder, Optional):
        if not holder.present:
            return NONE
        holder = holder.value
    if isinstance(holder, dict):
        if not has_key(holder, field):
            return NONE
        value = holder[field]
        return value if isinstance(value, Optional) else Optional(value)
    if isinstance(holder, list) and isinstance(field, int | float) and type(field) is not bool:
        if 0 <= field < len(holder) and field == int(field):
            return Optional(holder[int(field)])
        return NONE
    raise EvalError(NO_OVERLOAD)


def select_optional(operand: Run, field: str) -> Run:
    """`operand.?field`."""
    return lambda env: optional_field(operand(env), field)


def index_optional(operand: Run, index: Run) -> Run:
    """`operand[?index]`."""
    return lambda env: optional_field(operand(env), index(env))


def test_field(operand: Run, field: str) -> Run:
    """`has(operand.field)`."""

    def run(env: Env) -> bool:
        value = operand(env)
        if isinstance(value, Optional):
            inner = value.value
            return bool(value.present and isinstance(inner, dict) and field in inner)
        if isinstance(value, dict):
            return field in value
        raise EvalError(NO_OVERLOAD)

    return run


def decided(runs: Iterable[Run], env: Env, *, decides: bool) -> bool:
    """The common rule of `&&`, `||`, `all`, `exists`: errors count only if no value decides."""
    failure: EvalError | None = None
    for each in runs:
        try:
            outcome = each(env)
        except EvalError as error:
            failure = failure or error
            continue
        if not isinstance(outcome, bool):
            failure = failure or EvalError(NO_OVERLOAD)
        elif outcome is decides:
            return outcome
    if failure is not None:
        raise failure
    return not decides


def absorbing(runs: Sequence[Run], *, decides: bool) -> Run:
    """`&&` and `||`."""
    return lambda env: decided(runs, env, decides=decides)


def invoked(overload: Overload, runs: Sequence[Run]) -> Run:
    """A call whose overload is certain."""
    function, cost = overload.run, overload.cost
    if overload.budgeted:
        return lambda env: function(env[0], *[each(env) for each in runs])
    if cost is None:
        if len(runs) == 1:
            (one,) = runs
            return lambda env: function(one(env))
        if len(runs) == 2:
            left, right = runs
            return lambda env: function(left(env), right(env))
        return lambda env: function(*[each(env) for each in runs])

    def run(env: Env) -> Any:
        args = [each(env) for each in runs]
        env[0].spend(cost(*args))
        return function(*args)

    return run


def dispatched(overloads: Sequence[Overload], runs: Sequence[Run]) -> Run:
    """A call whose overload depends on the values."""

    def run(env: Env) -> Any:
        args = [each(env) for each in runs]
        for overload in overloads:
            if all(check(arg) for check, arg in zip(overload.checks, args, strict=True)):
                if overload.cost is not None:
                    env[0].spend(overload.cost(*args))
                if overload.budgeted:
                    return overload.run(env[0], *args)
                return overload.run(*args)
        raise EvalError(NO_OVERLOAD)

    return run


def make_list(runs: Sequence[Run], optional: frozenset[int]) -> Run:
    """`[a, ?b]`."""
    if not optional:
        return lambda env: [each(env) for each in runs]

    def run(env: Env) -> list[Any]:
        values = ((i, each(env)) for i, each in enumerate(runs))
        return [item for i, value in values for item in _present(value, i in optional)]

    return run


def make_map(runs: Sequence[tuple[Run, Run]], optional: frozenset[int]) -> Run:
    """`{a: b, ?c: d}`."""

    def run(env: Env) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for i, (key_run, value_run) in enumerate(runs):
            key, value = key_run(env), value_run(env)
            for present in _present(value, i in optional):
                put(entries, key, present)
        return entries

    return run


def _present(value: Any, optional: bool) -> tuple[Any, ...]:
    """The value of a part of a literal, if it has one."""
    if not optional:
        return (value,)
    if not isinstance(value, Optional):
        raise EvalError(NO_OVERLOAD)
    return (value.value,) if value.present else ()


def put(values: dict[Any, Any], key: Any, value: Any) -> None:
    """Adds an entry to a map under construction.

    Raises:
        EvalError: the key exists already, or is not valid.
    """
    if not isinstance(key, str | int):
        raise EvalError(f"unsupported key type: {type(key).__name__}")
    if key in values:
        raise EvalError(f"Failed with repeated key {key}")
    values[key] = value
