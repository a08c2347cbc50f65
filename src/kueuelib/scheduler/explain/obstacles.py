"""Finds errors in the set-up around a workload: the object, the problem and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kueuelib.api import conditions, kueue, names
from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.api.missing_features import DEVICES, TOPOLOGY, sentence
from kueuelib.api.struct import frozen
from kueuelib.machinery.selectors import Op, Selector
from kueuelib.scheduler.explain.creations import LabelNamespace, ServeCheck
from kueuelib.scheduler.explain.own_changes import job_of, time_limit
from kueuelib.scheduler.explain.rows import Fit, Row
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import (
    START,
    FeaturesMissing,
    InvalidResources,
    LimitRangeViolated,
    LocalQueueFacts,
)
from kueuelib.scheduler.pending.limit_ranges import NO_LIMIT_RANGES
from kueuelib.scheduler.pending.workload_info import gates_of, needs_of
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.reasons import Reason

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
            yield Problem(subject, item, "correct the requests and limits of its containers")
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
    for hindrance in LocalQueueFacts.of(local_queue).hindrances():
        yield Problem(where, hindrance.problem, hindrance.fix)
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
    active = conditions.find(check.status.conditions, names.ACTIVE)
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
    """The ResourceFlavors of a ClusterQueue that name a Topology.

    Args:
        world: the facts.
        queue: the ClusterQueue.
    """
    flavors = (world.flavors.get(name) for name in queue_spec(queue).flavors)
    return tuple(
        Problem(
            f"ResourceFlavor {one.name}",
            f'spec.topologyName is "{one.spec.topology_name}", but this version has no {TOPOLOGY}',
            "name another ResourceFlavor, without topologyName, in its ClusterQueue",
        )
        for one in flavors
        if one is not None and one.spec.topology_name
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
