"""Finds everything that an object of the product references, and what it keeps too long."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import ObjectKey
from kueuelib.testing.storm.history import Commit, Obj

__all__ = [
    "ALLOWED",
    "Disposed",
    "ReachableObject",
    "gone_of",
    "leaks",
    "names_in",
    "parts_in",
]


PRODUCT: Final = "kueuelib"
OTHERS: Final = ("kueuelib.testing", "kueuelib.api")
"""Packages whose objects are not traversed: the storm, and API objects."""
_PLAIN: Final = frozenset({str, bytes, bytearray, int, float, bool, type(None), type})


@attrs.define(eq=False)
class ReachableObject:
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


def parts_in(root: object) -> Iterator[ReachableObject]:
    """Yield every object of the product and every container reachable from an object, once.

    The search follows attributes, containers, bound methods, closures and partial calls. Objects of
    other packages, of the storm and of the API are not traversed.

    Args:
        root: The root object of a process; may be an object of the storm.
    """
    seen: set[int] = set()
    waiting = deque([ReachableObject(root, "", "")])
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


def _held(holder: ReachableObject) -> Iterator[ReachableObject]:
    what, place, path = holder.what, holder.place, holder.path
    if isinstance(what, Mapping):
        if "metadata" in what and "apiVersion" in what:
            return  # a raw object of the API
        for key, value in list(what.items()):
            yield ReachableObject(key, place, path)
            yield ReachableObject(value, place, path)
    elif isinstance(what, (Sequence, AbstractSet, deque)):
        for value in list(what):
            yield ReachableObject(value, place, path)
    elif isinstance(what, types.MethodType):
        yield ReachableObject(what.__self__, place, path)
        yield ReachableObject(what.__func__, place, path)
    elif isinstance(what, functools.partial):
        yield from (
            ReachableObject(part, place, path) for part in (what.func, what.args, what.keywords)
        )
    elif isinstance(what, types.FunctionType):
        yield from (ReachableObject(value, place, path) for value in _closed_over(what))
    elif not place or _is_product(type(what)):
        name = type(what).__name__
        for attribute, value in _attributes(what):
            yield ReachableObject(value, f"{name}.{attribute}", f"{path}.{attribute}".lstrip("."))


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


# ---- nothing is kept of objects that no longer exist ---------------------------------------------

ALLOWED: Final[Mapping[str, str]] = {
    "Recent._said": "what was said goes at the first occasion after its minute",
    "_Recent._entries": "events are counted over some minutes; the oldest of 4,096 subjects goes",
    "FrozenQueue.ranked": "the last snapshot of a cohort stays until the next one replaces it",
    "Ranking._entries": "a removed entry is dropped at the top, or before the heap has doubled",
}
"""Places that may keep deleted objects, with the reason; each is bounded."""

_PAST: Final = frozenset({"events", "events.events.k8s.io"})


@attrs.frozen
class Disposed:
    """What existed once and no longer does.

    Attributes:
        uids: UIDs of objects.
        keys: Namespace and name of which no kind has an object.
        names: Names of cluster-scoped objects that no longer exist.

    UIDs and names that an existing object mentions do not count as gone. Events are ignored,
    because they are about the past.
    """

    uids: AbstractSet[str]
    keys: AbstractSet[ObjectKey]
    names: AbstractSet[str]

    def has(self, name: object) -> bool:
        """Whether a part of a key names a gone object."""
        if isinstance(name, ObjectKey):
            return name in self.keys
        return name in self.uids or name in self.names


def gone_of(history: Sequence[Commit]) -> Disposed:
    """Compute what is gone from all commits of a world."""
    present: dict[tuple[str, str, str], Obj] = {}
    uids: set[str] = set()
    keys: set[ObjectKey] = set()
    for commit in history:
        uid = str(commit.present["metadata"]["uid"])
        uids.add(uid)
        keys.add(ObjectKey(commit.namespace, commit.name))
        if commit.new is None:
            present.pop(commit.key, None)
        else:
            present[commit.key] = commit.new
    here = {ObjectKey(namespace, name) for _resource, namespace, name in present}
    left = {name for _resource, _namespace, name in present}
    gone = keys - here
    names = {key.name for key in gone if not key.namespace} - left
    uids -= {str(obj["metadata"]["uid"]) for obj in present.values()}
    explaining = [obj for key, obj in present.items() if key[0] not in _PAST]
    mentioned = _mentioned(explaining, {*uids, *names, *(key.name for key in gone)})
    return Disposed(
        uids - mentioned, {key for key in gone if key.name not in mentioned}, names - mentioned
    )


def _mentioned(objects: Iterable[Obj], names: AbstractSet[str]) -> set[str]:
    """The names that occur as a value in some object."""
    if not names:
        return set()
    text = orjson.dumps([{**obj, "metadata": _told(obj["metadata"])} for obj in objects])
    return {name for name in names if orjson.dumps(name) in text}


def _told(meta: Obj) -> Obj:
    """The references to other objects in metadata."""
    return {key: value for key, value in meta.items() if key != "managedFields"}


def leaks(parts: Sequence[ReachableObject], gone: Disposed) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each container that keeps a key of a gone object.

    Args:
        parts: All objects of a process.
        gone: What no longer exists.
    """
    for part in parts:
        if part.place in ALLOWED:
            continue
        for key in _keys(part.what):
            name = next(filter(gone.has, names_in(key)), None)
            if name is not None:
                yield part.place, f"{part.path} keeps {key!r}, but {name!s} does not exist"
                break


def _keys(what: Any) -> Sequence[object]:
    """The keys of a map, the members of a set or a queue; nothing of a record."""
    if isinstance(what, (Mapping, AbstractSet, list, deque)):
        return list(what)
    return ()
