"""Objects of built-in kinds as Go writes them.

In Go a struct that is not behind a pointer is always there, and so is a field that is written even
when it is zero; a list, a map or a text that is empty is mostly left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.schema.messages import Field, json_fields

_HEAD: Final = ("apiVersion", "kind", "metadata")
_ZEROS: Final = {"s": "", "i": 0, "l": 0, "b": False, "B": "", "q": "0", "o": 0, "n": 0}
_LEFT_ALONE: Final = ("r", "F", "S", "t", "u", "o", "q")
_META: Final = "meta.ObjectMeta"


def fill(message: str, obj: Obj) -> None:
    """Adds what is always written, and drops what is left out, in place.

    Args:
        message: the type of the object.
        obj: pruned and defaulted.
    """
    _fill(message, obj, root=True)


def forget_zeros(message: str, obj: Obj) -> None:
    """Drops scalars that Go cannot tell from absent ones, so that they get defaults; in place.

    Args:
        message: the type of the object.
        obj: pruned.
    """
    _fill(message, obj, root=True, adding=False)


def zero(message: str) -> Obj:
    """An object to which nothing was written; empty lists and maps are there."""
    return {each.name: _empty(each) for each in _fields(message) if each.always}


@cache
def _fields(message: str) -> tuple[Field, ...]:
    return tuple(json_fields(message))


def _empty(field: Field) -> Any:
    if field.form == "+":
        return []
    if field.form == "%":
        return {}
    if field.message:
        return {} if field.message == _META else zero(field.message)
    return _ZEROS.get(field.type)


def _fill(message: str, obj: Obj, *, root: bool = False, adding: bool = True) -> None:
    for field in _fields(message):
        name = field.name
        if root and name in _HEAD:
            continue
        value = obj.get(name)
        if name not in obj:
            if field.always and adding:
                obj[name] = None if field.form else _ZEROS.get(field.type)
                if field.message and not field.form:
                    obj[name] = {}
                    _fill_value(field, obj[name], adding=adding)
        elif field.form in ("+", "%") and not value:
            if not adding:
                continue
            if field.always:
                obj[name] = None
            else:
                del obj[name]
        elif field.message:
            _fill_value(field, value, adding=adding)
        elif _is_left_out(field, value):
            del obj[name]


def _is_left_out(field: Field, value: Any) -> bool:
    if field.form or field.always or field.type in _LEFT_ALONE:
        return False
    return value == _ZEROS.get(field.type, value) and value is not None and not value


def _fill_value(field: Field, value: Any, *, adding: bool) -> None:
    values = (value,)
    if field.form == "+":
        values = value
    elif field.form == "%":
        values = tuple(value.values())
    if field.message != _META:
        for each in values:
            _fill(field.message, each, adding=adding)
