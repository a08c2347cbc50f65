"""Keeps states of objects that are newer than the watch: the answers to our own requests.

The rule is: *an older state never replaces a newer one*. The resource versions of a kind come from
one counter of the server, so they are compared as integers, even if an object was deleted and
recreated with another UID. Versions that are not decimal cannot be compared, and are not learned.
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
    """Whether the object ceased to exist with the write that returned this state.

    A server removes a terminating object without a grace period as soon as its last finalizer goes.
    """
    meta = obj["metadata"]
    ending = bool(meta.get("deletionTimestamp")) and meta.get("deletionGracePeriodSeconds") == 0
    return ending and not meta.get("finalizers")


@attrs.frozen
class Scope:
    """The objects of a kind that a list or a watch returns.

    Attributes:
        namespace: only this one; all when empty.
        labels: the label selector.
        fields: the field selector.
    """

    namespace: str = ""
    labels: Selector = attrs.field(factory=Selector)
    fields: FieldSelector = attrs.field(factory=FieldSelector)

    @classmethod
    def parse(cls, namespace: str, label_selector: str, field_selector: str) -> Scope:
        """The scope of a request with these parameters.

        Raises:
            InvalidSelector: a selector is malformed.
        """
        return cls(
            namespace, parse_label_selector(label_selector), parse_field_selector(field_selector)
        )

    def includes(self, obj: Mapping[str, Any]) -> bool | None:
        """Whether a raw object belongs to the scope; None if only the server can decide.

        A server may have a default for a selectable field, or select by a path that is not in the
        object. So a missing field proves nothing.
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
    """The learned state of one key.

    Attributes:
        uid: of the object.
        version: of the learned state; if `gone`, of the last state in the store.
        gone: whether the object with this UID no longer exists.
        held: whether the store has the learned state.
    """

    uid: str
    version: int
    gone: bool = False
    held: bool = False


class Ahead:
    """The keys whose known state is newer than what lists and watches have returned.

    A key is removed when the watch passes the learned version, or reports the deletion.

    Caveat: if an object leaves the scope after its last known state, returns and is deleted while
    the watch lags, it reappears after `lose` until the watch reports the deletion.
    """

    def __init__(self) -> None:
        self._known: dict[ObjectKey, _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def newest(self) -> int:
        """The highest learned version; 0 if there is none."""
        return max((known.version for known in self._known.values()), default=0)

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def snapshot(self) -> Mapping[ObjectKey, object]:
        """The present knowledge, for `unchanged` and `forget`."""
        return dict(self._known)

    def unchanged(self, snapshot: Mapping[ObjectKey, object]) -> bool:
        """Whether anything of a snapshot is still waiting for the watch."""
        return any(self._known.get(key) == known for key, known in snapshot.items())

    def forget(self, snapshot: Mapping[ObjectKey, object]) -> None:
        """Forget the content of a snapshot, except where something newer was learned since."""
        for key, known in snapshot.items():
            if self._known.get(key) == known:
                del self._known[key]

    def learn(self, key: ObjectKey, obj: Obj, position: int, *, held: bool) -> bool:
        """Record a state of an object.

        Args:
            key: the object.
            obj: the state.
            position: the version up to which lists and watches are complete.
            held: whether the store will have it.

        Returns:
            whether the state is newer than all known states of this key.
        """
        version, uid = version_number(obj), _uid(obj)
        if not position or version <= position:
            return False
        known = self._known.get(key)
        if known is not None and (version <= known.version or (known.gone and known.uid == uid)):
            return False
        self._known[key] = _Known(uid, version, held=held)
        return True

    def lose(self, key: ObjectKey, held: Obj) -> bool:
        """Record that an object in the store no longer exists; False if it has no version."""
        version = version_number(held)
        if not version:
            return False
        self._known[key] = _Known(_uid(held), version, gone=True)
        return True

    def is_outdated(self, key: ObjectKey, obj: Obj, *, deleted: bool) -> bool:
        """Whether a watch event has nothing new; otherwise it replaces the known state."""
        known = self._known.get(key)
        if known is None:
            return False
        version, same = version_number(obj), known.uid == _uid(obj)
        if known.gone and same:
            # An older "deleted" says that it left the scope for a while: its end is still to come.
            if deleted and (not version or version >= known.version):
                del self._known[key]
            return True
        if version and version < known.version:
            return True
        del self._known[key]
        return known.held and same and version == known.version and not deleted

    def pass_by(self, position: int) -> None:
        """Remove the keys that the watch has caught up with, given the version it has reached."""
        passed = [
            key
            for key, known in self._known.items()
            if not known.gone and known.version <= position
        ]
        for key in passed:
            del self._known[key]

    def keep(self, listed: Mapping[ObjectKey, Obj], version: int) -> frozenset[ObjectKey]:
        """Compare a complete list with the known states.

        Args:
            listed: the objects of the list.
            version: that of the list; 0 if it cannot be compared.

        Returns:
            the keys whose known state is newer than the list.
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
