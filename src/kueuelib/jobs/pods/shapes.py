"""The name of a pod's shape, and the labels of the template that stands for it (KEP-976).

Pods of a group with the same requests get the same name, whatever they run: the first digits of the
SHA-256 of their shape, in Go's JSON. Other managers compute the same digits, except for pods with
sidecars, so the order of fields and the escaping matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.names import ROLE_HASH
from kueuelib.api.quantity import Quantity
from kueuelib.jobs.pods.reading import is_gated

# ---- the labels in the template of a pod set that is made from pods (KEP-976) --------------------
# ProvisioningRequests, topology spread and affinity select pods by their labels, so the template
# has those that every pod of the role has with the same value. Our own are left out, and those by
# which other controllers distinguish pods or their revisions. They are never compared: a Workload
# without them, from another manager, stands for its pods as before.

CONTROLLERS: Final = frozenset(
    {
        *("controller-uid", "batch.kubernetes.io/controller-uid"),
        *("job-name", "batch.kubernetes.io/job-name"),
        "batch.kubernetes.io/job-completion-index",
        *("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"),
        *("controller-revision-hash", "pod-template-hash", "pod-template-generation"),
    }
)
"""Labels that Kubernetes' own controllers write on their pods."""
_PREFIXES = frozenset({KUEUE, "leaderworkerset.sigs.k8s.io"})


def labelled_template(pods: Sequence[Obj], spec: Obj) -> Obj:
    """A raw template with that spec, for raw pods of one role; at least one pod."""
    first, *others = map(labels_of, pods)
    labels = {
        name: value
        for name, value in first.items()
        if name not in CONTROLLERS
        and name.partition("/")[0] not in _PREFIXES
        and all(each.get(name) == value for each in others)
    }
    return {"metadata": {"labels": labels}, "spec": spec} if labels else {"spec": spec}


# --------------------------------------------------------------------------------------------------

DIGITS = 8
RECENT: Final = 256
"""The number of shapes whose names are kept."""

_PLAIN = (
    "affinity",
    "nodeSelector",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
_PORT = ("name", "hostPort", "containerPort", "protocol", "hostIP")
_SPREAD = (
    *("maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "minDomains"),
    *("nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys"),
)
_OTHERS = (
    *("nodeAffinity", "podAffinity", "podAntiAffinity"),
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
    *("weight", "preference", "podAffinityTerm", "nodeSelectorTerms"),
    *("matchLabels", "matchExpressions", "matchFields"),
    *("labelSelector", "namespaces", "topologyKey", "namespaceSelector"),
    *("matchLabelKeys", "mismatchLabelKeys"),
    *("key", "operator", "value", "values", "effect", "tolerationSeconds"),
    *("name", "source", "resourceClaimName", "resourceClaimTemplateName"),
)
_MAPS = frozenset({"matchLabels", "nodeSelector"})
"""Fields whose keys are the user's, which Go sorts."""
_KEPT = frozenset({"containerPort", "nodeSelectorTerms", "tolerationSeconds", "weight"})
"""Fields that are written even if they are empty."""
_ESCAPES = [(mark.encode(), f"\\u{ord(mark):04x}".encode()) for mark in "<>&\u2028\u2029"]
"""What Go's JSON never contains, for the sake of HTML and JavaScript."""


def shape_of(pod: Mapping[str, Any]) -> str:
    """The name of a pod's shape.

    The name of a waiting pod is computed, because the pod may have been edited. The spec of a
    started pod has what its flavor adds, so the name that was written before the start counts.
    """
    written = "" if is_gated(pod) else annotations_of(pod).get(ROLE_HASH)
    return written or role_hash(pod["spec"])


def role_hash(spec: Mapping[str, Any]) -> str:
    """The name of the shape of a raw pod spec."""
    shape = {field: spec.get(field) for field in (*_PLAIN, "overhead")}
    for field in ("containers", "initContainers"):
        shape[field] = _containers(spec.get(field))
    if spec.get("resources") is not None:  # only then, so that other names stay as they were
        shape["resources"] = spec["resources"].get("requests")
    return _name_of(orjson.dumps(shape))


def likeness(spec: Mapping[str, Any]) -> str:
    """The name of the shape, whatever the order of its tolerations.

    The API server adds tolerations at the end, but a user may insert them anywhere.
    """
    tolerations = spec.get("tolerations")
    if not tolerations:
        return role_hash(spec)
    return role_hash({**spec, "tolerations": sorted(tolerations, key=_sorted_json)})


def _sorted_json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _containers(containers: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    return None if containers is None else [_container(each) for each in containers]


def _container(container: Mapping[str, Any]) -> Obj:
    requests = (container.get("resources") or {}).get("requests")
    shape: Obj = {"ports": container.get("ports"), "resources": {"requests": requests}}
    if container.get("restartPolicy") == "Always":  # a sidecar, whose requests always count
        shape["restartPolicy"] = "Always"
    return shape


@lru_cache(maxsize=RECENT)
def _name_of(raw: bytes) -> str:
    """The name of a shape in JSON."""
    shape = orjson.loads(raw)
    for field in _PLAIN:
        shape[field] = _go(shape[field], field)
    for container in (*(shape["containers"] or ()), *(shape["initContainers"] or ())):
        container["ports"] = _ports(container["ports"])
        requests = container["resources"]
        requests["requests"] = _quantities(requests["requests"])
    for field in ("overhead", "resources"):
        if field in shape:
            shape[field] = _quantities(shape[field])
    text = orjson.dumps({"spec": dict(sorted(shape.items()))})
    for mark, escape in _ESCAPES:
        text = text.replace(mark, escape)
    return hashlib.sha256(text).hexdigest()[:DIGITS]


def _ports(ports: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    return None if ports is None else [_fields(port, _PORT) for port in ports]


def _quantities(quantities: Mapping[str, Any] | None) -> dict[str, str] | None:
    if quantities is None:
        return None
    return {name: str(Quantity.parse(value)) for name, value in sorted(quantities.items())}


def _go(value: Any, field: str) -> Any:
    """A value with its fields in Go's order and without those that Go leaves out."""
    if isinstance(value, Mapping):
        if field in _MAPS:
            return dict(sorted(value.items()))
        return _fields(value, _SPREAD if "maxSkew" in value else _OTHERS)
    if isinstance(value, list | tuple):
        return [_go(entry, "") for entry in value]
    return value


def _fields(value: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    names = [*(name for name in order if name in value), *sorted({*value} - {*order})]
    return {
        name: _go(value[name], name)
        for name in names
        if value[name] is not None and (name in _KEPT or value[name] not in ("", 0, [], False))
    }
