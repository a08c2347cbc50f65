"""Laws of the orders: nothing is lost between the engine's decision and the stored status.

A small API server accepts, loses the answer, refuses, or takes a request late; the watch shows
everything in order, but any time later; Workloads come, end, go and come again meanwhile.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)
from kueuelib.workload.orders import Edge, Eviction, Order, OrderBook, Outcome, foregone
from kueuelib.workload.phases import PODS_MISSING

QUEUES = ("a", "b")
NAMES = ("w0", "w1", "w2", "w3")
NOMINAL = 2
KEYS = tuple(ObjectKey("ns", name) for name in NAMES)
STEPS = 200
WAYS = ("answered", "answered", "answer lost", "late", "again", "refused")
"""What may become of a request: a late one is carried out when its answer is waited for no more."""


@attrs.frozen
class Stored:
    """A Workload as the server has it, and its version."""

    workload: Workload
    version: int
    held_back: bool = False


@attrs.frozen
class Late:
    """A request without an answer that the server may still carry out."""

    order: Order
    version: int


class Orders:
    """The engine, the orders, a server and what its watch has not shown yet."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.engine, self.book, self.now = Engine(), OrderBook(), 1000.0
        self.server: dict[ObjectKey, Stored] = {}
        self.unseen: deque[tuple[ObjectKey, events.Event]] = deque()
        self.seen: dict[ObjectKey, Workload] = {}
        self.under_way: dict[ObjectKey, Order] = {}
        self.late: dict[ObjectKey, Late] = {}
        self.versions = 0
        self.observe(events.NamespaceSet("ns", {}))
        self.observe(events.FlavorSet(make_flavor("one")))
        for name in QUEUES:
            policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
            queue = make_cluster_queue(
                name, {"one": {"gpu": NOMINAL}}, cohort="x", preemption=policy
            )
            self.observe(events.ClusterQueueSet(queue))
            self.observe(events.LocalQueueSet(make_local_queue(name, name)))

    def observe(self, event: events.Event) -> None:
        self.engine.observe(event, self.now)

    # --- the server

    def store(self, workload: Workload, *, held_back: bool = False) -> None:
        self.versions += 1
        key = workload.key
        self.server[key] = Stored(workload, self.versions, held_back)
        if held_back and not holds(workload):
            workload = with_status(workload, make_condition("Requeued", False, PODS_MISSING))
        self.unseen.append((key, events.WorkloadSet(workload)))

    def is_made(self, key: ObjectKey) -> None:
        if key in self.server:
            return
        self.now += 1
        queue, gpu, priority = (
            self.rng.choice(QUEUES),
            self.rng.randint(1, 3),
            self.rng.randint(-3, 3),
        )
        made = make_workload(key.name, queue, {"gpu": gpu}, priority=priority, created=self.now)
        metadata = attrs.evolve(made.metadata, uid=f"{key.name}-{self.versions}")
        self.store(attrs.evolve(made, metadata=metadata))

    def is_deleted(self, key: ObjectKey) -> None:
        if self.server.pop(key, None) is not None:
            self.unseen.append((key, events.WorkloadGone(key)))

    def ends(self, key: ObjectKey) -> None:
        found = self.server.get(key)
        if found is not None and holds(found.workload):
            self.store(with_status(found.workload, make_condition("Finished")))

    def is_edited(self, key: ObjectKey) -> None:
        """Somebody else writes to it; nothing that matters changes but its version."""
        found = self.server.get(key)
        if found is not None:
            self.store(found.workload, held_back=found.held_back)

    def lacks_pods_or_has_them(self, key: ObjectKey) -> None:
        found = self.server.get(key)
        if found is not None and not holds(found.workload) and not ended(found.workload):
            self.store(found.workload, held_back=not found.held_back)

    def leaves(self, key: ObjectKey) -> None:
        found = self.server.get(key)
        if found is not None and is_evicted(found.workload) and not ended(found.workload):
            self.store(released(found.workload))

    # --- the manager

    def is_seen(self, _: ObjectKey) -> None:
        if self.unseen:
            self.show(*self.unseen.popleft())

    def show(self, key: ObjectKey, event: events.Event) -> None:
        if isinstance(event, events.WorkloadSet):
            known = self.seen.get(key)
            if known is not None and known.metadata.uid != event.workload.metadata.uid:
                self.observe(events.WorkloadGone(key))
            self.seen[key] = event.workload
        else:
            self.seen.pop(key, None)
        self.observe(event)

    def learn(self, key: ObjectKey) -> None:
        """What the server answered is known before the watch shows it, which it then does not."""
        mine = [event for each, event in self.unseen if each == key]
        if mine and key in self.server:
            self.unseen = deque(one for one in self.unseen if one[0] != key)
            self.show(key, mine[-1])

    def decides(self, _: ObjectKey) -> None:
        self.now += 1
        found = self.engine.next_cycle(self.now)
        if found is None:
            return
        settled = self.engine.settle(decide(found, self.now), self.now)
        for what in (*settled.admissions, *settled.waits):
            self.passed(self.book.submit(what))
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                self.passed(self.book.submit(Eviction(victim, preemption)))

    def passed(self, edge: Edge) -> None:
        for event in edge.events:
            self.observe(event)

    def begins(self, key: ObjectKey) -> None:
        order = self.book.begin(key)
        if order is None:
            return
        known = foregone(order.what, self.engine.cache.holder)
        if known is None:
            self.under_way[key] = order
        else:
            self.passed(self.book.end(order, known))

    def write_ends(self, key: ObjectKey, how: str = "") -> None:
        """What the shell does: builds on the newest object, however often that changes."""
        how = how or self.rng.choice(WAYS)
        order = self.under_way.pop(key, None)
        if order is None:
            return
        self.learn(key)
        known = foregone(order.what, self.engine.cache.holder)
        if known is not None:
            self.passed(self.book.end(order, known))
        elif how == "again":
            self.passed(self.book.end(order, Outcome.AGAIN))
        elif how == "refused" and key not in self.late:
            self.passed(self.book.end(order, Outcome.REFUSED))
        elif how == "late" and key in self.server:
            if isinstance(order.what, Admit):
                self.late[key] = Late(order, self.server[key].version)
            self.passed(self.book.end(order, Outcome.UNKNOWN))
        else:
            outcome = self.write(order)
            if how == "answer lost" and outcome is Outcome.STORED:
                outcome = Outcome.UNKNOWN
            elif outcome is Outcome.STORED:
                self.learn(key)
            self.passed(self.book.end(order, outcome))

    def late_request_is_carried_out(self, key: ObjectKey) -> None:
        late = self.late.pop(key, None)
        if late is not None and key in self.server and self.server[key].version == late.version:
            self.write(late.order)

    def write(self, order: Order) -> Outcome:
        """What comes of a request that is built on the newest object."""
        key, what = order.key, order.what
        found = self.server.get(key)
        if found is None or found.workload.metadata.uid != order.uid:
            return Outcome.GONE
        workload = found.workload
        if isinstance(what, Admit):
            if holds(workload) and not ended(workload) and not is_evicted(workload):
                return Outcome.STORED
            if holds(workload) or ended(workload) or found.held_back:
                return Outcome.VOID
            self.store(reserved(workload, what))
        elif isinstance(what, Eviction):
            if not holds(workload) or ended(workload):
                return Outcome.VOID
            if not is_evicted(workload):
                self.store(with_status(workload, make_condition("Evicted", reason="Preempted")))
        elif not holds(workload) and not ended(workload):
            self.store(workload, held_back=found.held_back)
        return Outcome.STORED

    # --- laws

    def shown_later(self, key: ObjectKey, uid: str, *, leaving: bool = False) -> bool:
        """Whether the watch has yet to show that this very Workload holds quota, or leaves."""
        return any(
            isinstance(event, events.WorkloadSet)
            and event.workload.key == key
            and event.workload.metadata.uid == uid
            and holds(event.workload)
            and (not leaving or is_evicted(event.workload))
            for _, event in self.unseen
        )

    def what_is_assumed_is_ordered_or_stored(self) -> None:
        for key, holder in self.engine.cache.holders.items():
            if holder.assumed:
                ordered = self.book.explains(events.Forgotten(key, holder.uid))
                assert ordered or self.shown_later(key, holder.uid), key

    def who_counts_as_leaving_is_told_or_knows(self) -> None:
        for key, holder in self.engine.cache.holders.items():
            if holder.evicted and not is_evicted(self.seen[key]):
                told = self.book.explains(events.EvictionFailed(key, holder.uid))
                assert told or self.shown_later(key, holder.uid, leaving=True), key

    def quota_is_never_exceeded_by_what_is_stored(self) -> None:
        used = sum(gpus(one.workload) for one in self.server.values() if uses(one.workload))
        assert used <= NOMINAL * len(QUEUES)

    def one_order_of_a_workload_is_under_way(self) -> None:
        for key, order in self.under_way.items():
            line = self.book._lines[key]
            assert line.under_way
            assert line.first is order

    def walk(self) -> None:
        """Something happens, many times over."""
        acts: dict[Callable[[ObjectKey], None], int] = {
            self.is_made: 7,
            self.is_deleted: 2,
            self.ends: 2,
            self.is_edited: 1,
            self.lacks_pods_or_has_them: 2,
            self.leaves: 6,
            self.is_seen: 14,
            self.decides: 14,
            self.begins: 7,
            self.write_ends: 5,
            self.late_request_is_carried_out: 1,
        }
        for act in self.rng.choices([*acts], [*acts.values()], k=STEPS):
            act(self.rng.choice(self.whom(act)))
            self.what_is_assumed_is_ordered_or_stored()
            self.who_counts_as_leaving_is_told_or_knows()
            self.quota_is_never_exceeded_by_what_is_stored()
            self.one_order_of_a_workload_is_under_way()

    def whom(self, act: Callable[[ObjectKey], None]) -> Sequence[ObjectKey]:
        """To whom it may happen, so that few of the steps are none."""
        known: dict[Callable[[ObjectKey], None], Iterable[ObjectKey]] = {
            self.begins: self.book,
            self.write_ends: self.under_way,
            self.late_request_is_carried_out: self.late,
        }
        return sorted(known.get(act, ())) or KEYS

    def rests(self) -> None:
        """Once nobody disturbs, everything comes to rest, and what is known is what is stored."""
        for _ in range(300):
            before = (self.versions, len(self.book))
            for key in [*self.book]:
                self.begins(key)
                self.write_ends(key, "answered")
            for key in [*self.server]:
                self.leaves(key)
            while self.unseen:
                self.is_seen(KEYS[0])
            idle = not self.engine.has_work(self.now)
            self.decides(KEYS[0])
            if idle and not self.book and before == (self.versions, len(self.book)):
                break
        else:
            raise AssertionError("it does not come to rest")
        self.what_is_assumed_is_ordered_or_stored()
        stored = {key for key, one in self.server.items() if uses(one.workload)}
        charged = self.engine.cache.holders
        assert stored == set(charged)
        assert not any(holder.assumed or holder.evicted for holder in charged.values())
        free = NOMINAL * len(QUEUES) - sum(gpus(self.server[key].workload) for key in stored)
        for key, one in self.server.items():
            if key not in stored and not one.held_back and not ended(one.workload):
                assert gpus(one.workload) > free, f"{key} waits although there is room"


def with_status(workload: Workload, *conditions: dict[str, str], **status: Any) -> Workload:
    raw = encode(workload)
    types = {condition["type"] for condition in conditions}
    old = raw.get("status", {})
    kept = [found for found in old.get("conditions", ()) if found["type"] not in types]
    merged = {**old, **status, "conditions": [*kept, *conditions]}
    merged = {name: value for name, value in merged.items() if value is not None}
    return decode(Workload, {**raw, "status": merged})


def reserved(workload: Workload, what: Admit) -> Workload:
    return with_status(
        workload,
        make_condition("QuotaReserved"),
        make_condition("Admitted"),
        make_condition("Evicted", False),
        admission=encode(what.admission),
    )


def released(workload: Workload) -> Workload:
    waits = (make_condition("QuotaReserved", False), make_condition("Admitted", False))
    return with_status(workload, *waits, admission=None)


def holds(workload: Workload) -> bool:
    return workload.status.admission is not None


def ended(workload: Workload) -> bool:
    return is_true(workload, "Finished")


def uses(workload: Workload) -> bool:
    return holds(workload) and not ended(workload)


def is_evicted(workload: Workload) -> bool:
    return holds(workload) and is_true(workload, "Evicted")


def is_true(workload: Workload, type: str) -> bool:
    return any(one.type == type and one.status == "True" for one in workload.status.conditions)


def gpus(workload: Workload) -> int:
    requests = workload.spec.pod_sets[0].template.spec.containers[0].resources.requests
    return int(requests["gpu"].value())


@given(seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_nothing_is_lost_between_deciding_and_writing(seed: int) -> None:
    """Whatever is lost on the way: the engine, the orders and the server agree in the end."""
    world = Orders(random.Random(seed))
    world.walk()
    world.rests()
