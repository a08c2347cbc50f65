"""Objects of built-in kinds as Go reads and writes them: with defaults, without empty fields.

In Go, a struct that is not behind a pointer always exists, and so does a field that is written even
if it is zero. An empty list, map or text is mostly omitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import unified_diff
from functools import cache
from importlib.resources import files
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.defaults import BY_TYPE
from kueuelib.embedded.schema.messages import Field, json_fields

# ---- values as kube-apiserver prints them in some messages: as its internal structs --------------
# These have other names and another order than in JSON, and also show absent fields. `internal.txt`
# has a line for each: its name, then fields as `Name:type`. Types are
#
#     s text   i integer   b boolean   q quantity   o integer or text   r a label selector
#     or the name of a struct
#
# after `*` for what may be nil, `+` for lists and `%` for maps. `^` names a struct whose fields
# belong to the one around it.

_PRINTED_ZEROS: Final = {"s": "", "i": 0, "b": False, "q": "0", "o": 0}
_HOST: Final = ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace")
_EMPTY: Final = re.compile(r": (\[\]|\{\})(?=,?$)")
_ESCAPED: Final = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


class Emptied(dict[str, Any]):
    """An object without its empty lists and maps, which only messages show.

    Args:
        obj: the object.
        empty: the empty values by name.
    """

    def __init__(self, obj: Mapping[str, Any], empty: Mapping[str, Any]) -> None:
        super().__init__(obj)
        self.empty = empty


def as_given(obj: Mapping[str, Any], name: str) -> Any:
    """The value of a field, including an empty list or map."""
    value = obj.get(name)
    return obj.empty.get(name) if value is None and isinstance(obj, Emptied) else value


@cache
def _structs() -> Mapping[str, tuple[tuple[str, str], ...]]:
    text = files("kueuelib.embedded.schema").joinpath("internal.txt").read_text("ascii")
    structs = {}
    for line in text.splitlines():
        name, *fields = line.split()
        pairs = [field.partition(":") for field in fields]
        structs[name] = tuple((first, type_) for first, _, type_ in pairs)
    return structs


def internal(struct: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """An object printed as the struct of that name.

    Args:
        struct: its name in `internal.txt`.
        value: defaulted JSON data; None is a struct of zeros.
    """
    given = {**(value or {}), **(value.empty if isinstance(value, Emptied) else {})}
    if struct == "PodSpec":
        host = {name: given.pop(name) for name in _HOST if name in given}
        if given.get("securityContext") is not None or host:
            security = given.get("securityContext") or {}
            if isinstance(security, Mapping):
                given["securityContext"] = {**security, **host}
    lowered = {name.lower(): each for name, each in given.items()}
    fields: dict[str, Any] = {}
    for name, type_ in _structs()[struct]:
        if name.startswith("^"):
            fields |= internal(name[1:], value)
        else:
            fields[name] = _value(type_, lowered.get(name.lower()))
    return fields


def _value(type_: str, value: Any) -> Any:
    """A value printed as that type; a value of another JSON type, which validation refuses, is
    not changed.
    """
    if type_[0] in "*+%":
        if type_[0] == "+" and isinstance(value, list):
            return [_value(type_[1:], each) for each in value]
        if type_[0] == "%" and isinstance(value, Mapping):
            return {name: _value(type_[1:], value[name]) for name in sorted(value)}
        return _value(type_[1:], value) if type_[0] == "*" and value is not None else value
    if type_ in _PRINTED_ZEROS:
        return _PRINTED_ZEROS[type_] if value is None else value
    if value is not None and not isinstance(value, Mapping):
        return value
    if type_ == "r":
        names = ("matchLabels", "matchExpressions")
        selector = value or {}
        return {name: selector[name] for name in names if name in selector}
    return internal(type_, value)


def difference(struct: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The difference between two objects as lines of a unified diff, for messages."""
    before, after = _lines(internal(struct, old)), _lines(internal(struct, new))
    if [_EMPTY.sub(": null", each) for each in before] == [
        _EMPTY.sub(": null", each) for each in after
    ]:
        return ""
    return "".join(list(unified_diff(before, after))[2:])


def _lines(value: Any) -> list[str]:
    text = json.dumps(value, indent=1, ensure_ascii=False).translate(_ESCAPED)
    return f"{text}\n".splitlines(keepends=True)


# --------------------------------------------------------------------------------------------------

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
