"""An in-memory store of objects by key, with many-valued indexes, and what is made smaller."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey

# ---- equal texts of many objects, stored once ----------------------------------------------------

RECENT_TEXTS: Final = 4096
"""The number of different texts that later ones can share."""


@lru_cache(maxsize=RECENT_TEXTS)
def once(text: str) -> str:
    """The text, or an equal one that came shortly before.

    `sys.intern` would keep it: CPython 3.12.0 to 3.12.6 never frees what that has seen.
    """
    return text


# ---- what an informer makes of an object before it stores it -------------------------------------

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

RECENT: Final = 256
"""The number of different parts that later objects can share."""
_LONGEST: Final = 1024
"""Bytes of the JSON of labels, annotations or finalizers that objects share."""
_PARTS: Final[dict[bytes, Any]] = {}
_METADATA: Final[dict[bytes, Any]] = {}
"""Apart, since many objects have labels like nobody else's, and would displace pod sets."""

Transform = Callable[[Obj], Obj]


def strip(obj: Obj) -> Obj:
    """Drop what controllers never read, and store once what many objects have alike.

    Changes its argument. Managed fields go, and the copy of itself that kubectl keeps. Workloads
    share equal pod sets and admissions, and all objects equal labels, annotations and finalizers,
    and the words of their conditions. So a transform that changes more has to do that before.
    """
    meta = obj["metadata"]
    meta.pop("managedFields", None)
    annotations = meta.get("annotations")
    if annotations and annotations.pop(_LAST_APPLIED, None) is not None and not annotations:
        del meta["annotations"]
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict):
            _share_words(condition, condition)
    _share_words(obj, ("apiVersion", "kind"))
    _share_words(meta, ("namespace", "creationTimestamp"))
    for name in ("labels", "annotations", "finalizers"):
        if name in meta:
            meta[name] = _shared(meta[name], _METADATA, _LONGEST)
    for part, name in (("spec", "podSets"), ("status", "admission")):
        fields = obj.get(part)
        if isinstance(fields, dict) and name in fields:
            fields[name] = shared(fields[name])
    return obj


def metadata_of(obj: Obj) -> Obj:
    """An object reduced to its metadata."""
    return {name: obj[name] for name in ("apiVersion", "kind", "metadata")}


def shared(part: Any) -> Any:
    """A part of an object, or an equal one of an object that came shortly before."""
    return _shared(part, _PARTS)


def _shared(part: Any, known: dict[bytes, Any], longest: int | None = None) -> Any:
    text = orjson.dumps(part)
    if longest is not None and len(text) > longest:
        return part
    known[text] = part = known.pop(text, part)
    if len(known) > RECENT:
        del known[next(iter(known))]
    return part


def _share_words(fields: Obj, names: Iterable[str]) -> None:
    for name in names:
        word = fields.get(name)
        if type(word) is str:
            fields[name] = once(word)


# --------------------------------------------------------------------------------------------------

T = TypeVar("T")

NAMESPACE_INDEX = "namespace"
"""The name under which an informer registers `namespace_of`."""


class DeltaKind(Enum):
    """What happened to one key of a store."""

    ADDED = "added"
    UPDATED = "updated"
    DELETED = "deleted"


@attrs.frozen
class Delta(Generic[T]):
    """What happened to one key of a store.

    Attributes:
        kind: what happened.
        key: the key.
        old: what the store held before; None when added.
        new: what it holds now; None when deleted.
        initial: whether it belongs to the first filling of the store, or is replayed to a handler
            that was added late. Such deltas describe what exists, not what changed.

    An object that was deleted and recreated unnoticed appears as an update with different UIDs.
    """

    kind: DeltaKind
    key: ObjectKey
    old: T | None = None
    new: T | None = None
    initial: bool = False

    @property
    def last(self) -> T:
        """The newest known state: `new`, or for a deletion `old`."""
        newest = self.old if self.new is None else self.new
        assert newest is not None
        return newest


class StoreUpdate(NamedTuple, Generic[T]):
    """A command to a store: hold `value` under `key`, or drop the key if `value` is None."""

    key: ObjectKey
    value: T | None


IndexFunction = Callable[[T], Iterable[Hashable]]
"""The values under which an object is found; pure, may be empty or have duplicates."""


_Values = tuple[Hashable, ...]


class _Index(Generic[T]):
    """One named index: from values to keys.

    Many values have one key, for which a tuple is a third of a dict.
    """

    __slots__ = ("function", "keys")

    def __init__(self, function: IndexFunction[T]) -> None:
        self.function = function
        self.keys: dict[Hashable, tuple[ObjectKey] | dict[ObjectKey, None]] = {}

    def of(self, value: T) -> _Values:
        values = self.function(value)
        return tuple(dict.fromkeys(values)) if values else ()

    def move(self, key: ObjectKey, before: _Values, after: _Values) -> None:
        for value in before:
            if value not in after:
                self._drop(key, value)
        for value in after:
            keys = self.keys.setdefault(value, (key,))
            if isinstance(keys, dict):
                keys[key] = None
            elif keys[0] != key:
                self.keys[value] = {keys[0]: None, key: None}

    def _drop(self, key: ObjectKey, value: Hashable) -> None:
        keys = self.keys[value]
        if isinstance(keys, dict) and len(keys) > 1:
            del keys[key]
        else:
            del self.keys[value]


class Store(Generic[T]):
    """Objects by key, with named indexes that follow every write.

    Guarantees: indexes and content change together before a method returns; a failing index
    function leaves the store as it was; iteration is in the order in which keys were added.

    Caveats: values are shared, not copied. Readers must not change them in place.
    """

    __slots__ = ("_filed", "_indexes", "_items")

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._items: dict[ObjectKey, T] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._filed: dict[ObjectKey, tuple[_Values, ...]] = {}  # the values in each index
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(tuple(self._items))

    def get(self, key: ObjectKey) -> T | None:
        """The value under `key`, or None."""
        return self._items.get(key)

    def keys(self) -> tuple[ObjectKey, ...]:
        """Every key."""
        return tuple(self._items)

    def items(self) -> tuple[T, ...]:
        """Every value."""
        return tuple(self._items.values())

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index, built at once from the present content.

        Raises:
            ValueError: the name is taken by another function.
        """
        existing = self._indexes.get(name)
        if existing is not None:
            if existing.function == function:
                return
            raise ValueError(f"index {name!r} exists with another function")
        index = _Index(function)
        for key, values in {key: index.of(value) for key, value in self._items.items()}.items():
            index.move(key, (), values)
            self._filed[key] += (values,)
        self._indexes[name] = index

    def by_index(self, name: str, value: Hashable) -> tuple[T, ...]:
        """The objects whose index function returned `value`.

        Raises:
            KeyError: no index has that name.
        """
        return tuple(self._items[key] for key in self._indexes[name].keys.get(value, ()))

    def keys_by_index(self, name: str, value: Hashable) -> tuple[ObjectKey, ...]:
        """The keys of `by_index`."""
        return tuple(self._indexes[name].keys.get(value, ()))

    def index_values(self, name: str) -> tuple[Hashable, ...]:
        """Every value with an entry in an index."""
        return tuple(self._indexes[name].keys)

    def put(self, key: ObjectKey, value: T, *, initial: bool = False) -> Delta[T]:
        """Hold `value` under `key`."""
        filed = tuple([index.of(value) for index in self._indexes.values()])
        old = self._items.get(key)
        self._items[key] = value
        if old is None or filed != self._filed[key]:
            self._file(key, filed)
        kind = DeltaKind.ADDED if old is None else DeltaKind.UPDATED
        return Delta(kind, key, old, value, initial)

    def remove(self, key: ObjectKey) -> Delta[T] | None:
        """Drop `key`; None if it was not held."""
        old = self._items.pop(key, None)
        if old is None:
            return None
        self._file(key, ((),) * len(self._indexes))
        del self._filed[key]
        return Delta(DeltaKind.DELETED, key, old)

    def _file(self, key: ObjectKey, filed: tuple[_Values, ...]) -> None:
        former = self._filed.get(key) or ((),) * len(filed)
        for index, before, after in zip(self._indexes.values(), former, filed, strict=True):
            if before != after:
                index.move(key, before, after)
        self._filed[key] = filed

    def apply(
        self, changes: Iterable[StoreUpdate[T]], *, same: Callable[[T, T], bool] | None = None
    ) -> tuple[Delta[T], ...]:
        """Carry out changes in order; dropping an unknown key gives no delta.

        Args:
            changes: values to hold and keys to drop.
            same: if it returns True for old and new, the old one stays, without a delta.
        """
        deltas = []
        for key, value in changes:
            old = None if value is None or same is None else self._items.get(key)
            if old is not None and value is not None and same is not None and same(old, value):
                continue
            delta = self.remove(key) if value is None else self.put(key, value)
            if delta is not None:
                deltas.append(delta)
        return tuple(deltas)

    def replace(
        self,
        items: Iterable[tuple[ObjectKey, T]],
        *,
        initial: bool = False,
        same: Callable[[T, T], bool] | None = None,
        kept: Container[ObjectKey] = (),
    ) -> tuple[Delta[T], ...]:
        """Hold exactly `items`; returns the deltas of removed objects first, then of listed ones.

        Args:
            items: the new content; of two pairs with the same key, the later one wins.
            initial: marks the deltas of listed objects.
            same: if it returns True for old and new, the old one stays, without a delta.
            kept: keys that stay as they are, whether they are held or not.
        """
        listed = {key: value for key, value in items if key not in kept}
        deltas = []
        for key in [key for key in self._items if key not in listed and key not in kept]:
            gone = self.remove(key)
            assert gone is not None
            deltas.append(gone)
        for key, value in listed.items():
            old = self._items.get(key)
            if old is not None and same is not None and same(old, value):
                continue
            deltas.append(self.put(key, value, initial=initial))
        return tuple(deltas)

    def as_initial(self) -> tuple[Delta[T], ...]:
        """The deltas for a late handler: an initial ADDED for everything held."""
        return tuple(
            Delta(DeltaKind.ADDED, key, None, value, initial=True)
            for key, value in self._items.items()
        )


def namespace_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """The index function of `NAMESPACE_INDEX` for raw objects; nothing for cluster-scoped ones."""
    namespace = obj["metadata"].get("namespace")
    return (namespace,) if namespace else ()


def same_version(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two raw objects are the same state of the same object."""
    before, after = old["metadata"], new["metadata"]
    version = after.get("resourceVersion")
    return (
        bool(version)
        and before.get("resourceVersion") == version
        and before.get("uid") == after.get("uid")
    )
