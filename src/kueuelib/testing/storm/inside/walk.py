"""Finds everything that an object of the product references, directly or indirectly."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import attrs

__all__ = ["Part", "names_in", "parts_in"]

PRODUCT: Final = "kueuelib"
OTHERS: Final = ("kueuelib.testing", "kueuelib.api")
"""Packages whose objects are not traversed: the storm, and API objects."""
_PLAIN: Final = frozenset({str, bytes, bytearray, int, float, bool, type(None), type})


@attrs.define(eq=False)
class Part:
    """One reachable object.

    Attributes:
        what: The object.
        place: The class and the attribute that reference it, for example `Store._items`. The
            content of a container has the place of the container.
        path: All attributes on the shortest path to it.
    """

    what: Any
    place: str
    path: str


def parts_in(root: object) -> Iterator[Part]:
    """Yield every object of the product and every container reachable from an object, once.

    The search follows attributes, containers, bound methods, closures and partial calls. Objects of
    other packages, of the storm and of the API are not traversed.

    Args:
        root: The root object of a process; may be an object of the storm.
    """
    seen: set[int] = set()
    waiting = deque([Part(root, "", "")])
    while waiting:
        part = waiting.popleft()
        if id(part.what) in seen:
            continue
        seen.add(id(part.what))
        yield part
        waiting.extend(each for each in _held(part) if type(each.what) not in _PLAIN)


def names_in(value: object) -> Iterator[object]:
    """Yield the strings and named tuples in a key: itself, and the parts of a tuple or record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        if hasattr(value, "_fields"):
            yield value
        for part in value:
            yield from names_in(part)
    elif (cls := type(value)) and attrs.has(cls):
        for field in attrs.fields(cls):
            yield from names_in(getattr(value, field.name))


def _held(holder: Part) -> Iterator[Part]:
    what, place, path = holder.what, holder.place, holder.path
    if isinstance(what, Mapping):
        if "metadata" in what and "apiVersion" in what:
            return  # a raw object of the API
        for key, value in list(what.items()):
            yield Part(key, place, path)
            yield Part(value, place, path)
    elif isinstance(what, (Sequence, AbstractSet, deque)):
        for value in list(what):
            yield Part(value, place, path)
    elif isinstance(what, types.MethodType):
        yield Part(what.__self__, place, path)
        yield Part(what.__func__, place, path)
    elif isinstance(what, functools.partial):
        yield from (Part(part, place, path) for part in (what.func, what.args, what.keywords))
    elif isinstance(what, types.FunctionType):
        yield from (Part(value, place, path) for value in _closed_over(what))
    elif not place or _is_product(type(what)):
        name = type(what).__name__
        for attribute, value in _attributes(what):
            yield Part(value, f"{name}.{attribute}", f"{path}.{attribute}".lstrip("."))


def _is_product(cls: type) -> bool:
    module = cls.__module__
    ours = module == PRODUCT or module.startswith(f"{PRODUCT}.")
    return ours and not module.startswith(OTHERS)


def _closed_over(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not assigned yet


def _attributes(what: object) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(what, "__dict__", {}).items())
    for cls in type(what).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in {"__dict__", "__weakref__"} and hasattr(what, slot):
                yield slot, getattr(what, slot)
