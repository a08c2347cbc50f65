"""Admission fair sharing in the decision engine: whose turn it is, and who leaves (KEP-4136)."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
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

    def __init__(self, gpu: int, rule: UsageRule | None = RULE, **spec: Any) -> None:
        self.now = START
        self.engine = Engine(Settings(past_usage=rule))
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
        while (given := self.engine.next_cycle(self.now)) is not None:
            settled = self.engine.settle(decide(given, self.now), self.now)
            found += [admit.key.name for admit in settled.admissions]
            for preemption in settled.preemptions:
                found += [f"-{victim.key.name}" for victim in preemption.victims]
        return found


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
