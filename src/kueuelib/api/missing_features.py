"""Features of Kueue that this version does not have, and how objects ask for them.

A Workload that asks for one waits, and its condition says why, so that nobody relies on something
that does not happen. docs/fields.md lists the labels and annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kueuelib.api.codec import encode
from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.struct import frozen
from kueuelib.api.workload import TopologyRequest

TOPOLOGY: Final = "topology-aware scheduling"
"""Missing only if it is turned off."""
SLICES: Final = "elastic jobs by workload slices"
DEVICES: Final = "quota for devices of resource claims (DRA)"
SEVERAL_FLAVORS: Final = "admission in several flavors at once"
FORCED_DELETION: Final = "forced deletion of pods that do not terminate"
BOOST: Final = "priority that others adjust"
MULTIKUEUE: Final = "dispatch to other clusters (MultiKueue)"

MANAGED_BY: Final = "kueuelib.dev/managed-by"
"""The annotation of a Workload whose job names MultiKueue in `managedBy`."""
DISPATCHER: Final = f"{KUEUE}/multikueue"
"""The controller name of MultiKueue, in `managedBy` of jobs and in AdmissionChecks."""

OF_JOBS: Final[Mapping[str, str]] = {
    f"{KUEUE}/elastic-job": SLICES,
    f"{KUEUE}/safe-to-forcefully-delete": FORCED_DELETION,
    MANAGED_BY: MULTIKUEUE,
}
"""Annotations of jobs and pod templates that ask for a feature, with its name."""
OF_WORKLOADS: Final[Mapping[str, str]] = {
    f"{KUEUE}/workload-slice-replacement-for": SLICES,
    f"{KUEUE}/workload-allowed-resource-flavors": SEVERAL_FLAVORS,
    f"{KUEUE}/concurrent-admission-parent": SEVERAL_FLAVORS,
    f"{KUEUE}/priority-boost": BOOST,
}
"""The same for labels and annotations that others write on Workloads."""
KEYS: Final[Mapping[str, str]] = {**OF_JOBS, **OF_WORKLOADS}

RECORDS: Final = frozenset(
    {
        *(f"{KUEUE}/{name}" for name in ("workload-uid", "workload-slice-name")),
        *(f"{KUEUE}/{name}" for name in ("job-owner-gvk", "job-owner-name")),
        *(f"{KUEUE}/{name}" for name in ("multikueue-origin", "multikueue-origin-uid")),
        f"{KUEUE}/multikueue-worker-workload-pod",
        *(f"{KUEUE}/raycluster-{name}" for name in ("generation", "podset-replica-sizes")),
    }
)
"""Labels and annotations that other managers write for themselves; they ask for nothing."""

_NOTHING: Final = frozenset({"", "false", "0"})
"""Values that ask for nothing."""
_OF_RANKS: Final = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount"})
"""Fields of a `topologyRequest` that the Go manager writes for pod sets without a topology, too."""
CLAIMS: Final = "resourceClaims"
_FIELDS: Final = {MANAGED_BY: "managedBy"}
"""The field of a job that an annotation of ours records."""


@frozen
class MissingFeature:
    """A request for a feature that is missing.

    Attributes:
        subject: what asks, for example `pod set main`.
        by: the key or field that asks.
        feature: the feature.
    """

    subject: str
    by: str
    feature: str


def asked_by_keys(
    subject: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Iterator[MissingFeature]:
    """The requests in labels and annotations.

    Args:
        subject: what has them.
        labels: of an object or a pod template.
        annotations: of the same.
    """
    for values in (labels, annotations):
        if values:
            for key in sorted(KEYS.keys() & values.keys()):
                if values[key] not in _NOTHING:
                    yield MissingFeature(subject, _FIELDS.get(key, key), KEYS[key])


def of_jobs(obj: Obj) -> dict[str, str]:
    """The requests of a raw job, or those that its Workload has taken over, as annotations."""
    annotations = annotations_of(obj)
    spec = obj.get("spec") or {}
    asked = {key: annotations[key] for key in OF_JOBS.keys() & annotations.keys()}
    for block in (spec, spec.get("runPolicy")):
        if isinstance(block, Mapping) and block.get("managedBy") == DISPATCHER:
            asked[MANAGED_BY] = DISPATCHER
    return asked


def asked_by_object(kind: str, obj: Obj) -> Iterator[MissingFeature]:
    """The requests of a raw job or parent of pods, without those of its templates.

    Args:
        kind: its kind.
        obj: the object.
    """
    return asked_by_keys(f"the {kind}", {}, of_jobs(obj))


def asked_by_topology(
    pod_set: str, request: Obj | TopologyRequest | None
) -> Iterator[MissingFeature]:
    """The requests in the `topologyRequest` of a pod set.

    Args:
        pod_set: its name.
        request: the field; None if it is absent.
    """
    raw = encode(request) if isinstance(request, TopologyRequest) else request or {}
    for field, value in raw.items():
        if value and field not in _OF_RANKS:
            yield MissingFeature(f"pod set {pod_set}", f"topologyRequest.{field}", TOPOLOGY)


def asked_by_pod_set(
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    claims: Iterable[Mapping[str, Any]] | None,
    *,
    admits_claims: bool,
) -> Iterator[MissingFeature]:
    """The requests of a pod set.

    Args:
        name: its name.
        labels: of its pod template.
        annotations: of the same.
        claims: the raw `resourceClaims` of the pod spec.
        admits_claims: whether devices may be used without quota.
    """
    subject = f"pod set {name}"
    yield from asked_by_keys(subject, labels, annotations)
    if not admits_claims:
        for claim in claims or ():
            yield MissingFeature(subject, f"{CLAIMS}[{claim.get('name', '')}]", DEVICES)


def asked_by_template(
    pod_set: str, template: Obj, *, admits_claims: bool
) -> Iterator[MissingFeature]:
    """The requests of a raw pod template, or of a raw pod.

    Args:
        pod_set: the name of its pod set.
        template: the template.
        admits_claims: whether devices may be used without quota.
    """
    meta = {"metadata": template.get("metadata") or {}}
    claims = (template.get("spec") or {}).get(CLAIMS)
    return asked_by_pod_set(
        pod_set, labels_of(meta), annotations_of(meta), claims, admits_claims=admits_claims
    )


def sentence(asked: Iterable[MissingFeature]) -> str:
    """One clause per feature, with everything that asks for it."""
    by_feature: dict[str, list[str]] = {}
    for one in asked:
        by_feature.setdefault(one.feature, []).append(f"{one.by} of {one.subject}")
    return "; ".join(
        f"{absence(feature)}, requested by {', '.join(dict.fromkeys(each))}"
        for feature, each in by_feature.items()
    )


def absence(feature: str) -> str:
    """The words that a feature is missing."""
    if feature == TOPOLOGY:
        return f"{TOPOLOGY} is turned off by the feature gate TopologyAwareScheduling"
    return f"this version has no {feature}"
