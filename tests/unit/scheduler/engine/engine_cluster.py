"""An engine with a cluster of its own, driven cycle by cycle."""

from __future__ import annotations

from typing import Any

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Admit, Wait, decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_local_queue,
    make_workload,
)

NOW = 1000.0
STRICT = {"queueingStrategy": "StrictFIFO"}


def key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


@attrs.define
class Cluster:
    """An engine and whoever writes for it."""

    engine: Engine = attrs.field(factory=Engine)
    now: float = NOW
    admits: list[Admit] = attrs.field(factory=list)
    waits: list[Wait] = attrs.field(factory=list)

    def tell(self, *facts: events.Event) -> None:
        self.engine.observe_all(facts, self.now)

    def queue(self, name: str, quota: Any, **spec: Any) -> None:
        self.tell(
            events.ClusterQueueSet(make_cluster_queue(name, {"f": {"gpu": quota}}, **spec)),
            events.LocalQueueSet(make_local_queue(name, name)),
        )

    def submit(self, name: str, queue: str, gpu: int = 1, **more: Any) -> Workload:
        workload = make_workload(name, queue, {"gpu": gpu}, **more)
        self.tell(events.WorkloadSet(workload))
        return workload

    def cycle(self) -> list[str]:
        """One cycle; the names of those that were tried, admitted ones marked with `+`."""
        cycle = self.engine.next_cycle(self.now)
        if cycle is None:
            return []
        settled = self.engine.settle(decide(cycle, self.now), self.now)
        self.admits += settled.admissions
        self.waits += settled.waits
        return sorted(
            [f"+{admit.key.name}" for admit in settled.admissions]
            + [wait.key.name for wait in settled.waits]
        )

    def rest(self) -> list[str]:
        """Cycles until nothing is left to do; the names of the admitted."""
        tried: list[str] = []
        for _ in range(100):
            names = self.cycle()
            if not names and not self.engine.has_work(self.now):
                return [name[1:] for name in tried if name.startswith("+")]
            tried += names
        raise AssertionError("the engine does not come to rest")

    def where(self, name: str) -> Where:
        return self.engine.standing(key(name)).where

    def reason(self, name: str) -> Any:
        return self.engine.standing(key(name)).reason


def holding(name: str, queue: str, gpu: int, *conditions: dict[str, str], **more: Any) -> Workload:
    flavor = more.pop("flavor", "f")
    admission = {
        "clusterQueue": queue,
        "podSetAssignments": [make_assignment({"gpu": gpu}, flavor)],
    }
    return make_workload(
        name,
        queue,
        {"gpu": gpu},
        conditions=[make_condition("QuotaReserved"), *conditions],
        status={"admission": admission, **more.pop("status", {})},
        **more,
    )
