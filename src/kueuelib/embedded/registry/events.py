"""`events.k8s.io/v1`: the same stored events as those of the core group, with other field names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.builtins.fields import invalid
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.registry.kind import Column, Kind, Twin
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.errors import FieldError

GROUP: Final = "events.k8s.io"
NOTE_LIMIT: Final = 1024
TYPES: Final = ("Normal", "Warning")
_RENAMED: Final[Mapping[str, str]] = {
    "reportingController": "reportingComponent",
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK: Final = {old: new for new, old in _RENAMED.items()}


def _renamed(obj: Obj, api_version: str, names: Mapping[str, str]) -> Obj:
    renamed: Obj = {"apiVersion": api_version, "kind": "Event", "metadata": obj["metadata"]}
    for key, value in obj.items():
        if key not in renamed:
            renamed[names.get(key, key)] = value
    return renamed


def to_core(obj: Obj) -> Obj:
    """An event of this group in its stored form."""
    return _renamed(obj, "v1", _RENAMED)


def from_core(obj: Obj) -> Obj:
    """A stored event in the form of this group."""
    return _renamed(obj, f"{GROUP}/v1", _BACK)


def _field(path: str) -> str:
    head, dot, tail = path.partition(".")
    return f"{_RENAMED.get(head, head)}{dot}{tail}"


def _note(at: ValuePlace, _: str) -> BrokenRules:
    text = f"can have at most {NOTE_LIMIT} characters"
    return [invalid("message", "", text)] if len(at.value.encode()) > NOTE_LIMIT else []


def _kind(at: ValuePlace, _: str) -> BrokenRules:
    text = f"has invalid value: {at.value or ''}"
    return [] if at.value in TYPES else [invalid("type", "", text)]


def _unset(at: ValuePlace, _: str) -> BrokenRules:
    return [invalid(_RENAMED[at.path], "", "needs to be unset")]


class NewEventRules(KindRules):
    """The strategy of events that are created in this group; stricter than that of the core
    group.
    """

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check reporter, subject, reason and time."""
        return check("NewEvent", obj, "", note=_note, kind=_kind, unset=_unset)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Changes are not checked."""
        del obj, old, subresource
        return ()


def event_twin(core: Kind) -> Kind:
    """The kind of events in this group, as a twin of the core group's."""
    version = core.versions["v1"]

    def column(given: Column) -> Column:
        def read(obj: Obj, now: float) -> Any:
            return given.read(to_core(obj), now)

        return attrs.evolve(given, read=read)

    served = attrs.evolve(
        version,
        schema=TypedSchema.of(GROUP, "Event"),
        columns=tuple(column(each) for each in version.columns or ()),
    )
    return attrs.evolve(
        core,
        group=GROUP,
        versions={"v1": served},
        rules=NewEventRules(),
        field_names=frozenset(
            f"{_BACK.get(head, head)}{dot}{tail}"
            for head, dot, tail in (name.partition(".") for name in core.field_names)
            if head != "source"
        ),
        twin=Twin(core.table, "v1", to_core, from_core, _field),
    )
