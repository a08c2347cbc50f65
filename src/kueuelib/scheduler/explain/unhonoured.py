"""Finds features that objects use but this version does not support.

Fields and annotations that the classes of `kueuelib.api` do not know are reported, with their
meaning if it is known here. Known fields may have no effect under the given settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from kueuelib.api import names
from kueuelib.api.kinds import KUEUE
from kueuelib.api.kueue import NEVER, ClusterQueue
from kueuelib.api.meta import KubeObject, ObjectKey
from kueuelib.api.missing_features import (
    DEVICES,
    DISPATCHER,
    KEYS,
    MULTIKUEUE,
    OF_JOBS,
    RECORDS,
    SEVERAL_FLAVORS,
    asked_by_topology,
)
from kueuelib.api.pods import PodTemplateSpec
from kueuelib.api.quotas import ONE
from kueuelib.api.struct import Struct, frozen, json_name
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT, Place
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import holds_quota
from kueuelib.scheduler.quota.queue_spec import queue_spec

_OFF: Final = "is off, unless the manager's configuration says otherwise (--config)"
_UNKNOWN_FIELDS: Final = {
    "resourceClaims": DEVICES,
    "claims": DEVICES,
    "concurrentAdmissionPolicy": SEVERAL_FLAVORS,
    "preemptionGates": "preemption that others release",
}
"""The meaning of fields that the classes do not have, by the last part of their path."""

_OF_PODS: Final = frozenset({"resourceClaims", "claims"})
"""The only unknown fields of pods that matter to quota."""


_DOMAIN: Final = f"{KUEUE}/"
_KNOWN: Final = frozenset(
    value for value in vars(names).values() if isinstance(value, str) and value.startswith(_DOMAIN)
)
_SILENT: Final = (_KNOWN, RECORDS)
_MOST_PLACES: Final = 5


@frozen
class Unhonoured:
    """A field, label or annotation without effect.

    Attributes:
        subject: the object, as kind and name.
        field: the path of the field, or the label or annotation.
        meaning: its meaning, or why it has no effect.
    """

    subject: str
    field: str
    meaning: str

    @property
    def text(self) -> str:
        """One sentence for people."""
        return f"{self.subject}: {self.field} has no effect: {self.meaning}"


def unhonoured_in(world: World, key: ObjectKey) -> tuple[Unhonoured, ...]:
    """Fields, labels and annotations without effect, of a workload and the objects around it.

    Args:
        world: the facts.
        key: the workload.
    """
    return tuple(dict.fromkeys(_in_world(world, key)))


def unhonoured_keys(
    subject: str, metadata: Mapping[str, Any], waiting_for: Collection[str] = OF_JOBS
) -> Iterator[Unhonoured]:
    """The labels and annotations without effect of an object.

    Args:
        subject: the object, as kind and name.
        metadata: its raw metadata.
        waiting_for: those that make its workload wait, which is an effect.
    """
    for field in ("labels", "annotations"):
        for key in sorted(metadata.get(field) or {}):
            if key.startswith(_DOMAIN) and not any(key in each for each in (*_SILENT, waiting_for)):
                meaning = _meaning(KEYS.get(key))
                yield Unhonoured(subject, f"metadata.{field}[{key}]", meaning)


def _in_world(world: World, key: ObjectKey) -> Iterator[Unhonoured]:
    workload = world.workloads[key]
    subject, waiting_for = f"Workload {key}", () if holds_quota(workload) else KEYS
    metadata = attrs.asdict(workload.metadata, recurse=False)
    yield from unhonoured_keys(subject, metadata, waiting_for)
    for pod_set in workload.spec.pod_sets:
        place = f"{subject}, pod set {pod_set.name}"
        template = attrs.asdict(pod_set.template.metadata, recurse=False)
        yield from unhonoured_keys(place, template, waiting_for)
        for one in asked_by_topology(pod_set.name, pod_set.topology_request):
            if holds_quota(workload):
                yield Unhonoured(place, one.by, _meaning(one.feature))
    uses_claims = holds_quota(workload) or world.settings.resources.admits_claims
    yield from (
        one for one in _in_spec(subject, workload) if uses_claims or one.meaning != _UNCOUNTED
    )
    yield from _past_usage(world, key)
    local = world.local_queue_of(workload)
    if local is not None:
        yield from _in_spec(f"LocalQueue {local.key}", local)
    queue = world.cluster_queue_of(workload)
    if queue is None:
        return
    yield from _in_spec(f"ClusterQueue {queue.name}", queue)
    for name in world.above(queue.spec.cohort_name):
        if name in world.cohorts:
            yield from _in_spec(f"Cohort {name}", world.cohorts[name])
    spec = queue_spec(queue)
    for name in spec.flavors:
        if name in world.flavors:
            yield from _in_spec(f"ResourceFlavor {name}", world.flavors[name])
    for name in dict.fromkeys(check.name for check in spec.checks):
        check = world.checks.get(name)
        if check is not None:
            yield from _in_spec(f"AdmissionCheck {name}", check)
            if check.spec.controller_name == DISPATCHER:
                meaning = _meaning(MULTIKUEUE)
                yield Unhonoured(f"AdmissionCheck {name}", "spec.controllerName", meaning)
    if world.settings.fair_sharing is None:
        yield from _weights(world, queue)
    elif queue.spec.preemption.borrow_within_cohort.policy != NEVER:
        field = "spec.preemption.borrowWithinCohort"
        meaning = "fair sharing is on, so that shares decide what may be preempted"
        yield Unhonoured(f"ClusterQueue {queue.name}", field, meaning)


def _in_spec(subject: str, obj: KubeObject) -> Iterator[Unhonoured]:
    spec: Struct = obj.spec  # type: ignore[attr-defined]
    for path in _unknown(spec, "spec", of_pods=False):
        known = _UNKNOWN_FIELDS.get(path.rpartition(".")[2])
        yield Unhonoured(subject, path, _meaning(known))


def _past_usage(world: World, key: ObjectKey) -> Iterator[Unhonoured]:
    """Settings for an order by past usage that is not in effect (KEP-4136)."""
    workload = world.workloads[key]
    local, queue = world.local_queue_of(workload), world.cluster_queue_of(workload)
    asked = queue is not None and queue_spec(queue).by_usage
    is_off = world.settings.past_usage is None
    if queue is not None and asked and is_off:
        meaning = f"admission fair sharing {_OFF}"
        yield Unhonoured(f"ClusterQueue {queue.name}", "spec.admissionScope", meaning)
    if local is not None and local.spec.fair_sharing is not None and (is_off or not asked):
        meaning = f"admission fair sharing {_OFF}"
        if queue is not None and not asked:
            meaning = f"ClusterQueue {queue.name} has no admission fair sharing in its spec"
        yield Unhonoured(f"LocalQueue {local.key}", "spec.fairSharing", meaning)


def _unknown(value: Any, path: str, *, of_pods: bool) -> Iterator[str]:
    """The paths of all set fields that no class knows."""
    if isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _unknown(one, f"{path}[{index}]", of_pods=of_pods)
    if not isinstance(value, Struct):
        return
    of_pods = of_pods or isinstance(value, PodTemplateSpec)
    for name, content in value.extra.items():
        if (name in _OF_PODS or not of_pods) and content not in (None, "", [], {}):
            yield f"{path}.{name}"
    for field in attrs.fields(type(value)):
        if field.name != "extra":
            inner = getattr(value, field.name)
            yield from _unknown(inner, f"{path}.{json_name(field)}", of_pods=of_pods)


def _weights(world: World, queue: ClusterQueue) -> Iterator[Unhonoured]:
    """Weights in the tree of a ClusterQueue, while shares do not decide."""
    if not queue.spec.cohort_name:
        return
    members = world.scope_of(queue)
    places = [Place(CLUSTER_QUEUE, name) for name in sorted(members)]
    places += [Place(COHORT, name) for name in world.cohorts_of(members) if name in world.cohorts]
    weighted = [str(place) for place in places if _has_weight(world, place)]
    if weighted:
        meaning = f"fair sharing {_OFF}"
        yield Unhonoured(_list(weighted), "spec.fairSharing.weight", meaning)


def _has_weight(world: World, place: Place) -> bool:
    sharing = place.spec(world).fair_sharing
    return sharing is not None and sharing.weight != ONE


def _list(subjects: list[str]) -> str:
    more = len(subjects) - _MOST_PLACES
    return ", ".join(subjects[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def _meaning(purpose: str | None) -> str:
    return f"this version has no {purpose}" if purpose else "this version does not know it"


_UNCOUNTED: Final = _meaning(DEVICES)
