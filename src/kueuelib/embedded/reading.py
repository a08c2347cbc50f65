"""get and list."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import forbidden, not_supported
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.selection import Selection, select
from kueuelib.embedded.storage import Compacted, Entry, Storage, Table
from kueuelib.embedded.verbs import ListOptions
from kueuelib.errors import BadRequest

_ENCODED = "meta.k8s.io/v1"
NOT_OLDER = "NotOlderThan"
MATCHES = ("", "Exact", NOT_OLDER)
NOT_CONTINUED = "resourceVersionMatch is forbidden when continue is provided"
UNLESS_VERSION = "resourceVersionMatch is forbidden unless resourceVersion is provided"


@attrs.frozen
class Page:
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

    def entry(self, kind: Kind, key: ObjectKey) -> Entry:
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

    def entries(self, kind: Kind, selection: Selection) -> list[Entry]:
        """The present states of the selected objects."""
        return list(_selected(self._storage.table(kind.table), selection))

    async def list(self, kind: Kind, version: str, namespace: str, options: ListOptions) -> Page:
        """One page of objects."""
        selection = select(kind, namespace, options, lambda: _check_match(options))
        table = self._storage.table(kind.table)
        revision, start = self._point(options)
        current = self._storage.revision
        if revision > current:
            raise failures.future_version(revision, current)
        revision = current if revision < 0 else revision
        whole = options.resource_version == "0" and not options.continue_token  # as from a cache
        selected: Iterable[Entry] = (
            _selected(table, selection, start)
            if revision == current
            else _past(table, selection, revision, start, continued=bool(options.continue_token))
        )
        entries: list[Entry] = []
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
            return Page(items, keys, revision)
        return Page(
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
    table: Table, selection: Selection, after: ObjectKey | None = None
) -> Iterator[Entry]:
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
    table: Table, selection: Selection, revision: int, after: ObjectKey | None, *, continued: bool
) -> Iterator[Entry]:
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
