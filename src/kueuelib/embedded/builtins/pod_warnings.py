"""Warnings for authors of pods and templates, about valid but probably unintended fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS

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
