"""An engine and whoever writes for it, in which victims leave when the test says so."""

from __future__ import annotations

from typing import Any

import attrs

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Wait, decide
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption
from kueuelib.scheduler.engine import Engine
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_local_queue,
    make_workload,
)

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


@attrs.define
class Cluster:
    """An engine and whoever writes for it; victims leave when the test says so."""

    engine: Engine = attrs.field(factory=Engine)
    workloads: dict[str, Workload] = attrs.field(factory=dict)
    waits: dict[str, Wait] = attrs.field(factory=dict)
    told: list[PendingPreemption] = attrs.field(factory=list)
    now: float = 1000.0

    def tell(self, *found: events.Event) -> None:
        self.engine.observe_all(found, self.now)

    def queue(self, name: str, *groups: Any, **spec: Any) -> None:
        self.tell(
            events.ClusterQueueSet(make_cluster_queue(name, *groups, **spec)),
            events.LocalQueueSet(make_local_queue(name, name)),
        )

    def put(self, found: Workload) -> Workload:
        self.workloads[found.name] = found
        self.tell(events.WorkloadSet(found))
        return found

    def submit(self, name: str, queue: str, gpu: int = 1, **more: Any) -> Workload:
        return self.put(make_workload(name, queue, {"gpu": gpu}, **more))

    def running(
        self, name: str, queue: str, gpu: int = 1, at: float = 1.0, flavor: str = "f", **more: Any
    ) -> Workload:
        assignment = make_assignment({"gpu": gpu}, flavor)
        return self.put(
            make_workload(
                name,
                queue,
                {"gpu": gpu},
                conditions=[make_condition("QuotaReserved", at=at)],
                status={"admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}},
                **more,
            )
        )

    def change(self, name: str, *conditions: Any, **status: Any) -> None:
        raw = encode(self.workloads[name])
        old = raw.get("status", {})
        types = {one["type"] for one in conditions}
        kept = [one for one in old.get("conditions", ()) if one["type"] not in types]
        merged = {**old, **status, "conditions": [*kept, *conditions]}
        merged = {field: value for field, value in merged.items() if value is not None}
        self.put(decode(Workload, {**raw, "status": merged}))

    def hears(self, name: str) -> None:
        self.change(name, make_condition("Evicted", reason="Preempted", at=self.now))

    def leaves(self, name: str) -> None:
        quota = make_condition("QuotaReserved", False)
        evicted = make_condition("Evicted", reason="Preempted", at=self.now)
        self.change(name, quota, evicted, admission=None)

    def cycle(self) -> list[str]:
        """One cycle; the admitted with a `+`, the victims that are told with a `-`."""
        self.now += 1
        found = self.engine.next_cycle(self.now)
        if found is None:
            return []
        settled = self.engine.settle(decide(found, self.now), self.now)
        self.told += settled.preemptions
        self.waits = {wait.key.name: wait for wait in settled.waits}
        for admit in settled.admissions:
            quota = make_condition("QuotaReserved", at=self.now)
            gone = make_condition("Evicted", False, at=self.now)
            self.change(admit.key.name, quota, gone, admission=encode(admit.admission))
        return [f"+{admit.key.name}" for admit in settled.admissions] + [
            f"-{victim.key.name}" for one in settled.preemptions for victim in one.victims
        ]
