"""The search for single changes that would give a workload quota now.

Sizes are searched where nobody else waits, which is fast, and then tried in the whole world; what
is reported was admitted there, and one unit less was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd

import attrs

from kueuelib.api import conditions, kueue, names
from kueuelib.api.core import Taint
from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.amounts import PODS
from kueuelib.scheduler.explain.changes import (
    BORROWING,
    LENDING,
    NOMINAL,
    Change,
    Ends,
    More,
    RaiseQuota,
    SetPolicy,
    StartLocalQueue,
    Withdraws,
    amount_in,
    quotas_of,
)
from kueuelib.scheduler.explain.creations import (
    CreateFlavor,
    CreateLocalQueue,
    LabelNamespace,
    ServeCheck,
)
from kueuelib.scheduler.explain.obstacles import missing_labels
from kueuelib.scheduler.explain.own_changes import (
    Activate,
    BackOffEnds,
    FewerPods,
    MoveTo,
    SetPriority,
    Tolerate,
)
from kueuelib.scheduler.explain.trial import Outcome, Probe, Verdict, outcome
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.queue_spec import queue_spec
from kueuelib.scheduler.workload_info import holds_quota

MOST = 2**50
"""More than any cluster has of anything, in the units of amounts."""
Sizes = dict[str, int]
"""How much more, by resource."""
MOST_TRIED = 20
"""How many workloads, queues and priorities are tried in the whole world."""


@attrs.frozen
class Found:
    """A change that was tried with success.

    Attributes:
        change: what to do.
        outcome: what it came to.
    """

    change: Change
    outcome: Outcome

    @property
    def victims(self) -> tuple[ObjectKey, ...]:
        """Who would be preempted for it."""
        return self.outcome.victims


def grains_of(world: World, now: float) -> dict[str, int]:
    """Per resource the largest amount that divides all amounts: no threshold lies between.

    Args:
        world: the facts that count.
        now: seconds since the epoch.
    """
    engine = world.engine(now)
    grains: dict[str, int] = {}

    def take(resource: str, amount: int | None) -> None:
        grains[resource] = gcd(grains.get(resource, 0), amount or 0)

    for name in engine.cache.names:
        spec = engine.cache.spec(name)
        for pair, limits in () if spec is None else spec.limits.items():
            for amount in (limits.nominal, limits.borrowing, limits.lending):
                take(pair.resource, amount)
        for info in engine.pending(name):
            for pod_set in info.pod_sets:
                for resource, amount in pod_set.per_pod.items():
                    take(resource, amount)
    for holder in engine.cache.holders.values():
        for pair, amount in holder.usage.items():
            take(pair.resource, amount)
    grains.pop(PODS, None)
    return grains


class Search:
    """The changes for one workload that waits.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
        base: what becomes of it if nothing is changed.
    """

    def __init__(self, world: World, key: ObjectKey, now: float, base: Outcome) -> None:
        self._world = world
        self._key = key
        self._now = now
        self._base = base
        self._workload = world.workloads[key]
        self._local_queue = world.local_queue_of(self._workload)
        self._queue = world.cluster_queue_of(self._workload)
        self._grains = grains_of(world.narrowed(key), now)

    def run(self) -> tuple[Found, ...]:
        """All changes that were found, those of the set-up first."""
        if self._base.verdict not in (Verdict.WAITS, Verdict.PREEMPTS):
            return ()
        found = [*self._set_up(), *self._own()]
        if self._queue is not None:
            found += [*self._policies(self._queue), *self._others()]
            found += self._quotas(self._queue)
        return tuple(found)

    # --- trying

    def _try(self, change: Change) -> Outcome:
        return outcome(change.apply(self._world), self._key, self._now)

    def _helps(self, found: Outcome) -> bool:
        """Whether an outcome is better than that of doing nothing."""
        return found.admits or (found.helps and self._base.verdict is Verdict.WAITS)

    def _check(self, change: Change) -> Iterator[Found]:
        found = self._try(change)
        if self._helps(found):
            yield Found(change, found)

    def _least(self, make: Callable[[int], Change], most: int) -> Found | None:
        """The smallest size from 1 to `most` that admits while one less does not."""
        alone = self._world.narrowed(self._key).alone(self._key)

        def admits(size: int) -> bool:
            return self._try(make(size)).admits

        def admits_alone(size: int) -> bool:
            return outcome(make(size).apply(alone), self._key, self._now).admits

        if not admits_alone(most):
            return None
        size = _bisect(0, most, admits_alone)
        if not admits(size) or (size > 1 and admits(size - 1)):
            if not admits(most):
                return None
            size = _bisect(0, most, admits)
        change = make(size)
        return Found(change, self._try(change))

    # --- what is wrong with the set-up

    def _set_up(self) -> Iterator[Found]:
        key, workload = self._key, self._workload
        if not workload.spec.active:
            yield from self._check(Activate(key))
        state = workload.status.requeue_state
        if state is not None and state.requeue_at is not None and state.requeue_at > self._now:
            yield from self._check(BackOffEnds(key, state.requeue_at))
        if self._local_queue is None:
            if workload.spec.queue_name:
                missing = ObjectKey(key.namespace, workload.spec.queue_name)
                for name in sorted(self._world.cluster_queues)[:MOST_TRIED]:
                    yield from self._check(CreateLocalQueue(missing, name))
        elif self._local_queue.spec.stop_policy != kueue.NONE:
            before = self._local_queue.spec.stop_policy
            yield from self._check(StartLocalQueue(self._local_queue.key, before))
        if self._queue is not None:
            yield from self._set_up_of(self._queue)

    def _set_up_of(self, queue: ClusterQueue) -> Iterator[Found]:
        if queue.spec.stop_policy != kueue.NONE:
            stopped = queue.spec.stop_policy
            yield from self._check(SetPolicy(queue.name, "stopPolicy", stopped, kueue.NONE))
        spec = queue_spec(queue)
        for name in spec.flavors:
            if name not in self._world.flavors:
                yield from self._check(CreateFlavor(name))
        for name in sorted({check.name for check in spec.checks}):
            found = self._world.checks.get(name)
            if found is None or not conditions.is_true(found.status.conditions, names.ACTIVE):
                yield from self._check(ServeCheck(name, exists=found is not None))
        labels = self._world.namespaces.get(self._key.namespace)
        if labels is not None and not spec.selector.matches(labels):
            wanted = missing_labels(spec.selector, labels)
            if wanted:
                yield from self._check(LabelNamespace(self._key.namespace, wanted))

    # --- the workload itself

    def _own(self) -> Iterator[Found]:
        yield from self._priorities()
        yield from self._fewer_pods()
        for flavor, taint in self._taints():
            yield from self._check(Tolerate(self._key, flavor, taint))
        current = self._workload.spec.queue_name
        queues = [
            found
            for each, found in sorted(self._world.local_queues.items())
            if each.namespace == self._key.namespace and each.name != current
        ]
        for found in queues[:MOST_TRIED]:
            if self._queue is None or found.spec.cluster_queue != self._queue.name:
                home = found.spec.cluster_queue
                yield from self._check(MoveTo(self._key, current, found.name, home))

    def _priorities(self) -> Iterator[Found]:
        """Only priorities of others, and those just above them, can make a difference."""
        before = self._workload.spec.priority or 0
        near = self._world.narrowed(self._key).workloads.values()
        others = {found.spec.priority or 0 for found in near}
        steps = sorted({step for other in others for step in (other, other + 1) if step > before})
        if len(steps) > MOST_TRIED:
            if not self._helps(self._try(SetPriority(self._key, before, steps[-1]))):
                return
            index = _bisect(
                -1,
                len(steps) - 1,
                lambda at: self._helps(self._try(SetPriority(self._key, before, steps[at]))),
            )
            steps = [steps[index]]
        for step in steps:
            found = self._try(SetPriority(self._key, before, step))
            if self._helps(found):
                yield Found(SetPriority(self._key, before, step), found)
                return

    def _fewer_pods(self) -> Iterator[Found]:
        for pod_set in self._workload.spec.pod_sets:
            before = pod_set.count
            if before < 2:
                continue

            def fewer(by: int, name: str = pod_set.name, before: int = before) -> Change:
                return FewerPods(self._key, name, before, before - by)

            found = self._least(fewer, before - 1)
            if found is not None:
                yield found

    def _taints(self) -> list[tuple[str, Taint]]:
        if self._queue is None:
            return []
        return [
            (name, taint)
            for name in queue_spec(self._queue).flavors
            if name in self._world.flavors
            for taint in self._world.flavors[name].spec.node_taints
            if taint.effect in ("NoSchedule", "NoExecute")
        ]

    # --- policies

    def _policies(self, queue: ClusterQueue) -> Iterator[Found]:
        spec, name = queue.spec, queue.name
        if spec.queueing_strategy == kueue.STRICT_FIFO:
            to = kueue.BEST_EFFORT_FIFO
            yield from self._check(SetPolicy(name, "queueingStrategy", kueue.STRICT_FIFO, to))
        policies = (
            (
                "preemption.withinClusterQueue",
                spec.preemption.within_cluster_queue,
                (kueue.NEVER, kueue.LOWER_PRIORITY, kueue.LOWER_OR_NEWER_EQUAL_PRIORITY),
            ),
            (
                "preemption.reclaimWithinCohort",
                spec.preemption.reclaim_within_cohort,
                (kueue.NEVER, kueue.LOWER_PRIORITY, kueue.ANY),
            ),
            (
                "preemption.borrowWithinCohort.policy",
                spec.preemption.borrow_within_cohort.policy,
                (kueue.NEVER, kueue.LOWER_PRIORITY),
            ),
            (
                "flavorFungibility.whenCanPreempt",
                spec.flavor_fungibility.when_can_preempt,
                (kueue.MAY_STOP_SEARCH, kueue.TRY_NEXT_FLAVOR),
            ),
        )
        for path, before, scale in policies:
            at = scale.index(before) if before in scale else 0
            for to in scale[at + 1 :]:
                found = self._try(SetPolicy(name, path, before, to))
                if self._helps(found):
                    yield Found(SetPolicy(name, path, before, to), found)
                    break

    # --- other workloads

    def _others(self) -> Iterator[Found]:
        near = self._world.narrowed(self._key)
        probe = Probe(self._world, self._key, self._now)
        tried = 0
        for each, found in sorted(near.workloads.items()):
            if tried >= MOST_TRIED:
                return
            if not holds_quota(found):
                continue
            if self._helps(probe.base) or self._helps(probe.without(each)):
                tried += 1
                yield from self._check(Ends(each))
        if not self._helps(probe.base):
            return
        ahead = near.ahead_of(self._key)
        rivals = [*ahead, *sorted(set(near.workloads) - set(ahead) - {self._key})]
        for each in rivals[:MOST_TRIED]:
            if not holds_quota(near.workloads[each]):
                yield from self._check(Withdraws(each))

    # --- quotas

    def _quotas(self, queue: ClusterQueue) -> Iterator[Found]:
        quotas = quotas_of(queue)
        for flavor in queue_spec(queue).flavors:
            resources = [resource for name, resource in quotas if name == flavor]
            for field in (NOMINAL, BORROWING):
                if field == BORROWING and not queue.spec.cohort_name:
                    continue
                yield from self._raise(queue, flavor, field, resources)
            for name in sorted(self._world.scope_of(queue) - {queue.name}):
                yield from self._raise(self._world.cluster_queues[name], flavor, LENDING, resources)

    def _raise(
        self, queue: ClusterQueue, flavor: str, field: str, resources: list[str]
    ) -> Iterator[Found]:
        """Everything is raised as far as it goes, then one resource after the other lowered."""
        quotas = quotas_of(queue)
        before: dict[str, int] = {}
        most: dict[str, int] = {}
        for resource in resources:
            quota = quotas.get((flavor, resource))
            amount = None if quota is None else amount_in(quota, field)
            if quota is None or amount is None:
                continue
            nominal = amount_in(quota, NOMINAL) or 0
            limit = nominal - amount if field == LENDING else MOST
            if limit > 0:
                before[resource], most[resource] = amount, limit
        by = dict(most)

        def change(sizes: dict[str, int]) -> RaiseQuota:
            amounts = (More(name, before[name], size) for name, size in sizes.items() if size)
            return RaiseQuota(queue.name, flavor, field, tuple(amounts))

        alone = self._world.narrowed(self._key).alone(self._key)

        def admits(sizes: dict[str, int]) -> bool:
            return self._try(change(sizes)).admits

        def admits_alone(sizes: dict[str, int]) -> bool:
            return outcome(change(sizes).apply(alone), self._key, self._now).admits

        if not by or not admits_alone(by):
            return
        for test in (admits_alone, admits):
            by = _lowered(dict(most), self._grains, test)
            if any(by.values()) and self._is_least(by, admits):
                yield Found(change(by), self._try(change(by)))
                return
            if not admits(most):
                return

    def _is_least(self, by: dict[str, int], admits: Callable[[dict[str, int]], bool]) -> bool:
        return admits(by) and not any(
            admits({**by, name: size - 1}) for name, size in by.items() if size
        )


def _lowered(
    by: dict[str, int], grains: Mapping[str, int], admits: Callable[[dict[str, int]], bool]
) -> dict[str, int]:
    """The sizes, each as small as it can be when the ones before it are.

    Args:
        by: sizes that admit.
        grains: per resource the size of the steps; 1 where it is not named.
        admits: the test.
    """
    for name, most in tuple(by.items()):
        grain = grains.get(name) or 1

        def enough(steps: int, name: str = name, grain: int = grain, rest: Sizes = by) -> bool:
            return admits({**rest, name: steps * grain})

        steps = -(-most // grain)
        by = {**by, name: 0 if enough(0) else grain * _gallop(steps, enough)}
    return by


def _gallop(most: int, test: Callable[[int], bool]) -> int:
    """As `_bisect` from 0 to `most`, for results that are small in comparison."""
    no, yes = 0, 1
    while yes < most and not test(yes):
        no, yes = yes, yes * 2
    return _bisect(no, min(yes, most), test)


def _bisect(no: int, yes: int, test: Callable[[int], bool]) -> int:
    """A size that passes the test while the one below does not.

    Args:
        no: does not pass.
        yes: passes.
        test: the test.
    """
    while yes - no > 1:
        middle = (no + yes) // 2
        if test(middle):
            yes = middle
        else:
            no = middle
    return yes
