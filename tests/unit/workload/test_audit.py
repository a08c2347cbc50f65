"""What is assumed without an order is found, but not before its time."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kueue import Admission
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import Path, PendingPreemption, Victim
from kueuelib.scheduler.events import EvictionFailed, Forgotten
from kueuelib.scheduler.ordering import queue_order
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.testing.builders import make_workload
from kueuelib.workload.orders import GRACE, Audit, Claim, Eviction, OrderBook, Outcome, What

WORKLOAD = make_workload("w", "q", {"cpu": 1})
KEY = WORKLOAD.key


def holder(uid: str = "u1") -> Holder:
    return Holder(
        key=KEY,
        uid=uid,
        cluster_queue="q",
        local_queue=ObjectKey("ns", "q"),
        priority=0,
        order=queue_order(0, 0.0, uid),
        usage={},
        reserved_at=None,
        admitted=False,
        assumed=True,
        evicted=False,
        pods_ready=True,
    )


def order(*, leaving: bool) -> What:
    if leaving:
        victim = Victim(holder(), Path.IN_CLUSTER_QUEUE)
        other = ObjectKey("ns", "x")
        return Eviction(
            victim, PendingPreemption(other, "ux", WORKLOAD, "q", {"q": "/q"}, (victim,))
        )
    return Admit(KEY, "u1", WORKLOAD, "q", Admission(cluster_queue="q"), True, (), 0.0, 0, {})


class Case:
    """An audit of one claim."""

    def __init__(self, *, leaving: bool) -> None:
        self.audit, self.book, self.leaving = Audit(), OrderBook(), leaving

    def look(self, now: float, found: tuple[Holder, ...] = (holder(),)) -> tuple[Claim, ...]:
        sides: dict[bool, Any] = {self.leaving: found, not self.leaving: ()}
        return self.audit.look(sides[False], sides[True], self.book, now)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_claim_without_an_order_is_suspected_after_a_while(leaving: bool) -> None:
    case = Case(leaving=leaving)
    assert case.look(0.0) == ()
    assert case.look(GRACE - 0.1) == ()
    (claim,) = case.look(GRACE)
    assert claim == Claim(KEY, "u1", leaving)
    told = EvictionFailed(KEY, "u1") if leaving else Forgotten(KEY, "u1")
    assert claim.withdrawal == told
    case.audit.explained(claim)
    assert case.look(GRACE + 1) == ()


@pytest.mark.parametrize("leaving", [False, True])
def test_time_counts_only_while_there_is_no_order(leaving: bool) -> None:
    case = Case(leaving=leaving)
    case.look(0.0)
    case.book.submit(order(leaving=leaving))
    assert case.look(GRACE) == ()
    assert len(case.audit) == 0
    begun = case.book.begin(KEY)
    assert begun is not None
    assert case.look(2 * GRACE) == ()
    case.book.end(begun, Outcome.STORED)
    assert case.look(3 * GRACE) == ()
    assert case.look(4 * GRACE) != ()


def test_time_of_one_uid_does_not_count_for_another() -> None:
    case = Case(leaving=False)
    case.look(0.0)
    assert case.look(GRACE, (holder("u2"),)) == ()
    assert case.look(2 * GRACE, ()) == ()
    assert len(case.audit) == 0


def test_an_order_of_the_other_kind_explains_nothing() -> None:
    case = Case(leaving=True)
    case.book.submit(order(leaving=False))
    case.look(0.0)
    assert case.look(GRACE) != ()
