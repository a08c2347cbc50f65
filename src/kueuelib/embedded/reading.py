"""get, list and watch."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Self

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import forbidden, not_supported
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.registry.kinds import Kind, Registry
from kueuelib.embedded.storage import Compacted, KindTable, Storage, StorageEvent, StoredState
from kueuelib.embedded.verbs import ListOptions, WatchOptions
from kueuelib.errors import ApiError, BadRequest, InvalidSelector
from kueuelib.machinery.reflector_protocol import WatchEvent
from kueuelib.machinery.selectors import (
    FieldSelector,
    Selector,
    parse_field_selector,
    parse_label_selector,
)

# ---- selects the objects of a request by namespace, label selector and field selector ------------

NAME = "metadata.name"
NAMESPACE = "metadata.namespace"
Selectors = ListOptions | WatchOptions


@attrs.frozen
class CompiledSelectors:
    """Compiled selectors.

    Attributes:
        namespace: empty for all namespaces.
        name: the only possible name, or empty.
        accepts: whether an entry matches; None if every entry of the namespace does.
    """

    namespace: str
    name: str
    accepts: Callable[[StoredState], bool] | None

    @property
    def key(self) -> ObjectKey | None:
        """The only possible object, or None."""
        return ObjectKey(self.namespace, self.name) if self.name else None


def select(
    kind: Kind, namespace: str, options: Selectors, check: Callable[[], None] = lambda: None
) -> CompiledSelectors:
    """Compiles the selectors of a request.

    Args:
        kind: of the objects.
        namespace: empty for all.
        options: with the selectors.
        check: validates the rest of the request once both selectors have been parsed.

    Raises:
        BadRequest: a selector cannot be parsed, or uses a field that the kind does not support.
    """
    try:
        labels = parse_label_selector(options.label_selector)
        fields = parse_field_selector(options.field_selector)
    except InvalidSelector as error:
        raise BadRequest(str(error)) from error
    check()
    for path in fields.paths:
        usual = (NAME,) if kind.field_names and not kind.namespaced else (NAME, NAMESPACE)
        if path not in usual and path not in kind.field_names:
            text = f"field label not supported: {path}"
            if kind.kind == "Job":
                text = f'field label "{path}" not supported for Job'
            if kind.builtin and not kind.field_names:
                text = f'"{path}" is not a known field selector: only "{NAME}", "{NAMESPACE}"'
            raise BadRequest(text)
    if kind.twin is not None:
        renamed = (
            attrs.evolve(each, path=kind.twin.field(each.path)) for each in fields.requirements
        )
        fields = FieldSelector(tuple(renamed))
    exact = fields.exact(NAME) or ""
    space = fields.exact(NAMESPACE) or ""
    name = exact if exact and (namespace or not kind.namespaced) else ""
    if not namespace and not labels.requirements and len(fields.requirements) == 0:
        return CompiledSelectors("", "", None)
    return CompiledSelectors(
        namespace or (space if kind.namespaced else ""), name, _acceptor(namespace, labels, fields)
    )


def _acceptor(
    namespace: str, labels: Selector, fields: FieldSelector
) -> Callable[[StoredState], bool] | None:
    by_labels = bool(labels.requirements)
    by_fields = bool(fields.requirements)
    exact = fields.exact(NAME)
    if not by_labels and not by_fields:
        return lambda entry: entry.key.namespace == namespace

    def accepts(entry: StoredState) -> bool:
        key = entry.key
        if namespace and key.namespace != namespace:
            return False
        if exact is not None and key.name != exact:
            return False
        if by_labels and not labels.matches(entry.labels):
            return False
        if not by_fields:
            return True
        return fields.matches({**entry.fields, NAME: key.name, NAMESPACE: key.namespace})

    return accepts


# --------------------------------------------------------------------------------------------------

_ENCODED = "meta.k8s.io/v1"
NOT_OLDER = "NotOlderThan"
MATCHES = ("", "Exact", NOT_OLDER)
NOT_CONTINUED = "resourceVersionMatch is forbidden when continue is provided"
UNLESS_VERSION = "resourceVersionMatch is forbidden unless resourceVersion is provided"


@attrs.frozen
class ListPage:
    """One page of a list, as JSON bytes of the requested version.

    Attributes:
        items: in the order of their keys.
        keys: of the items.
        revision: the resource version of the list.
        continue_token: for the next page; empty on the last one.
        remaining: how many more there are; None when not known.
    """

    items: list[bytes]
    keys: list[ObjectKey]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    @property
    def meta(self) -> Obj:
        """The metadata of the list."""
        parts = (("continue", self.continue_token), ("remainingItemCount", self.remaining))
        return {"resourceVersion": str(self.revision), **{key: part for key, part in parts if part}}


@attrs.frozen(eq=False)
class Reads:
    """Reads from the storage at any version."""

    _storage: Storage
    _converter: Converter

    def entry(self, kind: Kind, key: ObjectKey) -> StoredState:
        """The present state.

        Raises:
            NotFound: there is none.
        """
        entry = self._storage.table(kind.table).get(key)
        if entry is None:
            raise failures.not_found(kind, key.name)
        return entry

    async def get(self, kind: Kind, version: str, key: ObjectKey) -> bytes:
        """An object as JSON."""
        return await self._converter.view(kind, self.entry(kind, key), version)

    def entries(self, kind: Kind, selection: CompiledSelectors) -> list[StoredState]:
        """The present states of the selected objects."""
        return list(_selected(self._storage.table(kind.table), selection))

    async def list(
        self, kind: Kind, version: str, namespace: str, options: ListOptions
    ) -> ListPage:
        """One page of objects."""
        selection = select(kind, namespace, options, lambda: _check_match(options))
        table = self._storage.table(kind.table)
        revision, start = self._point(options)
        current = self._storage.revision
        if revision > current:
            raise failures.future_version(revision, current)
        revision = current if revision < 0 else revision
        whole = options.resource_version == "0" and not options.continue_token  # as from a cache
        selected: Iterable[StoredState] = (
            _selected(table, selection, start)
            if revision == current
            else _past(table, selection, revision, start, continued=bool(options.continue_token))
        )
        entries: list[StoredState] = []
        more = 0
        countable = selection.accepts is None or not (
            options.label_selector or options.field_selector
        )
        for entry in selected:
            if whole or not options.limit or len(entries) < options.limit:
                entries.append(entry)
                continue
            more += 1
            if not countable:
                break
        items = await self._converter.views(kind, entries, version)
        keys = [entry.key for entry in entries]
        if not more:
            return ListPage(items, keys, revision)
        return ListPage(
            items, keys, revision, _encode_token(revision, keys[-1]), more * countable or None
        )

    def _point(self, options: ListOptions) -> tuple[int, ObjectKey | None]:
        """The revision that the list shows, and the key after which it continues."""
        match = options.resource_version_match
        asked = options.resource_version
        current = self._storage.revision
        if options.continue_token:
            point = _decode_token(options.continue_token)
            if asked and asked != "0":
                raise BadRequest("specifying resource version is not allowed when using continue")
            return point
        revision = parse_revision(asked)
        if revision > current:
            raise failures.future_version(revision, current)
        if match == "Exact" or (revision and options.limit and not match):
            return revision, None
        return current, None


def parse_revision(text: str) -> int:
    """A resource version in a URL; empty is 0.

    Raises:
        BadRequest: it is not a number.
    """
    if not text:
        return 0
    number = text.isascii() and text.isdigit()
    if not number or len(text) > 19:
        why = "value out of range" if number else "invalid syntax"
        raise BadRequest(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": {why}'
        )
    return int(text)


def _check_match(options: ListOptions) -> None:
    """Check the resource version parameters, before anything else.

    Raises:
        Invalid: the parameters contradict each other.
    """
    match, asked = options.resource_version_match, options.resource_version
    path = "resourceVersionMatch"
    errors = []
    if match and not asked:
        errors.append(forbidden(path, UNLESS_VERSION))
    if match and options.continue_token:
        errors.append(forbidden(path, NOT_CONTINUED))
    if match not in MATCHES:
        errors.append(not_supported(path, match, (*MATCHES[1:], ""), ordered=True))
    if match == "Exact" and asked == "0":
        text = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        errors.append(forbidden(path, text))
    if errors:
        raise failures.invalid_named("ListOptions", "meta.k8s.io", "", errors)


def _selected(
    table: KindTable, selection: CompiledSelectors, after: ObjectKey | None = None
) -> Iterator[StoredState]:
    accepts = selection.accepts
    if selection.key is not None and after is None:
        entry = table.get(selection.key)
        if entry is not None and (accepts is None or accepts(entry)):
            yield entry
        return
    for entry in table.entries(selection.namespace, after):
        if accepts is None or accepts(entry):
            yield entry


def _past(
    table: KindTable,
    selection: CompiledSelectors,
    revision: int,
    after: ObjectKey | None,
    *,
    continued: bool,
) -> Iterator[StoredState]:
    """The result of `_selected` at an earlier revision."""
    try:
        changed = dict(table.as_of(revision))
    except Compacted as error:
        if continued:
            raise failures.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            ) from error
        raise failures.expired(
            f"The resourceVersion for the provided list is too old: {revision} ({error.oldest})"
        ) from error
    present = {entry.key: entry for entry in table.entries()}
    present.update({key: entry for key, entry in changed.items() if entry is not None})
    for key, entry in changed.items():
        if entry is None:
            present.pop(key, None)
    accepts = selection.accepts
    for key in sorted(present):
        if after is not None and key <= after:
            continue
        entry = present[key]
        if entry is not None and (accepts is None or accepts(entry)):
            yield entry


def _encode_token(revision: int, last: ObjectKey) -> str:
    body = orjson.dumps({"v": _ENCODED, "rv": revision, "start": list(last)})
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def _decode_token(text: str) -> tuple[int, ObjectKey]:
    why = "illegal base64 data at input byte 0"
    with suppress(ValueError, AttributeError):
        body = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        version, revision, start = body.get("v", ""), body.get("rv", 0), body.get("start")
        if version != _ENCODED:
            why = f"server does not recognize this encoded version {version}"
        elif type(revision) is not int or not revision or abs(revision) >= 2**63:
            why = f"incorrect encoded start resourceVersion (version {_ENCODED})"
        elif isinstance(start, list) and [type(each) for each in start] == [str, str]:
            return revision, ObjectKey(*start)
        else:
            why = f"encoded start key empty (version {_ENCODED})"
    raise BadRequest(f"invalid continue token: continue key is not valid: {why}")


# ---- watch: the log of a table as a stream of events for one selection ---------------------------
# A watcher pulls. It keeps a position in the log and the next batch, whose bytes all watchers
# share. One that falls behind the log's window gets a 410 and ends.

Frame = tuple[str, bytes]
"""The type of an event and its object as JSON."""

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT = 1800.0
BATCH = 256
BATCH_BYTES = 128 * 1024
INITIAL_BATCH = 100


@attrs.define(eq=False, slots=False)
class WatchFrames:
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

    def _translate(self, change: StorageEvent) -> list[tuple[str, StoredState]]:
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

    async def _frames(self, events: list[tuple[str, StoredState]]) -> list[Frame]:
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


def _bounded(changes: list[StorageEvent]) -> list[StorageEvent]:
    """The first few changes, so that a slow watcher does not keep many alive."""
    size = 0
    for i, change in enumerate(changes):
        size += len(change.after.raw)
        if size > BATCH_BYTES and i:
            return changes[:i]
    return changes


def _at_revision(entry: StoredState, revision: int) -> StoredState:
    """An older state that has left the selection, at a later revision."""
    obj = entry.obj()
    obj["metadata"]["resourceVersion"] = str(revision)
    return StoredState(
        entry.key, revision, entry.version, orjson.dumps(obj), entry.labels, entry.fields
    )


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
