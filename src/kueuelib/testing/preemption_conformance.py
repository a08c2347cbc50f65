"""Tests a preemption policy against the laws of preemption in random worlds.

def test_my_policy() -> None:
    check_preemption_policy(lambda: MyPolicy(seconds=600))
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from random import Random

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide
from kueuelib.scheduler.decide.preemption.victims import Preemption
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.preemption_worlds import START, Objects, PreemptionWorld, random_world

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
        self._objects = Objects(world.workloads)
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

    def _is_allowed(self, preemption: Preemption) -> None:
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
