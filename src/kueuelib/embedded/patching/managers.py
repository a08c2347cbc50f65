"""The owners of fields: the entries of `metadata.managedFields`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.patching import fieldsets
from kueuelib.errors import Conflict

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
