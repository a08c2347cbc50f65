"""Small random worlds in which workloads preempt each other, for tests of preemption policies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import attrs

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import (
    ADMITTED,
    EVICTED,
    PREEMPTED,
    QUOTA_RESERVED,
    REASON_PREEMPTED,
)
from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.preemption.victims import Victim
from kueuelib.scheduler.engine import Settled
from kueuelib.scheduler.settings import BOTH_STRATEGIES, FINAL_SHARE, FairSharing
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

START = 10_000.0
"""When a world begins, in seconds since the epoch; its running workloads began within the last
hour.
"""

_FLAVORS = ("one", "two")
_SHARING = (None, None, FairSharing(BOTH_STRATEGIES), FairSharing((FINAL_SHARE,)))


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
    fair_sharing: FairSharing | None


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


class Objects:
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
