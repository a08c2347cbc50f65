"""Finds errors in the set-up around a workload, and what this version does not support."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api import kueue, names
from kueuelib.api.kueue import NEVER, ClusterQueue
from kueuelib.api.meta import KubeObject, ObjectKey, find
from kueuelib.api.missing_features import (
    DEVICES,
    DISPATCHER,
    KEYS,
    MULTIKUEUE,
    OF_JOBS,
    RECORDS,
    SEVERAL_FLAVORS,
    TOPOLOGY,
    absence,
    asked_by_topology,
    sentence,
)
from kueuelib.api.pods import PodTemplateSpec
from kueuelib.api.queues import ONE
from kueuelib.api.struct import Struct, frozen, json_name
from kueuelib.api.topology_keys import DOMAIN, KNOWN_KEYS, UNKNOWN, ignored_topology_keys
from kueuelib.api.workload_state import has_quota
from kueuelib.machinery.selectors import Op, Selector
from kueuelib.scheduler.explain.changes import LabelNamespace, ServeCheck
from kueuelib.scheduler.explain.own_changes import job_of, time_limit
from kueuelib.scheduler.explain.rows import Fit, Row
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, COHORT, QuotaOwner, World
from kueuelib.scheduler.object_reasons import (
    START,
    FeaturesMissing,
    InvalidResources,
    LimitRangeViolated,
    LocalQueueFacts,
    ResourceProblem,
)
from kueuelib.scheduler.pending.requests import NO_LIMIT_RANGES
from kueuelib.scheduler.pending.workload_info import gates_of, needs_of
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.reasons import Reason

# ---- finds features that objects use but this version does not support ---------------------------
# Fields and annotations that the classes of `kueuelib.api` do not know are reported, with their
# meaning if it is known here. Known fields may have no effect under the given settings.

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


_SILENT: Final = (KNOWN_KEYS, RECORDS)
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
    subject: str,
    metadata: Mapping[str, Any],
    waiting_for: Collection[str] = OF_JOBS,
    *,
    of_pods: bool = False,
) -> Iterator[Unhonoured]:
    """The labels and annotations without effect of an object.

    Args:
        subject: the object, as kind and name.
        metadata: its raw metadata.
        waiting_for: those that make its workload wait, which is an effect.
        of_pods: whether it is a pod or a pod template, where a request for a topology belongs.
    """
    ignored = ignored_topology_keys(metadata, of_pods=of_pods)
    whys = {(one.field, one.key): one.why for one in ignored}
    for field in ("labels", "annotations"):
        for key in sorted(metadata.get(field) or {}):
            why = whys.get((field, key), "")
            known = any(key in each for each in (*_SILENT, waiting_for))
            if why or (key.startswith(DOMAIN) and not known):
                meaning = why or _meaning(KEYS.get(key))
                yield Unhonoured(subject, f"metadata.{field}[{key}]", meaning)


def _in_world(world: World, key: ObjectKey) -> Iterator[Unhonoured]:
    workload = world.workloads[key]
    subject, waiting_for = f"Workload {key}", () if has_quota(workload) else KEYS
    metadata = attrs.asdict(workload.metadata, recurse=False)
    yield from unhonoured_keys(subject, metadata, waiting_for)
    for pod_set in workload.spec.pod_sets:
        place = f"{subject}, pod set {pod_set.name}"
        template = attrs.asdict(pod_set.template.metadata, recurse=False)
        yield from unhonoured_keys(place, template, waiting_for, of_pods=True)
        if has_quota(workload) and not world.settings.places_pods:
            for one in asked_by_topology(pod_set.name, pod_set.topology_request):
                yield Unhonoured(place, one.by, _meaning(one.feature))
    uses_claims = has_quota(workload) or world.settings.resources.admits_claims
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
            if world.flavors[name].spec.topology_name and not world.settings.places_pods:
                meaning = _meaning(TOPOLOGY)
                yield Unhonoured(f"ResourceFlavor {name}", "spec.topologyName", meaning)
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
    places = [QuotaOwner(CLUSTER_QUEUE, name) for name in sorted(members)]
    places += [
        QuotaOwner(COHORT, name) for name in world.cohorts_of(members) if name in world.cohorts
    ]
    weighted = [str(place) for place in places if _has_weight(world, place)]
    if weighted:
        meaning = f"fair sharing {_OFF}"
        yield Unhonoured(_list(weighted), "spec.fairSharing.weight", meaning)


def _has_weight(world: World, place: QuotaOwner) -> bool:
    sharing = place.spec(world).fair_sharing
    return sharing is not None and sharing.weight != ONE


def _list(subjects: list[str]) -> str:
    more = len(subjects) - _MOST_PLACES
    return ", ".join(subjects[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def _meaning(purpose: str | None) -> str:
    return absence(purpose) if purpose else UNKNOWN


_UNCOUNTED: Final = _meaning(DEVICES)


# --------------------------------------------------------------------------------------------------

_WITHOUT_QUOTA = (
    ", or set the feature gate KueueDRARejectWorkloadsWhenDRADisabled to false, so that devices "
    "are used without quota"
)


@frozen
class Problem:
    """An error that keeps a workload from being tried, or from ever fitting.

    Attributes:
        subject: the object, as kind and name.
        problem: what is wrong, with the field.
        fix: what to do about it.
    """

    subject: str
    problem: str
    fix: str


def problems_of(world: World, key: ObjectKey, reason: Reason | None) -> tuple[Problem, ...]:
    """All errors in the set-up, in the order in which to fix them.

    Args:
        world: the facts.
        key: the workload.
        reason: the result of its evaluation.
    """
    return tuple(_problems(world, key, reason))


def _problems(world: World, key: ObjectKey, reason: Reason | None) -> Iterator[Problem]:
    workload = world.workloads[key]
    subject = f"Workload {key}"
    if not workload.spec.active:
        limit = time_limit(workload)
        if limit is None:
            yield Problem(subject, "spec.active is false", "set spec.active to true")
        else:
            text = f"spec.active is false: it ran longer than its maximum of {limit} s"
            fix = "raise or remove spec.maximumExecutionTimeSeconds, then set spec.active to true"
            yield Problem(subject, text, fix)
    gates = gates_of(workload)
    if gates:
        job = job_of(workload) or subject
        problem = f"the annotation {names.ADMISSION_GATED_BY} names {', '.join(gates)}"
        yield Problem(job, problem, "see why the controllers that it names have not removed them")
    if isinstance(reason, FeaturesMissing):
        for one in reason.asked:
            fix = f"submit it without {one.by}{_WITHOUT_QUOTA if one.feature == DEVICES else ''}"
            yield Problem(subject, sentence([one]), fix)
    if isinstance(reason, InvalidResources | LimitRangeViolated):
        for item in reason.items:
            yield Problem(subject, str(item), correction(item))
    failed = [
        f"{one.name} is {one.state}" + (f" ({one.message})" if one.message else "")
        for one in workload.status.admission_checks
        if one.state in (kueue.CHECK_RETRY, kueue.CHECK_REJECTED)
    ]
    if failed:
        fix = "see why its controller said so; after Retry, the Workload is requeued automatically"
        yield Problem(subject, f"admission check {', '.join(failed)}", fix)
    local_queue = world.local_queue_of(workload)
    if local_queue is None:
        yield wrong_queue_name(world, key)
        return
    where = f"LocalQueue {local_queue.key}"
    if LocalQueueFacts.of(local_queue).reason is not None:
        yield Problem(where, f"spec.stopPolicy is {local_queue.spec.stop_policy}", START)
    queue = world.cluster_queues.get(local_queue.spec.cluster_queue)
    if queue is None:
        fix = f"create ClusterQueue {local_queue.spec.cluster_queue}"
        if world.cluster_queues:
            known = ", ".join(sorted(world.cluster_queues))
            fix += f", or make another LocalQueue, for a ClusterQueue that exists: {known}"
        text = f"names ClusterQueue {local_queue.spec.cluster_queue}, which does not exist"
        yield Problem(where, text, fix)
        return
    yield from _of_cluster_queue(world, queue)
    yield from _of_namespace(world, queue, key.namespace)
    yield from _uncovered(world, queue, key)


def correction(item: ResourceProblem) -> str:
    """What to do about requests and limits with which no pod can be created.

    Args:
        item: what is wrong with them.
    """
    if not item.values:
        return "correct the requests and limits of its containers"
    first, own = item.values[0], "change its requests and limits"
    if ".default" in first.field:
        what = "limits" if ".default[" in first.field else "requests"
        own = f"give its containers {what} of their own"
    return f"{own}, or change {first.field} of LimitRange {first.key}"


def wrong_queue_name(world: World, key: ObjectKey) -> Problem:
    """What is wrong with the queue name of a workload whose LocalQueue does not exist.

    Args:
        world: the facts.
        key: the workload.
    """
    queue_name, label = world.workloads[key].spec.queue_name, f"set the label {names.QUEUE_LABEL}"
    local = sorted(one.name for one in world.local_queues if one.namespace == key.namespace)
    one_of = f" to one of {', '.join(local)}" if local else ""
    if not queue_name:
        return Problem(f"Workload {key}", "names no queue", f"{label}{one_of}")
    if not names.is_dns1123_subdomain(queue_name):
        problem = f'no LocalQueue can have the name "{queue_name}"'
        return Problem(f"Workload {key}", problem, label + (one_of or " to another one"))
    fix = f"create it, or {label}{one_of}" if local else "create it"
    return Problem(f"LocalQueue {ObjectKey(key.namespace, queue_name)}", "does not exist", fix)


def _of_cluster_queue(world: World, queue: ClusterQueue) -> Iterator[Problem]:
    where = f"ClusterQueue {queue.name}"
    if queue.metadata.deletion_timestamp is not None:
        yield Problem(where, "is being deleted", "create another one")
    if queue.spec.stop_policy != kueue.NONE:
        yield Problem(where, f"spec.stopPolicy is {queue.spec.stop_policy}", START)
    spec = queue_spec(queue)
    cycle = world.cycle_above(spec.cohort)
    if cycle:
        way = " -> ".join((*cycle, cycle[0]))
        text = f"the parents of its cohort {spec.cohort} form a cycle: {way}"
        yield Problem(where, text, "change spec.parentName of one of these Cohorts")
    yield from _absent(world, queue)
    yield from inactive_checks(world, queue)
    yield from topologies(world, queue)


def _of_check(world: World, name: str) -> Iterator[Problem]:
    """Why an existing AdmissionCheck cannot be decided."""
    check = world.checks[name]
    active = find(check.status.conditions, names.ACTIVE)
    if active is None or active.status != "True":
        why = active.message if active is not None else ""
        why = why or f"no controller serves controllerName {check.spec.controller_name}"
        text = f"is not Active: {why}"
        yield Problem(f"AdmissionCheck {name}", text, ServeCheck(name, exists=True).text)


def absent_cohorts(world: World, key: ObjectKey, rows: Sequence[Row]) -> tuple[str, ...]:
    """Sentences about cohorts without an object, if a workload asks for more than its tree has.

    Args:
        world: the facts.
        key: the workload.
        rows: its table.
    """
    best: dict[tuple[str, str], bool] = {}
    for row in rows:
        asked = row.pod_set, row.resource
        best[asked] = best.get(asked, False) or row.fit in (Fit.FITS, Fit.IN_USE)
    short = any(row.fit is Fit.EXCEEDS and not best[row.pod_set, row.resource] for row in rows)
    queue = world.cluster_queue_of(world.workloads[key])
    if queue is None or not short:
        return ()
    above = world.above(queue.spec.cohort_name)
    return tuple(
        f"Cohort {name} has no object: it owns no quota"
        for name in above
        if name not in world.cohorts
    )


def absent_objects(world: World, queue: ClusterQueue) -> tuple[Problem, ...]:
    """The ResourceFlavors and AdmissionChecks that a ClusterQueue names and that do not exist.

    Args:
        world: the facts.
        queue: the ClusterQueue.
    """
    return tuple(_absent(world, queue))


def _absent(world: World, queue: ClusterQueue) -> Iterator[Problem]:
    spec, text = queue_spec(queue), f"is named by ClusterQueue {queue.name} and does not exist"
    for name in spec.flavors:
        if name not in world.flavors:
            fix = "create it, or take it out of spec.resourceGroups"
            yield Problem(f"ResourceFlavor {name}", text, fix)
    for name in sorted({check.name for check in spec.checks} - world.checks.keys()):
        yield Problem(f"AdmissionCheck {name}", text, "create it, or take it out of the queue")


def inactive_checks(world: World, queue: ClusterQueue) -> tuple[Problem, ...]:
    """The checks of a ClusterQueue that exist and are not Active.

    Args:
        world: the facts.
        queue: the ClusterQueue.
    """
    named = sorted({check.name for check in queue_spec(queue).checks} & world.checks.keys())
    return tuple(problem for name in named for problem in _of_check(world, name))


def topologies(world: World, queue: ClusterQueue) -> tuple[Problem, ...]:
    """The ResourceFlavors of a ClusterQueue whose Topology does not exist.

    Args:
        world: the facts.
        queue: the ClusterQueue.
    """
    if not world.settings.places_pods:
        return ()
    flavors = (world.flavors.get(name) for name in queue_spec(queue).flavors)
    return tuple(
        Problem(
            f"ResourceFlavor {one.name}",
            f'spec.topologyName is "{one.spec.topology_name}", but there is no such Topology',
            f"create Topology {one.spec.topology_name}",
        )
        for one in flavors
        if one is not None
        and one.spec.topology_name
        and one.spec.topology_name not in world.topologies
    )


def silent_checks(world: World, key: ObjectKey) -> tuple[Problem, ...]:
    """The checks that block a workload with quota because their controllers do not work.

    Args:
        world: the facts.
        key: the workload.
    """
    return tuple(
        problem
        for state in world.workloads[key].status.admission_checks
        if state.state == kueue.CHECK_PENDING and state.name in world.checks
        for problem in _of_check(world, state.name)
    )


def _of_namespace(world: World, queue: ClusterQueue, namespace: str) -> Iterator[Problem]:
    labels = world.namespaces.get(namespace)
    if labels is None:
        yield Problem(f"Namespace {namespace}", "does not exist", "create it")
        return
    selector = queue_spec(queue).selector
    if selector.matches(labels):
        return
    wanted = missing_labels(selector, labels)
    fix = "change spec.namespaceSelector"
    if queue.spec.namespace_selector is None:
        text = "spec.namespaceSelector is absent and admits no namespace"
        fix = "set spec.namespaceSelector to {} for all namespaces"
    else:
        text = f"spec.namespaceSelector ({selector}) does not admit namespace {namespace}"
        if wanted is not None:
            fix = f"{LabelNamespace(namespace, wanted).text}, or {fix}"
    yield Problem(f"ClusterQueue {queue.name}", text, fix)


def missing_labels(
    selector: Selector, labels: Mapping[str, str]
) -> tuple[tuple[str, str], ...] | None:
    """The missing labels for a selector; None if labels do not help."""
    wanted = {}
    for one in selector.requirements:
        if one.matches(labels):
            continue
        if one.op is Op.IN:
            wanted[one.key] = one.values[0]
        elif one.op is Op.EXISTS:
            wanted[one.key] = "true"
        else:
            return None
    return tuple(sorted(wanted.items())) if selector.matches({**labels, **wanted}) else None


def _uncovered(world: World, queue: ClusterQueue, key: ObjectKey) -> Iterator[Problem]:
    rules = world.settings.resources
    if rules.ignores_undeclared:
        return
    covered = {name for group in queue.spec.resource_groups for name in group.covered_resources}
    asked = {
        name
        for pod_set in needs_of(
            world.workloads[key], NO_LIMIT_RANGES, world.runtime_classes, rules
        ).pod_sets
        for name, amount in pod_set.per_pod.items()
        if amount and pod_set.count
    }
    for name in sorted(asked - covered):
        text = f"spec.resourceGroups cover no {name}, which Workload {key} requests"
        yield Problem(f"ClusterQueue {queue.name}", text, "add quota for it, or don't request it")
