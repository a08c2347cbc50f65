"""Searches for single changes that would give a workload quota now.

If many Workloads wait, changes are first tried without the others, which is fast, and then in the
whole world. A reported change was admitted there, and one unit less was not. If less is enough when
others leave, that is reported, too. Each kind of change has a share of the budget; gaps are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from kueuelib.api import kueue, names
from kueuelib.api.kueue import ClusterQueue, PodSet
from kueuelib.api.meta import ObjectKey, is_true
from kueuelib.scheduler.explain.budget import MOST_STEPS, OutOfStepsError
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
from kueuelib.scheduler.explain.later import first_end
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
from kueuelib.scheduler.explain.places import Place
from kueuelib.scheduler.explain.quota_search import Goal, QuotaSearch
from kueuelib.scheduler.explain.sizes import bisect, gallop, grains_of
from kueuelib.scheduler.explain.smallest import smallest
from kueuelib.scheduler.explain.tree_changes import MOST_WEIGHT, RaiseWeight, SetParent
from kueuelib.scheduler.explain.tree_search import TreeSearch
from kueuelib.scheduler.explain.trial import Probe, TrialOutcome, Trials, Verdict
from kueuelib.scheduler.explain.tried_change import TriedChange
from kueuelib.scheduler.explain.widening import tolerable, wider_policies
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.pending.workload_info import holds_quota
from kueuelib.scheduler.quota.queue_spec import queue_spec

T = TypeVar("T")

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


class Search:
    """The changes for one workload that waits.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
        base: its outcome without a change.
        trials: for changes of that world.

    Attributes:
        tried: the kinds of changes whose search was completed.
        limits: the gaps in the search, as sentences for people.
    """

    def __init__(
        self, world: World, key: ObjectKey, now: float, base: TrialOutcome, trials: Trials
    ) -> None:
        self._world = world
        self._trials = trials
        self.tried: list[str] = []
        self.limits: list[str] = []
        self._key = key
        self._now = now
        self._base = base
        self._workload = world.workloads[key]
        self._job = job_of(self._workload)
        self._local_queue = world.local_queue_of(self._workload)
        self._queue = world.cluster_queue_of(self._workload)
        self._near = trials.near
        self._budget = trials.budget
        self._rivals = sorted(set(self._near.workloads) - set(self._near.alone(key).workloads))
        self._grains = grains_of(trials.engine())
        self._goals = (_admits, self._helps)
        self._alone = trials
        if len(self._rivals) > MOST_TRIED:
            self._alone = Trials(world.alone(key), key, now, self._budget)

    def run(self) -> tuple[TriedChange, ...]:
        """All changes that were found, those of the set-up first."""
        if self._base.verdict not in (Verdict.WAITS, Verdict.PREEMPTS):
            return ()
        if self._base.unsettled:
            self.limits.append(
                "the queues did not come to rest within the limit of heads; what had been "
                "decided by then is shown, and no change was tried"
            )
            return ()
        changes: list[TriedChange] = []
        for name, part, search in self._kinds():
            self._budget.share(part)
            try:
                for one in search():
                    changes.append(one)  # noqa: PERF402 (what was found before it broke off counts)
            except OutOfStepsError:
                self.limits.append(
                    f"not everything among {name} was tried: no more than "
                    f"{MOST_STEPS} heads are tried in all"
                )
            else:
                self.tried.append(name)
        self._budget.share(1.0)
        # While steps are left, changes that help as they are come before those that must shrink.
        numbers = sorted(range(len(changes)), key=lambda at: not changes[at].sized)
        sizes = {number: self._in_sizes(changes[number]) for number in numbers}
        shown: list[TriedChange] = []
        for one in chain.from_iterable(sizes[number] for number in sorted(numbers)):
            if one.sized and self._helps(one.outcome) and one not in shown:
                shown.append(one)
        return tuple(shown)

    def _in_sizes(self, option: TriedChange) -> Sequence[TriedChange]:
        """The smallest size that admits it, and the smallest that is enough if others leave."""
        by_weight = option.change.kind == RaiseWeight.kind
        shown: list[TriedChange] = []
        try:
            for good in (self._helps,) if by_weight else self._goals:
                option = smallest(option, self._grains, self._trials.with_change, good)
                if good(option.outcome):
                    shown = [option] if option.outcome.admits else [*shown, option]
        except OutOfStepsError:
            limit = f"not all smaller sizes were tried: no more than {MOST_STEPS} heads are tried"
            self.limits += [] if limit in self.limits else [limit]
        return shown or [option]

    def _kinds(self) -> Iterator[tuple[str, float, Callable[[], Iterator[TriedChange]]]]:
        """The kinds of changes, each with its share of the remaining budget and its search."""
        yield SET_UP, 0.3, self._set_up
        yield ITSELF, 0.3, self._own
        if self._queue is None:
            yield LOCAL_QUEUES, 1.0, self._moves
            return
        quotas = QuotaSearch(
            self._world, self._key, self._queue, self._trials, self._alone, self._goals
        )
        yield OWN_QUOTAS, 0.75, quotas.own
        yield POLICIES, 0.5, partial(self._policies, self._queue)
        trees = TreeSearch(self._world, self._queue)
        if trees.weighted():
            yield WEIGHTS, 0.3, partial(self._weights, trees)
        yield HOLDERS, 0.8, self._others
        yield LOCAL_QUEUES, 0.5, self._moves
        if trees.has_cohorts():
            yield COHORT_QUOTAS, 0.6, quotas.cohorts
        moves = trees.moves()
        if moves:
            yield PARENTS, 0.4, partial(self._parents, moves)
        if self._queue.spec.cohort_name:
            yield OTHER_QUOTAS, 1.0, quotas.others

    def _first(self, candidates: Sequence[T], what: str) -> Sequence[T]:
        """The first few candidates; a note says that the rest is left out."""
        if len(candidates) > MOST_TRIED:
            self.limits.append(f"only {MOST_TRIED} of {len(candidates)} {what} were tried")
        return candidates[:MOST_TRIED]

    # --- trying

    def _try(self, change: Change) -> TrialOutcome:
        """The outcome of a change; if many wait, one that would not help alone is skipped."""
        if self._alone is not self._trials:
            alone = self._alone.with_change(change)
            if not self._helps(alone):
                return alone
        return self._trials.with_change(change)

    def _helps(self, outcome: TrialOutcome) -> bool:
        """Whether an outcome is better than that without a change."""
        return outcome.admits or (outcome.helps and self._base.verdict is Verdict.WAITS)

    def _check(self, change: Change) -> Iterator[TriedChange]:
        if self._helps(outcome := self._try(change)):
            yield TriedChange(change, outcome)

    def _least(self, make: Callable[[int], Change], most: int) -> TriedChange | None:
        """The smallest size from 1 to `most` that suffices while one less does not."""
        for good in self._goals:
            for trials in (self._alone, self._trials):

                def enough(size: int, trials: Trials = trials, good: Goal = good) -> bool:
                    return good(trials.with_change(make(size)))

                if not enough(most):
                    break
                size = bisect(0, most, enough)
                option = TriedChange(make(size), self._trials.with_change(make(size)))
                less = size > 1 and good(self._trials.with_change(make(size - 1)))
                if good(option.outcome) and not less:
                    return option
        return None

    # --- what is wrong with the set-up

    def _set_up(self) -> Iterator[TriedChange]:
        key, workload = self._key, self._workload
        for change in returns(workload, self._now):
            yield from self._check(change)
        later = first_end(self._world, key, self._now, self._base, self._budget)
        if later is not None and self._helps(later.outcome):
            yield later
        if self._local_queue is None:
            if names.is_dns1123_subdomain(workload.spec.queue_name):
                missing = ObjectKey(key.namespace, workload.spec.queue_name)
                for name in self._first(sorted(self._world.cluster_queues), "ClusterQueues"):
                    yield from self._check(CreateLocalQueue(missing, name))
        elif self._local_queue.spec.stop_policy != kueue.NONE:
            before = self._local_queue.spec.stop_policy
            yield from self._check(StartLocalQueue(self._local_queue.key, before))
        if self._queue is not None:
            yield from self._set_up_of(self._queue)

    def _set_up_of(self, queue: ClusterQueue) -> Iterator[TriedChange]:
        if queue.spec.stop_policy != kueue.NONE:
            stopped = queue.spec.stop_policy
            yield from self._check(SetPolicy(queue.name, "stopPolicy", stopped, kueue.NONE))
        for change in TreeSearch(self._world, queue).cuts():
            yield from self._check(change)
        spec = queue_spec(queue)
        for name in spec.flavors:
            if name not in self._world.flavors:
                yield from self._check(CreateFlavor(name))
        for name in sorted({check.name for check in spec.checks}):
            admission_check = self._world.checks.get(name)
            if admission_check is None or not is_true(admission_check, names.ACTIVE):
                yield from self._check(ServeCheck(name, exists=admission_check is not None))
        labels = self._world.namespaces.get(self._key.namespace)
        wanted = () if labels is None else missing_labels(spec.selector, labels)
        if wanted:
            yield from self._check(LabelNamespace(self._key.namespace, wanted))

    # --- the workload itself

    def _own(self) -> Iterator[TriedChange]:
        yield from self._priorities()
        yield from self._fewer_pods()
        for flavor, taint in tolerable(self._world, self._queue):
            yield from self._check(Tolerate(self._key, flavor, taint, job=self._job))
        if demands := node_demands(self._workload):
            yield from self._check(AnyNode(self._key, demands, job=self._job))

    def _moves(self) -> Iterator[TriedChange]:
        current = self._workload.spec.queue_name
        queues = [
            other
            for each, other in sorted(self._world.local_queues.items())
            if each.namespace == self._key.namespace and each.name != current
        ]
        for local_queue in self._first(queues, "LocalQueues of the namespace"):
            home, name = local_queue.spec.cluster_queue, local_queue.name
            if self._queue is None or home != self._queue.name:
                yield from self._check(MoveTo(self._key, current, name, home, job=self._job))

    def _priorities(self) -> Iterator[TriedChange]:
        """The priorities to try: only those of others, and just above them, can make a
        difference.
        """
        before = self._workload.spec.priority or 0
        near = self._near.workloads.values()
        others = {workload.spec.priority or 0 for workload in near}
        steps = sorted({step for other in others for step in (other, other + 1) if step > before})
        if len(steps) > MOST_TRIED:
            if not self._helps(self._try(SetPriority(self._key, before, steps[-1]))):
                return
            index = bisect(
                -1,
                len(steps) - 1,
                lambda at: self._helps(self._try(SetPriority(self._key, before, steps[at]))),
            )
            steps = [steps[index]]
        for step in steps:
            outcome = self._try(SetPriority(self._key, before, step))
            if self._helps(outcome):
                yield TriedChange(SetPriority(self._key, before, step), outcome)
                return

    def _fewer_pods(self) -> Iterator[TriedChange]:
        for pod_set in self._workload.spec.pod_sets:
            if pod_set.count < 2:
                continue

            def fewer(by: int, pods: PodSet = pod_set) -> Change:
                to, least = pods.count - by, pods.min_count
                return FewerPods(self._key, pods.name, pods.count, to, least, job=self._job)

            option = self._least(fewer, pod_set.count - 1)
            if option is not None:
                yield option

    # --- policies

    def _policies(self, queue: ClusterQueue) -> Iterator[TriedChange]:
        spec, name = queue.spec, queue.name
        if spec.queueing_strategy == kueue.STRICT_FIFO:
            to = kueue.BEST_EFFORT_FIFO
            yield from self._check(SetPolicy(name, "queueingStrategy", kueue.STRICT_FIFO, to))
        for path, before, wider in wider_policies(spec):
            for to in wider:
                outcome = self._try(SetPolicy(name, path, before, to))
                if self._helps(outcome):
                    yield TriedChange(SetPolicy(name, path, before, to), outcome)
                    break

        yield from self._thresholds(queue)

    def _thresholds(self, queue: ClusterQueue) -> Iterator[TriedChange]:
        """The thresholds to try: only priorities of workloads with quota can make a difference."""
        policy = queue.spec.preemption.borrow_within_cohort
        before = policy.max_priority_threshold
        if policy.policy == kueue.NEVER or before is None:
            return
        near = self._near.workloads.values()
        steps = sorted({workload.spec.priority or 0 for workload in near if holds_quota(workload)})
        higher = [step for step in steps if step > before]
        for to in self._first(higher, "thresholds of priority"):
            change = RaiseThreshold(queue.name, before, to)
            outcome = self._try(change)
            if self._helps(outcome):
                yield TriedChange(change, outcome)
                return

    # --- the tree of cohorts

    def _weights(self, trees: TreeSearch) -> Iterator[TriedChange]:
        """The smallest weight that helps: a larger weight is a smaller share, so it is found by
        bisection.
        """
        for place, before in trees.weighted():

            def helps(steps: int, place: Place = place, before: int = before) -> bool:
                return self._helps(self._try(RaiseWeight(place, before, steps)))

            if helps(MOST_WEIGHT):
                change = RaiseWeight(place, before, gallop(MOST_WEIGHT, helps))
                yield TriedChange(change, self._trials.with_change(change))

    def _parents(self, moves: Sequence[SetParent]) -> Iterator[TriedChange]:
        for change in self._first(moves, "other places in trees of cohorts"):
            yield from self._check(change)

    # --- other workloads

    def _others(self) -> Iterator[TriedChange]:
        near, rivals = self._near, self._rivals
        holders = [
            each
            for each, workload in sorted(near.workloads.items())
            if holds_quota(workload) and not is_leaving(workload)
        ]
        if max(len(holders), len(rivals)) > MOST_TRIED:
            probe = Probe(self._world, self._key, self._now, self._budget)
            if not self._helps(probe.base):
                holders = [each for each in holders if self._helps(probe.without(each))]
                rivals = []
        for each in self._first(holders, "Workloads that hold quota and might help by ending"):
            yield from self._check(Ends(each))
        ahead = near.ahead_of(self._key)
        rivals = [*(each for each in ahead if each in rivals), *sorted(set(rivals) - set(ahead))]
        for each in self._first(rivals, "Workloads that wait as well"):
            yield from self._check(Withdraws(each))


def _admits(outcome: TrialOutcome) -> bool:
    return outcome.admits
