"""The rules for PersistentVolumes, their claims, and the claim templates of StatefulSets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins.fields import (
    forbidden,
    immutable,
    invalid,
    listed,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.schema.written import difference, internal
from kueuelib.errors import FieldError

_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)


def with_claims(pod: Mapping[str, Any], claims: Mapping[str, str]) -> list[Obj]:
    """The volumes of a pod of a StatefulSet: those of its claims replace others of the same name.

    Args:
        pod: the spec of its template.
        claims: the names of claims, by volume.
    """
    own = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for volume, claim in claims.items()
    ]
    return own + [each for each in listed(pod, "volumes") if each.get("name") not in claims]


def check_volume(obj: Obj) -> list[FieldError]:
    """The broken rules of a volume or a claim."""
    own = {"volume_source": _source, "storage": _storage, "claimed": claimed}
    return check(obj["kind"], obj["spec"], "spec", **own)


def _storage(at: ValuePlace, _: str) -> BrokenRules:
    fits = at.value and set(at.value) == {"storage"}
    errors = [] if fits else [not_supported(at.path, at.value, ("storage",))]
    sizes = (at.value or {}).items()
    return [*errors, *(each for key, size in sizes for each in _sized(f"{at.path}[{key}]", size))]


def _source(at: ValuePlace, _: str) -> BrokenRules:
    given = internal("PersistentVolumeSource", at.value).values()
    text = "must specify a volume type"
    return [required(at.path, text)] if all(each is None for each in given) else []


def claimed(at: ValuePlace, _: str) -> BrokenRules:
    """Check the requested size of a claim."""
    asked, path = section(at.value, "resources", "requests"), f"{at.path}.resources[storage]"
    return _sized(path, asked["storage"]) if "storage" in asked else [required(path)]


def _sized(path: str, size: Any) -> list[FieldError]:
    fits = Quantity.parse(size) > Quantity.parse(0)
    return [] if fits else [invalid(path, size, "must be greater than zero")]


def check_changed_volume(obj: Obj, old: Obj) -> list[FieldError]:
    """The broken rules of a change of a volume or a claim."""
    spec, before = obj["spec"], section(old, "spec")
    if obj["kind"] == "PersistentVolume":
        change = difference("PersistentVolumeSource", before, spec)
        text = f"spec.persistentvolumesource is immutable after creation\n{change}"
        errors = [forbidden("spec.persistentvolumesource", text)] if change else []
    else:
        named = {**before, "volumeName": before.get("volumeName") or spec.get("volumeName")}
        change = difference("PersistentVolumeClaimSpec", named, spec)
        text = f"{_CLAIM_TEXT}\n{change}"
        errors = [forbidden("spec", text)] if change else []
        sizes = [
            section(each, "resources", "requests").get("storage", 0) for each in (spec, before)
        ]
        now, then = map(Quantity.parse, sizes)
        has = Quantity.parse(section(old, "status", "capacity").get("storage", 0))
        if now < then and now <= has:
            text = "field can not be less than status.capacity"
            errors.append(forbidden("spec.resources.requests.storage", text))
    return errors + immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
