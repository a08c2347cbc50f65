"""Preemption policies in the engine: the shipped examples, waking by time, and broken policies."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.engine import SOONEST, Engine, Settled
from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "preemption_policies"))

from preemption_policies import MinimumRunTime, PreemptionBudget

NOW = 10_000.0
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


@attrs.define
class Cluster:
    """An engine with the ClusterQueue `cq`, and the LocalQueues `red` and `blue`."""

    engine: Engine
    now: float = NOW
    plan: Plan | None = None
    settled: Settled | None = None

    @classmethod
    def of(
        cls, policy: PreemptionPolicy, quota: int, fair: FairSharingRules | None = None, **spec: Any
    ) -> Cluster:
        found = cls(Engine(Settings(preemption=policy, fair_sharing=fair)))
        queue = make_cluster_queue(
            "cq", {"f": {"gpu": quota}}, cohort="all", preemption=PREEMPTION, **spec
        )
        found.tell(
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("f")),
            events.ClusterQueueSet(queue),
            events.LocalQueueSet(make_local_queue("red", "cq")),
            events.LocalQueueSet(make_local_queue("blue", "cq")),
        )
        return found

    def tell(self, *facts: events.Event) -> None:
        self.engine.observe_all(facts, self.now)

    def runs(
        self, name: str, queue: str = "red", since: float = NOW, gpu: int = 1, **more: Any
    ) -> Workload:
        found = running(name, queue, since, gpu, **more)
        self.tell(events.WorkloadSet(found))
        return found

    def waits(self, name: str, gpu: int = 1, priority: int = 9, queue: str = "red") -> None:
        found = make_workload(name, queue, {"gpu": gpu}, priority=priority, created=NOW)
        self.tell(events.WorkloadSet(found))

    def cycle(self) -> list[str]:
        """The workloads that are preempted."""
        cycle = self.engine.next_cycle(self.now)
        if cycle is None:
            return []
        self.plan = decide(cycle, self.now)
        self.settled = self.engine.settle(self.plan, self.now)
        return [victim.key.name for one in self.settled.preemptions for victim in one.victims]

    def message(self, name: str) -> str:
        reason = self.engine.standing(ObjectKey("ns", name)).reason
        assert reason is not None
        return reason.text


def running(
    name: str,
    queue: str,
    since: float,
    gpu: int = 1,
    cq: str = "cq",
    usage: dict[str, int] | None = None,
    **more: Any,
) -> Workload:
    usage = usage or {"gpu": gpu}
    conditions = [make_condition("QuotaReserved", at=since), make_condition("Admitted", at=since)]
    assignment = make_assignment(usage, "f")
    return make_workload(
        name,
        queue,
        usage,
        conditions=[*conditions, *more.pop("conditions", ())],
        status={"admission": {"clusterQueue": cq, "podSetAssignments": [assignment]}},
        **more,
    )


# --- a minimum run time


@pytest.mark.parametrize("fair", [None, FairSharingRules()])
def test_a_preemptor_waits_until_a_workload_ran_long_enough(fair: FairSharingRules | None) -> None:
    cluster = Cluster.of(MinimumRunTime(600), 1, fair)
    cluster.runs("low", since=NOW - 500)
    cluster.waits("high")
    assert cluster.cycle() == []
    assert cluster.message("high").endswith(
        ". The preemption policy example.com/minimum-run-time protects 1 workload, the first "
        "until 1970-01-01T02:48:20Z: it ran for less than 600 s"
    )
    assert cluster.engine.next_deadline() == NOW + 100
    cluster.now = NOW + 99.9
    assert cluster.cycle() == []
    cluster.now = NOW + 100
    assert cluster.engine.has_work(cluster.now)
    assert cluster.cycle() == ["low"]


def test_a_workload_that_ran_long_enough_leaves_in_place_of_a_newer_one() -> None:
    cluster = Cluster.of(MinimumRunTime(600), 2)
    cluster.runs("new", since=NOW - 10)
    cluster.runs("old", since=NOW - 700, priority=3)
    cluster.waits("high")
    assert cluster.cycle() == ["old"]


def test_what_is_not_admitted_yet_loses_no_run_time() -> None:
    cluster = Cluster.of(MinimumRunTime(600), 1)
    workload = cluster.runs("low", since=NOW - 10)
    raw = encode(workload)
    raw["status"]["conditions"] = [make_condition("QuotaReserved", at=NOW - 10)]
    cluster.tell(events.WorkloadSet(decode(Workload, raw)))
    cluster.waits("high")
    assert cluster.cycle() == ["low"]


def test_a_new_admission_is_protected_before_the_server_confirms_it() -> None:
    cluster = Cluster.of(MinimumRunTime(600), 1)
    cluster.waits("low", priority=0)
    cluster.cycle()
    cluster.waits("high")
    assert cluster.cycle() == []
    assert cluster.engine.next_deadline() == NOW + 600


def test_a_policy_in_a_hurry_is_not_asked_again_within_a_second() -> None:
    cluster = Cluster.of(MinimumRunTime(600.25), 1)
    cluster.runs("low", since=NOW - 600)
    cluster.waits("high")
    assert cluster.cycle() == []
    assert cluster.engine.next_deadline() == NOW + SOONEST


# --- a budget


@pytest.mark.parametrize("fair", [None, FairSharingRules()])
def test_one_search_does_not_exceed_a_budget(fair: FairSharingRules | None) -> None:
    cluster = Cluster.of(PreemptionBudget(1, 3600), 3, fair)
    cluster.runs("r1", "red")
    cluster.runs("r2", "red")
    cluster.runs("b1", "blue", priority=1)
    cluster.waits("high", gpu=2)
    assert sorted(cluster.cycle()) == ["b1", "r1"]


def test_heads_of_one_cycle_share_a_budget() -> None:
    """Also if they choose different victims of one LocalQueue, here in different resources."""
    cluster = Cluster.of(PreemptionBudget(1, 3600), 1)
    quotas = {"f": {"gpu": 0, "memory": 0}}
    for name in ("one", "two"):
        cluster.tell(
            events.ClusterQueueSet(
                make_cluster_queue(
                    name, {"f": {"gpu": 1, "memory": 1}}, cohort="all", preemption=PREEMPTION
                )
            ),
            events.LocalQueueSet(make_local_queue(f"of-{name}", name)),
        )
    cluster.tell(events.ClusterQueueSet(make_cluster_queue("cq", quotas, cohort="all")))
    for name, usage in {"g": {"gpu": 2}, "m": {"memory": 2}}.items():
        cluster.tell(events.WorkloadSet(running(name, "red", NOW, usage=usage)))
    for name, asks in {"one": {"gpu": 1}, "two": {"memory": 1}}.items():
        wants = make_workload(f"p-{name}", f"of-{name}", asks, priority=9, created=NOW)
        cluster.tell(events.WorkloadSet(wants))
    assert cluster.cycle() == ["g"]
    assert cluster.plan is not None
    assert len(cluster.plan.order) == 2
    assert "ns/red lost 1 workloads already" in cluster.message("p-two")
    assert cluster.engine.next_deadline() == NOW + 3600


def test_a_candidate_that_shares_protect_costs_no_budget() -> None:
    cluster = Cluster.of(PreemptionBudget(1, 3600), 2, FairSharingRules())
    for name, nominal in {"asks": 2, "lends": 4}.items():
        queue = make_cluster_queue(
            name, {"f": {"gpu": nominal}}, cohort="all", preemption=PREEMPTION
        )
        cluster.tell(events.ClusterQueueSet(queue))
    cluster.tell(events.LocalQueueSet(make_local_queue("of-asks", "asks")))
    cluster.tell(events.WorkloadSet(running("mine", "of-asks", NOW, 2, cq="asks", priority=9)))
    cluster.runs("big", gpu=4, priority=-1)
    cluster.runs("small", gpu=2)
    cluster.waits("high", queue="of-asks")
    assert cluster.cycle() == ["small"]


def test_a_budget_outlives_a_restart_and_is_renewed_by_time() -> None:
    cluster = Cluster.of(PreemptionBudget(1, 3600), 1)
    lost = make_condition("Preempted", at=NOW - 600)
    cluster.runs("low", conditions=[lost])
    cluster.waits("high")
    assert cluster.cycle() == []
    assert "ns/red lost 1 workloads already" in cluster.message("high")
    cluster.now = NOW + 3000
    assert cluster.engine.next_deadline() == cluster.now
    assert cluster.cycle() == ["low"]


def test_a_failed_preemption_is_given_back_to_the_budget() -> None:
    cluster = Cluster.of(PreemptionBudget(1, 3600), 2)
    cluster.runs("r1")
    cluster.runs("r2")
    cluster.waits("high")
    assert cluster.cycle() == ["r1"]
    cluster.tell(events.EvictionFailed(ObjectKey("ns", "r1"), "r1"))
    assert cluster.cycle() == ["r1"]


def test_within_a_budget_the_least_preempted_leaves_first() -> None:
    cluster = Cluster.of(PreemptionBudget(9, 3600), 2)
    cluster.runs("often", since=NOW, conditions=[make_condition("Preempted", at=NOW - 60)])
    cluster.runs("never", since=NOW - 99)
    cluster.waits("high")
    assert cluster.cycle() == ["never"]


# --- reservations that still have to make room


def test_a_policy_protects_from_reservations_as_well() -> None:
    def standing(policy: PreemptionPolicy) -> str:
        cluster = Cluster.of(policy, 1)
        check = make_check("late", preemptionPolicy="AfterCheckPassedOrOnDemand")
        cluster.tell(events.CheckSet(check))
        cluster.runs("low", since=NOW - 10)
        wins = running("high", "red", NOW, priority=5)
        raw = encode(wins)
        raw["status"]["conditions"] = [make_condition("QuotaReserved", at=NOW)]
        cluster.tell(events.WorkloadSet(decode(Workload, raw)))
        found = cluster.engine.void_reservation(ObjectKey("ns", "high"))
        return type(found).__name__

    assert standing(MinimumRunTime(5)) == "MakingRoom"
    assert standing(MinimumRunTime(600)) == "QuotaWithdrawn"


# --- what a policy sees


class Label(PreemptionPolicy):
    name = "label"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        return Refusal("it must not stop") if "keep" in running.labels else None


def test_a_changed_label_wakes_who_was_refused() -> None:
    cluster = Cluster.of(Label(), 1)
    workload = cluster.runs("low")
    raw = encode(workload)
    raw["metadata"]["labels"] = {"keep": "yes"}
    cluster.tell(events.WorkloadSet(decode(Workload, raw)))
    cluster.waits("high")
    assert cluster.cycle() == []
    assert cluster.engine.next_cycle(NOW) is None
    cluster.tell(events.WorkloadSet(workload))
    assert cluster.cycle() == ["low"]


class FromRed(PreemptionPolicy):
    name = "from-red"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        return None if asking.local_queue.name == "red" else Refusal("only red may preempt")


def test_alike_workloads_of_two_local_queues_get_two_verdicts() -> None:
    cluster = Cluster.of(FromRed(), 1)
    cluster.runs("low")
    cluster.waits("first", queue="blue")
    assert cluster.cycle() == []
    cluster.waits("second", queue="red")
    assert cluster.cycle() == ["low"]


# --- broken policies


class Backwards(PreemptionPolicy):
    name = "backwards"

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        self.asked[running.key.name] += 1
        return (-running.priority,)


@pytest.mark.parametrize("fair", [None, FairSharingRules()])
def test_a_policy_is_asked_once_for_the_place_of_a_candidate(fair: FairSharingRules | None) -> None:
    policy = Backwards()
    cluster = Cluster.of(policy, 3, fair)
    for number in range(3):
        cluster.runs(f"r{number}", priority=number)
    cluster.waits("p", 2)
    assert sorted(cluster.cycle()) == ["r1", "r2"]
    assert policy.asked == {"r0": 1, "r1": 1, "r2": 1}


class Broken(PreemptionPolicy):
    name = "broken"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


class Disordered(Broken):
    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        return None

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("fair", [None, FairSharingRules()])
@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        (Broken(ZeroDivisionError("oh\nno")), "refuse() raised ZeroDivisionError: oh no"),
        (Broken(True), "refuse() returned True instead of a Refusal or None"),
        (Broken(Refusal("x", NOW)), f"refuse() returned until={NOW}, which is not later than"),
        (Broken(Refusal("x", float("inf"))), "refuse() returned until=inf"),
        (Broken(Refusal("x", "soon")), "refuse() returned until='soon', which is not a time"),  # type: ignore[arg-type]
        (Disordered(3), "order() returned 3 instead of a tuple of numbers"),
        (Disordered(("a",)), "order() returned ('a',) instead of a tuple of numbers"),
    ],
)
def test_kueues_own_policy_decides_in_place_of_a_broken_one(
    policy: PreemptionPolicy, fault: str, fair: FairSharingRules | None
) -> None:
    cluster = Cluster.of(policy, 2, fair)
    cluster.runs("old", since=NOW - 9)
    cluster.runs("new", since=NOW - 1)
    cluster.waits("high")
    assert cluster.cycle() == ["new"]
    assert cluster.settled is not None
    (found,) = cluster.settled.faults
    assert found.policy == "broken"
    assert found.message.startswith(fault)


class FailsLate(PreemptionPolicy):
    name = "fails-late"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        self.asked.append(running.key.name)
        if running.key.name == "second":
            raise RuntimeError
        return None


@pytest.mark.parametrize("fair", [None, FairSharingRules()])
def test_a_policy_that_failed_is_not_asked_again_about_the_same_head(
    fair: FairSharingRules | None,
) -> None:
    policy = FailsLate()
    cluster = Cluster.of(policy, 2, fair)
    cluster.runs("first", since=NOW - 1)
    cluster.runs("second", since=NOW - 9)
    cluster.waits("high", gpu=2)
    assert sorted(cluster.cycle()) == ["first", "second"]
    assert policy.asked.count("second") == 1
