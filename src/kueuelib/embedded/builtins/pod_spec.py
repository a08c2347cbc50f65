"""The rules for a pod's spec, also inside templates, and warnings about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    listed,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.metadata import label_value, qualified_name
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS, validate_resources
from kueuelib.embedded.builtins.rule_table import BrokenRules, Check, ValuePlace, check
from kueuelib.errors import FieldError

# ---- the names of taints, and a rule of tolerations ----------------------------------------------

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def operand(at: ValuePlace, _: str) -> BrokenRules:
    """The rule of the value that a toleration compares."""
    operator, value = at.value.get("operator") or "", at.value.get("value")
    why = ""
    if operator in ("", "Equal"):
        why = ";".join(label_value(value or ""))
    elif operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
    return [invalid(f"{at.path}.operator", value, why)] if why else []


# ---- warnings for authors of pods and templates, about valid but probably unintended fields ------

LABEL_LENGTH = 63
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io"
_DEPRECATED: Final[Mapping[str, tuple[str, str]]] = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    f"{_BETA_REGION}/region": ("v1.17", "topology.kubernetes.io/region"),
    f"{_BETA_REGION}/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
_WHOLE_BYTES: Final = ("memory", "ephemeral-storage")
_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def name_warnings(name: str, used_in: str) -> Iterator[str]:
    """About a name that becomes a host name.

    Args:
        name: of the object.
        used_in: its use, for example `the Pod's hostname`.
    """
    problems = []
    if "." in name:
        problems.append("must not contain dots")
    elif len(name) > LABEL_LENGTH:
        problems.append(f"must be no more than {LABEL_LENGTH} characters")
    if problems:
        yield (
            f"metadata.name: this is used in {used_in}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(problems)}]"
        )


def spec_warnings(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    """About the spec of a pod or of a template, after defaulting."""
    for key in section(spec, "nodeSelector"):
        if key in _DEPRECATED:
            yield f"{path}.nodeSelector[{key}]: {_deprecated(key)}"
    yield from _affinity(section(spec, "affinity"), f"{path}.affinity")
    for i, spread in enumerate(listed(spec, "topologySpreadConstraints")):
        key = spread.get("topologyKey")
        where = f"{path}.topologySpreadConstraints[{i}]"
        if key in _DEPRECATED:
            yield f"{where}.topologyKey: {key} is {_deprecated(key)}"
        if spread.get("labelSelector") is None:
            yield f"{where}.labelSelector: a null labelSelector results in matching no pod"
    for i, volume in enumerate(listed(spec, "volumes")):
        if volume.get("gitRepo"):
            yield (
                f"{path}.volumes[{i}].gitRepo: deprecated in v1.11, and disabled by default in "
                "v1.33+"
            )
    for i, secret in enumerate(listed(spec, "imagePullSecrets")):
        if not (secret or {}).get("name"):
            yield f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'
    addresses = set()
    for i, alias in enumerate(listed(spec, "hostAliases")):
        address = alias.get("ip")
        if address in addresses:
            yield f'{path}.hostAliases[{i}].ip: duplicate ip "{address}"'
        addresses.add(address)
    for key in CONTAINER_LISTS:
        for i, container in enumerate(listed(spec, key)):
            where = f"{path}.{key}[{i}]"
            yield from _amounts(section(container, "resources"), f"{where}.resources")
            yield from _environment(listed(container, "env"), f"{where}.env")
    yield from _ports(listed(spec, "containers"), f"{path}.containers")


def _deprecated(key: str) -> str:
    since, instead = _DEPRECATED[key]
    return f'deprecated since {since}; use "{instead}" instead'


def _affinity(affinity: Mapping[str, Any], path: str) -> Iterator[str]:
    node = section(affinity, "nodeAffinity")
    terms = [
        (f"{path}.nodeAffinity.{_TERMS}.nodeSelectorTerms[{i}]", term)
        for i, term in enumerate(listed(section(node, _TERMS), "nodeSelectorTerms"))
    ]
    terms += [
        (f"{path}.nodeAffinity.{_PREFERRED}[{i}].preference", section(term, "preference"))
        for i, term in enumerate(listed(node, _PREFERRED))
    ]
    for where, term in terms:
        for i, expression in enumerate(listed(term, "matchExpressions")):
            key = expression.get("key")
            if key in _DEPRECATED:
                yield f"{where}.matchExpressions[{i}].key: {key} is {_deprecated(key)}"
    for side in ("podAffinity", "podAntiAffinity"):
        pods = section(affinity, side)
        near = [(f"{path}.{side}.{_TERMS}[{i}]", t) for i, t in enumerate(listed(pods, _TERMS))]
        near += [
            (f"{path}.{side}.{_PREFERRED}[{i}].podAffinityTerm", section(t, "podAffinityTerm"))
            for i, t in enumerate(listed(pods, _PREFERRED))
        ]
        for where, term in near:
            if term.get("labelSelector") is None:
                yield f"{where}.labelSelector: a null labelSelector results in matching no pod"


def _amounts(resources: Mapping[str, Any], path: str) -> Iterator[str]:
    for part in ("limits", "requests"):
        for name in _WHOLE_BYTES:
            text = str(section(resources, part).get(name) or "")
            if text.endswith(("m", "u", "n")):
                yield (
                    f'{path}.{part}[{name}]: fractional byte value "{text}" is invalid, must be '
                    "an integer"
                )


def _environment(variables: Sequence[Mapping[str, Any]], path: str) -> Iterator[str]:
    seen = set()
    for i, variable in enumerate(variables):
        name = variable.get("name") or ""
        if name in seen and f"$({name})" not in (variable.get("value") or ""):
            yield (
                f'{path}[{i}]: hides previous definition of "{name}", which may be dropped when '
                "using apply"
            )
        seen.add(name)


def _ports(containers: Sequence[Mapping[str, Any]], path: str) -> Iterator[str]:
    seen: dict[tuple[Any, Any, Any], list[str]] = {}
    for i, container in enumerate(containers):
        for j, port in enumerate(listed(container, "ports")):
            where = f"{path}[{i}].ports[{j}]"
            key = (port.get("containerPort"), port.get("protocol"), port.get("hostIP"))
            for first in seen.setdefault(key, []):
                yield f"{where}: duplicate port definition with {first}"
            seen[key].append(where)


# --------------------------------------------------------------------------------------------------

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
        errors += [invalid(where, name, text) for text in qualified_name(name)]
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
