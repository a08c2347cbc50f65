"""Server-side apply, and the ownership of fields after other writes.

Both work on objects of one API version, but managers may have written through another one. Because
a conversion may need a webhook, the engines are generators: they yield `Convert` and are sent the
converted object, or None when that version no longer exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.metadata import ANNOTATIONS_LIMIT
from kueuelib.embedded.patching import fieldsets
from kueuelib.embedded.patching.fieldsets import (
    NO_FIELDS,
    FieldDifference,
    FieldSet,
    Path,
    compare,
    field,
    fields_of,
    merge,
    remove,
    with_ancestors,
)
from kueuelib.embedded.schema.node import SchemaNode, same_json
from kueuelib.errors import BadRequest, Conflict

# ---- the owners of fields: the entries of `metadata.managedFields` -------------------------------

APPLY: Final = "Apply"
UPDATE: Final = "Update"
FIELDS_V1: Final = "FieldsV1"
BEFORE_FIRST_APPLY: Final = "before-first-apply"
ANCIENT_CHANGES: Final = "ancient-changes"
MAX_UPDATE_MANAGERS: Final = 10

_META: Final = fieldsets.field("metadata")
UNOWNED: Final[tuple[fieldsets.Path, ...]] = (
    (fieldsets.field("apiVersion"),),
    (fieldsets.field("kind"),),
    *(
        (_META, fieldsets.field(name))
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)
"""The fields that have no owner."""


@attrs.frozen
class ManagerEntry:
    """The fields of one manager.

    Attributes:
        manager: its name.
        operation: `Apply` or `Update`.
        api_version: in which `fields` are named.
        fields: its fields.
        subresource: of its writes.
        time: of the last change, in RFC 3339; empty: unknown.
    """

    manager: str
    operation: str
    api_version: str
    fields: fieldsets.FieldSet
    subresource: str = ""
    time: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """One entry exists per identity; an applier has one whatever its version."""
        version = self.api_version if self.operation == UPDATE else ""
        return self.manager, self.operation, self.subresource, version

    def __str__(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            text += f" using {self.api_version}"
        return text


Entries = dict[tuple[str, str, str, str], ManagerEntry]


def entries_of(raw: Iterable[Mapping[str, Any]] | None) -> Entries:
    """The entries of raw `managedFields`; none at all if one is unreadable, as in Kubernetes."""
    entries: Entries = {}
    for each in raw or ():
        try:
            fields = fieldsets.from_fields_v1(each.get("fieldsV1") or {})
        except ValueError:
            return {}
        operation, version = each.get("operation"), each.get("apiVersion")
        if operation not in (APPLY, UPDATE) or not version or each.get("fieldsType") != FIELDS_V1:
            return {}
        entry = ManagerEntry(
            each.get("manager") or "",
            operation,
            version,
            fields,
            each.get("subresource") or "",
            each.get("time") or "",
        )
        entries[entry.identity] = entry
    return entries


def is_reset(raw: Any) -> bool:
    """Whether raw `managedFields` request to forget all owners: no entry, or one empty entry."""
    return isinstance(raw, list) and raw in ([], [{}])


def raw_entries(entries: Iterable[ManagerEntry]) -> list[Obj]:
    """The raw `managedFields`, appliers first, then by time and name."""
    ordered = sorted(
        entries, key=lambda e: (e.operation, e.time, e.manager, e.api_version, e.subresource)
    )
    return [_raw(entry) for entry in ordered]


def _raw(entry: ManagerEntry) -> Obj:
    raw: Obj = {"manager": entry.manager} if entry.manager else {}
    raw |= {
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "fieldsType": FIELDS_V1,
        "fieldsV1": fieldsets.to_fields_v1(entry.fields),
    }
    if entry.time:
        raw["time"] = entry.time
    if entry.subresource:
        raw["subresource"] = entry.subresource
    return raw


def owned(fields: fieldsets.FieldSet) -> fieldsets.FieldSet:
    """Only the fields that can be owned."""
    return fieldsets.without(fields, UNOWNED)


def capped(entries: Entries) -> Entries:
    """Merge old entries if there are too many managers."""
    updates = sorted(
        (each for each in entries.values() if each.operation == UPDATE),
        key=lambda each: (each.manager != ANCIENT_CHANGES, each.time, each.manager),
    )
    if len(updates) <= MAX_UPDATE_MANAGERS:
        return entries
    surplus = updates[: len(updates) - MAX_UPDATE_MANAGERS + 1]  # their merged entry counts too
    kept = {key: each for key, each in entries.items() if each not in surplus}
    for each in surplus:
        bucket = attrs.evolve(each, manager=ANCIENT_CHANGES)
        earlier = kept.get(bucket.identity)
        if earlier is not None:
            bucket = attrs.evolve(bucket, fields=earlier.fields | each.fields)
        kept[bucket.identity] = bucket
    return kept


def _ends_first(path: fieldsets.Path) -> tuple[tuple[bool, Any], ...]:
    """The sort key of Kubernetes: for each object, its leaves first, then nested fields."""
    last = len(path) - 1
    return tuple((i < last, element) for i, element in enumerate(path))


def apply_conflict(conflicts: Mapping[ManagerEntry, fieldsets.FieldSet]) -> Conflict:
    """The answer to an apply that would take fields from others without force."""
    pairs = [
        (str(entry), fieldsets.show(path))
        for entry, fields in sorted(conflicts.items(), key=lambda pair: str(pair[0]))
        for path in sorted(fields, key=_ends_first)
    ]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": where}
        for who, where in pairs
    ]
    if len(pairs) == 1:
        text = f"1 conflict: conflict with {pairs[0][0]}: {pairs[0][1]}"
    else:
        lines: list[str] = []
        for who in dict.fromkeys(who for who, _ in pairs):
            lines.append(f"conflicts with {who}:")
            lines += [f"- {where}" for name, where in pairs if name == who]
        text = f"{len(pairs)} conflicts: " + "\n".join(lines)
    return Conflict(f"Apply failed with {text}", details={"causes": causes})


# ---- moves from client-side to server-side apply -------------------------------------------------
# `kubectl apply` without `--server-side` stores the last applied configuration in an annotation. A
# client that then uses `--server-side` keeps its fields without conflicts, and the annotation stays
# correct for clients that switch back.

KUBECTL: Final = "kubectl"
"""The only manager to which this applies."""
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ESCAPES: Final = {
    ord(letter): f"\\u{ord(letter):04x}" for letter in ("<", ">", "&", "\u2028", "\u2029")
}


def given_up(node: SchemaNode, live: Obj | None, manager: str, version: str) -> FieldSet:
    """The fields that a manager may take from others without force.

    Those that it applied on the client's side and that have not changed since.

    Args:
        node: the schema at the version.
        live: the present state at the version.
        manager: the manager.
        version: the apiVersion of the apply.
    """
    text = _annotations(live).get(ANNOTATION)
    if manager != KUBECTL or not text:
        return NO_FIELDS
    try:
        last = json.loads(text)
    except (ValueError, RecursionError):
        return NO_FIELDS
    if not isinstance(last, dict) or last.get("apiVersion") != version:
        return NO_FIELDS
    change = compare(node, last, live)
    return fields_of(node, last) - change.modified - change.added - change.removed


def renewed(obj: Obj, config: Mapping[str, Any], manager: str) -> Obj:
    """The object with its annotation updated to this apply, if it has the annotation.

    Args:
        obj: the object after an apply; it is not changed.
        config: the applied configuration as sent.
        manager: the field manager of the apply.
    """
    annotations = _annotations(obj)
    if manager != KUBECTL or not annotations.get(ANNOTATION):
        return obj
    text = _encoded(config)
    others = {name: each for name, each in annotations.items() if name != ANNOTATION}
    size = sum(len(name.encode()) + len(each.encode()) for name, each in others.items())
    if size + len(ANNOTATION) + len(text.encode()) <= ANNOTATIONS_LIMIT:
        others[ANNOTATION] = text
    if others == annotations:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "annotations": others}}


def _encoded(config: Mapping[str, Any]) -> str:
    """The configuration in the form of a Go client, without the annotation itself."""
    meta = config.get("metadata")
    annotations = _annotations(config)
    if isinstance(meta, Mapping) and annotations:
        others = {name: each for name, each in annotations.items() if name != ANNOTATION}
        config = {**config, "metadata": {**meta, "annotations": others}}
    text = json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return text.translate(_ESCAPES) + "\n"


def _annotations(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    meta = (obj or {}).get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


# --------------------------------------------------------------------------------------------------

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

_NOTHING: Final = FieldDifference(NO_FIELDS, NO_FIELDS, NO_FIELDS)


@attrs.frozen(eq=False)
class _Views:
    """One change at every version that a manager used."""

    _nodes: Nodes
    _version: str
    _old: Obj
    _new: Obj
    _ignored: tuple[Path, ...]
    _known: dict[str, FieldDifference | None] = attrs.field(init=False, factory=dict)

    def difference(self, api_version: str) -> Steps[FieldDifference | None]:
        """The change at a version; None when the version no longer exists."""
        if api_version not in self._known:
            self._known[api_version] = yield from self._compared(api_version)
        return self._known[api_version]

    def _compared(self, api_version: str) -> Steps[FieldDifference | None]:
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
