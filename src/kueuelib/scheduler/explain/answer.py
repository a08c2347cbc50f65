"""The whole answer: the place of a workload, the reason, and the changes that would admit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kueuelib.api import names
from kueuelib.api.kueue import Admission, Workload
from kueuelib.api.meta import ObjectKey, find
from kueuelib.api.struct import frozen
from kueuelib.api.workload_state import has_quota
from kueuelib.scheduler.decide.kept_room import owned
from kueuelib.scheduler.decide.offers import offers_for
from kueuelib.scheduler.decide.preemption.victims import MOST_NAMED
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.awaited import Awaited, awaited_checks
from kueuelib.scheduler.explain.leaving import note_on_leaving
from kueuelib.scheduler.explain.level_changes import notes_on_order
from kueuelib.scheduler.explain.own_changes import PodsReturn, Ungate, is_group
from kueuelib.scheduler.explain.placements import PlacedPods, placed_pods
from kueuelib.scheduler.explain.places import DomainRoom, rooms_of
from kueuelib.scheduler.explain.problems import (
    Problem,
    Unhonoured,
    absent_cohorts,
    problems_of,
    silent_checks,
    unhonoured_in,
)
from kueuelib.scheduler.explain.rows import Row, TreeRow, rows_of, tree_rows
from kueuelib.scheduler.explain.search import Search
from kueuelib.scheduler.explain.trial import (
    OutOfStepsError,
    SearchBudget,
    TrialOutcome,
    TrialResult,
    Trials,
    TriedChange,
    TriedPair,
    deciders_of,
)
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import OUT_OF_QUEUE
from kueuelib.scheduler.pending.workload_info import gates_of, missing_pods
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import Reason, render


@frozen(kw_only=True)
class Explanation:
    """Why a workload has no quota, or that it has it.

    Attributes:
        key: the workload.
        workload: the object.
        local_queue: the LocalQueue that it names, empty for none.
        cluster_queue: the ClusterQueue in which it waits or holds quota, empty for none.
        outcome: its outcome without a change.
        admission: the quota that it holds, or that it would get in the cycles that are due now.
        ahead: the workloads that wait before it in its ClusterQueue, in the order of the queue.
        behind: how many wait after it.
        usage: the past usage of its LocalQueue; None if it does not count (KEP-4136).
        notes: further sentences for people.
        used_less: the LocalQueues that come first because they used less, with their numbers.
        reason: why it waits; None if it does not.
        when_first: the decision if it were first in its ClusterQueue; only if the queue does not
            get that far.
        rows: the numbers of every flavor that it could use.
        tree: the quota of its ClusterQueue and of the cohorts above, unless there is only one
            cohort without an object.
        problems: errors in the set-up.
        changes: single changes that would give it quota now, each tried.
        places: the domains that lack room for its pods, the best first (KEP-2724).
        placed: the domains in which `admission` places pods, by pod set.
        pairs: pairs of changes that would, if no single one does and they were searched for.
        tried: the kinds of changes whose search was completed.
        limits: the gaps in the search for changes, as sentences for people.
        checks: the admission checks that would decide after it gets quota without a change.
        awaited: the checks for which it waits although it holds quota.
        unhonoured: features that the objects use but this version does not support.
    """

    key: ObjectKey
    workload: Workload
    local_queue: str
    cluster_queue: str
    outcome: TrialOutcome
    admission: Admission | None
    ahead: tuple[ObjectKey, ...]
    behind: int
    reason: Reason | None
    when_first: TrialOutcome | None
    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]
    changes: tuple[TriedChange, ...]
    tried: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    tree: tuple[TreeRow, ...] = ()
    unhonoured: tuple[Unhonoured, ...] = ()
    usage: float | None = None
    used_less: tuple[tuple[ObjectKey, float], ...] = ()
    notes: tuple[str, ...] = ()
    awaited: tuple[Awaited, ...] = ()
    pairs: tuple[TriedPair, ...] = ()
    places: tuple[DomainRoom, ...] = ()
    placed: tuple[PlacedPods, ...] = ()

    @property
    def verdict(self) -> TrialResult:
        """Its verdict."""
        return self.outcome.verdict

    @property
    def ending(self) -> tuple[str, str] | None:
        """The reason and the message of its end; None if it is not finished."""
        end = find(self.workload.status.conditions, names.FINISHED)
        return None if end is None or not end.is_true else (end.reason, end.message)

    @property
    def position(self) -> int | None:
        """Its place in its ClusterQueue, from 1; None if it does not wait there."""
        waits = self.verdict in (TrialResult.WAITS, TrialResult.PREEMPTS, TrialResult.ADMITTED)
        waits = waits and not isinstance(self.reason, OUT_OF_QUEUE)
        return len(self.ahead) + 1 if waits and self.cluster_queue else None


def explain(
    world: World,
    key: ObjectKey,
    now: float,
    *,
    changes: bool = True,
    pairs: Callable[[], SearchBudget] | None = None,
) -> Explanation:
    """Explain one workload.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
        changes: whether to search for changes, which takes many trials, within a budget.
        pairs: makes the budget of a search for two changes when no single one is enough; None for
            no such search.

    Raises:
        UnknownObject: there is no such workload in the world.
    """
    workload = world.workload(key)
    world = world.with_usage(now)
    local_queue = ObjectKey(workload.namespace, workload.spec.queue_name)
    trials = Trials(world, key, now)
    base = trials.unchanged()
    waits = base.verdict in (TrialResult.WAITS, TrialResult.PREEMPTS, TrialResult.ADMITTED)
    home = world.home_of(workload)
    first = None
    if base.verdict is TrialResult.WAITS and not base.evaluated and home in world.cluster_queues:
        first = _tried_first(trials, world, key)
    reason = first.reason if first is not None else base.reason
    admission = workload.status.admission if base.verdict is TrialResult.HOLDS_QUOTA else None
    if base.admit is not None:
        admission = base.admit.admission
    problems = problems_of(world, key, reason) if waits else ()
    if base.verdict is TrialResult.HOLDS_QUOTA:
        problems = silent_checks(world, key)
    search = Search(world, key, now, base, trials)
    with_checks = [
        attrs.evolve(one, checks=deciders_of(one.change.apply(world), key, one.outcome))
        for one in (search.run() if changes else ())
    ]
    two = search.pairs(pairs()) if changes and pairs is not None and not with_checks else ()
    places = world.settings.places_pods
    rows = rows_of(trials.engine(), key, reason, places_pods=places) if waits else ()
    return Explanation(
        key=key,
        workload=workload,
        local_queue=workload.spec.queue_name,
        cluster_queue=home if home in world.cluster_queues else "",
        outcome=base,
        admission=admission,
        ahead=world.ahead_of(key) if waits else (),
        behind=world.behind(key) if waits else 0,
        reason=base.reason,
        when_first=first,
        rows=rows,
        problems=problems,
        changes=tuple(with_checks),
        pairs=two,
        tried=tuple(search.tried),
        limits=tuple(search.limits),
        checks=deciders_of(world, key, base),
        tree=tree_rows(trials.engine(), home, rows, shares=world.settings.fair_sharing is not None),
        unhonoured=unhonoured_in(world, key),
        usage=float(world.usage[local_queue]) if waits and local_queue in world.usage else None,
        used_less=tuple(
            (each, float(world.usage.get(each, 0))) for each in world.used_less(key) if waits
        ),
        notes=(
            *_once_queued(trials, world, key),
            *absent_cohorts(world, key, rows),
            *(notes_on_order(world, workload) if waits else ()),
            *_of_promised(base),
            *(note_on_leaving(world, key, trials.engine().promised_near(key)) if waits else ()),
            *(_of_borrowers(trials.engine(), world, workload) if waits else ()),
        ),
        awaited=awaited_checks(world, workload),
        places=rooms_of(trials.engine(), trials.near, key, reason),
        placed=tuple(placed_pods(world, workload, admission)),
    )


def smallest_change(world: World, key: ObjectKey, now: float) -> TriedChange | None:
    """The single change that would give a workload quota, chosen by `smallest_of`.

    The search ends at the first change without checks and victims, because none is better.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.

    Raises:
        UnknownObject: there is no such workload in the world.
    """
    world.workload(key)
    world = world.with_usage(now)
    trials = Trials(world, key, now)
    changes: list[TriedChange] = []
    for one in Search(world, key, now, trials.unchanged(), trials).one_by_one():
        checks = deciders_of(one.change.apply(world), key, one.outcome)
        changes.append(attrs.evolve(one, checks=checks))
        if not checks and not one.victims:
            break
    return smallest_of(changes)


def smallest_of(changes: Sequence[TriedChange]) -> TriedChange | None:
    """The smallest change. One that admits comes before one that leaves checks to decide; then the
    one with the fewest victims; then the first in the order of `explain`.

    Args:
        changes: each of them alone is enough.
    """
    return min(changes, key=lambda one: (bool(one.checks), len(one.victims)), default=None)


def _once_queued(trials: Trials, world: World, key: ObjectKey) -> tuple[str, ...]:
    """Why a workload that is out of its queue would wait in it as well; nothing if it would not."""
    workload = world.workloads[key]
    if has_quota(workload):
        return ()
    if gates_of(workload):
        words, changed = "without its gates", Ungate(key).apply(world)
    elif missing_pods(workload) and is_group(workload):
        words, changed = "with its pods", PodsReturn(key).apply(world)
    else:
        return ()
    try:
        outcome = trials.within(changed)
    except OutOfStepsError:
        return ()
    if outcome.reason is None or outcome.helps:
        return ()
    return (f"{words} it would still wait: {render(outcome.reason)}",)


def _of_borrowers(engine: Engine, world: World, workload: Workload) -> tuple[str, ...]:
    """The workloads that borrow what a workload's own queue owns, and the setting against that."""
    home, info = world.home_of(workload), engine.info(workload.key)
    frozen = engine.cache.freeze([home])
    queue = frozen.queues.get(home)
    if info is None or queue is None:
        return ()
    snapshot, spec = Snapshot(frozen), queue.spec
    wanted = owned(spec, offers_for(spec, frozen.flavors, info))
    short = {
        pair: amount
        for pair, amount in sorted(wanted.items())
        if snapshot.available(queue, pair)
        < min(amount, spec.limits[pair].nominal - snapshot.usage(queue, pair))
    }
    borrowers = snapshot.borrowers(queue, short) if short else []
    if not borrowers:
        return ()
    newest = [
        max(held, key=lambda one: (one.reserved_at or 0.0, one.uid)).key
        for held in ([one for _, one in each.ranked if one.uses(short)] for each in borrowers)
        if held
    ]
    named = ", ".join(map(str, newest[:MOST_NAMED]))
    says = f"ClusterQueue {home} owns enough for it, but others borrow that quota: {named}"
    if world.settings.protects_nominal:
        return (f"{says}; borrowing.protectNominalQuota stops further borrowers",)
    return (f"{says}; more may borrow it, unless borrowing.protectNominalQuota is set",)


def _of_promised(base: TrialOutcome) -> tuple[str, ...]:
    """A sentence about the preemptors whose room is not free to a workload, if there are any."""
    if not base.promised:
        return ()
    named = ", ".join(map(str, base.promised[:MOST_NAMED]))
    rest = len(base.promised) - MOST_NAMED
    others = f" and {rest} more" if rest > 0 else ""
    text = f"the quota of preempted Workloads is kept for {named}{others} and counts as used"
    return (text,)


def _tried_first(trials: Trials, world: World, key: ObjectKey) -> TrialOutcome | None:
    """Its outcome at the head of its queue with an unchanged priority; None if unknown."""
    try:
        return trials.within(world.without_workloads(*world.ahead_of(key)))
    except OutOfStepsError:
        return None
