"""Nothing is kept of objects that no longer exist."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import ObjectKey
from kueuelib.testing.storm.history import Commit, Obj

from .walk import Part, names_in

__all__ = ["ALLOWED", "Gone", "gone_of", "leaks"]

ALLOWED: Final[Mapping[str, str]] = {
    "Recent._said": "what was said goes at the first occasion after its minute",
    "_Recent._entries": "events are counted over some minutes; the oldest of 4,096 subjects goes",
    "FrozenQueue.ranked": "the last snapshot of a cohort stays until the next one replaces it",
    "Ranking._entries": "a removed entry is dropped at the top, or before the heap has doubled",
}
"""Places that may keep deleted objects, with the reason; each is bounded."""

_PAST: Final = frozenset({"events", "events.events.k8s.io"})


@attrs.frozen
class Gone:
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


def gone_of(history: Sequence[Commit]) -> Gone:
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
    return Gone(
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


def leaks(parts: Sequence[Part], gone: Gone) -> Iterator[tuple[str, str]]:
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
