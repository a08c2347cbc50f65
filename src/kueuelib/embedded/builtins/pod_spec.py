"""The rules for a pod's spec, also inside templates: `PodSpec` in the table, and its functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import duplicate, forbidden, invalid, not_supported, required
from kueuelib.embedded.builtins.pod_placement import operand
from kueuelib.embedded.builtins.raw import listed
from kueuelib.embedded.builtins.resources import validate_resources
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.errors import FieldError

_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_FIELDS: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName"),
    *("spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP"),
    "status.podIPs",
)


def validate_pod_spec(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """The broken rules of the spec of a pod or of a template, after defaulting."""
    volumes = {volume.get("name") for volume in listed(spec, "volumes") if volume.get("name")}
    return check("PodSpec", spec, path, volumes=volumes, **_OWN)


def _given(at: ValuePlace, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if at.value.get(name) is not None]


def _one_source(at: ValuePlace, _: str) -> BrokenRules:
    sources = [key for key, value in at.value.items() if key != "name" and value is not None]
    text = "may not specify more than 1 volume type"
    return [forbidden(f"{at.path}.{key}", text) for key in sources[1:]]


def _source(at: ValuePlace, _: str) -> BrokenRules:
    if at.value is None:
        return []
    given = _given(at, _SOURCES)
    names = [f"`{name}`" for name in _SOURCES]
    errors = _field(at.value["fieldRef"], f"{at.path}.fieldRef") if "fieldRef" in given else []
    if not given:
        text = f"must specify one of: {', '.join(names[:-1])} or {names[-1]}"
        errors.append(invalid(at.path, "", text))
    elif at.outer.get("value"):
        errors.append(invalid(at.path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        text = "may not have more than one field specified at a time"
        errors.append(invalid(at.path, "", text))
    return errors


def _field(ref: Mapping[str, Any], path: str) -> list[FieldError]:
    field_path = ref.get("fieldPath") or ""
    if not field_path:
        return [required(f"{path}.fieldPath")]
    if field_path in _FIELDS or field_path.startswith(
        ("metadata.labels['", "metadata.annotations['")
    ):
        return []
    if field_path.startswith(("metadata.", "spec.", "status.")):
        return [not_supported(f"{path}.fieldPath", field_path, _FIELDS)]
    text = f"error converting fieldPath: field label not supported: {field_path}"
    return [invalid(f"{path}.fieldPath", field_path, text)]


def _handler(at: ValuePlace, _: str) -> BrokenRules:
    if not (given := _given(at, _HANDLERS)):
        return [required(at.path, "must specify a handler type")]
    text = "may not specify more than 1 handler type"
    return [forbidden(f"{at.path}.{key}", text) for key in given[1:]]


def _gates(at: ValuePlace, _: str) -> BrokenRules:
    names = [gate.get("name") or "" for gate in at.value]
    errors = []
    for i, name in enumerate(names):
        where = f"{at.path}[{i}]"
        errors += [invalid(where, name, text) for text in naming.qualified_name(name)]
        if name in names[:i]:
            errors.append(duplicate(where, name))
    return errors


_OWN: Final[Mapping[str, Check]] = {
    "one_source": _one_source,
    "source": _source,
    "handler": _handler,
    "gates": _gates,
    "resources": lambda at, _: validate_resources(at.value, at.path),
    "overhead": lambda at, _: validate_resources({"requests": at.value}, at.path),
    "operand": operand,
}
