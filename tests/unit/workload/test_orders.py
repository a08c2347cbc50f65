"""The table of `kueuelib.workload.orders`, line by line."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest

from kueuelib.api.kueue import Admission
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle import Admit, Wait
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction
from kueuelib.scheduler.decide.preemption.victims import Path, PendingPreemption, Victim
from kueuelib.scheduler.events import EvictionFailed, Forgotten, NotPlaced
from kueuelib.scheduler.ordering import queue_order
from kueuelib.scheduler.pending.tries import Requeue
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.reasons import NotEvaluated
from kueuelib.testing.builders import make_workload
from kueuelib.workload.orders import (
    REFUSALS,
    Edge,
    Ended,
    Eviction,
    Order,
    OrderBook,
    Outcome,
    PendingWrites,
    What,
)

WORKLOAD = make_workload("w", "q", {"cpu": 1})
KEY = WORKLOAD.key
OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def admit(uid: str) -> Admit:
    admission = Admission(cluster_queue="q")
    return Admit(KEY, uid, WORKLOAD, "q", admission, True, (), 0.0, 0, {})


def wait(uid: str) -> Wait:
    return Wait(KEY, uid, WORKLOAD, "q", NotEvaluated(), Requeue.GENERIC)


def evict(uid: str, *, assumed: bool = True) -> Eviction:
    holder = Holder(
        key=KEY,
        uid=uid,
        cluster_queue="q",
        local_queue=ObjectKey("ns", "q"),
        priority=0,
        order=queue_order(0, 0.0, uid),
        usage={},
        reserved_at=None,
        admitted=False,
        assumed=assumed,
        evicted=False,
        pods_ready=True,
    )
    victim = Victim(holder, Path.IN_CLUSTER_QUEUE)
    return Eviction(
        victim, PendingPreemption(ObjectKey("ns", "x"), "ux", WORKLOAD, "q", {"q": "/q"}, (victim,))
    )


def evict_what_is_stored(uid: str) -> Eviction:
    return evict(uid, assumed=False)


def place(uid: str) -> NewPlaces:
    return NewPlaces(KEY, uid, WORKLOAD, "q", Admission(cluster_queue="q"), {})


def evict_for_a_node(uid: str) -> NodeEviction:
    return NodeEviction(KEY, uid, "no node", "")


KINDS = {
    "A": admit,
    "W": wait,
    "E": evict,
    "S": evict_what_is_stored,
    "P": place,
    "N": evict_for_a_node,
}


class Story:
    """An order book that is told a story in words, and tells what came of it.

    `E` evicts what is assumed, `S` what is known to be stored, `N` for a failed node. `P` places.
    """

    def __init__(self) -> None:
        self.book = OrderBook()
        self.order: Order | None = None
        self.ended: list[Ended] = []
        self.told: list[str] = []

    def tell(self, words: Iterable[str]) -> None:
        for word in words:
            if word == "begin":
                self.order = self.book.begin(KEY)
                assert self.order is not None
            elif word in OUTCOMES:
                assert self.order is not None
                self._note(self.book.end(self.order, OUTCOMES[word]))
                self.order = None
            else:
                self._note(self.book.submit(KINDS[word[0]](f"u{word[1]}")))

    def _note(self, edge: Edge) -> None:
        self.ended += edge.ended
        for event in edge.events:
            kind = {Forgotten: "-A", NotPlaced: "-P", EvictionFailed: "-E"}[type(event)]
            self.told.append(f"{kind}{event.uid[1:]}")

    @property
    def left(self) -> str:
        """What is under way (`*`), what may be stored (`?`), and what comes then."""
        line = self.book._lines.get(KEY)
        return "" if line is None else shown(line)


def shown(line: PendingWrites) -> str:
    marks = ("*" if line.under_way else "") + ("?" if line.doubtful else "")
    then = "" if line.then is None else f" {name_of(line.then.what)}"
    return name_of(line.first.what) + marks + then


def name_of(what: What) -> str:
    kind = {Admit: "A", Wait: "W", NewPlaces: "P", Eviction: "E", NodeEviction: "N"}[type(what)]
    return f"{kind}{what.uid[1:]}"


@pytest.mark.parametrize(
    ("story", "left", "told"),
    [
        # nothing waits
        ("A1", "A1", ""),
        ("W1", "W1", ""),
        ("E1", "E1", ""),
        # an admission waits
        ("A1 A1", "A1", ""),
        ("A1 A2", "A2", "-A1"),
        ("A1 W1", "W1", "-A1"),
        ("A1 E1", "", "-A1 -E1"),
        ("A1 E2", "E2", "-A1"),
        # an admission waits that may be stored
        ("A1 begin unknown A1", "A1?", ""),
        ("A1 begin unknown A2", "A2", "-A1"),
        ("A1 begin unknown W1", "W1", "-A1"),
        ("A1 begin unknown E1", "A1? E1", ""),
        ("A1 begin unknown E2", "E2", "-A1"),
        ("A1 begin unknown begin again", "A1?", ""),
        # the reservation was seen, so that admission is done
        ("A1 S1", "E1", "-A1"),
        ("A1 begin unknown S1", "E1", "-A1"),
        ("A1 begin A1 stored S1", "E1", "-A1"),
        ("A1 begin S1", "A1* E1", ""),
        ("A1 begin S1 void", "E1", "-A1"),
        # and its eviction behind it
        ("A1 begin unknown E1 E1", "A1? E1", ""),
        ("A1 begin unknown E1 A1", "A1?", ""),
        ("A1 begin unknown E1 A2", "A2", "-A1"),
        ("A1 begin unknown E1 W1", "W1", "-A1"),
        ("A1 begin unknown E1 E2", "E2", "-A1"),
        ("A1 begin unknown E1 begin stored", "E1", ""),
        ("A1 begin unknown E1 begin again", "A1? E1", ""),
        ("A1 begin unknown E1 begin void", "", "-A1 -E1"),
        # a reason to wait waits
        ("W1 A1", "A1", ""),
        ("W1 W1", "W1", ""),
        ("W1 E1", "E1", ""),
        # an eviction waits
        ("E1 A1", "A1", "-E1"),
        ("E1 W1", "W1", "-E1"),
        ("E1 E1", "E1", ""),
        ("E1 E2", "E2", "-E1"),
        # while an admission is being written
        ("A1 begin A1", "A1* A1", ""),
        ("A1 begin W1", "A1* W1", ""),
        ("A1 begin E1", "A1* E1", ""),
        ("A1 begin A1 E1", "A1* E1", ""),
        ("A1 begin A2 E1", "A1* E1", "-A2"),
        ("A1 begin A2 E2", "A1*", "-A2 -E2"),
        ("A1 begin E1 E1", "A1* E1", ""),
        ("A1 begin E1 A1", "A1* A1", "-E1"),
        # while a reason to wait is being written: what upstream's runner lost
        ("W1 begin A1", "W1* A1", ""),
        ("W1 begin A1 E1", "W1*", "-A1 -E1"),
        ("W1 begin A1 E1 stored", "", "-A1 -E1"),
        ("W1 begin A1 W1", "W1* W1", "-A1"),
        ("W1 begin A1 A2", "W1* A2", "-A1"),
        # while an eviction is being written
        ("E1 begin E1", "E1* E1", ""),
        ("E1 begin A1", "E1* A1", ""),
        ("E1 begin A1 E1", "E1*", "-A1 -E1"),
        # new places wait, or are being written; the reservation was seen
        ("P1 P1", "P1", ""),
        ("P1 P2", "P2", "-P1"),
        ("P1 S1", "E1", "-P1"),
        ("P1 N1", "N1", "-P1"),
        ("P1 W1", "W1", "-P1"),
        ("A1 begin unknown P1", "P1", "-A1"),
        ("P1 begin P1 unknown", "P1?", ""),
        ("P1 begin S1 stored", "E1", ""),
        ("P1 begin S1 void", "E1", "-P1"),
        ("P1 begin N1 again", "N1", "-P1"),
        # the end, nothing waits
        *[(f"{kind}1 begin stored", "", "") for kind in "AWEPN"],
        *[(f"{kind}1 begin again", f"{kind}1", "") for kind in "AWEPN"],
        *[(f"{kind}1 begin unknown", f"{kind}1?", "") for kind in "AWEPN"],
        *[
            (f"{kind}1 begin {outcome}", "", told)
            for kind, told in (("A", "-A1"), ("W", ""), ("E", "-E1"), ("P", "-P1"), ("N", "-E1"))
            for outcome in ("void", "gone")
        ],
        # the end, something waits
        ("A1 begin A1 stored", "A1", ""),
        ("A1 begin A1 void", "A1", ""),
        ("A1 begin A2 gone", "A2", "-A1"),
        ("A1 begin W1 void", "W1", "-A1"),
        ("A1 begin E1 stored", "E1", ""),
        ("A1 begin E1 void", "", "-A1 -E1"),
        ("A1 begin E1 gone", "", "-A1 -E1"),
        ("A1 begin E1 again", "", "-A1 -E1"),
        ("A1 begin E1 unknown", "A1? E1", ""),
        ("A1 begin A1 unknown", "A1?", ""),
        ("A1 begin A1 again", "A1", ""),
        ("A1 begin A2 unknown", "A2", "-A1"),
        ("W1 begin A1 void", "A1", ""),
        ("W1 begin A1 unknown", "A1", ""),
        ("E1 begin E1 void", "E1", ""),
        ("E1 begin E2 gone", "E2", "-E1"),
        ("E1 begin A1 void", "A1", "-E1"),
        ("E1 begin A1 again", "A1", "-E1"),
    ],
)
def test_the_table(story: str, left: str, told: str) -> None:
    found = Story()
    found.tell(story.split())
    assert found.left == left
    assert " ".join(found.told) == told


@pytest.mark.parametrize(("kind", "told"), [("A", ["-A1"]), ("W", []), ("E", ["-E1"])])
def test_the_last_of_several_refusals_ends_an_order(kind: str, told: list[str]) -> None:
    story = Story()
    story.tell([f"{kind}1"])
    for _ in range(REFUSALS - 1):
        story.tell(["begin"])
        assert story.order is not None
        assert not story.book.gives_up(story.order)
        story.tell(["refused"])
        assert story.told == []
    story.tell(["begin"])
    assert story.order is not None
    assert story.book.gives_up(story.order)
    story.tell(["refused"])
    assert story.told == told
    assert len(story.book) == 0


def test_refusals_of_one_order_are_not_those_of_the_next() -> None:
    story = Story()
    story.tell(["A1", *["begin", "refused"] * (REFUSALS - 1), "A1", "begin"])
    assert story.order is not None
    assert not story.book.gives_up(story.order)


def test_every_order_ends_once_and_only_one_is_under_way() -> None:
    story = Story()
    story.tell(["W1", "begin", "A1"])
    assert story.book.begin(KEY) is None
    assert story.book.explains(Forgotten(KEY, "u1"))
    assert not story.book.explains(Forgotten(KEY, "u2"))
    assert not story.book.explains(EvictionFailed(KEY, "u1"))
    story.tell(["E1", "stored"])
    assert sorted(ended.order.number for ended in story.ended) == [1, 2, 3]
    assert story.book.begin(KEY) is None
    assert list(story.book) == []


def test_what_waits_is_told() -> None:
    story = Story()
    assert story.book.waits(KEY) is None
    story.tell(["E1"])
    assert isinstance(story.book.waits(KEY), Eviction)
    assert story.book.explains(EvictionFailed(KEY, "u1"))
    story.tell(["begin"])
    assert story.book.waits(KEY) is None
    assert story.book.explains(EvictionFailed(KEY, "u1"))
    story.tell(["A1"])
    assert isinstance(story.book.waits(KEY), Admit)


def test_two_orders_that_say_the_same_are_not_the_same() -> None:
    first = Order(1, admit("u1"))
    assert first != attrs.evolve(first)
