"""Tests a preemption policy against the laws of preemption in random worlds.

def test_my_policy() -> None:
    check_preemption_policy(lambda: MyPolicy(seconds=600))
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import attrs

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import ADMITTED, EVICTED, PREEMPTED, QUOTA_RESERVED, REASON_PREEMPTED
from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption, Victim
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.scheduler.settings import BOTH_STRATEGIES, FINAL_SHARE, FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

# Small random worlds in which workloads preempt each other, for tests of preemption policies.

START = 10_000.0
"""When a world begins, in seconds since the epoch; its running workloads began within the last
hour.
"""

_FLAVORS = ("one", "two")
_SHARING = (None, None, FairSharingRules(BOTH_STRATEGIES), FairSharingRules((FINAL_SHARE,)))


@attrs.frozen
class PreemptionWorld:
    """The first facts of an engine.

    Attributes:
        facts: everything but workloads.
        workloads: running and waiting ones.
        fair_sharing: how shares decide; None if they do not.
    """

    facts: tuple[events.Event, ...]
    workloads: tuple[Workload, ...]
    fair_sharing: FairSharingRules | None


def random_world(seed: int) -> PreemptionWorld:
    """One to three ClusterQueues with two LocalQueues each; equal seeds give equal worlds."""
    random = Random(seed)
    queues = [f"queue-{number}" for number in range(random.randint(1, 3))]
    flavors = _FLAVORS[: random.randint(1, 2)]
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(flavor)) for flavor in flavors]
    for name in queues:
        facts.append(events.ClusterQueueSet(_queue(random, name, flavors)))
        facts += [
            events.LocalQueueSet(make_local_queue(local, name)) for local in _local_queues(name)
        ]
    workloads = [
        _workload(random, f"runs-{number}", queues, random.choice(flavors))
        for number in range(random.randint(1, 8))
    ]
    workloads += [
        _workload(random, f"waits-{number}", queues) for number in range(random.randint(1, 6))
    ]
    return PreemptionWorld(tuple(facts), tuple(workloads), random.choice(_SHARING))


def _local_queues(name: str) -> tuple[str, str]:
    return f"{name}-a", f"{name}-b"


def _queue(random: Random, name: str, flavors: tuple[str, ...]) -> Any:
    preemption: Obj = {
        "withinClusterQueue": random.choice(WITHIN_CLUSTER_QUEUE[1:]),
        "reclaimWithinCohort": random.choice(RECLAIM_WITHIN_COHORT),
    }
    if preemption["reclaimWithinCohort"] != "Never" and random.random() < 0.5:
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
    next_flavor = ["MayStopSearch", "TryNextFlavor"]
    return make_cluster_queue(
        name,
        {flavor: {"gpu": random.randint(1, 8)} for flavor in flavors},
        cohort="cohort",
        preemption=preemption,
        queueingStrategy=random.choice(["StrictFIFO", "BestEffortFIFO"]),
        flavorFungibility={
            "whenCanBorrow": random.choice(next_flavor),
            "whenCanPreempt": random.choice(next_flavor),
        },
    )


def _workload(random: Random, name: str, queues: list[str], flavor: str = "") -> Workload:
    queue, gpu = random.choice(queues), {"gpu": random.randint(1, 4)}
    conditions: list[Obj] = []
    status: Obj = {}
    if flavor:
        at = START - random.randint(1, 3600)
        conditions.append(make_condition(QUOTA_RESERVED, at=at))
        if random.random() < 0.8:
            conditions.append(make_condition(ADMITTED, at=at))
        assignments = [make_assignment(gpu, flavor)]
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": assignments}
    if random.random() < 0.3:
        at = START - random.randint(1, 3600)
        conditions.append(make_condition(PREEMPTED, not flavor, at=at))
    made = make_workload(
        name,
        random.choice(_local_queues(queue)),
        gpu,
        priority=random.randint(-2, 3),
        created=random.randint(0, 99),
        conditions=conditions,
        status=status,
    )
    raw = encode(made)
    raw["metadata"]["labels"] = {"team": random.choice(["red", "blue"])}
    return decode(Workload, raw)


class WorldObjects:
    """The Workloads of a world, as the API server would store them."""

    def __init__(self, workloads: tuple[Workload, ...]) -> None:
        self.by_key = {workload.key: workload for workload in workloads}

    def carried_out(self, settled: Settled, now: float) -> Iterator[events.Event]:
        """Applies a plan to the objects: admissions are written, and victims leave at once."""
        for admit in settled.admissions:
            past = [
                make_condition(condition.type, False, condition.reason, now)
                for condition in self.by_key[admit.key].status.conditions
                if condition.type in (EVICTED, PREEMPTED) and condition.is_true
            ]
            won = [make_condition(QUOTA_RESERVED, at=now), make_condition(ADMITTED, at=now)]
            yield self._set(admit.key, [*won, *past], encode(admit.admission))
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                yield self._evicted(victim, now)

    def _evicted(self, victim: Victim, now: float) -> events.Event:
        lost = [
            make_condition(EVICTED, reason=REASON_PREEMPTED, at=now),
            make_condition(PREEMPTED, reason=victim.path.value, at=now),
            make_condition(QUOTA_RESERVED, False, "Pending", now),
            make_condition(ADMITTED, False, "NoReservation", now),
        ]
        return self._set(victim.key, lost, None)

    def _set(self, key: ObjectKey, conditions: list[Obj], admission: Obj | None) -> events.Event:
        raw = encode(self.by_key[key])
        status = raw.get("status", {})
        types = {condition["type"] for condition in conditions}
        kept = [
            condition
            for condition in status.get("conditions", ())
            if condition["type"] not in types
        ]
        raw["status"] = {**status, "admission": admission, "conditions": [*kept, *conditions]}
        if admission is None:
            del raw["status"]["admission"]
        self.by_key[key] = changed = decode(Workload, raw)
        return events.WorkloadSet(changed)


# --------------------------------------------------------------------------------------------------

MOST_CYCLES = 300
"""The number of cycles after which preemptions count as endless, if nothing happens from
outside.
"""

MOST_DEADLINES = 30
"""How often a world waits for time to pass before a workload ends."""

JUMPS = (1.0, 60.0, 3600.0, 86400.0)
"""Seconds until a workload ends; one of these is chosen at random."""


class BrokenLawError(AssertionError):
    """A preemption policy breaks a law; the message names the world and what happened."""


def check_preemption_policy(
    make: Callable[[], PreemptionPolicy], *, worlds: int = 200, first: int = 0
) -> int:
    """Tests a policy against the laws of preemption in random worlds, with and without fair
    sharing.

    1. Its answers are valid: it does not raise, and returns only valid values. 2. Equal input gives
    equal output, when asked twice, and in two equal worlds. 3. No Workload that it refuses is
    preempted. 4. Preemption terminates if nothing happens from outside. 5. No admissible Workload
    stays parked: at rest, a new engine with the same facts has nothing to do. So a refusal that
    ends with time has to say when.

    Args:
        make: makes the policy; called twice per world.
        worlds: how many worlds to try.
        first: the seed of the first world.

    Returns:
        The number of preemptions. A policy that refuses everything has none, so a test may require
        some.

    Raises:
        BrokenLawError: a law is broken.
    """
    preemptions = 0
    for seed in range(first, first + worlds):
        world = random_world(seed)
        one, two = (_Play(world, make(), seed) for _ in range(2))
        one.play()
        two.play()
        if one.story != two.story:
            raise BrokenLawError(f"world {seed}: two equal worlds ended differently")
        preemptions += len(one.preempted)
    return preemptions


class _Twice(PreemptionPolicy):
    """Asks a policy twice, and compares."""

    def __init__(self, policy: PreemptionPolicy) -> None:
        self.policy = policy
        self.name = policy.name
        self.remembers = policy.remembers
        self.unequal = ""

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        first, second = (self.policy.refuse(asking, running, now) for _ in range(2))
        self._compare("refuse", first, second)
        return first

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        first, second = (self.policy.order(asking, running) for _ in range(2))
        self._compare("order", first, second)
        return first

    def _compare(self, method: str, first: object, second: object) -> None:
        if first != second:
            self.unequal = f"{method}() returned {first!r}, and then {second!r}"


class _Play:
    """One world, played until all running workloads have ended."""

    def __init__(self, world: PreemptionWorld, policy: PreemptionPolicy, seed: int) -> None:
        self._world = world
        self._policy = _Twice(policy)
        self._seed = seed
        self._settings = Settings(fair_sharing=world.fair_sharing, preemption=self._policy)
        self._engine = Engine(self._settings)
        self._objects = WorldObjects(world.workloads)
        self._now = START
        self._random = Random(seed)
        self.story: list[object] = []
        self.preempted: list[tuple[float, str, ObjectKey]] = []
        self._observe(world.facts)
        self._observe(map(events.WorkloadSet, world.workloads))

    def _observe(self, facts: Iterable[events.Event]) -> None:
        for fact in facts:
            self._engine.observe(fact, self._now)

    def play(self) -> None:
        """Cycles, time and ends of workloads, in turns."""
        while True:
            for _ in range(MOST_DEADLINES):
                self._rest()
                self._nothing_sleeps()
                deadline = self._engine.next_deadline()
                if deadline is None:
                    break
                self._now = max(self._now, deadline)
            self._now += self._random.choice(JUMPS)
            self._rest()
            self._nothing_sleeps()
            if not self._finish_one():
                return

    def _rest(self) -> None:
        """Cycles until there is nothing to decide."""
        for _ in range(MOST_CYCLES):
            cycle = self._engine.next_cycle(self._now)
            if cycle is None:
                return
            plan = decide(cycle, self._now)
            self._check(plan)
            for preemption in plan.preemptions:
                self._is_allowed(preemption)
            settled = self._engine.settle(plan, self._now)
            self.story.append([admit.key for admit in settled.admissions])
            for preemption in settled.preemptions:
                for victim in preemption.victims:
                    self.story.append((preemption.key, victim.key))
                    holder = victim.holder
                    self.preempted.append((self._now, holder.uid, holder.local_queue))
            self._observe(list(self._objects.carried_out(settled, self._now)))
        raise self._broken(f"no rest after {MOST_CYCLES} cycles")

    def _check(self, plan: Plan) -> None:
        if plan.faults:
            raise self._broken(plan.faults[0].message)
        if self._policy.unequal:
            raise self._broken(self._policy.unequal)

    def _is_allowed(self, preemption: PendingPreemption) -> None:
        """Asks the policy about every victim, independently of the engine."""
        workload = preemption.workload
        asking = Asking(
            preemption.cluster_queue,
            ObjectKey(workload.namespace, workload.spec.queue_name),
            workload.spec.priority or 0,
        )
        for victim in preemption.victims:
            if victim.is_leaving:
                continue
            running = self._running(victim.holder)
            refusal = self._policy.refuse(asking, running, self._now)
            if refusal is not None:
                raise self._broken(f"{victim.key} is preempted, although {refusal.why}")

    def _running(self, holder: Holder) -> Running:
        return Running(
            key=holder.key,
            uid=holder.uid,
            cluster_queue=holder.cluster_queue,
            local_queue=holder.local_queue,
            priority=holder.priority,
            labels=dict(holder.labels),
            usage=dict(holder.usage),
            reserved_at=holder.reserved_at,
            started_at=holder.admitted_at,
            preempted=tuple(at for at, uid, _ in self._recent() if uid == holder.uid),
            queue_preempted=tuple(
                at for at, _, queue in self._recent() if queue == holder.local_queue
            ),
        )

    def _recent(self) -> list[tuple[float, str, ObjectKey]]:
        since = self._now - self._policy.remembers
        return [entry for entry in self.preempted if entry[0] > since]

    def _nothing_sleeps(self) -> None:
        """A new engine with the same facts has nothing to decide either.

        Workloads that used up their preemption attempts do not count.
        """
        fresh = Engine(self._settings, copy.deepcopy(self._engine.history))
        for fact in self._world.facts:
            fresh.observe(fact, self._now)
        for workload in self._objects.by_key.values():
            fresh.observe(events.WorkloadSet(workload), self._now)
        for _ in range(MOST_CYCLES):
            cycle = fresh.next_cycle(self._now)
            if cycle is None:
                return
            plan = decide(cycle, self._now)
            self._check(plan)
            for admit in plan.admissions:
                raise self._broken(f"{admit.key} fits, but stays parked")
            for preemption in plan.preemptions:
                reason = self._engine.standing(preemption.key).reason
                if not (isinstance(reason, NoFlavors) and reason.in_vain):
                    victims = ", ".join(str(victim.key) for victim in preemption.victims)
                    raise self._broken(f"{preemption.key} may preempt {victims}, but stays parked")
            fresh.settle(plan, self._now)

    def _finish_one(self) -> bool:
        """Ends the workload that holds quota for the longest time; False when none does."""
        holders = self._engine.cache.holders.values()
        running = sorted(holders, key=lambda one: (one.reserved_at or 0.0, one.uid))
        if not running:
            return False
        key = running[0].key
        del self._objects.by_key[key]
        self._observe([events.WorkloadGone(key)])
        return True

    def _broken(self, what: str) -> BrokenLawError:
        return BrokenLawError(f"{self._policy.name} in world {self._seed}: {what}")
