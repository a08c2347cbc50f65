"""The smallest single change of quota that would admit a workload.

If no amount would, it searches for one that is enough if others leave.

If many Workloads wait, sizes are searched without the others first, and then tried in the whole
world; if others interfere there, the search is repeated with them. After an admission, the usage
shows how much would have been enough for the same decisions, so few trials are needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import attrs

from kueuelib.api.kueue import ClusterQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.candidates import LIMITS, cohort_raises, other_raises, own_raises
from kueuelib.scheduler.explain.changes import More, RaiseQuota
from kueuelib.scheduler.explain.sizes import Sizes, bisect, demand_on, gallop, grains_of
from kueuelib.scheduler.explain.trial import TrialOutcome, Trials, TriedChange, Usage
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, QuotaOwner, World
from kueuelib.scheduler.quota.amounts import NO_LIMITS, FlavorResource, Limits
from kueuelib.scheduler.quota.node import cohort_key
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec, cohort_spec, queue_spec

# ---- guesses how much quota may be enough, from the arithmetic of the tree alone -----------------

_Node = QueueSpec | CohortQuotas


class GuessedTree:
    """The quota of everything that shares quota with one ClusterQueue.

    Args:
        world: the facts.
        queues: the names of the ClusterQueues that share quota.
    """

    def __init__(self, world: World, queues: frozenset[str]) -> None:
        self._nodes: dict[str, _Node] = {}
        self._above: dict[str, str] = {}
        for name in sorted(queues):
            queue = queue_spec(world.cluster_queues[name])
            self._nodes[name] = queue
            self._above[name] = cohort_key(queue.cohort) if queue.cohort else ""
        self.cohorts = world.cohorts_of(queues)
        for name in self.cohorts:
            declared = world.cohorts.get(name)
            cohort = CohortQuotas(name) if declared is None else cohort_spec(declared)
            self._nodes[cohort_key(name)] = cohort
            self._above[cohort_key(name)] = cohort_key(cohort.parent) if cohort.parent else ""
        self._upwards = sorted(self._nodes, key=lambda key: -len(self.path(key)))

    def path(self, key: str) -> list[str]:
        """The keys of a node and the cohorts above it; a cycle is followed once."""
        keys: list[str] = []
        while key and key not in keys:
            keys.append(key)
            key = self._above[key]
        return keys

    def carries(
        self, place: QuotaOwner, field: str, pair: FlavorResource, usage: Usage
    ) -> _Carries:
        """Whether some usage fits if a place gets more quota.

        Args:
            place: the ClusterQueue or Cohort to be raised.
            field: the field of `Limits` to be raised.
            pair: the flavor and resource.
            usage: by ClusterQueue.
        """
        key = place.name if place.kind == CLUSTER_QUEUE else cohort_key(place.name)
        path = self.path(key)
        lent: dict[str, int] = defaultdict(int)
        used: dict[str, int] = defaultdict(int)
        for name, amounts in usage.items():
            if name in self._nodes:
                used[name] = amounts.get(pair, 0)
        for each in self._upwards:
            above = self._above[each]
            if above and each not in path:
                limits = self._limits(each, pair, lent[each])
                lent[above] += limits.lendable
                used[above] += limits.beyond(used[each])
        steps = tuple((self._limits(each, pair, lent[each]), used[each]) for each in path)
        return _Carries(steps, field)

    def _limits(self, key: str, pair: FlavorResource, lent: int) -> Limits:
        own = self._nodes[key].limits.get(pair, NO_LIMITS)
        return attrs.evolve(own, nominal=own.nominal + lent)


@frozen
class _Carries:
    """Tests sizes.

    Attributes:
        steps: for the raised place and every cohort above it, quota and usage, without the usage
            from the step before.
        field: the field of `Limits` to be raised in the first step.
    """

    steps: tuple[tuple[Limits, int], ...]
    field: str

    def __call__(self, size: int) -> bool:
        lent = beyond = 0
        for number, (own, used) in enumerate(self.steps):
            limits = attrs.evolve(own, nominal=own.nominal + lent)
            if number == 0:
                limits = attrs.evolve(
                    limits, **{self.field: (getattr(limits, self.field) or 0) + size}
                )
            is_root = number == len(self.steps) - 1
            ceiling = limits.nominal if is_root else limits.ceiling
            if ceiling is not None and used + beyond > ceiling:
                return False
            lent, beyond = limits.lendable, limits.beyond(used + beyond)
        return True


@frozen(eq=False)
class Guess:
    """Guesses how much more quota would carry a usage.

    Attributes:
        tree: the quota as it is.
        place: the ClusterQueue or Cohort to be raised.
        flavor: the flavor.
        field: the field of `Limits` to be raised.
    """

    tree: GuessedTree
    place: QuotaOwner
    flavor: str
    field: str

    def __call__(
        self, resource: str, usage: Mapping[str, Mapping[FlavorResource, int]], most: int
    ) -> int:
        """The least amount that suffices, `most` if none below it does.

        Args:
            resource: the resource.
            usage: by ClusterQueue.
            most: a size that is known to suffice.
        """
        pair = FlavorResource(self.flavor, resource)
        return bisect(0, most, self.tree.carries(self.place, self.field, pair, usage))


# --------------------------------------------------------------------------------------------------

Test = Callable[[Sizes], TrialOutcome]
Goal = Callable[[TrialOutcome], bool]


class QuotaSearch:
    """The changes of quota for one workload.

    Args:
        world: the facts; not changed.
        key: the workload.
        queue: its ClusterQueue.
        trials: in the whole world.
        alone: in a world where nothing else waits.
        goals: sufficient outcomes; the next one is used only if the first cannot be reached.
    """

    def __init__(
        self,
        world: World,
        key: ObjectKey,
        queue: ClusterQueue,
        trials: Trials,
        alone: Trials,
        goals: Sequence[Goal],
    ) -> None:
        self._world = world
        self._key = key
        self._queue = queue
        self._trials = trials
        self._alone = alone
        self._goals = goals
        # Shares are ratios, so that any amount may be the one that counts.
        shares = world.settings.fair_sharing is not None and queue.spec.cohort_name
        self._grains = {} if shares else grains_of(trials.engine())
        self._demand = demand_on(trials.engine())
        self._tree = GuessedTree(world, world.scope_of(queue))

    def own(self) -> Iterator[TriedChange]:
        """Quotas of its own ClusterQueue, flavor by flavor.

        Raises:
            OutOfStepsError: there are no steps left.
        """
        return chain.from_iterable(map(self._lower, own_raises(self._world, self._queue)))

    def cohorts(self) -> Iterator[TriedChange]:
        """Quotas and limits of the Cohorts of its tree, those above it first.

        Raises:
            OutOfStepsError: there are no steps left.
        """
        return chain.from_iterable(map(self._lower, cohort_raises(self._world, self._queue)))

    def others(self) -> Iterator[TriedChange]:
        """Quotas of the other ClusterQueues of its tree, flavor by flavor.

        Raises:
            OutOfStepsError: there are no steps left.
        """
        return chain.from_iterable(map(self._lower, other_raises(self._world, self._queue)))

    def _lower(self, largest: RaiseQuota) -> Iterator[TriedChange]:
        """Raise everything as far as possible, then lower one resource after the other.

        If that does not admit it, because others then take more, a smaller size is searched for.
        """
        before: Sizes = {more.resource: more.before for more in largest.amounts}
        most: Sizes = {more.resource: more.by for more in largest.amounts}

        def change(sizes: Sizes) -> RaiseQuota:
            amounts = (More(name, before[name], size) for name, size in sizes.items() if size)
            return attrs.evolve(largest, amounts=tuple(amounts))

        def tried(sizes: Sizes) -> TrialOutcome:
            return self._trials.with_change(change(sizes))

        def tried_alone(sizes: Sizes) -> TrialOutcome:
            return self._alone.with_change(change(sizes))

        def least(good: Goal) -> Sizes | None:
            for test in (tried_alone, tried):
                if not good(test(most)):
                    return None
                by = self._lowered(most, test, good, guess)
                less = ({**by, name: size - 1} for name, size in by.items() if size)
                if any(by.values()) and good(tried(by)) and not any(good(tried(e)) for e in less):
                    return by
            return None

        guess = Guess(self._tree, largest.place, largest.flavor, LIMITS[largest.field])
        for good in self._goals:
            by = least(good)
            if by is not None:
                yield TriedChange(change(by), tried(by))
                return
            if good is self._goals[0] and (self._alone is self._trials or good(tried_alone(most))):
                by = {name: min(size, self._demand.get(name, 0)) for name, size in most.items()}
                yield TriedChange(change(by), tried(by), sized=False)

    def _lowered(self, by: Sizes, test: Test, good: Goal, guess: Guess) -> Sizes:
        """The sizes, each minimal given the ones before it.

        Args:
            by: sufficient sizes.
            test: returns the outcome of the workload.
            good: whether an outcome suffices.
            guess: guesses a sufficient size.
        """
        for name, most in tuple(by.items()):
            others = {other: size for other, size in by.items() if other != name}
            # The unchanged world was tried before everything else.
            if any(others.values()) and good(test({**by, name: 0})):
                by = {**by, name: 0}
                continue

            def run(size: int, name: str = name, rest: Sizes = by) -> TrialOutcome:
                return test({**rest, name: size})

            by = {**by, name: _least(most, self._grains.get(name) or 1, run, good, guess, name)}
        return by


_GUESSES = 4
"""The number of guesses before a search in steps takes over."""


def _least(
    most: int,
    grain: int,
    run: Callable[[int], TrialOutcome],
    good: Goal,
    guess: Guess,
    resource: str,
) -> int:
    """The smallest sufficient size, in a range whose smaller sizes are not.

    Args:
        most: a sufficient size.
        grain: the size of the steps.
        run: tries a size.
        good: whether an outcome suffices.
        guess: guesses a sufficient size from the usage with a larger one.
        resource: the resource.
    """
    outcome = run(most)
    for _ in range(_GUESSES):
        if outcome.usage is None:  # others have to leave before it gets quota
            return _between(0, most, grain, run, good)
        size = guess(resource, outcome.usage, most)
        if 0 < size < most:
            outcome = run(size)
            if not good(outcome):
                return _between(size, most, grain, run, good)
            most = size
        outcome = run(most - 1) if most > 1 else outcome
        if not good(outcome) or most == 1:
            return most
        most -= 1
    return _below(most, grain, run, good)


def _between(no: int, yes: int, grain: int, run: Callable[[int], TrialOutcome], good: Goal) -> int:
    """The smallest size between an insufficient and a sufficient one, searched upwards."""
    first, last = no // grain, -(-yes // grain)

    def enough(step: int) -> bool:
        size = (first + step) * grain
        return size > no and (size >= yes or good(run(size)))

    return min((first + gallop(last - first, enough)) * grain, yes)


def _below(yes: int, grain: int, run: Callable[[int], TrialOutcome], good: Goal) -> int:
    """The smallest size up to a sufficient one, searched downwards."""
    last = -(-yes // grain)

    def too_little(step: int) -> bool:
        return step >= last or not good(run((last - step) * grain))

    return min((last - gallop(last, too_little) + 1) * grain, yes)
