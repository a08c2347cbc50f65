"""Which states of objects a reflector keeps, answers to our own requests among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import PARTIAL, Obj, ObjectKey, Resource, annotations_of, labels_of
from kueuelib.errors import HistoryLost
from kueuelib.machinery.reflector_protocol import (
    Command,
    MarkSynced,
    Replace,
    ReportError,
    WatchEvent,
    key_in,
    version_in,
)
from kueuelib.machinery.selectors import (
    FieldSelector,
    Selector,
    field_of,
    parse_field_selector,
    parse_label_selector,
)
from kueuelib.machinery.store import StoreUpdate

# ---- keeps states of objects that are newer than the watch: the answers to our own requests ------
# The rule is: *an older state never replaces a newer one*. The resource versions of a kind come
# from one counter of the server, so they are compared as integers, even if an object was deleted
# and recreated with another UID. Versions that are not decimal cannot be compared, and are not
# learned.

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
class WatchScope:
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
    def parse(cls, namespace: str, label_selector: str, field_selector: str) -> WatchScope:
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


class OwnWrites:
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


# --------------------------------------------------------------------------------------------------

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
NO_VERSION = ("", "0")
"""The version in a request that accepts any state."""


class Replica:
    """Decides which state of an object replaces which, and which version may be passed back.

    Args:
        resource: the kind of objects that do not name one; None: any kind.
        transform: applied to each object before it is kept.

    Attributes:
        version: the last resource version that may be passed back; empty before the first list.
        synced: whether it was filled once.
        ahead: states that are newer than the watch.
        unavailable: whether the next filling must be a consistent read.
        requested: the version that this filling asked for.
        least: the version that this filling must have at least.
        before: what was learned before this activity began.
        filling: initial events, until their end.
        trusted: whether versions of objects in this stream may be passed back.
    """

    def __init__(self, resource: Resource | None, transform: Callable[[Obj], Obj] | None) -> None:
        self.version = ""
        self.synced = False
        self.ahead = OwnWrites()
        self.unavailable = False
        self.requested = ""
        self.least = 0
        self.before: Mapping[ObjectKey, object] = {}
        self.filling: dict[ObjectKey, Obj] | None = None
        self.trusted = False
        self._resource = resource
        self._transform = transform
        self._answered = 0  # the newest version of an answer that came before the first filling

    # ---- answers to other requests

    def learn(self, answer: Obj, *, included: bool, shared: bool) -> tuple[StoreUpdate[Obj], ...]:
        """See `ReflectorCore.learn`."""
        if not self.synced:
            self._answered = max(self._answered, version_number(answer))
            return ()
        key = key_in(answer)
        if not self.ahead.learn(key, answer, number_of(self.version), held=included):
            return ()
        if not included:
            return (StoreUpdate(key, None),)
        return (StoreUpdate(key, self.kept(answer if shared else _copied(answer))),)

    def lose(self, held: Obj) -> tuple[StoreUpdate[Obj], ...]:
        """See `ReflectorCore.lose`."""
        key = key_in(held)
        return (StoreUpdate(key, None),) if self.ahead.lose(key, held) else ()

    # ---- filling

    def request(self) -> None:
        """Choose the version that the next filling asks for."""
        seen = number_of(self.version)
        self.least = max(seen, self._answered, self.ahead.newest)
        self.requested = str(self.least) if self.least > seen else self.version
        if self.unavailable:
            self.requested = ""
        self.before = self.ahead.snapshot()

    def is_outdated(self, version: str) -> bool:
        """Whether a list is too old; a consistent read never is."""
        number = number_of(version)
        return bool(self.requested) and 0 < number < self.least

    def filled(self, objects: dict[ObjectKey, Obj], version: str) -> list[Command]:
        """Take in all objects of the server, as of a version."""
        self.version = version
        self.unavailable = False
        number = number_of(version)
        commands: list[Command] = []
        if number < self.least:  # a consistent read: the server has lost its history
            if number:
                what = "the list" if self._resource is None else self._resource.plural
                commands.append(ReportError(HistoryLost(what, self.least, number), "list"))
            self.ahead.clear()
        elif not self.requested:
            self.ahead.forget(self.before)  # a consistent read knows better
        self._answered = 0
        kept = self.ahead.keep(objects, number)
        items = tuple((key, obj) for key, obj in objects.items() if key not in kept)
        commands.append(Replace(items, not self.synced, kept))
        if not self.synced:
            self.synced = True
            commands.append(MarkSynced())
        return commands

    # ---- watching

    def open(self, version: str, *, initial_events: bool) -> None:
        """Prepare for a stream from a version on."""
        if not initial_events:
            self.before = self.ahead.snapshot()
        self.filling = {} if initial_events else None
        self.trusted = version not in NO_VERSION and not initial_events

    def change(self, event: WatchEvent) -> StoreUpdate[Obj] | None:
        """The change to the store; None if the event is outdated or an initial one."""
        key = key_in(event.object)
        version = version_in(event.object)
        deleted = event.type == "DELETED"
        if self.filling is not None:
            if deleted:
                self.filling.pop(key, None)
            else:
                self.filling[key] = self.kept(event.object)
            return None
        self.trusted = self.trusted or event.type != "ADDED"
        if self.trusted and version:
            self.version = version
        if self.ahead.is_outdated(key, event.object, deleted=deleted):
            return None
        return StoreUpdate(key, None if deleted else self.kept(event.object))

    def pass_by(self) -> None:
        """Forget learned states that the watch has caught up with."""
        self.ahead.pass_by(number_of(self.version))

    def bookmark(self, obj: Obj) -> list[Command]:
        """Take in a bookmark, which may end the initial events."""
        version = version_in(obj)
        if self.filling is None:
            self.trusted = True
            self.version = version or self.version
            return []
        if not _ends_initial_events(obj):
            return []
        filled, self.filling = self.filling, None
        self.trusted = True
        return self.filled(filled, version)

    def outdated_end(self, bookmark: Obj) -> str:
        """The version of a bookmark that ends initial events which are too old; otherwise empty."""
        version = version_in(bookmark)
        ends = self.filling is not None and _ends_initial_events(bookmark)
        return version if ends and self.is_outdated(version) else ""

    def kept(self, obj: Obj) -> Obj:
        """An object in the form that the store keeps."""
        if self._resource is not None and obj.get("kind", PARTIAL) == PARTIAL:
            obj["kind"] = self._resource.kind
            obj["apiVersion"] = self._resource.api_version
        return obj if self._transform is None else self._transform(obj)


def _copied(obj: Obj) -> Obj:
    copied: Obj = orjson.loads(orjson.dumps(obj))  # much faster than `deepcopy`
    return copied


def _ends_initial_events(bookmark: Obj) -> bool:
    return annotations_of(bookmark).get(INITIAL_EVENTS_END) == "true"
