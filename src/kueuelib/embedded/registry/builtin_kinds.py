"""The built-in kinds, from `kinds.txt` next to this module, whose head explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import KindRules
from kueuelib.embedded.registry.columns import COLUMNS
from kueuelib.embedded.registry.events import event_twin
from kueuelib.embedded.registry.kind import ALL_VERBS, Kind, Version
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.machinery.fields import field_of

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
    version = Version(
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
