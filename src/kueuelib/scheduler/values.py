"""Small values that every decision makes many of."""

from __future__ import annotations

from typing import Any, TypeVar, dataclass_transform

import attrs

C = TypeVar("C")


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(attrs.field,))
def value(cls: type[C]) -> type[C]:
    """Makes a class of values that are built often and compared by identity.

    The type checker keeps them from being changed, as if attrs had frozen them. At run time nothing
    does: the constructor of a frozen class goes round its own guard and takes four times as long.
    """
    return attrs.define(eq=False)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def record(cls: type[C]) -> type[C]:
    """The same for values that are compared by what they hold."""
    return attrs.define(unsafe_hash=True)(cls)


def changed(original: C, **changes: Any) -> C:
    """A value like another one but for some attributes; the type checker does not look at these."""
    evolve: Any = attrs.evolve
    result: C = evolve(original, **changes)
    return result
