"""The built-in kinds, from `kinds.txt` next to this module, whose head explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.builtins.fields import invalid
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.registry.cells import COLUMNS
from kueuelib.embedded.registry.kinds import ALL_VERBS, Kind, KindVersion, PrinterColumn, Twin
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.errors import FieldError
from kueuelib.machinery.selectors import field_of

# ---- the version of Kubernetes that server, documents and nodes report ---------------------------

MAJOR: Final = "1"
MINOR: Final = "33"
RELEASE: Final = f"v{MAJOR}.{MINOR}.0"
VERSION: Final = f"{RELEASE}+kueuelib"
"""The version, with a suffix by which clients can recognize this server."""

# --------------------------------------------------------------------------------------------------

# `events.k8s.io/v1`: the same stored events as those of the core group, with other field names.

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


def _kind_rules(at: ValuePlace, _: str) -> BrokenRules:
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
        return check("NewEvent", obj, "", note=_note, kind=_kind_rules, unset=_unset)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Changes are not checked."""
        del obj, old, subresource
        return ()


def event_twin(core: Kind) -> Kind:
    """The kind of events in this group, as a twin of the core group's."""
    version = core.versions["v1"]

    def column(given: PrinterColumn) -> PrinterColumn:
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


# --------------------------------------------------------------------------------------------------

Rules = Mapping[tuple[str, str], KindRules]

_ALWAYS_SAID: Final = {"spec.hostNetwork": "false", "spec.unschedulable": "false"}
_SUBRESOURCES: Final = {"Namespace": ("finalize",), "Pod": ("ephemeralcontainers", "resize")}
_DEPRECATIONS: Final = {
    "Endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
}
_REPLICAS: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}
_NOT_SERVED: Final = (("Namespace", "deletecollection"),)
_KEPT: Final = {"Deployment": ("labels",), "Pod": ("ownerReferences",)}
"""Metadata that a write of the status does not change."""
_PROPAGATION: Final = (("orphans", "Orphan"), ("alone", ""))
_CATEGORIES: Final = {"all": "all", "extension": "api-extensions"}


def builtin_kinds(rules: Rules) -> list[Kind]:
    """Every built-in kind, with the given rules by group and kind."""
    kinds: list[Kind] = []
    group, shared = "", list[str]()
    text = files("kueuelib.embedded.registry").joinpath("kinds.txt").read_text("ascii")
    for row in text.splitlines():
        if row.startswith(" "):
            kinds.append(_kind(group, [*row.split(), *shared], rules))
        elif not row.startswith("#"):
            group, *shared = row.removeprefix("core").split(" ")
    event = next(kind for kind in kinds if kind.kind == "Event")
    return [*kinds, event_twin(event)]


def _kind(group: str, row: list[str], rules: Rules) -> Kind:
    name, plural, short, *traits = row
    version = KindVersion(
        "v1",
        schema=TypedSchema.of(group, name),
        columns=COLUMNS.get(name),
        status="status" in traits,
        scale=_REPLICAS if "scale" in traits else None,
        deprecation=_DEPRECATIONS.get(name, ""),
    )
    paths = next((tuple(each[3:].split(",")) for each in traits if each.startswith("by:")), ())
    return Kind(
        group=group,
        kind=name,
        plural=plural,
        singular=name.lower(),
        namespaced="cluster" not in traits,
        versions={"v1": version},
        storage="v1",
        list_kind=f"{name}List",
        short_names=() if short == "-" else tuple(short.split(",")),
        categories=tuple(_CATEGORIES[each] for each in traits if each in _CATEGORIES),
        rules=rules.get((group, name)) or KindRules(),
        fields=_describe(name, paths) if paths else lambda _: {},
        field_names=frozenset(paths),
        generation="generation" in traits,
        propagation=next((way for trait, way in _PROPAGATION if trait in traits), None),
        subresources=frozenset(_SUBRESOURCES.get(name, ())),
        kept=(("spec",), *(("metadata", each) for each in _KEPT.get(name, ()))),
        unconditional="conditional" not in traits,
        upserts="upserts" in traits,
        returned="returned" in traits,
        loose="loose" in traits,
        uncompared="uncompared" in traits,
        whole="whole" in traits,
        verbs=tuple(each for each in ALL_VERBS if (name, each) not in _NOT_SERVED),
    )


def _describe(kind: str, paths: tuple[str, ...]) -> Callable[[Obj], Mapping[str, str]]:
    def describe(obj: Obj) -> Mapping[str, str]:
        fields = {path: field_of(obj, path) or _ALWAYS_SAID.get(path, "") for path in paths}
        if kind == "Event":
            source = field_of(obj, "source.component") or field_of(obj, "reportingComponent")
            fields["source"] = source
        elif kind == "Job":
            fields["status.successful"] = field_of(obj, "status.succeeded") or "0"
        return {path: value for path, value in fields.items() if value}

    return describe
