"""Decodes Workloads as informers store them: most of their parts are like parts seen before.

Such a part is decoded once, and Workloads share its typed value. An informer stores equal pod sets,
and equal admissions, as one object, so these are known by their identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from kueuelib.api.codec import decode
from kueuelib.api.meta import Condition, Obj
from kueuelib.api.workload import Admission, PodSet, Workload
from kueuelib.errors import InvalidObject

RECENT: Final = 256
"""The number of different parts of one sort whose typed values are kept."""


class _Parts:
    """The typed values of raw parts, by the identity of these."""

    def __init__(self, typed: Callable[[Any], Any]) -> None:
        self._typed = typed
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, part: Any) -> Any:
        known = self._known.get(id(part))
        if known is None:
            known = self._known[id(part)] = (part, self._typed(part))  # so no other has its id
            if len(self._known) > RECENT:
                del self._known[next(iter(self._known))]
        return known[1]


@lru_cache(maxsize=4 * RECENT)
def _condition(fields: tuple[tuple[str, Any], ...]) -> Condition:
    return decode(Condition, dict(fields))


_SHARED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "podSets": _Parts(lambda part: tuple([decode(PodSet, each) for each in part])),
    "admission": _Parts(lambda part: decode(Admission, part)),
    "conditions": lambda part: tuple([_condition(tuple(each.items())) for each in part]),
}


def stored_workload(obj: Obj) -> Workload:
    """The typed value of a raw Workload; neither it nor a part of it may be changed later.

    Raises:
        InvalidObject: as `decode`.
    """
    if obj.get("apiVersion") != Workload.resource.api_version:
        return decode(Workload, obj)
    try:
        parts: Obj = {name: _with_shared(obj[name]) for name in ("spec", "status") if name in obj}
    except (AttributeError, TypeError, InvalidObject):
        return decode(Workload, obj)  # which names every bad field
    return decode(Workload, {**obj, **parts})


def _with_shared(fields: Obj) -> Obj:
    return {
        name: _SHARED[name](part) if part and name in _SHARED else part
        for name, part in fields.items()
    }
