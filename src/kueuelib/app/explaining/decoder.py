"""Decodes the raw objects of a cluster that is read again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kueuelib.api.codec import decode
from kueuelib.api.meta import Obj

Decode = Callable[[type[Any], Obj], Any]


class Decoder:
    """Decodes raw objects, and keeps the values of objects that were also in the last lists.

    The raw objects are never changed: another state is another object.
    """

    def __init__(self) -> None:
        self._before: dict[int, tuple[Obj, Any]] = {}
        self._now: dict[int, tuple[Obj, Any]] = {}

    def __call__(self, cls: type[Any], obj: Obj) -> Any:
        """The value of a raw object; raises as `decode`."""
        known = self._before.get(id(obj)) or (obj, decode(cls, obj))
        self._now[id(obj)] = known
        return known[1]

    def end(self) -> None:
        """Forgets values that were not used since the last call."""
        self._before, self._now = self._now, {}
