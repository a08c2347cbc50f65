"""Records every write that the store accepted, in the form for the laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from kueuelib.api.kinds import EVENTS, LEASES
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.storage import Change
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.loop import StormLoop
from kueuelib.testing.storm.owners import ACTOR, Owner
from kueuelib.testing.storm.wire import SERVER


class Chronicle:
    """Records writes, and passes them on.

    Args:
        loop: the time of the world.
        server: the owner of the server, whose clock stamps the writes.
        tell: gets a line for each write.

    Attributes:
        history: all writes.
        revisions: when the store reached each revision.
        listeners: called with every write.
        last_write: when an object other than a Lease or an Event was last written.
    """

    def __init__(self, loop: StormLoop, server: Owner, tell: Callable[[str], None]) -> None:
        self.history: list[Commit] = []
        self.revisions: list[tuple[float, int]] = []
        self.listeners: list[Callable[[Commit], None]] = []
        self.last_write = 0.0
        self._loop = loop
        self._server = server
        self._tell = tell
        self._decoded: dict[tuple[str, str, str], Any] = {}

    def note(self, kind: Kind, change: Change) -> None:
        """Note one write; a listener of the store."""
        now = self._loop.now
        resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        namespace, name = change.after.key
        key = (resource, namespace, name)
        new = orjson.loads(change.after.raw)
        old = self._decoded.get(key)
        if old is None and change.before is not None:
            old = change.before.obj()
        if change.removed:
            self._decoded.pop(key, None)
        else:
            self._decoded[key] = new
        commit = Commit(
            self._server.wall(now),
            change.revision,
            ACTOR.get() or SERVER,
            resource,
            namespace,
            name,
            old,
            None if change.removed else new,
        )
        self.history.append(commit)
        self.revisions.append((now, change.revision))
        if kind.plural not in (LEASES.plural, EVENTS.plural):
            self.last_write = now
        verb = "removes" if change.removed else "changes" if old is not None else "creates"
        self._tell(f"= {commit.actor} {verb} {commit.title} at {change.revision}")
        for listener in self.listeners:
            listener(commit)
