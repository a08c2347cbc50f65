"""What is known of single objects before a watch shows it: the answers to our own requests.

The one rule: *an older state never replaces a newer one*. The resource versions of one kind come
from one counter of the server, so they are compared as integers, also between objects that had one
name after the other. A version that is not decimal compares with nothing: nothing is learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey, labels_of
from kueuelib.machinery.fields import FieldSelector, field_of, parse_field_selector
from kueuelib.machinery.selectors import Selector, parse_label_selector

_NAMED = ("metadata.name", "metadata.namespace")


def number_of(version: str) -> int:
    """A resource version as an integer; 0 when it cannot be compared."""
    return int(version) if version.isdecimal() else 0


def version_number(obj: Mapping[str, Any]) -> int:
    """The resource version of a raw object as an integer; 0 when it cannot be compared."""
    return number_of(str(obj["metadata"].get("resourceVersion") or ""))


def is_last_state(obj: Mapping[str, Any]) -> bool:
    """Whether the write that was answered with this object ended it.

    A server removes an object that is being deleted together with its last finalizer, once no grace
    is left.
    """
    meta = obj["metadata"]
    ending = bool(meta.get("deletionTimestamp")) and meta.get("deletionGracePeriodSeconds") == 0
    return ending and not meta.get("finalizers")


@attrs.frozen
class Scope:
    """Which objects of a kind a list or a watch is about.

    Attributes:
        namespace: only this one; all when empty.
        labels: what labels must be like.
        fields: what fields must be like.
    """

    namespace: str = ""
    labels: Selector = attrs.field(factory=Selector)
    fields: FieldSelector = attrs.field(factory=FieldSelector)

    @classmethod
    def parse(cls, namespace: str, label_selector: str, field_selector: str) -> Scope:
        """The scope of a request with these parameters.

        Raises:
            InvalidSelector: a selector has no such form.
        """
        return cls(
            namespace, parse_label_selector(label_selector), parse_field_selector(field_selector)
        )

    def includes(self, obj: Mapping[str, Any]) -> bool | None:
        """Whether a raw object belongs to it; None when only the server can tell.

        Servers may know a field by a path that is not the one in the object, or have a default for
        it: of a field that is not there nothing is concluded.
        """
        if self.namespace not in ("", obj["metadata"].get("namespace")):
            return False
        if not self.labels.matches(labels_of(obj)):
            return False
        if any(path not in _NAMED and not field_of(obj, path) for path in self.fields.paths):
            return None
        return self.fields.matches_object(obj)


@attrs.frozen
class _Known:
    """What was learned of one key.

    Attributes:
        uid: of the object.
        version: of the learned state; when `gone`, of the state that was held before.
        gone: whether no object of this UID exists any more.
    """

    uid: str
    version: int
    gone: bool = False


class Ahead:
    """The keys of which more is known than lists and watches have shown, and how much more.

    Memory: a key stays until the watch has passed the learned version, or shown the deletion. An
    object that left the scope, came back and was deleted, all before the watch showed any of it, is
    seen once more after `lose`, until the watch shows the second end.
    """

    def __init__(self) -> None:
        self._known: dict[ObjectKey, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def newest(self) -> int:
        """The highest version that is known; 0 when there is none."""
        return max((known.version for known in self._known.values()), default=0)

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def learn(self, key: ObjectKey, obj: Obj, position: int) -> bool:
        """Note a state of an object; whether it is news.

        Args:
            key: the object.
            obj: the state.
            position: the version up to which lists and watches have shown everything.
        """
        version, uid = version_number(obj), _uid(obj)
        if not position or version <= position:
            return False
        known = self._known.get(key)
        if known is not None and (version <= known.version or (known.gone and known.uid == uid)):
            return False
        self._known[key] = _Known(uid, version)
        return True

    def lose(self, key: ObjectKey, held: Obj) -> bool:
        """Note that what is held does not exist any more; whether that may be believed."""
        version = version_number(held)
        if not version:
            return False
        self._known[key] = _Known(_uid(held), version, gone=True)
        return True

    def is_outdated(self, key: ObjectKey, obj: Obj, *, deleted: bool) -> bool:
        """Whether a watch event tells less than is known; if not, the event counts from now on."""
        known = self._known.get(key)
        if known is None:
            return False
        version, same = version_number(obj), known.uid == _uid(obj)
        if known.gone and same:
            if deleted:
                del self._known[key]
            return True
        if version and version < known.version:
            return True
        del self._known[key]
        return False

    def pass_by(self, position: int) -> None:
        """The watch has shown everything up to this version."""
        passed = [
            key
            for key, known in self._known.items()
            if not known.gone and known.version <= position
        ]
        for key in passed:
            del self._known[key]

    def keep(self, listed: Mapping[ObjectKey, Obj], version: int) -> frozenset[ObjectKey]:
        """Compare a whole list with what is known.

        Args:
            listed: the objects of the list.
            version: that of the list; 0 when it cannot be compared.

        Returns:
            the keys of which the list tells less: for them it does not count.
        """
        kept = []
        for key, known in list(self._known.items()):
            obj = listed.get(key)
            dead = known.gone and obj is not None and known.uid == _uid(obj)
            outdated = bool(version) and (dead or version < known.version)
            if outdated:
                kept.append(key)
            else:
                del self._known[key]
        return frozenset(kept)


def _uid(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("uid") or "")
