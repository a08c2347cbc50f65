"""Decides which states of objects a reflector keeps, and how new they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from kueuelib.api.meta import PARTIAL, Obj, ObjectKey, Resource, annotations_of
from kueuelib.machinery.learning import Ahead, number_of, version_number
from kueuelib.machinery.reflector_protocol import Command, MarkSynced, Replace, WatchEvent
from kueuelib.machinery.reflector_reading import key_in, version_in
from kueuelib.machinery.store import Change

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
        self.ahead = Ahead()
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

    def learn(self, answer: Obj, *, included: bool, shared: bool) -> tuple[Change[Obj], ...]:
        """See `ReflectorCore.learn`."""
        if not self.synced:
            self._answered = max(self._answered, version_number(answer))
            return ()
        key = key_in(answer)
        if not self.ahead.learn(key, answer, number_of(self.version), held=included):
            return ()
        if not included:
            return (Change(key, None),)
        return (Change(key, self.kept(answer if shared else _copied(answer))),)

    def lose(self, held: Obj) -> tuple[Change[Obj], ...]:
        """See `ReflectorCore.lose`."""
        key = key_in(held)
        return (Change(key, None),) if self.ahead.lose(key, held) else ()

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
        if number < self.least:  # a consistent read: the server has lost its history
            self.ahead.clear()
        elif not self.requested:
            self.ahead.forget(self.before)  # a consistent read knows better
        self._answered = 0
        kept = self.ahead.keep(objects, number)
        items = tuple((key, obj) for key, obj in objects.items() if key not in kept)
        commands: list[Command] = [Replace(items, not self.synced, kept)]
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

    def change(self, event: WatchEvent) -> Change[Obj] | None:
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
        return Change(key, None if deleted else self.kept(event.object))

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
