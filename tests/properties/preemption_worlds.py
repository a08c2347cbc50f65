"""Worlds in which workloads preempt each other, until nothing is left to be decided."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.preemption_policies import ANY, RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.decide.preemption.victims import Victim
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.reasons import FitsAfterPreemptions, NoFlavors, Preempting
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.values import changed
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

QUEUES = ("a", "b", "c")
PAIRS = tuple(FlavorResource(flavor, "gpu") for flavor in ("one", "two"))


@st.composite
def policies(draw: st.DrawFn, *, fierce: bool = False) -> dict[str, Any]:
    """The rights of a ClusterQueue; `fierce` ones have the most against each other."""
    preemption: dict[str, Any] = {
        "withinClusterQueue": draw(st.sampled_from(WITHIN_CLUSTER_QUEUE)),
        "reclaimWithinCohort": draw(st.sampled_from((ANY,) if fierce else RECLAIM_WITHIN_COHORT)),
    }
    if preemption["reclaimWithinCohort"] != "Never" and draw(st.booleans()):
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        threshold = draw(st.none() | st.integers(-2, 2))
        if threshold is not None:
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] = threshold
    return preemption


@st.composite
def quotas(draw: st.DrawFn) -> dict[str, int]:
    quota = {"nominal": draw(st.integers(0, 8))}
    if draw(st.integers(0, 2)) == 0:
        quota["borrowing"] = draw(st.integers(0, 6))
    if draw(st.integers(0, 2)) == 0:
        quota["lending"] = draw(st.integers(0, quota["nominal"]))
    return quota


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    waiting: int = 0,
    loners: bool = False,
    shrinking: bool = False,
    fierce: bool = False,
    crowded: bool = False,
) -> list[events.Event]:
    """ClusterQueues with two flavors, workloads that run there, and such that wait.

    In a crowded world there is one flavor, much runs, and more important Workloads wait for it.
    """
    pairs, least = (PAIRS[:1], 4) if crowded else (PAIRS, 0)
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        cohort = draw(st.sampled_from(["x", "x", ""])) if loners else "x"
        quota = {pair.flavor: {"gpu": draw(quotas())} for pair in pairs}
        if not cohort:
            quota = {pair.flavor: {"gpu": draw(st.integers(0, 8))} for pair in PAIRS}  # type: ignore[misc]
        next_flavor = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
        queue = make_cluster_queue(
            name,
            quota,
            cohort=cohort,
            preemption=draw(policies(fierce=fierce and draw(st.booleans()))),
            queueingStrategy=draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
            flavorFungibility={
                "whenCanBorrow": draw(next_flavor),
                "whenCanPreempt": draw(next_flavor),
                "preference": draw(st.sampled_from(["", "PreemptionOverBorrowing"])),
            },
        )
        facts.append(events.ClusterQueueSet(queue))
        facts.append(events.LocalQueueSet(make_local_queue(name, name)))
    for number in range(draw(st.integers(least, 9))):
        facts.append(events.WorkloadSet(_running(draw, f"r{number}", pairs)))
    for number in range(draw(st.integers(min(least, waiting), waiting))):
        wants = make_workload(
            f"p{number}",
            draw(st.sampled_from(QUEUES)),
            {"gpu": draw(st.integers(0, 5))},
            priority=draw(st.integers(1 if crowded else -2, 3)),
            created=draw(st.integers(0, 9)),
            pod_sets=draw(several_pods()) if shrinking else None,
        )
        facts.append(events.WorkloadSet(wants))
    return facts


@st.composite
def several_pods(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One or two pod sets of several pods, which may do with fewer."""
    pod_sets = []
    for name in draw(st.sampled_from([("main",), ("main",), ("driver", "workers")])):
        count = draw(st.integers(1, 4))
        fewest = draw(st.none() | st.integers(1, count))
        pod_sets.append(make_pod_set({"gpu": draw(st.integers(0, 3))}, name, count, fewest))
    return pod_sets


def _running(draw: st.DrawFn, name: str, pairs: Sequence[FlavorResource]) -> Workload:
    queue = draw(st.sampled_from(QUEUES))
    conditions = [make_condition("QuotaReserved", at=draw(st.integers(0, 4)))]
    if draw(st.integers(0, 4)) == 0:
        conditions.append(make_condition("Evicted", reason="Preempted"))
    gpu = {"gpu": draw(st.integers(0, 5))}
    assignment = make_assignment(gpu, draw(st.sampled_from(pairs)).flavor)
    return make_workload(
        name,
        queue,
        gpu,
        priority=draw(st.integers(-2, 3)),
        created=draw(st.integers(0, 9)),
        conditions=conditions,
        status={"admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}},
    )


class Replay:
    """A world in which victims leave at once and workloads end only when nothing else happens."""

    def __init__(self, facts: list[events.Event], policy: Settings) -> None:
        self.facts, self.policy = facts, policy
        self.engine = Engine(policy)
        self.engine.observe_all(facts, 0)
        self.workloads = {
            fact.workload.key: fact.workload
            for fact in facts
            if isinstance(fact, events.WorkloadSet)
        }
        self.now = 10.0
        self.ran: set[ObjectKey] = set()
        self.plans: list[Plan] = []

    def set(self, workload: Workload, *conditions: Any, **status: Any) -> None:
        raw = encode(workload)
        types = {condition["type"] for condition in conditions}
        old = raw.get("status", {})
        kept = [one for one in old.get("conditions", ()) if one["type"] not in types]
        merged = {**old, **status, "conditions": [*kept, *conditions]}
        merged = {key: value for key, value in merged.items() if value is not None}
        changed = decode(Workload, {**raw, "status": merged})
        self.workloads[changed.key] = changed
        self.engine.observe(events.WorkloadSet(changed), self.now)

    def prioritize(self, key: ObjectKey, priority: int) -> None:
        """Somebody changes the priority of a workload."""
        raw = encode(self.workloads[key])
        self.come(decode(Workload, {**raw, "spec": {**raw["spec"], "priority": priority}}))

    def come(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        self.engine.observe(events.WorkloadSet(workload), self.now)

    def leave(self, victim: Victim) -> None:
        evicted = make_condition("Evicted", reason="Preempted", at=self.now)
        preempted = make_condition("Preempted", reason=victim.path.value, at=self.now)
        quota = make_condition("QuotaReserved", False)
        self.set(self.workloads[victim.key], evicted, preempted, quota, admission=None)

    def carry_out(self, settled: Settled) -> None:
        for admit in settled.admissions:
            self.ran.add(admit.key)
            quota = make_condition("QuotaReserved", at=self.now)
            workload = self.workloads[admit.key]
            past = [
                make_condition(condition.type, False, at=self.now)
                for condition in workload.status.conditions
                if condition.type in ("Evicted", "Preempted")
            ]
            self.set(workload, quota, *past, admission=encode(admit.admission))

    def cycle(self) -> bool:
        """One cycle, and everything that it causes; False when there is nothing to decide."""
        self.now += 1
        cycle = self.engine.next_cycle(self.now)
        if cycle is None:
            return False
        plan = decide(cycle, self.now)
        self.plans.append(plan)
        self.carry_out(self.engine.settle(plan, self.now))
        for preemption in plan.preemptions:
            for victim in preemption.victims:
                self.leave(victim)
        return True

    def rest(self) -> None:
        """Cycles until nothing is left to decide."""
        for _ in range(200):
            if not self.cycle():
                return
        raise AssertionError("preemptions go on for ever")

    def rest_without_leaving(self) -> None:
        """Cycles until nothing is left to decide, and those that were being evicted have left.

        Until then it matters who was promised their room, and a new engine does not know that.
        """
        self.rest()
        for holder in list(self.engine.cache.holders.values()):
            if holder.evicted:
                quota = make_condition("QuotaReserved", False)
                self.set(self.workloads[holder.key], quota, admission=None)
        self.rest()

    def finish_one(self) -> bool:
        """Ends the workload that has run longest; False when none runs."""
        holders = self.engine.cache.holders.values()
        running = sorted(holders, key=lambda one: (one.reserved_at or 0.0, one.uid))
        if not running:
            return False
        key = running[0].key
        self.engine.observe(events.WorkloadGone(key), self.now)
        del self.workloads[key]
        return True

    def awaits(self, key: ObjectKey) -> bool:
        """Whether a Workload has room of its own as soon as others have left."""
        reason = self.engine.standing(key).reason
        waits = isinstance(reason, Preempting | FitsAfterPreemptions)
        return self.policy.parallel_preemptors and waits

    def in_vain(self, key: ObjectKey) -> int:
        """How often a Workload that used up its preemption attempts preempted others."""
        reason = self.engine.standing(key).reason
        return reason.in_vain if isinstance(reason, NoFlavors) else 0

    def sleeper(self) -> str | None:
        """What an engine would do that is told the same facts now; None when nothing.

        It also knows who used up its preemption attempts: without that, others may fit beside what
        such a Workload preempts.
        """
        kept = [fact for fact in self.facts if not isinstance(fact, events.WorkloadSet)]
        fresh = Engine(self.policy)
        fresh.observe_all([*kept, *map(events.WorkloadSet, self.workloads.values())], self.now)
        for _ in range(200):
            cycle = fresh.next_cycle(self.now)
            if cycle is None:
                return None
            heads = (changed(one, preempted=self.in_vain(one.info.key)) for one in cycle.heads)
            plan = decide(changed(cycle, heads=tuple(heads)), self.now)
            for admit in plan.admissions:
                if not self.awaits(admit.key):
                    return f"{admit.key} fits, but stays parked"
            for preemption in plan.preemptions:
                victims = ", ".join(str(victim.key) for victim in preemption.victims)
                return f"{preemption.key} could preempt {victims}, but stays parked"
            fresh.settle(plan, self.now)
        return "a new engine does not come to rest"


def wild_world(rng: random.Random) -> list[events.Event]:
    """Three ClusterQueues with any policies, what runs there, and what waits, all at random."""
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        queue = make_cluster_queue(
            name,
            {pair.flavor: {"gpu": _wild_quota(rng)} for pair in PAIRS},
            cohort="x",
            preemption=_wild_policies(rng),
            queueingStrategy=rng.choice(["StrictFIFO", "BestEffortFIFO"]),
            flavorFungibility={
                "whenCanBorrow": rng.choice(["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": rng.choice(["MayStopSearch", "TryNextFlavor"]),
                "preference": rng.choice(["", "PreemptionOverBorrowing"]),
            },
        )
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    for number in range(rng.randint(0, 9)):
        queue_name, gpu = rng.choice(QUEUES), {"gpu": rng.randint(0, 5)}
        assignment = make_assignment(gpu, rng.choice(PAIRS).flavor)
        runs = make_workload(
            f"r{number}",
            queue_name,
            gpu,
            priority=rng.randint(-2, 3),
            created=rng.randint(0, 9),
            conditions=[make_condition("QuotaReserved", at=rng.randint(0, 4))],
            status={"admission": {"clusterQueue": queue_name, "podSetAssignments": [assignment]}},
        )
        facts.append(events.WorkloadSet(runs))
    several = rng.random() < 0.8
    for number in range(rng.randint(1, 8)):
        waits = make_workload(
            f"p{number}",
            rng.choice(QUEUES),
            {"gpu": rng.randint(0, 5)},
            priority=rng.randint(-2, 3),
            created=rng.randint(0, 9),
            pod_sets=_wild_pod_sets(rng) if several else None,
        )
        facts.append(events.WorkloadSet(waits))
    return facts


def _wild_policies(rng: random.Random) -> dict[str, Any]:
    preemption: dict[str, Any] = {
        "withinClusterQueue": rng.choice(WITHIN_CLUSTER_QUEUE),
        "reclaimWithinCohort": rng.choice((*RECLAIM_WITHIN_COHORT, ANY)),
    }
    if preemption["reclaimWithinCohort"] != "Never" and rng.random() < 0.5:
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        threshold = rng.choice([None, None, -2, -1, 0, 1, 2])
        if threshold is not None:
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] = threshold
    return preemption


def _wild_quota(rng: random.Random) -> dict[str, int]:
    quota = {"nominal": rng.randint(0, 8)}
    if rng.random() < 0.33:
        quota["borrowing"] = rng.randint(0, 6)
    if rng.random() < 0.33:
        quota["lending"] = rng.randint(0, quota["nominal"])
    return quota


def _wild_pod_sets(rng: random.Random) -> list[dict[str, Any]]:
    pod_sets = []
    for name in rng.choice([("main",), ("driver", "workers"), ("driver", "workers")]):
        count = rng.randint(1, 4)
        fewest = rng.choice([None, rng.randint(1, count)])
        pod_sets.append(make_pod_set({"gpu": rng.randint(0, 3)}, name, count, fewest))
    return pod_sets
