"""Searches for single changes that would give a workload quota now.

If many Workloads wait, changes are first tried without the others, which is fast, and then in the
whole world. A reported change was admitted there, and one unit less was not. If less is enough when
others leave, that is reported, too. Time is a change as well: a preemption policy may allow later
what it refuses now. Each kind of change has a share of the budget; gaps are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import attrs

from kueuelib.api.kueue import ClusterQueue, PodSet
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.candidates import (
    COHORT_QUOTAS,
    HOLDERS,
    ITSELF,
    LOCAL_QUEUES,
    MOST_TRIED,
    NODES,
    OTHER_QUOTAS,
    OWN_QUOTAS,
    PARENTS,
    POLICIES,
    SET_UP,
    WEIGHTS,
    TreeSearch,
    for_nodes,
    holders,
    homes,
    moves,
    policies,
    priorities,
    set_up,
    thresholds,
)
from kueuelib.scheduler.explain.changes import (
    MOST_WEIGHT,
    CandidateChange,
    Ends,
    OfWorkload,
    RaiseWeight,
    SetParent,
    UnsizedChange,
    Withdraws,
)
from kueuelib.scheduler.explain.level_changes import other_levels
from kueuelib.scheduler.explain.own_changes import FewerPods, job_of, returns, slice_of
from kueuelib.scheduler.explain.pairs import PAIRS, PairSearch
from kueuelib.scheduler.explain.place_changes import (
    Part,
    cordoned,
    fewest,
    freed_in,
    relaxations,
)
from kueuelib.scheduler.explain.places import rooms_of
from kueuelib.scheduler.explain.quota_search import Goal, QuotaSearch
from kueuelib.scheduler.explain.sizes import bisect, gallop, grains_of, smallest
from kueuelib.scheduler.explain.trial import (
    MOST_STEPS,
    OutOfStepsError,
    Probe,
    SearchBudget,
    TrialOutcome,
    TrialResult,
    Trials,
    TriedChange,
    TriedPair,
)
from kueuelib.scheduler.explain.world import QuotaOwner, World
from kueuelib.scheduler.flavor_reasons import QuotaInUse
from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.scheduler.reasons import NoFlavors

MOST_ENDS = 20
"""The maximum number of ends of protections that are tried, one after the other."""


@frozen
class ProtectionEnds(OfWorkload, UnsizedChange):
    """The preemption policy allows a preemption that it refuses now.

    Attributes:
        policy: the name of the policy.
        until: when, in seconds since the epoch.
        after: how many seconds from now.
    """

    policy: str
    until: float
    after: float

    kind = "protection"

    @property
    def text(self) -> str:
        """When."""
        until = format_time(self.until)
        return f"only time helps: the preemption policy {self.policy} protects others until {until}"

    def apply(self, world: World) -> World:
        """The world in which the policy answers as it will at that time."""
        later = _Later(world.settings.preemption, self.after)
        return attrs.evolve(world, settings=attrs.evolve(world.settings, preemption=later))


def first_end(
    world: World, key: ObjectKey, now: float, base: TrialOutcome, budget: SearchBudget
) -> TriedChange | None:
    """The first end of a protection after which a workload gets quota; None if time does not help.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
        base: its outcome without a change.
        budget: the remaining budget.

    Raises:
        OutOfStepsError: there are no steps left.
    """
    reason, after = base.reason, 0.0
    for _ in range(MOST_ENDS):
        protected = reason.protected if isinstance(reason, NoFlavors) else None
        if protected is None or protected.until is None:
            return None
        until = after + protected.until
        after = until - now
        change = ProtectionEnds(key, protected.policy, until, after)
        later = change.apply(world)
        outcome = Trials(later, key, now, budget).within(later)
        if outcome.helps:
            return TriedChange(change, outcome)
        reason = outcome.reason
    return None


class _Later(PreemptionPolicy):
    """A policy that is asked about a later time."""

    def __init__(self, policy: PreemptionPolicy, after: float) -> None:
        self.name = policy.name
        self.remembers = policy.remembers
        self._policy = policy
        self._after = after

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        """As the policy will answer then; times are shifted as if it were now."""
        later = now + self._after
        forgotten = later - self.remembers
        running = attrs.evolve(
            running,
            preempted=tuple(at for at in running.preempted if at > forgotten),
            queue_preempted=tuple(
                later if at == now else at
                for at in running.queue_preempted
                if at == now or at > forgotten
            ),
        )
        refusal = self._policy.refuse(asking, running, later)
        if refusal is None or refusal.until is None:
            return refusal
        return attrs.evolve(refusal, until=refusal.until - self._after)

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        """The order of the policy."""
        return self._policy.order(asking, running)


T = TypeVar("T")


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
        self._queue = world.cluster_queue_of(self._workload)
        self._near = trials.near
        self._budget = trials.budget
        self._rivals = sorted(set(self._near.workloads) - set(self._near.alone(key).workloads))
        self._grains = grains_of(trials.engine())
        self._goals = (_admits, self._helps)
        self._one_is_enough = False
        self._alone = trials
        if len(self._rivals) > MOST_TRIED:
            self._alone = Trials(world.alone(key), key, now, self._budget)

    def run(self) -> tuple[TriedChange, ...]:
        """All changes that were found, those of the set-up first."""
        if self._base.verdict not in (TrialResult.WAITS, TrialResult.PREEMPTS):
            return ()
        if self._base.unsettled:
            self.limits.append(
                "the queues did not come to rest within the limit of heads; what had been "
                "decided by then is shown, and no change was tried"
            )
            return ()
        changes = [one for kind in self._by_kind() for one in kind]
        # While steps are left, changes that help as they are come before those that must shrink.
        numbers = sorted(range(len(changes)), key=lambda at: not changes[at].sized)
        sizes = {number: self._in_sizes(changes[number]) for number in numbers}
        shown: list[TriedChange] = []
        for one in chain.from_iterable(sizes[number] for number in sorted(numbers)):
            if one.sized and self._helps(one.outcome) and one not in shown:
                shown.append(one)
        return tuple(shown)

    def one_by_one(self) -> Iterator[TriedChange]:
        """The changes of `run` in their order, each looked for only when it is asked for."""
        if (
            self._base.verdict in (TrialResult.WAITS, TrialResult.PREEMPTS)
            and not self._base.unsettled
        ):
            for kind in self._by_kind():
                for one in chain.from_iterable(map(self._in_sizes, kind)):
                    if one.sized and self._helps(one.outcome):
                        yield one

    def _by_kind(self) -> Iterator[Sequence[TriedChange]]:
        """The changes of each kind, at a size that is enough."""
        for name, part, search in self._kinds():
            self._budget.share(part)
            changes: list[TriedChange] = []
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
            yield changes

    def pairs(self, budget: SearchBudget) -> tuple[TriedPair, ...]:
        """Pairs of changes, if it waits and no single one was found.

        Args:
            budget: of this search.
        """
        if self._base.verdict is not TrialResult.WAITS or self._base.unsettled:
            return ()
        search = PairSearch(self._key, self._now, self._base, self._trials, self._alone, budget)
        two = search.run()
        if search.complete:
            self.tried.append(PAIRS)
        else:
            self.limits.append(
                "not all pairs of changes were tried in the time for them; --thorough takes longer"
            )
        return two

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
        if self._world.places([self._queue.name]):
            yield NODES, 0.6, partial(self._nodes, self._queue)
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

    def _try(self, change: CandidateChange) -> TrialOutcome:
        """The outcome of a change; if many wait, one that would not help alone is skipped."""
        if self._alone is not self._trials:
            alone = self._alone.with_change(change)
            if not self._helps(alone):
                return alone
        return self._trials.with_change(change)

    def _helps(self, outcome: TrialOutcome) -> bool:
        """Whether an outcome is better than that without a change."""
        return outcome.admits or (outcome.helps and self._base.verdict is TrialResult.WAITS)

    def _check(self, change: CandidateChange) -> Iterator[TriedChange]:
        if self._helps(outcome := self._try(change)):
            yield TriedChange(change, outcome)

    def _least(self, make: Callable[[int], CandidateChange], most: int) -> TriedChange | None:
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
        made = self._first(homes(self._world, key), "ClusterQueues")
        for mended in chain(made, set_up(self._world, key)):
            yield from self._check(mended)

    # --- the workload itself

    def _own(self) -> Iterator[TriedChange]:
        yield from self._priorities()
        yield from self._fewer_pods()
        wider = tuple(for_nodes(self._world, self._workload))
        for change in self._first(wider, "taints and node selectors"):
            yield from self._check(change)
        for meant in other_levels(self._world, self._workload):
            yield from self._first_that_helps(meant)
        for weaker in relaxations(self._world, self._workload):
            yield from self._first_that_helps(weaker)

    def _moves(self) -> Iterator[TriedChange]:
        queues = moves(self._world, self._workload)
        for change in self._first(queues, "LocalQueues of the namespace"):
            yield from self._check(change)

    def _priorities(self) -> Iterator[TriedChange]:
        """The lowest higher priority that helps."""
        steps = priorities(self._near, self._workload)
        if len(steps) > MOST_TRIED:
            if not self._helps(self._try(steps[-1])):
                return
            at = bisect(-1, len(steps) - 1, lambda at: self._helps(self._try(steps[at])))
            steps = (steps[at],)
        yield from self._first_that_helps(steps)

    def _first_that_helps(self, changes: Iterable[CandidateChange]) -> Iterator[TriedChange]:
        return islice(chain.from_iterable(map(self._check, changes)), 1)

    def _fewer_pods(self) -> Iterator[TriedChange]:
        for pod_set in self._workload.spec.pod_sets:
            unit = slice_of(pod_set)
            if pod_set.count <= unit:
                continue

            def fewer(by: int, pods: PodSet = pod_set, unit: int = unit) -> CandidateChange:
                to, least = pods.count - by * unit, pods.min_count
                return FewerPods(self._key, pods.name, pods.count, to, least, unit, job=self._job)

            option = self._least(fewer, pod_set.count // unit - 1)
            if option is not None:
                yield option

    # --- policies

    def _policies(self, queue: ClusterQueue) -> Iterator[TriedChange]:
        for wider in policies(queue):
            yield from self._first_that_helps(wider)
        higher = thresholds(self._near, queue)
        yield from self._first_that_helps(self._first(higher, "thresholds of priority"))

    # --- the tree of cohorts

    def _weights(self, trees: TreeSearch) -> Iterator[TriedChange]:
        """The smallest weight that helps: a larger weight is a smaller share, so it is found by
        bisection.
        """
        for place, before in trees.weighted():

            def helps(steps: int, place: QuotaOwner = place, before: int = before) -> bool:
                return self._helps(self._try(RaiseWeight(place, before, steps)))

            if helps(MOST_WEIGHT):
                change = RaiseWeight(place, before, gallop(MOST_WEIGHT, helps))
                yield TriedChange(change, self._trials.with_change(change))

    def _parents(self, moves: Sequence[SetParent]) -> Iterator[TriedChange]:
        for change in self._first(moves, "other places in trees of cohorts"):
            yield from self._check(change)

    # --- other workloads

    def _others(self) -> Iterator[TriedChange]:
        near, rivals, holding = self._near, self._rivals, holders(self._near)
        if max(len(holding), len(rivals)) > MOST_TRIED:
            probe = Probe(self._world, self._key, self._now, self._budget)
            if not self._helps(probe.base):
                holding = [each for each in holding if self._helps(probe.without(each))]
                rivals = []
        for each in self._first(holding, "Workloads that hold quota and might help by ending"):
            for option in self._check(Ends(each)):
                self._one_is_enough = True
                yield option
        ahead = near.ahead_of(self._key)
        rivals = [*(each for each in ahead if each in rivals), *sorted(set(rivals) - set(ahead))]
        for each in self._first(rivals, "Workloads that wait as well"):
            yield from self._check(Withdraws(each))

    # --- nodes

    def _nodes(self, queue: ClusterQueue) -> Iterator[TriedChange]:
        """Nodes that take pods again, and the fewest changes that free a domain together."""
        for node in self._first(cordoned(self._world, queue), "cordoned nodes"):
            for option in self._check(node):
                self._one_is_enough = True
                yield option
        if self._one_is_enough:
            return
        rooms = rooms_of(self._trials.engine(), self._near, self._key, self._base.reason)
        held: list[Part] = [Ends(each) for each in holders(self._near) if self._shares_quota(each)]
        parts = [
            list(dict.fromkeys((*freed_in(room), *held))) for room in self._first(rooms, "domains")
        ]
        parts = parts or [list(held)]
        several = fewest(parts, lambda change: self._helps(self._try(change)))
        if several is not None:
            yield from self._check(several)

    def _shares_quota(self, key: ObjectKey) -> bool:
        """Whether the end of a workload frees quota that may be used, if that is in use."""
        reason, queue = self._base.reason, self._queue
        if queue is None or not isinstance(reason, NoFlavors):
            return False
        in_use = any(isinstance(one, QuotaInUse) for _, one in reason.flavor_reasons)
        return in_use and self._world.home_of(self._world.workloads[key]) in self._world.scope_of(
            queue
        )


def _admits(outcome: TrialOutcome) -> bool:
    return outcome.admits
