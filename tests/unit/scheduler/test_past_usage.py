"""Admission fair sharing in the decision engine: whose turn it is, and who leaves (KEP-4136)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attrs
import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import LocalQueue, Workload
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

START = 3000.0
RULE = UsageRule(half_life=600.0, interval=300.0)
BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
LOWER = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def running(name: str, queue: str, gpu: int, at: float, priority: int = 0) -> Workload:
    """A workload that was admitted."""
    assignment = make_assignment({"gpu": gpu}, "f")
    return make_workload(
        name,
        queue,
        {"gpu": gpu},
        priority=priority,
        conditions=[make_condition("QuotaReserved", at=at), make_condition("Admitted", at=at)],
        status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}},
    )


class Cluster:
    """An engine with one ClusterQueue, and whoever writes for it."""

    def __init__(
        self, gpu: int, rule: UsageRule | None = RULE, parallel: bool = True, **spec: Any
    ) -> None:
        self.now = START
        self.engine = Engine(Settings(past_usage=rule, parallel_preemptors=parallel))
        self.quotas = {"f": {"gpu": gpu}}
        self.tell(
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("f")),
            events.ClusterQueueSet(make_cluster_queue("q", self.quotas, **{**BY_USAGE, **spec})),
        )

    def tell(self, *found: events.Event) -> None:
        self.engine.observe_all(found, self.now)

    def queues(self, *names: str, **weights: str | float) -> None:
        for name in names:
            self.tell(events.LocalQueueSet(make_local_queue(name, "q")))
        for name, weight in weights.items():
            sharing = {"weight": str(weight)}
            self.tell(events.LocalQueueSet(make_local_queue(name, "q", fairSharing=sharing)))

    def submit(self, name: str, queue: str, gpu: int = 1, **more: Any) -> None:
        self.tell(events.WorkloadSet(make_workload(name, queue, {"gpu": gpu}, **more)))

    def runs(self, name: str, queue: str, gpu: int, *, ago: float = 0, priority: int = 0) -> None:
        found = running(name, queue, gpu, self.now - ago, priority)
        self.tell(events.WorkloadSet(found))

    def ends(self, *names: str) -> None:
        self.tell(*(events.WorkloadGone(key(name)) for name in names))

    def rest(self) -> list[str]:
        """Cycles until nothing is left to do; the admitted, in their order, and the victims."""
        found: list[str] = []
        for _ in range(100):
            given = self.engine.next_cycle(self.now)
            if given is None:
                return found
            settled = self.engine.settle(decide(given, self.now), self.now)
            found += [admit.key.name for admit in settled.admissions]
            for preemption in settled.preemptions:
                found += [f"-{victim.key.name}" for victim in preemption.victims]
        raise AssertionError("cycles do not end")


# --- who leaves


def test_who_used_most_leaves_first_whatever_the_priorities() -> None:
    cluster = Cluster(3, **LOWER)
    cluster.queues("idle", "busy", "mine")
    cluster.runs("old", "busy", 1, ago=2000, priority=5)
    cluster.runs("new", "idle", 1, priority=1)
    cluster.runs("own", "mine", 1, priority=9)
    cluster.submit("urgent", "mine", priority=9)
    assert cluster.rest() == ["-old"]


def test_among_those_of_one_local_queue_the_lowest_priority_leaves_first() -> None:
    cluster = Cluster(2, **LOWER)
    cluster.queues("busy", "mine")
    cluster.runs("high", "busy", 1, ago=2000, priority=5)
    cluster.runs("low", "busy", 1, priority=1)
    cluster.submit("urgent", "mine", priority=9)
    assert cluster.rest() == ["-low"]


def test_a_newer_workload_of_another_local_queue_is_not_refused_for_an_older_one() -> None:
    """The older one has a victim, where age counts, but the LocalQueue of the newer is first."""
    policy = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
    cluster = Cluster(1, preemption=policy)
    cluster.queues("idle", "busy")
    cluster.runs("runs", "busy", 1, ago=500)
    cluster.submit("newer", "idle", created=20)
    cluster.submit("older", "busy", created=-1)
    assert cluster.rest() == ["-runs"]


@pytest.mark.parametrize(("rule", "spec"), [(None, {}), (RULE, {"admissionScope": None})])
def test_priorities_decide_about_victims_where_past_usage_does_not_count(
    rule: UsageRule | None, spec: dict[str, Any]
) -> None:
    cluster = Cluster(2, rule, **LOWER, **spec)
    cluster.queues("idle", "busy", "mine")
    cluster.runs("old", "busy", 1, ago=2000, priority=5)
    cluster.runs("new", "idle", 1, priority=1)
    cluster.submit("urgent", "mine", priority=9)
    assert cluster.rest() == ["-new"]


# --- whose turn it is


def test_who_used_less_comes_first_whatever_the_priorities_and_ages() -> None:
    cluster = Cluster(3)
    cluster.queues("busy", "idle")
    cluster.runs("old", "busy", 1, ago=2000)
    cluster.submit("first", "busy", priority=9)
    cluster.submit("second", "idle", created=50)
    assert cluster.rest() == ["second", "first"]


def test_equal_usage_leaves_it_to_priority_and_age() -> None:
    cluster = Cluster(3)
    cluster.queues("a", "b")
    cluster.submit("young", "a", created=20)
    cluster.submit("old", "b", created=10)
    cluster.submit("high", "b", priority=1, created=30)
    assert cluster.engine.pending("q")[0].key == key("high")
    assert [info.key.name for info in cluster.engine.pending("q")] == ["high", "old", "young"]


def test_every_admission_costs_so_that_turns_alternate() -> None:
    cluster = Cluster(6)
    cluster.queues("a", "b")
    for number in range(4):
        cluster.submit(f"a{number}", "a", created=number)
        cluster.submit(f"b{number}", "b", created=100 + number)
    assert cluster.rest() == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_weight_divides_what_was_used() -> None:
    cluster = Cluster(8)
    cluster.queues("a", b=3)
    for number in range(8):
        cluster.submit(f"a{number}", "a", created=number)
        cluster.submit(f"b{number}", "b", created=100 + number)
    found = cluster.rest()
    assert sum(name.startswith("b") for name in found) == 6


def test_weight_0_comes_last() -> None:
    cluster = Cluster(3)
    cluster.queues("busy", nothing=0)
    cluster.runs("old", "busy", 1, ago=2000)
    cluster.submit("never", "nothing", priority=9)
    cluster.submit("first", "busy")
    assert cluster.rest() == ["first", "never"]


def test_resources_count_by_their_weights() -> None:
    rule = UsageRule(600.0, 300.0, {"gpu": Fraction(0)})
    cluster = Cluster(3, rule)
    cluster.queues("busy", "idle")
    cluster.runs("old", "busy", 1, ago=2000)
    cluster.submit("first", "busy", created=10)
    cluster.submit("second", "idle", created=50)
    assert cluster.rest() == ["first", "second"]


@pytest.mark.parametrize("rule", [None, UsageRule(0.0)])
def test_without_past_usage_age_decides(rule: UsageRule | None) -> None:
    cluster = Cluster(3, rule)
    cluster.queues("busy", "idle")
    cluster.runs("old", "busy", 1, ago=2000)
    cluster.submit("first", "busy", created=10)
    cluster.submit("second", "idle", created=50)
    assert cluster.rest() == ["first", "second"]


def test_a_new_weight_counts_at_once() -> None:
    cluster = Cluster(1, queueingStrategy="StrictFIFO")
    cluster.queues("a", "b")
    cluster.runs("one", "a", 1, ago=2000)
    cluster.submit("waits", "b", gpu=1)
    cluster.submit("too", "a", gpu=1)
    assert cluster.rest() == []
    cluster.queues(b=0)
    assert [info.key.name for info in cluster.engine.pending("q")] == ["too", "waits"]


@pytest.mark.parametrize("gpu", [1, 3])
def test_a_workload_that_moves_takes_the_place_of_its_new_local_queue(gpu: int) -> None:
    """Whether it was tried before or not."""
    cluster = Cluster(3)
    cluster.queues("busy", "idle")
    cluster.runs("old", "busy", gpu, ago=2000)
    cluster.submit("moves", "idle", created=1)
    cluster.submit("stays", "idle", created=2)
    if gpu == 3:
        assert cluster.rest() == []
    cluster.submit("moves", "busy", created=1)
    cluster.ends("old")
    assert cluster.rest() == ["stays", "moves"]


def test_a_workload_that_moved_hides_nobody_of_its_former_local_queue() -> None:
    cluster = Cluster(3)
    cluster.queues("busy", "idle")
    cluster.runs("old", "busy", 3, ago=2000)
    for number, name in enumerate(("front", "moves", "stays")):
        cluster.submit(name, "idle", created=number)
    cluster.submit("moves", "busy", created=1)
    cluster.ends("front", "old")
    assert cluster.rest() == ["stays", "moves"]


def test_a_younger_workload_that_comes_first_is_not_tried_forever() -> None:
    """Where age counts, its verdict says nothing about older ones of other LocalQueues."""
    cluster = Cluster(1, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    cluster.queues("idle", busy=0)
    cluster.runs("oldest", "busy", 1, ago=100)
    cluster.submit("old", "busy", created=20)
    cluster.submit("young", "idle", created=30)
    assert cluster.rest() == []


def test_a_sample_gives_a_blocked_queue_a_new_head() -> None:
    """The head waits for room; by and by somebody else used less, and nothing else happens."""
    cluster = Cluster(3, queueingStrategy="StrictFIFO")
    cluster.queues("a", "b")
    cluster.runs("past", "a", 2, ago=2000)
    cluster.ends("past")
    cluster.runs("now", "b", 2)
    cluster.submit("large", "b", gpu=3, created=50)
    cluster.submit("small", "a", created=60)
    assert cluster.rest() == []
    for _ in range(20):
        at = cluster.engine.next_deadline()
        assert at is not None
        cluster.now = max(cluster.now, at)
        admitted = cluster.rest()
        if admitted:
            break
    assert admitted == ["small"]
    assert START < cluster.now < START + 3600
    assert cluster.now % 300 == 0


def test_a_blocked_head_of_another_kind_is_left_alone_by_samples() -> None:
    cluster = Cluster(3, queueingStrategy="BestEffortFIFO")
    cluster.queues("a")
    cluster.runs("now", "a", 2)
    cluster.submit("large", "a", gpu=3)
    assert cluster.rest() == []
    cluster.now += 60
    cluster.rest()
    assert cluster.engine.next_deadline() is None


@pytest.mark.parametrize("parallel", [True, False])
def test_nobody_overtakes_the_one_for_which_others_leave(parallel: bool) -> None:
    """Not even a LocalQueue that used less: else it would be preempted again and again."""
    cluster = Cluster(1, parallel=parallel, **LOWER)
    cluster.queues("idle", "busy")
    cluster.runs("past", "busy", 1, ago=2000)
    cluster.ends("past")
    cluster.runs("victim", "idle", 1, priority=0)
    cluster.submit("urgent", "busy", priority=9)
    assert cluster.rest() == ["-victim"]
    cluster.submit("cheap", "idle", priority=0)
    cluster.ends("victim")
    assert cluster.rest() == ["urgent"]


def test_who_is_ahead_is_told_in_the_order_of_usage() -> None:
    cluster = Cluster(1, queueingStrategy="StrictFIFO")
    cluster.queues("busy", "idle")
    cluster.runs("past", "busy", 1, ago=2000)
    cluster.submit("large", "idle", gpu=1, created=50)
    cluster.submit("old", "busy", created=10, priority=9)
    cluster.rest()
    cluster.now += 60
    cluster.rest()
    assert cluster.engine.standing(key("old")).where is Where.PENDING
    assert [info.key.name for info in cluster.engine.pending("q")] == ["large", "old"]


def test_a_reservation_costs_until_it_is_lost() -> None:
    cluster = Cluster(3, checks=["late"])
    cluster.tell(events.CheckSet(make_check("late")))
    cluster.queues("a", "b")
    cluster.submit("one", "a", gpu=2)
    assert cluster.rest() == ["one"]
    past = cluster.engine.past_usage
    assert past is not None
    penalty = 2 * (1 - 0.5 ** (300 / 600))
    assert float(past.value(key("a"))) == pytest.approx(penalty)
    cluster.now += 1000
    cluster.engine.advance(cluster.now)
    assert float(past.value(key("a"))) == pytest.approx(penalty)
    cluster.tell(events.Forgotten(key("one")))
    assert past.value(key("a")) == 0


def test_the_penalty_of_what_was_admitted_decays_with_its_usage() -> None:
    cluster = Cluster(3)
    cluster.queues("a")
    cluster.runs("one", "a", 2)
    cluster.ends("one")
    past = cluster.engine.past_usage
    assert past is not None
    penalty = 2 * (1 - 0.5 ** (300 / 600))
    assert float(past.value(key("a"))) == pytest.approx(penalty)
    for share in (2, 4):
        cluster.now += 600
        cluster.engine.advance(cluster.now)
        assert float(past.value(key("a"))) == pytest.approx(penalty / share)


def test_an_admission_costs_once_from_decision_to_confirmation() -> None:
    cluster = Cluster(3)
    cluster.queues("a")
    cluster.submit("one", "a", gpu=2)
    assert cluster.rest() == ["one"]
    past = cluster.engine.past_usage
    assert past is not None
    decided = past.value(key("a"))
    assert decided > 0
    for _ in range(2):
        cluster.runs("one", "a", 2)
        assert past.value(key("a")) == decided


@pytest.mark.parametrize("stored_at", [START - 600, START - 1200])
def test_a_restart_counts_what_was_stored_and_what_runs_since(stored_at: float) -> None:
    """No penalty and no time before the sample counts again."""
    cluster = Cluster(9)
    sharing = {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"gpu": "8"},
            "lastUpdate": format_time(stored_at),
        },
    }
    stored = attrs.evolve(
        make_local_queue("a", "q"),
        status=decode(LocalQueue, {"status": {"fairSharing": sharing}}).status,
    )
    cluster.tell(events.LocalQueueSet(stored))
    cluster.runs("old", "a", 1, ago=START - stored_at + 100)
    cluster.runs("new", "a", 2, ago=300)
    past = cluster.engine.past_usage
    assert past is not None
    left = 0.5 ** ((START - stored_at) / 600)
    half = 0.5 ** (300 / 600)
    old = 8 * left + (1 - left)
    new = 2 * (1 - half) + 2 * (1 - half) * half
    assert float(past.value(key("a"))) == pytest.approx(old + new)


def test_a_cluster_queue_may_change_its_mind() -> None:
    cluster = Cluster(3, admissionScope={"admissionMode": "NoAdmissionFairSharing"})
    cluster.queues("busy", "idle")
    cluster.runs("past", "busy", 1, ago=2000)
    cluster.submit("old", "busy", gpu=3, created=10)
    cluster.submit("new", "idle", gpu=3, created=20)
    assert [info.key.name for info in cluster.engine.pending("q")] == ["old", "new"]
    for spec, expected in ((BY_USAGE, ["new", "old"]), ({}, ["old", "new"])):
        cluster.tell(events.ClusterQueueSet(make_cluster_queue("q", cluster.quotas, **spec)))
        assert [info.key.name for info in cluster.engine.pending("q")] == expected


def test_a_local_queue_that_is_gone_is_forgotten() -> None:
    cluster = Cluster(3)
    cluster.queues("a")
    cluster.runs("one", "a", 2, ago=2000)
    past = cluster.engine.past_usage
    assert past is not None
    assert key("a") in past
    cluster.tell(events.LocalQueueGone(key("a")))
    assert key("a") not in past
    assert past.values() == {}
