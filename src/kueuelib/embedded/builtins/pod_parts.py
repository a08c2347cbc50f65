"""Subresources that change a part of a pod: `ephemeralcontainers` and `resize`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import duplicate, forbidden, invalid
from kueuelib.embedded.builtins.pod_spec import validate_pod_spec
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.builtins.resources import qos_class
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.schema.written import set_defaults
from kueuelib.errors import FieldError

EPHEMERAL = "ephemeralcontainers"
RESIZE = "resize"
PARTS = (EPHEMERAL, RESIZE)
_NOT_EPHEMERAL = ("lifecycle", "livenessProbe", "ports", "readinessProbe", "startupProbe")


def keep_to_part(new: Obj, old: Obj, subresource: str) -> None:
    """Keeps everything of the old pod except the part of the subresource."""
    rest: Obj = copy_json(old)
    if "managedFields" in new["metadata"]:
        rest["metadata"]["managedFields"] = new["metadata"]["managedFields"]
    if "resourceVersion" in new["metadata"]:
        rest["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"]
    spec, wanted = rest["spec"], section(new, "spec")
    if subresource == EPHEMERAL:
        spec.pop("ephemeralContainers", None)
        if listed(wanted, "ephemeralContainers"):
            spec["ephemeralContainers"] = wanted["ephemeralContainers"]
            set_defaults("core.Pod", rest)
    else:
        for key in ("containers", "initContainers"):
            resources = {each.get("name"): each.get("resources") for each in listed(wanted, key)}
            for container in listed(spec, key):
                if resources.get(container["name"]) is not None:
                    container["resources"] = resources[container["name"]]
    new.clear()
    new.update(rest)


def validate_part(new: Obj, old: Obj, subresource: str) -> list[FieldError]:
    """The broken rules of a change through one of the subresources."""
    spec, before = section(new, "spec"), section(old, "spec")
    if subresource == EPHEMERAL:
        return _validate_ephemeral(spec, before)
    if spec == before:
        return []
    errors = validate_pod_spec(spec, "spec")
    was = section(old, "status").get("qosClass") or qos_class(before)
    if not errors and qos_class(spec) != was:
        text = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid("spec", was, text))
    return errors


def _validate_ephemeral(spec: Mapping[str, Any], before: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.ephemeralContainers"
    errors = []
    names = {
        each.get("name") for key in ("containers", "initContainers") for each in listed(spec, key)
    }
    by_name = {each.get("name"): each for each in listed(spec, "ephemeralContainers")}
    for i, container in enumerate(listed(spec, "ephemeralContainers")):
        if container.get("name") in names:
            errors.append(duplicate(f"{path}[{i}].name", container.get("name")))
        names.add(container.get("name"))
        text = "cannot be set for an Ephemeral Container"
        set_ = [key for key in _NOT_EPHEMERAL if container.get(key)]
        set_ += ["resources"] * bool(container.get("resources"))
        errors += [forbidden(f"{path}[{i}].{key}", text) for key in sorted(set_)]
    for old in listed(before, "ephemeralContainers"):
        kept = by_name.get(old["name"])
        if kept != old:
            what = "removed" if kept is None else "changed"
            text = f'existing ephemeral containers "{old["name"]}" may not be {what}\n'
            errors.append(forbidden(path, text))
    return errors
