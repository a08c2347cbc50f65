"""What is assumed without an order is found, but not before its time."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kueue import Admission
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction
from kueuelib.scheduler.decide.preemption.victims import Path, PendingPreemption, Victim
from kueuelib.scheduler.events import EvictionFailed, Forgotten, NotPlaced
from kueuelib.scheduler.ordering import queue_order
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.testing.builders import make_workload
from kueuelib.workload.orders import GRACE, Audit, Eviction, Loss, OrderBook, Outcome, What

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


def order(claim: type[Loss]) -> What:
    if claim is EvictionFailed:
        victim = Victim(holder(), Path.IN_CLUSTER_QUEUE)
        other = ObjectKey("ns", "x")
        return Eviction(
            victim, PendingPreemption(other, "ux", WORKLOAD, "q", {"q": "/q"}, (victim,))
        )
    admission = Admission(cluster_queue="q")
    if claim is NotPlaced:
        return NewPlaces(KEY, "u1", WORKLOAD, "q", admission, {})
    return Admit(KEY, "u1", WORKLOAD, "q", admission, True, (), 0.0, 0, {})


CLAIMS = (Forgotten, NotPlaced, EvictionFailed)


class Case:
    """An audit of one claim, named by its withdrawal."""

    def __init__(self, claim: type[Loss]) -> None:
        self.audit, self.book, self.claim = Audit(), OrderBook(), claim

    def look(self, now: float, found: tuple[Any, ...] = (holder(),)) -> tuple[Loss, ...]:
        given = [found if each is self.claim else () for each in CLAIMS]
        return self.audit.look(*given, self.book, now)


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_claim_without_an_order_is_suspected_after_a_while(kind: type[Loss]) -> None:
    case = Case(kind)
    assert case.look(0.0) == ()
    assert case.look(GRACE - 0.1) == ()
    (claim,) = case.look(GRACE)
    assert claim == kind(KEY, "u1")
    case.audit.explained(claim)
    assert case.look(GRACE + 1) == ()


@pytest.mark.parametrize("kind", CLAIMS)
def test_time_counts_only_while_there_is_no_order(kind: type[Loss]) -> None:
    case = Case(kind)
    case.look(0.0)
    case.book.submit(order(kind))
    assert case.look(GRACE) == ()
    assert len(case.audit) == 0
    begun = case.book.begin(KEY)
    assert begun is not None
    assert case.look(2 * GRACE) == ()
    case.book.end(begun, Outcome.STORED)
    assert case.look(3 * GRACE) == ()
    assert case.look(4 * GRACE) != ()


def test_an_eviction_for_a_failed_node_explains_who_leaves_as_well() -> None:
    case = Case(EvictionFailed)
    case.book.submit(NodeEviction(KEY, "u1", "no node", ""))
    case.look(0.0)
    assert case.look(GRACE) == ()


def test_time_of_one_uid_does_not_count_for_another() -> None:
    case = Case(Forgotten)
    case.look(0.0)
    assert case.look(GRACE, (holder("u2"),)) == ()
    assert case.look(2 * GRACE, ()) == ()
    assert len(case.audit) == 0


@pytest.mark.parametrize("kind", CLAIMS)
def test_an_order_of_another_kind_explains_nothing(kind: type[Loss]) -> None:
    case = Case(kind)
    case.book.submit(order(Forgotten if kind is not Forgotten else EvictionFailed))
    case.look(0.0)
    assert case.look(GRACE) != ()
