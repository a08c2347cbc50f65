"""The changes that are worth a trial, in a fixed order, before any of them is tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api import kueue, names
from kueuelib.api.kueue import ClusterQueue, Workload
from kueuelib.api.meta import ObjectKey, is_true
from kueuelib.scheduler.explain.changes import (
    Change,
    Ends,
    RaiseThreshold,
    SetPolicy,
    StartLocalQueue,
    Withdraws,
)
from kueuelib.scheduler.explain.creations import (
    CreateFlavor,
    CreateLocalQueue,
    LabelNamespace,
    ServeCheck,
)
from kueuelib.scheduler.explain.leaving import is_leaving
from kueuelib.scheduler.explain.obstacles import missing_labels
from kueuelib.scheduler.explain.own_changes import (
    AnyNode,
    FewerPods,
    MoveTo,
    SetPriority,
    Tolerate,
    job_of,
    node_demands,
    returns,
)
from kueuelib.scheduler.explain.raises import cohort_raises, other_raises, own_raises
from kueuelib.scheduler.explain.tree_changes import MOST_WEIGHT, RaiseWeight
from kueuelib.scheduler.explain.tree_search import TreeSearch
from kueuelib.scheduler.explain.widening import tolerable, wider_policies
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import holds_quota
from kueuelib.scheduler.quota.queue_spec import queue_spec

MOST_TRIED = 20
"""The maximum number of workloads, queues and priorities that are tried in the whole world. If more
Workloads than this wait, a change is first tried without the others.
"""
SET_UP = "the set-up"
ITSELF = "the Workload itself"
POLICIES = "policies of its ClusterQueue"
OWN_QUOTAS = "quotas of its ClusterQueue"
HOLDERS = "other Workloads"
LOCAL_QUEUES = "other LocalQueues of its namespace"
OTHER_QUOTAS = "quotas of other members of the cohort"
COHORT_QUOTAS = "quotas of Cohorts"
WEIGHTS = "weights"
PARENTS = "cohorts above"

Forms = Sequence[Change]
"""One change in several strengths, the weakest first."""


def all_forms(world: World, key: ObjectKey, now: float) -> Iterator[tuple[str, Forms]]:
    """Every change with its kind, in the order in which `explain` names them.

    Args:
        world: the facts.
        key: the workload.
        now: seconds since the epoch.
    """
    workload = world.workloads[key]
    queue = world.cluster_queue_of(workload)
    for kind, forms in _kinds(world, workload, queue, now):
        for number, one in enumerate(forms):
            if number < MOST_TRIED:
                yield kind, one


def _kinds(
    world: World, workload: Workload, queue: ClusterQueue | None, now: float
) -> Iterator[tuple[str, Iterator[Forms]]]:
    key, near = workload.key, world.narrowed(workload.key)
    yield SET_UP, _each(returns(workload, now))
    yield SET_UP, _each(homes(world, key))
    yield SET_UP, _each(set_up(world, key))
    steps = priorities(near, workload)
    if steps:
        yield ITSELF, iter([steps])
    yield ITSELF, _each(fewest_pods(workload))
    yield ITSELF, _each(for_nodes(world, workload))
    if queue is not None:
        yield OWN_QUOTAS, _each(own_raises(world, queue))
        yield POLICIES, policies(queue)
        if higher := thresholds(near, queue):
            yield POLICIES, iter([higher])
        trees = TreeSearch(world, queue)
        yield WEIGHTS, _each(RaiseWeight(*place, MOST_WEIGHT) for place in trees.weighted())
        yield HOLDERS, _each(map(Ends, holders(near)))
        rivals = sorted(near.workloads.keys() - near.alone(key).workloads.keys())
        yield HOLDERS, _each(map(Withdraws, rivals))
    yield LOCAL_QUEUES, _each(moves(world, workload))
    if queue is not None:
        yield COHORT_QUOTAS, _each(cohort_raises(world, queue))
        yield PARENTS, _each(trees.moves())
        yield OTHER_QUOTAS, _each(other_raises(world, queue))


def _each(changes: Iterator[Change] | Sequence[Change]) -> Iterator[Forms]:
    return ((one,) for one in changes)


def homes(world: World, key: ObjectKey) -> list[CreateLocalQueue]:
    """A LocalQueue of the name that a workload asks for, for each ClusterQueue; none if there is
    one, or none can have that name.

    Args:
        world: the facts.
        key: the workload.
    """
    workload = world.workloads[key]
    wanted = workload.spec.queue_name
    if world.local_queue_of(workload) is not None or not names.is_dns1123_subdomain(wanted):
        return []
    missing = ObjectKey(key.namespace, wanted)
    return [CreateLocalQueue(missing, name) for name in sorted(world.cluster_queues)]


def set_up(world: World, key: ObjectKey) -> Iterator[Change]:
    """What would repair the queues of a workload and what they need.

    Args:
        world: the facts.
        key: the workload.
    """
    workload = world.workloads[key]
    local_queue, queue = world.local_queue_of(workload), world.cluster_queue_of(workload)
    if local_queue is not None and local_queue.spec.stop_policy != kueue.NONE:
        yield StartLocalQueue(local_queue.key, local_queue.spec.stop_policy)
    if queue is None:
        return
    if queue.spec.stop_policy != kueue.NONE:
        yield SetPolicy(queue.name, "stopPolicy", queue.spec.stop_policy, kueue.NONE)
    yield from TreeSearch(world, queue).cuts()
    spec = queue_spec(queue)
    for name in spec.flavors:
        if name not in world.flavors:
            yield CreateFlavor(name)
    for name in sorted({check.name for check in spec.checks}):
        admission_check = world.checks.get(name)
        if admission_check is None or not is_true(admission_check, names.ACTIVE):
            yield ServeCheck(name, exists=admission_check is not None)
    labels = world.namespaces.get(key.namespace)
    wanted = () if labels is None else missing_labels(spec.selector, labels)
    if wanted:
        yield LabelNamespace(key.namespace, wanted)


def for_nodes(world: World, workload: Workload) -> Iterator[Change]:
    """Changes of a workload that give it more flavors.

    Args:
        world: the facts.
        workload: the workload.
    """
    job = job_of(workload)
    for flavor, taint in tolerable(world, world.cluster_queue_of(workload)):
        yield Tolerate(workload.key, flavor, taint, job=job)
    if demands := node_demands(workload):
        yield AnyNode(workload.key, demands, job=job)


def fewest_pods(workload: Workload) -> Iterator[FewerPods]:
    """One pod of each pod set.

    Args:
        workload: the workload.
    """
    job = job_of(workload)
    for one in workload.spec.pod_sets:
        if one.count > 1:
            yield FewerPods(workload.key, one.name, one.count, 1, one.min_count, job=job)


def priorities(near: World, workload: Workload) -> tuple[SetPriority, ...]:
    """The higher priorities that can make a difference: those of others, and just above them.

    Args:
        near: the facts that may matter.
        workload: the workload.
    """
    before = workload.spec.priority or 0
    others = {one.spec.priority or 0 for one in near.workloads.values()}
    steps = sorted({step for other in others for step in (other, other + 1) if step > before})
    return tuple(SetPriority(workload.key, before, step) for step in steps)


def policies(queue: ClusterQueue) -> Iterator[tuple[SetPolicy, ...]]:
    """Each policy with the values that may help.

    Args:
        queue: the ClusterQueue.
    """
    name = queue.name
    if queue.spec.queueing_strategy == kueue.STRICT_FIFO:
        to = kueue.BEST_EFFORT_FIFO
        yield (SetPolicy(name, "queueingStrategy", kueue.STRICT_FIFO, to),)
    for path, before, wider in wider_policies(queue.spec):
        if wider:
            yield tuple(SetPolicy(name, path, before, to) for to in wider)


def thresholds(near: World, queue: ClusterQueue) -> tuple[RaiseThreshold, ...]:
    """The higher thresholds that can make a difference: priorities of workloads with quota.

    Args:
        near: the facts that may matter.
        queue: the ClusterQueue.
    """
    policy = queue.spec.preemption.borrow_within_cohort
    before = policy.max_priority_threshold
    if policy.policy == kueue.NEVER or before is None:
        return ()
    held = [one.spec.priority or 0 for one in near.workloads.values() if holds_quota(one)]
    return tuple(
        RaiseThreshold(queue.name, before, step) for step in sorted(set(held)) if step > before
    )


def holders(near: World) -> list[ObjectKey]:
    """The workloads whose end might help: those that leave already do not count.

    Args:
        near: the facts that may matter.
    """
    return [
        each
        for each, workload in sorted(near.workloads.items())
        if holds_quota(workload) and not is_leaving(workload)
    ]


def moves(world: World, workload: Workload) -> list[MoveTo]:
    """The other LocalQueues of its namespace that lead to another ClusterQueue.

    Args:
        world: the facts.
        workload: the workload.
    """
    current, queue = workload.spec.queue_name, world.cluster_queue_of(workload)
    job = job_of(workload)
    return [
        MoveTo(workload.key, current, other.name, other.spec.cluster_queue, job=job)
        for each, other in sorted(world.local_queues.items())
        if each.namespace == workload.namespace and each.name != current
        if queue is None or other.spec.cluster_queue != queue.name
    ]
