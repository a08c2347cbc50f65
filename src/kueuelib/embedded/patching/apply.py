"""Server-side apply, and the ownership of fields after other writes.

Both work on objects of one API version, but managers may have written through another one. Because
a conversion may need a webhook, the engines are generators: they yield `Convert` and are sent the
converted object, or None when that version no longer exists.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.patching.compare import Difference, compare, merge
from kueuelib.embedded.patching.fieldsets import (
    NO_FIELDS,
    FieldSet,
    Path,
    field,
    fields_of,
    remove,
    with_ancestors,
)
from kueuelib.embedded.patching.last_applied import given_up
from kueuelib.embedded.patching.managers import (
    APPLY,
    BEFORE_FIRST_APPLY,
    UNOWNED,
    UPDATE,
    Entries,
    ManagerEntry,
    apply_conflict,
    capped,
    entries_of,
    is_reset,
    owned,
    raw_entries,
)
from kueuelib.embedded.schema.equality import same_json
from kueuelib.embedded.schema.node import SchemaNode
from kueuelib.errors import BadRequest

R = TypeVar("R")


@attrs.frozen
class Convert:
    """Requests an object at a version."""

    obj: Obj
    api_version: str


Steps = Generator[Convert, "Obj | None", R]
Nodes = Callable[[str], SchemaNode]
"""Returns the schema of a kind at an `apiVersion`: `builtin_node` or `custom_node`."""


@attrs.frozen
class FieldWrite:
    """A write by a field manager.

    Attributes:
        manager: the field manager.
        time: RFC 3339.
        subresource: of the write; empty: the object itself.
        has_status: whether `status` is a subresource, so that writes of the object do not own it.
        kept: fields that writes of the status do not change.
    """

    manager: str
    time: str
    subresource: str = ""
    has_status: bool = False
    kept: tuple[tuple[str, ...], ...] = (("spec",), ("metadata",))

    @property
    def ignored(self) -> tuple[Path, ...]:
        """Fields that the write never changes."""
        if self.subresource == "status":
            return tuple(tuple(map(field, path)) for path in self.kept)
        return ((field("status"),),) if self.has_status else ()


_STATUS_KEEPS: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_NEVER_REMOVED: Final = frozenset({*UNOWNED, (field("metadata"),)})


# ---- writes that are not apply ------------------------------------------------------------------


def track_steps(
    nodes: Nodes, old: Obj | None, new: Obj, write: FieldWrite, zero: Obj | None = None
) -> Steps[list[Obj]]:
    """The `managedFields` after a create, an update or a patch that is not apply.

    Args:
        nodes: the schema by apiVersion.
        old: the state before, None for a create.
        new: the state after, at the same version; its own `managedFields`, if they are readable,
            replace those of `old`, unless it is written through a subresource.
        write: the write.
        zero: the initial object of a create.

    Returns:
        empty if the owners are not known or should be dropped; the first apply then assigns an
        owner to earlier fields.
    """
    entries = _known_entries(old, new, write)
    if not entries and old is not None:
        return []
    before, after = _bare(old or zero or {"metadata": {}}), _bare(new)
    version = new["apiVersion"]
    mine = ManagerEntry(write.manager, UPDATE, version, NO_FIELDS, write.subresource, write.time)
    views = _Views(nodes, version, before, after, write.ignored)
    entries, _ = yield from _settle(views, entries, mine.identity)
    change = (yield from views.difference(version)) or _NOTHING
    known = entries.get(mine.identity, mine)
    fields = owned((known.fields - change.removed) | change.written)
    if fields != known.fields or change != _NOTHING:
        entries[mine.identity] = attrs.evolve(mine, fields=fields)
    if not fields:
        entries.pop(mine.identity, None)
    return raw_entries(capped(entries).values())


def _known_entries(old: Obj | None, new: Obj, write: FieldWrite) -> Entries:
    """The owners before the write: from the request, or else the stored ones."""
    before = (old or {}).get("metadata", {}).get("managedFields")
    given = new.get("metadata", {}).get("managedFields")
    if write.subresource or given is None or given is before:
        return entries_of(before)
    return {} if is_reset(given) else entries_of(given) or entries_of(before)


# ---- apply --------------------------------------------------------------------------------------


def apply_steps(
    nodes: Nodes,
    live: Obj | None,
    config: Obj,
    write: FieldWrite,
    *,
    zero: Obj | None = None,
    force: bool = False,
) -> Steps[Obj]:
    """The object after an apply, with its `managedFields`.

    Fields that the manager applied before and no longer mentions are removed, unless others own
    them too.

    Args:
        nodes: the schema by apiVersion.
        live: the state before at the version of `config`; None creates the object.
        config: the applied fields, with apiVersion, kind, name and namespace.
        write: the apply.
        zero: an empty object.
        force: take fields from other managers.

    Returns:
        a new object; `live` itself if nothing changes.

    Raises:
        Conflict: others own fields that would change, and `force` is off.
        BadRequest: the configuration has `managedFields`.
        Ambiguous: a list has duplicate items.
    """
    version = config["apiVersion"]
    node = nodes(version)
    if config.get("metadata", {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    whole = merge(node, {}, _bare(config))
    config = _within(node, whole, write)
    before = _bare(live or {})
    entries = entries_of((live or {}).get("metadata", {}).get("managedFields"))
    if live is not None and not entries:
        earlier = compare(node, zero or {"metadata": {}}, before).without(write.ignored).written
        first = ManagerEntry(BEFORE_FIRST_APPLY, UPDATE, version, owned(earlier), "", write.time)
        entries |= {first.identity: first} if first.fields else {}
    merged = merge(node, before, config) if live is not None else whole
    applied = fields_of(node, config)
    mine = ManagerEntry(write.manager, APPLY, version, applied, write.subresource, write.time)
    last = entries.get(mine.identity)
    entries[mine.identity] = mine
    after = merged
    if last is not None and last.fields:
        after = yield from _pruned(nodes, merged, version, entries, last)
        if after is not merged:
            after = merge(node, after, config)  # maps and lists that are applied empty stay
    views = _Views(nodes, version, before, after, write.ignored)
    entries, conflicts = yield from _settle(views, entries, mine.identity)
    if conflicts and not force:
        taken = given_up(node, live, write.manager, version)
        left = {entry: lost - taken for entry, lost in conflicts.items()}
        if any(left.values()):
            raise apply_conflict({entry: lost for entry, lost in left.items() if lost})
    fields = owned(applied)
    changed = not same_json(before, after)
    if live is not None and not changed:
        mine = attrs.evolve(mine, time=last.time if last else "")
    entries[mine.identity] = attrs.evolve(mine, fields=fields)
    if not fields:
        del entries[mine.identity]
    raw = raw_entries(capped(entries).values())
    if live is not None and not changed and raw == live["metadata"].get("managedFields", []):
        return live
    meta = {**after.get("metadata", {}), "managedFields": raw}
    if not raw:
        del meta["managedFields"]
    return {**after, "metadata": meta}


def _within(node: SchemaNode, config: Obj, write: FieldWrite) -> Obj:
    """The part of a configuration that the write may change."""
    part: Obj = remove(node, config, frozenset(write.ignored))
    if write.subresource == "status":
        meta = config.get("metadata", {})
        names = {name: meta[name] for name in ("name", "namespace") if name in meta}
        part = {name: value for name, value in part.items() if name in _STATUS_KEEPS}
        part["metadata"] = {**part.get("metadata", {}), **names}
    return part


def _pruned(
    nodes: Nodes, merged: Obj, version: str, entries: Entries, last: ManagerEntry
) -> Steps[Obj]:
    """The merged object, without fields that the manager owned before and that have no owner
    now.
    """
    if all(each.api_version == version for each in (last, *entries.values())) and (
        last.fields <= entries[last.identity].fields
    ):
        return merged  # it applies everything again, which is in the merged object
    node = nodes(last.api_version)
    start = yield from _converted(merged, version, last.api_version)
    if start is None:
        return merged
    dropped = with_ancestors(last.fields) - _NEVER_REMOVED
    pruned, at = remove(node, start, dropped), last.api_version
    for each in sorted({entry.api_version for entry in entries.values()}):
        whole = yield from _converted(merged, version, each)
        part = yield from _converted(pruned, at, each)
        if whole is None or part is None:
            continue
        kept = _owned_at(entries, each)
        gone = _lost(nodes(each), whole, part) - with_ancestors(kept) - _NEVER_REMOVED
        pruned, at = remove(nodes(each), whole, gone, kept), each
    part = yield from _converted(pruned, at, last.api_version)
    if part is None:
        return merged
    gone = _lost(node, start, part) & dropped
    kept = _owned_at(entries, last.api_version)
    answer = yield from _converted(remove(node, start, gone, kept), last.api_version, version)
    return merged if answer is None else answer


def _owned_at(entries: Entries, api_version: str) -> FieldSet:
    return NO_FIELDS.union(
        *(entry.fields for entry in entries.values() if entry.api_version == api_version)
    )


def _lost(node: SchemaNode, whole: Obj, part: Obj) -> FieldSet:
    return with_ancestors(fields_of(node, whole)) - with_ancestors(fields_of(node, part))


# ---- both ---------------------------------------------------------------------------------------

_NOTHING: Final = Difference(NO_FIELDS, NO_FIELDS, NO_FIELDS)


@attrs.frozen(eq=False)
class _Views:
    """One change at every version that a manager used."""

    _nodes: Nodes
    _version: str
    _old: Obj
    _new: Obj
    _ignored: tuple[Path, ...]
    _known: dict[str, Difference | None] = attrs.field(init=False, factory=dict)

    def difference(self, api_version: str) -> Steps[Difference | None]:
        """The change at a version; None when the version no longer exists."""
        if api_version not in self._known:
            self._known[api_version] = yield from self._compared(api_version)
        return self._known[api_version]

    def _compared(self, api_version: str) -> Steps[Difference | None]:
        old: Obj | None = self._old
        if self._old.get("apiVersion"):
            old = yield from _converted(self._old, self._version, api_version)
        new = yield from _converted(self._new, self._version, api_version)
        if old is None or new is None:
            return None
        return compare(self._nodes(api_version), old, new).without(self._ignored)


def _settle(
    views: _Views, entries: Entries, writer: tuple[str, str, str, str]
) -> Steps[tuple[Entries, dict[ManagerEntry, FieldSet]]]:
    """The fields that others own after the change, and those that they lose to the writer."""
    left: Entries = {}
    conflicts: dict[ManagerEntry, FieldSet] = {}
    for identity, entry in entries.items():
        if identity == writer:
            left[identity] = entry
            continue
        change = yield from views.difference(entry.api_version)
        if change is None:
            continue
        lost = entry.fields & change.written
        if lost:
            conflicts[entry] = lost
        fields = entry.fields - lost - change.removed
        if len(fields) == len(entry.fields) > 0:
            left[identity] = entry
        elif fields:
            left[identity] = attrs.evolve(entry, fields=fields)
    return left, conflicts


def _converted(obj: Obj, version: str, wanted: str) -> Steps[Obj | None]:
    if version == wanted:
        return obj
    return (yield Convert(obj, wanted))


def _bare(obj: Obj) -> Obj:
    meta: dict[str, Any] = obj.get("metadata") or {}
    if "managedFields" not in meta:
        return obj
    return {
        **obj,
        "metadata": {name: value for name, value in meta.items() if name != "managedFields"},
    }
