"""Laws of preemption: who may be a victim, that no victim is too many, and that all of it ends."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import attrs
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from preemption_model import grants
from preemption_worlds import PAIRS, QUEUES, Replay, worlds

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.preemption.search import SearchResult, find_victims
from kueuelib.scheduler.decide.preemption.victims import Borrowing, Candidates, Path, Preemptor
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.settings import Settings

# --- one search, against the formulas of the specification


def _still_borrows(_queue: object, _cohort: object) -> bool:
    return True


@attrs.frozen
class Question:
    """One search, and everything that it depends on."""

    snapshot: Snapshot
    preemptor: Preemptor
    contested: frozenset[FlavorResource]
    needed: Amounts

    @property
    def queue(self) -> FrozenQueue:
        return self.preemptor.queue

    def members(self) -> list[FrozenQueue]:
        found = [self.snapshot.queue(name) for name in QUEUES]
        return [queue for queue in found if queue is not None]

    def everybody(self) -> list[Holder]:
        return [holder for queue in self.members() for _, holder in queue.ranked]

    def usage(self, name: str, pair: FlavorResource, gone: AbstractSet[ObjectKey]) -> int:
        return sum(
            holder.usage.get(pair, 0)
            for holder in self.everybody()
            if holder.cluster_queue == name and holder.key not in gone
        )

    def fits(self, gone: set[ObjectKey], *, borrow: bool) -> bool:
        """Spec/scheduling 2.4 and 6.4, read aloud."""
        name = self.queue.spec.name
        for pair, amount in self.needed.items():
            limits = self.queue.spec.limits[pair]
            after = self.usage(name, pair, gone) + amount
            if not borrow and after > limits.nominal:
                return False
            if limits.borrowing is not None and after > limits.nominal + limits.borrowing:
                return False
            pool = beyond = 0
            for member in self.members():
                theirs = member.spec.limits[pair]
                used = self.usage(member.spec.name, pair, gone)
                pool += theirs.nominal - theirs.guaranteed
                beyond += max(0, used - theirs.guaranteed)
            mine = min(after - amount, limits.guaranteed)
            if amount > pool + limits.guaranteed - beyond - mine:
                return False
        return True

    def within_nominal(self) -> bool:
        return all(
            self.usage(self.queue.spec.name, pair, set()) + amount
            <= self.queue.spec.limits[pair].nominal
            for pair, amount in self.needed.items()
        )

    def may_take(self, holder: Holder) -> bool:
        policy, me = self.queue.spec.preemption, self.preemptor
        own = holder.cluster_queue == self.queue.spec.name
        rule = policy.within_cluster_queue if own else policy.reclaim_within_cohort
        if not any(holder.usage.get(pair, 0) > 0 for pair in self.contested):
            return False
        theirs = holder.priority, holder.order.queued_at
        return grants(rule, (me.priority, me.queued_at), theirs)

    def borrows(self, name: str, gone: AbstractSet[ObjectKey] = frozenset()) -> bool:
        queue = self.snapshot.queue(name)
        assert queue is not None
        return any(
            self.usage(name, pair, gone) > queue.spec.limits[pair].nominal
            for pair in self.contested
        )

    def may_reclaim(self) -> bool:
        """Whether workloads of others may go, so that it stays within its nominal quota."""
        spec = self.queue.spec
        return spec.preemption.may_borrow or all(
            self.usage(spec.name, pair, set()) < spec.limits[pair].nominal
            for pair in self.contested
        )

    def candidates(self) -> list[Holder]:
        """In their order: leaving ones, then others before its own, then by priority and age."""
        mine = self.queue.spec.name
        return sorted(
            (
                holder
                for holder in self.everybody()
                if self.may_take(holder)
                and (holder.cluster_queue == mine or self.borrows(holder.cluster_queue))
            ),
            key=lambda holder: (
                not holder.evicted,
                holder.cluster_queue == mine,
                holder.priority,
                -(holder.reserved_at or 0.0),
                holder.uid,
            ),
        )

    def search(self) -> SearchResult:
        return find_victims(self.snapshot, self.preemptor, self.contested, self.needed)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    engine = Engine()
    engine.observe_all(draw(worlds()), 0)
    snapshot = Snapshot(engine.cache.freeze(QUEUES))
    queue = snapshot.queue(draw(st.sampled_from(QUEUES)))
    assert queue is not None
    preemptor = Preemptor(queue, draw(st.integers(-2, 4)), float(draw(st.integers(0, 9))))
    needed = {pair: draw(st.integers(1, 8)) for pair in PAIRS[: draw(st.integers(1, 2))]}
    short = {pair for pair, amount in needed.items() if amount > snapshot.available(queue, pair)}
    assume(short)
    return Question(snapshot, preemptor, frozenset(short), needed)


@given(question=questions())
@settings(max_examples=100, deadline=None)
def test_without_any_one_of_the_victims_the_preemptor_does_not_fit(question: Question) -> None:
    victims = question.search().victims
    keys = {victim.key for victim in victims}
    assert len(keys) == len(victims)
    if not victims:
        return
    reclaims = any(victim.path is Path.IN_COHORT_RECLAMATION for victim in victims)
    borrow = question.within_nominal() or not reclaims
    assert question.fits(keys, borrow=borrow)
    for key in keys:
        fits = question.fits(keys - {key}, borrow=True)
        assert not fits or not question.fits(keys - {key}, borrow=False)
        if borrow:
            assert not fits


@given(question=questions())
@settings(max_examples=80, deadline=None)
def test_victims_are_taken_only_by_the_policies_of_the_preemptor(question: Question) -> None:
    policy = question.queue.spec.preemption
    for victim in question.search().victims:
        assert question.may_take(victim.holder)
        own = victim.holder.cluster_queue == question.queue.spec.name
        assert own == (victim.path is Path.IN_CLUSTER_QUEUE)
        if own:
            continue
        assert question.borrows(victim.holder.cluster_queue)
        if victim.path is Path.IN_COHORT_RECLAIM_WHILE_BORROWING:
            assert policy.borrow_within_cohort
            assert victim.holder.priority < question.preemptor.priority
            limit = policy.borrow_threshold
            assert limit is None or victim.holder.priority <= limit


@given(question=questions())
@settings(max_examples=80, deadline=None)
def test_a_preemptor_that_gets_no_victims_has_too_few(question: Question) -> None:
    found = question.search()
    if found.victims:
        assert not found.lacks
        return
    assert found.lacks
    own = {
        holder.key
        for holder in question.everybody()
        if holder.cluster_queue == question.queue.spec.name and question.may_take(holder)
    }
    assert not question.fits(own, borrow=True)
    if question.may_reclaim():
        gone: set[ObjectKey] = set()
        for holder in question.candidates():
            if holder.key in own or question.borrows(holder.cluster_queue, gone):
                gone.add(holder.key)
        assert not question.fits(gone, borrow=False)


@given(question=questions())
@settings(max_examples=80, deadline=None)
def test_candidates_come_in_the_order_of_the_specification(question: Question) -> None:
    candidates = Candidates(
        question.snapshot, question.preemptor, question.contested, question.needed
    )
    mine, want = question.queue.spec.name, question.candidates()
    found = [one.holder for one in candidates.in_order(Borrowing.FORBIDDEN, _still_borrows)]
    assert [holder.key for holder in found] == [holder.key for holder in want]
    assert candidates.any_elsewhere == any(one.cluster_queue != mine for one in want)


@given(question=questions())
@settings(max_examples=100, deadline=None)
def test_a_search_leaves_the_snapshot_alone(question: Question) -> None:
    before = [
        (question.snapshot.usage(queue, pair), question.snapshot.available(queue, pair))
        for queue in question.members()
        for pair in PAIRS
    ]
    first, second = question.search(), question.search()
    assert [one.key for one in first.victims] == [one.key for one in second.victims]
    assert before == [
        (question.snapshot.usage(queue, pair), question.snapshot.available(queue, pair))
        for queue in question.members()
        for pair in PAIRS
    ]


@given(facts=worlds(waiting=8))
@settings(max_examples=100, deadline=None)
def test_several_preemptors_of_a_cycle_do_not_share_victims(facts: list[events.Event]) -> None:
    replay = Replay(facts, Settings())
    replay.rest()
    for plan in replay.plans:
        told = [victim.key for one in plan.preemptions for victim in one.victims]
        assert len(told) == len(set(told))
        waiting = {wait.key for wait in plan.waits}
        assert waiting.issuperset(one.key for one in plan.preemptions)
        assert waiting.isdisjoint(admit.key for admit in plan.admissions)
