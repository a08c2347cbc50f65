"""watch: the log of a table as a stream of events for one selection.

A watcher pulls. It keeps a position in the log and the next batch, whose bytes all watchers share.
One that falls behind the log's window gets a 410 and ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from typing import Self

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import forbidden, not_supported
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.reading import NOT_CONTINUED, NOT_OLDER, Reads, parse_revision
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.registry.registry import Registry
from kueuelib.embedded.selection import select
from kueuelib.embedded.storage import Change, Compacted, Entry, Storage
from kueuelib.embedded.verbs import WatchEvent, WatchOptions
from kueuelib.errors import ApiError, BadRequest

Frame = tuple[str, bytes]
"""The type of an event and its object as JSON."""

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT = 1800.0
BATCH = 256
BATCH_BYTES = 128 * 1024
INITIAL_BATCH = 100


@attrs.define(eq=False, slots=False)
class Stream:
    """One watch. `batches` yields frames; iterating yields decoded events."""

    _storage: Storage
    _registry: Registry
    _reads: Reads
    _converter: Converter
    _kind: Kind
    _version: str
    _namespace: str
    _options: WatchOptions
    _closed: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._table = self._storage.table(self._kind.table)
        check = partial(_check, self._options)
        self._selection = select(self._kind, self._namespace, self._options, check)
        try:
            self._revision = parse_revision(self._options.resource_version)
        except BadRequest as error:
            text = error.message.removeprefix("invalid resource version: ")
            raise failures.unexplained(text) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream, and wakes its reader."""
        self._closed = True
        self._table.wake()

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        async for batch in self.batches():
            for type_, raw in batch:
                yield WatchEvent(type_, orjson.loads(raw))

    async def batches(self) -> AsyncIterator[list[Frame]]:
        """Yields all available frames at a time."""
        loop = asyncio.get_running_loop()
        timeout = self._options.timeout
        if timeout is None:
            timeout = DEFAULT_TIMEOUT * (1 + random.random())
        if timeout < 0:
            return
        deadline = loop.time() + timeout
        try:
            position = self._table.end
            wanted = self._options.send_initial_events
            if self._revision == 0 if wanted is None else wanted:
                position = self._table.end
                revision = self._storage.revision
                if self._revision > revision:
                    raise failures.future_version(self._revision, revision)
                entries = self._reads.entries(self._kind, self._selection)
                for start in range(0, len(entries), INITIAL_BATCH):
                    part = entries[start : start + INITIAL_BATCH]
                    yield await self._frames([("ADDED", entry) for entry in part])
                if self._options.send_initial_events and self._options.bookmarks:
                    yield [self._bookmark(revision, end_of_state=True)]
            elif self._revision:
                position = self._table.position(self._revision)
            async for batch in self._follow(position, deadline):
                yield batch
        except Compacted:
            oldest = self._table.compacted
            asked = self._revision or oldest
            error = failures.expired(f"too old resource version: {asked} ({oldest})")
            yield [("ERROR", orjson.dumps(error.status()))]
        except ApiError as error:
            yield [("ERROR", orjson.dumps(error.status()))]

    async def _follow(self, position: int, deadline: float) -> AsyncIterator[list[Frame]]:
        loop = asyncio.get_running_loop()
        next_bookmark = loop.time() + BOOKMARK_SECONDS
        bookmarks = self._options.bookmarks
        while True:
            changes = _bounded(self._table.since(position, BATCH))
            if changes:
                position += len(changes)
                events = [event for change in changes for event in self._translate(change)]
                if events:
                    yield await self._frames(events)
                continue
            if self._closed:
                return
            now = loop.time()
            if now >= deadline:
                if bookmarks:
                    yield [self._bookmark(self._storage.revision)]
                return
            if bookmarks and now >= next_bookmark:
                next_bookmark = now + BOOKMARK_SECONDS
                yield [self._bookmark(self._storage.revision)]
                continue
            await self._table.changed(min(deadline, next_bookmark) - now)

    def _translate(self, change: Change) -> list[tuple[str, Entry]]:
        """The event of a change for a watcher with a selection."""
        if change.revision <= self._revision:
            return []
        accepts = self._selection.accepts
        before, after = change.before, change.after
        if accepts is None:
            if change.removed:
                return [("DELETED", after)]
            return [("MODIFIED" if before is not None else "ADDED", after)]
        was = before is not None and accepts(before)
        if change.removed:
            return [("DELETED", after)] if was else []
        if accepts(after):
            return [("MODIFIED" if was else "ADDED", after)]
        return [("DELETED", _at_revision(before, change.revision))] if was and before else []

    def is_of(self, kind: Kind) -> bool:
        """Whether the stream contains a kind."""
        return (self._kind.group, self._kind.plural) == (kind.group, kind.plural)

    async def _frames(self, events: list[tuple[str, Entry]]) -> list[Frame]:
        kind = self._registry.by_plural(self._kind.group, self._kind.plural) or self._kind
        raws = await self._converter.views(kind, [entry for _, entry in events], self._version)
        return [(type_, raw) for (type_, _), raw in zip(events, raws, strict=True)]

    def _bookmark(self, revision: int, *, end_of_state: bool = False) -> Frame:
        meta: Obj = {"resourceVersion": str(revision)}
        if end_of_state:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version(self._version),
            "metadata": meta,
        }
        return "BOOKMARK", orjson.dumps(body)


def _bounded(changes: list[Change]) -> list[Change]:
    """The first few changes, so that a slow watcher does not keep many alive."""
    size = 0
    for i, change in enumerate(changes):
        size += len(change.after.raw)
        if size > BATCH_BYTES and i:
            return changes[:i]
    return changes


def _at_revision(entry: Entry, revision: int) -> Entry:
    """An older state that has left the selection, at a later revision."""
    obj = entry.obj()
    obj["metadata"]["resourceVersion"] = str(revision)
    return Entry(entry.key, revision, entry.version, orjson.dumps(obj), entry.labels, entry.fields)


def _check(options: WatchOptions) -> None:
    path, match = "resourceVersionMatch", options.resource_version_match
    given = options.send_initial_events is not None
    if not given and not match and options.resource_version in ("", "0"):
        given, match = True, NOT_OLDER
    errors = []
    if given and match != NOT_OLDER:
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(forbidden(path, text))
    if match and not given:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden(path, text))
    if match not in ("", NOT_OLDER):
        errors.append(not_supported(path, match, (NOT_OLDER,)))
    if match and options.continue_token:
        errors.append(forbidden(path, NOT_CONTINUED))
    if errors:
        raise failures.invalid_named("ListOptions", "meta.k8s.io", "", errors)
