"""Decorators for small values that every decision creates in large numbers."""

from __future__ import annotations

from typing import Any, TypeVar, dataclass_transform

import attrs

C = TypeVar("C")


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(attrs.field,))
def value(cls: type[C]) -> type[C]:
    """Makes a class of values that are created often and compared by identity.

    For the type checker they are frozen. At run time they are not, because the constructor of a
    frozen class takes four times as long.
    """
    return attrs.define(eq=False)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def record(cls: type[C]) -> type[C]:
    """The same for values that are compared by content."""
    return attrs.define(unsafe_hash=True)(cls)


def changed(original: C, **changes: Any) -> C:
    """A copy of a value with some attributes changed; the type checker does not check these."""
    fields: Any = attrs.fields
    values = {field.name: getattr(original, field.name) for field in fields(type(original))}
    return type(original)(*(values | changes).values())
