"""Objects of built-in kinds as Go reads and writes them: with defaults, without empty fields.

In Go, a struct that is not behind a pointer always exists, and so does a field that is written even
if it is zero. An empty list, map or text is mostly omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.defaults import BY_TYPE
from kueuelib.embedded.schema.internal import Emptied
from kueuelib.embedded.schema.messages import Field, json_fields

_ZEROS: Final = {"s": "", "i": 0, "l": 0, "b": False, "B": "", "q": "0", "o": 0, "n": 0}
_LEFT_ALONE: Final = ("r", "F", "S", "t", "u", "o", "q")
_META: Final = "meta.ObjectMeta"


@attrs.frozen
class _Plan:
    """The plan for objects of a type.

    Attributes:
        zeros: scalars whose zero Go cannot distinguish from an absent value.
        inner: fields that hold messages.
        defaults: fields with a default: whether zero is a valid value, and the default.
        always: fields that are always written.
        lists: whether lists and maps are always written, by the field.
        more: fills in defaults that depend on other fields.
    """

    zeros: frozenset[str]
    inner: Mapping[str, Field]
    defaults: tuple[tuple[str, bool, Any], ...]
    always: tuple[Field, ...]
    lists: Mapping[str, bool]
    more: Callable[[Obj], None] | None


@cache
def _plan(message: str) -> _Plan:
    fields = tuple(json_fields(message))
    return _Plan(
        frozenset(
            each.name
            for each in fields
            if not (each.form or each.always or each.message or each.type in _LEFT_ALONE)
        ),
        {each.name: each for each in fields if each.message},
        tuple(
            (each.name, bool(each.form or each.message), default)
            for each in fields
            if (default := _default(each)) is not None
        ),
        tuple(each for each in fields if each.always),
        {each.name: each.always for each in fields if each.form in ("+", "%")},
        BY_TYPE.get(message),
    )


def _default(field: Field) -> Any:
    """A struct that always exists is a default if it or a nested one has defaults."""
    if field.default is not None:
        return field.default if field.type == "s" else orjson.loads(field.default)
    if field.form or not field.message or field.message == _META:
        return None
    plan = _plan(field.message)
    return {} if plan.defaults or plan.more else None


def set_defaults(message: str, obj: Obj) -> None:
    """Fills in defaults in place; zeros count as absent where Go cannot distinguish
    them.

    Args:
        message: the type of the object.
        obj: pruned.
    """
    plan = _plan(message)
    for name in [name for name, value in obj.items() if not value and name in plan.zeros]:
        del obj[name]
    for name, zero_counts, default in plan.defaults:
        value = obj.get(name)
        if value is None or not (value or zero_counts):
            obj[name] = {} if default == {} else default
    if plan.more is not None:
        plan.more(obj)
    for name, value in obj.items():
        field = plan.inner.get(name)
        if field is not None and value is not None:
            for each in _values(field, value):
                set_defaults(field.message, each)


def fill(message: str, obj: Obj) -> Obj:
    """Adds fields that are always written, and drops omitted ones, in place.

    Returns:
        The same; if lists or maps were dropped, a copy that knows them.

    Args:
        message: the type of the object.
        obj: pruned and defaulted.
    """
    plan = _plan(message)
    empty = {name: obj[name] for name in plan.lists if obj.get(name) in ([], {})}
    for name, value in list(obj.items()):
        if value:
            continue
        if name in plan.lists:
            if plan.lists[name]:
                obj[name] = None
            else:
                del obj[name]
        elif name in plan.zeros and value is not None:
            del obj[name]
    for field in plan.always:
        if field.name not in obj:
            plain = None if field.form else _ZEROS.get(field.type)
            obj[field.name] = {} if field.message and not field.form else plain
    for name, value in obj.items():
        inner = plan.inner.get(name)
        if inner is None or value is None:
            continue
        if inner.form == "+":
            obj[name] = [fill(inner.message, each) for each in value]
        elif inner.form == "%":
            obj[name] = {key: fill(inner.message, each) for key, each in value.items()}
        else:
            obj[name] = fill(inner.message, value)
    return Emptied(obj, empty) if empty else obj


def zero(message: str) -> Obj:
    """An empty object; empty lists and maps exist."""
    return {each.name: _empty(each) for each in _plan(message).always}


def _empty(field: Field) -> Any:
    if field.form in ("+", "%"):
        return [] if field.form == "+" else {}
    if field.message:
        return {} if field.message == _META else zero(field.message)
    return _ZEROS.get(field.type)


def _values(field: Field, value: Any) -> Iterable[Obj]:
    if field.form == "+":
        return value  # type: ignore[no-any-return]
    return value.values() if field.form == "%" else (value,)
