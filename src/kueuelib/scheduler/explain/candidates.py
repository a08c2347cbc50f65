"""The changes that are worth a trial, in a fixed order, before any of them is tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api import kueue, names
from kueuelib.api.core import Taint
from kueuelib.api.kueue import ClusterQueue, ClusterQueueSpec, Workload
from kueuelib.api.meta import ObjectKey, is_true
from kueuelib.api.preemption_policies import (
    BORROW_WITHIN_COHORT,
    RECLAIM_WITHIN_COHORT,
    WITHIN_CLUSTER_QUEUE,
)
from kueuelib.api.queues import ONE
from kueuelib.api.workload_state import has_quota
from kueuelib.scheduler.explain.changes import (
    BORROWING,
    LENDING,
    MOST_WEIGHT,
    NOMINAL,
    CandidateChange,
    CreateFlavor,
    CreateLocalQueue,
    Ends,
    LabelNamespace,
    More,
    RaiseQuota,
    RaiseThreshold,
    RaiseWeight,
    ServeCheck,
    SetParent,
    SetPolicy,
    StartLocalQueue,
    Withdraws,
    amount_in,
)
from kueuelib.scheduler.explain.leaving import is_leaving
from kueuelib.scheduler.explain.level_changes import other_levels
from kueuelib.scheduler.explain.own_changes import (
    AnyNode,
    FewerPods,
    MoveTo,
    SetPriority,
    Tolerate,
    job_of,
    node_demands,
    returns,
    slice_of,
)
from kueuelib.scheduler.explain.place_changes import cordoned, relaxations, tainted
from kueuelib.scheduler.explain.problems import missing_labels
from kueuelib.scheduler.explain.sizes import MOST
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, COHORT, QuotaOwner, World
from kueuelib.scheduler.quota.queue_spec import queue_spec

# ---- finds values of policies, and tolerations, that would help a workload -----------------------


def wider_policies(spec: ClusterQueueSpec) -> Iterator[tuple[str, str, Sequence[str]]]:
    """The path of each policy, its value, and the values that allow more, the nearest first."""
    policies = (
        (
            "preemption.withinClusterQueue",
            spec.preemption.within_cluster_queue,
            WITHIN_CLUSTER_QUEUE,
        ),
        (
            "preemption.reclaimWithinCohort",
            spec.preemption.reclaim_within_cohort,
            RECLAIM_WITHIN_COHORT,
        ),
        (
            "preemption.borrowWithinCohort.policy",
            spec.preemption.borrow_within_cohort.policy,
            BORROW_WITHIN_COHORT,
        ),
        (
            "flavorFungibility.whenCanPreempt",
            spec.flavor_fungibility.when_can_preempt,
            (kueue.MAY_STOP_SEARCH, kueue.TRY_NEXT_FLAVOR),
        ),
    )
    for path, before, scale in policies:
        at = scale.index(before) if before in scale else 0
        yield path, before, scale[at + 1 :]


def tolerable(world: World, queue: ClusterQueue | None) -> list[tuple[str, Taint]]:
    """The taints that keep pods off the flavors of a queue, each with its flavor for people."""
    if queue is None:
        return []
    return [
        (f"flavor {name}", taint)
        for name in queue_spec(queue).flavors
        if name in world.flavors
        for taint in world.flavors[name].spec.node_taints
        if taint.effect in ("NoSchedule", "NoExecute")
    ]


# ---- where a workload might get more quota, each with the largest raise that makes sense ---------

LIMITS = {LENDING: "lending", NOMINAL: "nominal", BORROWING: "borrowing"}
"""The fields of quotas, each with the field of `Limits` that it becomes."""


def own_raises(world: World, queue: ClusterQueue) -> Iterator[RaiseQuota]:
    """Quotas of a ClusterQueue, flavor by flavor.

    Args:
        world: the facts.
        queue: the ClusterQueue of the workload.
    """
    place = QuotaOwner(CLUSTER_QUEUE, queue.name)
    for flavor in queue_spec(queue).flavors:
        for field in LIMITS:
            yield from _raise(world, queue, place, flavor, field)


def cohort_raises(world: World, queue: ClusterQueue) -> Iterator[RaiseQuota]:
    """Quotas and limits of the Cohorts of its tree, those above it first.

    Args:
        world: the facts.
        queue: the ClusterQueue of the workload.
    """
    above = world.above(queue.spec.cohort_name)
    others = [name for name in world.cohorts_of(world.scope_of(queue)) if name not in above]
    for cohorts in (above, others):
        for flavor in queue_spec(queue).flavors:
            for name in cohorts:
                for field in LIMITS if name in world.cohorts else ():
                    yield from _raise(world, queue, QuotaOwner(COHORT, name), flavor, field)


def other_raises(world: World, queue: ClusterQueue) -> Iterator[RaiseQuota]:
    """Quotas of the other ClusterQueues of its tree, flavor by flavor.

    Args:
        world: the facts.
        queue: the ClusterQueue of the workload.
    """
    others = sorted(world.scope_of(queue) - {queue.name})
    for field in LIMITS:
        for flavor in queue_spec(queue).flavors:
            for name in others:
                yield from _raise(world, queue, QuotaOwner(CLUSTER_QUEUE, name), flavor, field)


def _raise(
    world: World, queue: ClusterQueue, place: QuotaOwner, flavor: str, field: str
) -> Iterator[RaiseQuota]:
    """The raise of everything that the ClusterQueue offers, as far as possible; none if nothing
    can be raised.
    """
    quotas = place.quotas(world)
    amounts = []
    for name, resource in QuotaOwner(CLUSTER_QUEUE, queue.name).quotas(world):
        quota = quotas.get((flavor, resource))
        amount = None if quota is None or name != flavor else amount_in(quota, field)
        if quota is None or amount is None:
            continue
        # A Cohort may lend more than its own: what its members lend it.
        full = field == LENDING and place.kind == CLUSTER_QUEUE
        limit = (amount_in(quota, NOMINAL) or 0) - amount if full else MOST
        if limit > 0:
            amounts.append(More(resource, amount, limit))
    if amounts:
        yield RaiseQuota(place, flavor, field, tuple(amounts))


# ---- possible changes in the tree of cohorts of a ClusterQueue -----------------------------------


class TreeSearch:
    """The candidates, in a fixed order.

    Args:
        world: the facts; not changed.
        queue: the ClusterQueue.
    """

    def __init__(self, world: World, queue: ClusterQueue) -> None:
        self._world = world
        self._queue = queue
        above = world.above(queue.spec.cohort_name)
        self._places = [
            QuotaOwner(CLUSTER_QUEUE, queue.name),
            *(QuotaOwner(COHORT, name) for name in above if name in world.cohorts),
        ]

    def has_cohorts(self) -> bool:
        """Whether its tree has a Cohort with an object."""
        return any(
            name in self._world.cohorts for name in self._world.cohorts_of([self._queue.name])
        )

    def weighted(self) -> list[tuple[QuotaOwner, int]]:
        """The places whose weights count for it, from the ClusterQueue up, with weights in 10^-9.

        None if shares do not decide; a root has no share.
        """
        if self._world.settings.fair_sharing is None:
            return []
        weights = []
        for place in self._places:
            if place.parent(self._world):
                sharing = place.spec(self._world).fair_sharing
                weights.append((place, (ONE if sharing is None else sharing.weight).nanos))
        return weights

    def cuts(self) -> list[SetParent]:
        """The places where a cycle of parents could be opened."""
        cycle = self._world.cycle_above(self._queue.spec.cohort_name)
        places = (QuotaOwner(COHORT, name) for name in cycle)
        return [self._leaves(place) for place in places if self._may_leave(place)]

    def moves(self) -> list[SetParent]:
        """Other parents in its tree for it or for a Cohort above it, without cycles, beginning with
        no parent; `cuts` excepted. What another tree owns is not its own to take.
        """
        tree = self._world.cohorts_of([self._queue.name])
        cohorts = {name: self._world.above(name) for name in tree}
        cuts = self.cuts()
        leaves = [self._leaves(place) for place in self._places if self._may_leave(place)]
        return [one for one in leaves if one not in cuts] + [
            SetParent(place, before, name)
            for place in self._places
            for before in (place.parent(self._world),)
            for name, above in cohorts.items()
            if name != before
            and not self._world.cycle_above(name)
            and not (place.kind == COHORT and place.name in above)
        ]

    def _leaves(self, place: QuotaOwner) -> SetParent:
        return SetParent(place, place.parent(self._world), "")

    def _may_leave(self, place: QuotaOwner) -> bool:
        """Whether a place may lose its parent: limits need a parent."""
        return bool(place.parent(self._world)) and not any(
            quota.borrowing_limit is not None or quota.lending_limit is not None
            for quota in place.quotas(self._world).values()
        )


# --------------------------------------------------------------------------------------------------

MOST_TRIED = 20
"""The maximum number of workloads, queues and priorities that are tried in the whole world. If more
Workloads than this wait, a change is first tried without the others.
"""
SET_UP = "the set-up"
ITSELF = "the Workload itself"
POLICIES = "policies of its ClusterQueue"
OWN_QUOTAS = "quotas of its ClusterQueue"
HOLDERS = "other Workloads"
NODES = "nodes"
LOCAL_QUEUES = "other LocalQueues of its namespace"
OTHER_QUOTAS = "quotas of other members of the cohort"
COHORT_QUOTAS = "quotas of Cohorts"
WEIGHTS = "weights"
PARENTS = "cohorts above"

Forms = Sequence[CandidateChange]
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
    yield ITSELF, other_levels(world, workload)
    yield ITSELF, relaxations(world, workload)
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
        yield NODES, _each(cordoned(world, queue))
    yield LOCAL_QUEUES, _each(moves(world, workload))
    if queue is not None:
        yield COHORT_QUOTAS, _each(cohort_raises(world, queue))
        yield PARENTS, _each(trees.moves())
        yield OTHER_QUOTAS, _each(other_raises(world, queue))


def _each(changes: Iterator[CandidateChange] | Sequence[CandidateChange]) -> Iterator[Forms]:
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


def set_up(world: World, key: ObjectKey) -> Iterator[CandidateChange]:
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


def for_nodes(world: World, workload: Workload) -> Iterator[CandidateChange]:
    """Changes of a workload that give it more flavors, or more nodes of them.

    Args:
        world: the facts.
        workload: the workload.
    """
    job, queue = job_of(workload), world.cluster_queue_of(workload)
    for where, taint in (*tolerable(world, queue), *tainted(world, workload, queue)):
        yield Tolerate(workload.key, where, taint, job=job)
    if demands := node_demands(workload):
        yield AnyNode(workload.key, demands, job=job)


def fewest_pods(workload: Workload) -> Iterator[FewerPods]:
    """One pod of each pod set, or one slice.

    Args:
        workload: the workload.
    """
    job = job_of(workload)
    for one in workload.spec.pod_sets:
        unit = slice_of(one)
        if one.count > unit:
            least = one.min_count
            yield FewerPods(workload.key, one.name, one.count, unit, least, unit, job=job)


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
    held = [one.spec.priority or 0 for one in near.workloads.values() if has_quota(one)]
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
        if has_quota(workload) and not is_leaving(workload)
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
