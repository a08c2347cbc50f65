"""Searches for two changes that together would give a workload quota now.

Every change is tried beside every other one, each as strong as it can be. What is found is then
made as weak as possible, the best first: with the fewest victims, then in the order of `explain`.
Changes that alone give the workload another reason to wait come first: if there is no time for all
pairs, these are the likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.candidates import (
    COHORT_QUOTAS,
    HOLDERS,
    ITSELF,
    LOCAL_QUEUES,
    NODES,
    OTHER_QUOTAS,
    OWN_QUOTAS,
    PARENTS,
    POLICIES,
    SET_UP,
    WEIGHTS,
    Forms,
    all_forms,
)
from kueuelib.scheduler.explain.changes import (
    LENDING,
    NOMINAL,
    CandidateChange,
    RaiseQuota,
    amount_in,
)
from kueuelib.scheduler.explain.sizes import bisect, gallop, grains_of, sizes_of, smallest
from kueuelib.scheduler.explain.trial import (
    OutOfStepsError,
    SearchBudget,
    TrialOutcome,
    Trials,
    TriedChange,
    TriedPair,
    deciders_of,
)
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, World

PAIRS = "pairs of changes"
MOST_PAIRS = 3
"""The maximum number of pairs that are made as weak as possible and reported."""
ORDER = (
    SET_UP,
    ITSELF,
    OWN_QUOTAS,
    POLICIES,
    WEIGHTS,
    HOLDERS,
    NODES,
    LOCAL_QUEUES,
    COHORT_QUOTAS,
    PARENTS,
    OTHER_QUOTAS,
)
"""The kinds of changes in the order of `explain`."""
SEARCHED = 0.7
"""The part of the budget in which pairs are looked for; the rest is for their sizes."""


_Name = tuple[str, str]
"""Subject and text identify a change: not all of them have a hash."""


def _name(change: CandidateChange) -> _Name:
    return change.subject, change.text


_Place = tuple[int, int]


@frozen
class _Found:
    """Two changes that are enough, each as strong as it can be.

    Attributes:
        places: where each of them comes in the order of `explain`: its kind, then its number.
        first: the one that is made first.
        second: the one that is made in the world with the first.
        checks: the admission checks that decide afterwards.
        outcome: their outcome.
    """

    places: tuple[_Place, _Place]
    first: Forms
    second: Forms
    checks: tuple[str, ...]
    outcome: TrialOutcome

    @property
    def size(self) -> tuple[bool, int, list[int], list[_Place]]:
        """What makes a pair smaller than another one."""
        kinds = sorted(kind for kind, _ in self.places)
        return bool(self.checks), len(self.outcome.victims), kinds, sorted(self.places)


class PairSearch:
    """The pairs of changes for one workload that no single change would help.

    Args:
        key: the workload.
        now: seconds since the epoch.
        base: its outcome without a change.
        trials: in the whole world.
        alone: in a world where nothing else waits, or the same; what does not help there is not
            tried in the whole world.
        budget: of the search.

    Attributes:
        complete: whether all pairs were tried.
    """

    def __init__(
        self,
        key: ObjectKey,
        now: float,
        base: TrialOutcome,
        trials: Trials,
        alone: Trials,
        budget: SearchBudget,
    ) -> None:
        self._key = key
        self._now = now
        self._base = base
        self._budget = budget
        self._trials = trials.within_budget(budget)
        self._alone = None if alone is trials else alone.within_budget(budget)
        self._world = trials.world
        self.complete = True

    def run(self) -> tuple[TriedPair, ...]:
        """The smallest pairs, the best first."""
        enough: list[_Found] = []
        self._budget.share(SEARCHED)
        try:
            for one in self._pairs():
                enough.append(one)  # noqa: PERF402 (what was found before it broke off counts)
        except OutOfStepsError:
            self.complete = False
        self._budget.share(1.0)
        enough.sort(key=lambda one: one.size)
        shown: list[TriedPair] = []
        for one in enough:
            if len(shown) == MOST_PAIRS:
                break
            try:
                pair = self._weakest(one)
            except OutOfStepsError:
                self.complete = False
                break
            if pair is not None and not any(_same(pair, other) for other in shown):
                shown.append(pair)
        return tuple(sorted(shown, key=lambda pair: (bool(pair.checks), len(pair.victims))))

    # --- finding

    def _pairs(self) -> Iterator[_Found]:
        """All pairs that are enough at full strength."""
        enough: set[_Name] = set()
        first: list[tuple[bool, _Place, Forms]] = []
        for place, forms in self._forms(self._world):
            outcome = self._try(forms[-1])
            if outcome.helps:
                enough.add(_name(forms[-1]))
            else:
                first.append((outcome.reason == self._base.reason, place, forms))
        seen: set[frozenset[_Name]] = set()
        for _, place, forms in sorted(first, key=lambda one: one[0]):
            strong = forms[-1]
            for other, more in self._forms(strong.apply(self._world)):
                pair = frozenset((_name(strong), _name(more[-1])))
                if pair in seen or len(pair) < 2 or not pair.isdisjoint(enough):
                    continue
                seen.add(pair)
                outcome = self._try(strong, more[-1])
                if outcome.helps:
                    checks = self._checks(strong, more[-1], outcome)
                    yield _Found((place, other), forms, more, checks, outcome)

    def _forms(self, world: World) -> Iterator[tuple[_Place, Forms]]:
        for number, (kind, forms) in enumerate(all_forms(world, self._key, self._now)):
            yield (ORDER.index(kind), number), forms

    def _checks(
        self, first: CandidateChange, second: CandidateChange, outcome: TrialOutcome
    ) -> tuple[str, ...]:
        return deciders_of(second.apply(first.apply(self._world)), self._key, outcome)

    def _try(self, *changes: CandidateChange) -> TrialOutcome:
        """The outcome of changes; if many wait, what would not help alone is skipped."""
        if self._alone is not None:
            alone = self._alone.within(_changed(self._alone.world, *changes))
            if not alone.helps:
                return alone
        return self._trials.within(_changed(self._world, *changes))

    # --- sizes

    def _weakest(self, strongest: _Found) -> TriedPair | None:
        """The same pair, each change as weak as the other one allows; None if there is none."""
        first, second = strongest.first[-1], strongest.second[-1]
        strong = _changed(self._world, first, second)
        queue = strong.cluster_queue_of(strong.workloads[self._key])
        shares = strong.settings.fair_sharing and queue is not None and queue.spec.cohort_name
        grains = {} if shares else grains_of(self._trials.engine_within(strong))
        known: dict[tuple[_Name, _Name], TrialOutcome] = {}

        def run(one: CandidateChange, other: CandidateChange) -> TrialOutcome:
            names = _name(one), _name(other)
            if names not in known:
                known[names] = self._trials.within(_changed(self._world, one, other))
            return known[names]

        def good(outcome: TrialOutcome) -> bool:
            return outcome.admits or (not strongest.outcome.admits and outcome.helps)

        def after(change: CandidateChange) -> TrialOutcome:
            return run(first, change)

        def before(change: CandidateChange) -> TrialOutcome:
            return run(change, second)

        second = _weaker(strongest.second, grains, after, good)
        first = _weaker(strongest.first, grains, before, good)
        weaker = True
        while weaker:
            pair = first, second
            second = smallest(TriedChange(second, run(*pair)), grains, after, good).change
            option = TriedChange(first, run(first, second))
            first = smallest(option, grains, before, good).change
            weaker = (first, second) != pair
        outcome = run(first, second)
        if not outcome.helps or not _is_valid(_changed(self._world, first, second), first, second):
            return None
        changes = (first, second) if strongest.places[0] <= strongest.places[1] else (second, first)
        return TriedPair(changes, outcome, self._checks(first, second, outcome))


def _changed(world: World, *changes: CandidateChange) -> World:
    for change in changes:
        world = change.apply(world)
    return world


def _weaker(
    forms: Forms,
    grains: dict[str, int],
    run: Callable[[CandidateChange], TrialOutcome],
    good: Callable[[TrialOutcome], bool],
) -> CandidateChange:
    """A weaker form of a change that is enough, in steps that miss nothing."""
    change = forms[bisect(-1, len(forms) - 1, lambda at: good(run(forms[at])))]
    for size, grain, resized in sizes_of(change, grains):
        before = change

        def test(step: int) -> bool:
            by = min(step * grain, size)  # noqa: B023 (called in this round only)
            return good(run(resized(before, by)))  # noqa: B023

        if isinstance(change, RaiseQuota) and len(change.amounts) > 1 and test(0):
            change = resized(before, 0)
        else:
            change = resized(before, min(gallop(-(-size // grain), test) * grain, size))
    return change


def _same(pair: TriedPair, other: TriedPair) -> bool:
    return {*map(_name, pair.changes)} == {*map(_name, other.changes)}


def _is_valid(world: World, *changes: CandidateChange) -> bool:
    """Whether the API server would take the quotas: nobody lends more than it owns."""
    for change in changes:
        if not isinstance(change, RaiseQuota):
            continue
        if change.place.kind == CLUSTER_QUEUE:
            for quota in change.place.quotas(world).values():
                lent, owned = amount_in(quota, LENDING), amount_in(quota, NOMINAL)
                if lent is not None and lent > (owned or 0):
                    return False
    return True
