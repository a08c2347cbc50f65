"""Values as kube-apiserver prints them in some messages: as its internal structs.

These have other names and another order than in JSON, and also show absent fields. `internal.txt`
has a line for each: its name, then fields as `Name:type`. Types are

    s text   i integer   b boolean   q quantity   o integer or text   r a label selector
    or the name of a struct

after `*` for what may be nil, `+` for lists and `%` for maps. `^` names a struct whose fields
belong to the one around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import unified_diff
from functools import cache
from importlib.resources import files
from typing import Any, Final

_ZEROS: Final = {"s": "", "i": 0, "b": False, "q": "0", "o": 0}
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
    if type_ in _ZEROS:
        return _ZEROS[type_] if value is None else value
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
