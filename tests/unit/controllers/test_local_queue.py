"""Past usage in the status of a LocalQueue: what is written, and how seldom."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.kinds import LOCAL_QUEUES
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.controllers.queue_metrics import LocalQueueMetrics
from kueuelib.controllers.queues import LocalQueueReconciler
from kueuelib.runtime.clock import SystemClock
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler import events
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

KEY = ObjectKey("ns", "team")
BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
HOUR = UsageRule(half_life=3600.0, interval=300.0)
START = 30_000.0


@attrs.define
class Time(SystemClock):
    """Time that only passes when it is told to."""

    at: float = START

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Place:
    """A LocalQueue on a server, its informer, and the engine that knows it."""

    resource = LOCAL_QUEUES

    def __init__(self, rule: UsageRule | None, version: str = "v1beta2", **spec: Any) -> None:
        self.clock = Time()
        self.engine = Engine(Settings(past_usage=rule))
        self.telemetry = Telemetry()
        self.writes: list[float] = []
        self.queue: Any = {
            "apiVersion": f"kueue.x-k8s.io/{version}",
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": "ns", "uid": "uid"},
            "spec": {"clusterQueue": "q"},
        }
        self.tell(
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("f")),
            events.ClusterQueueSet(make_cluster_queue("q", {"f": {"cpu": 9, "memory": 9}}, **spec)),
            events.LocalQueueSet(make_local_queue("team", "q")),
        )
        metrics = LocalQueueMetrics(self.telemetry, lambda _: self.queue)
        none = Nothing()
        self.reconciler = LocalQueueReconciler(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            none,  # type: ignore[arg-type]
            self.engine,
            metrics,
            clock=self.clock,
        )

    @property
    def store(self) -> Any:
        return {KEY: self.queue} if self.queue else {}

    async def patch(self, _resource: Any, _key: Any, body: Any, *_: Any, **__: Any) -> Any:
        self.writes.append(self.clock.at)
        return {**self.queue, "status": {**self.queue.get("status", {}), **body["status"]}}

    def learn(self, answer: Any) -> None:
        kept = {name: value for name, value in answer["status"].items() if value is not None}
        self.queue = {**answer, "status": kept}

    def tell(self, *found: events.Event) -> None:
        self.engine.observe_all(found, self.clock.now())

    def admit(self, **requests: int) -> None:
        at = self.clock.at
        assignment = make_assignment(requests, "f")
        self.tell(
            events.WorkloadSet(
                make_workload(
                    "w",
                    "team",
                    requests,
                    conditions=[
                        make_condition("QuotaReserved", at=at),
                        make_condition("Admitted", at=at),
                    ],
                    status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}},
                )
            )
        )

    async def run(self, seconds: float) -> None:
        """Looks at the queue now, and then whenever that was asked for."""
        end = self.clock.at + seconds
        while True:
            again = (await self.reconciler.reconcile(KEY)).requeue_after
            if again is None or self.clock.at + again > end:
                self.clock.at = end
                return
            self.clock.at += again

    @property
    def shown(self) -> Any:
        return self.queue["status"].get("fairSharing")


class Nothing:
    """An informer that knows no ClusterQueue."""

    def __init__(self) -> None:
        self.store: dict[ObjectKey, Any] = {}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_past_usage_is_shown_once_per_sample(version: str) -> None:
    place = Place(HOUR, version, **BY_USAGE)
    await place.run(1000)
    assert place.shown is None
    place.writes.clear()
    place.admit(cpu=2, memory=4)
    await place.run(3600)
    assert len(place.writes) == 1 + 3600 / 300
    assert all((at - START) % 300 <= 0.01 for at in place.writes[1:])
    past = place.shown["admissionFairSharingStatus"]
    assert past["lastUpdate"] == format_time(START + 4500)
    assert past["consumedResources"]["cpu"].endswith("n")
    assert place.shown["weightedShare"] == 0


async def test_what_is_gone_decays_to_nothing_and_then_costs_nothing() -> None:
    place = Place(UsageRule(half_life=60.0, interval=300.0), **BY_USAGE)
    place.admit(cpu=2)
    await place.run(300)
    assert place.shown is not None
    place.tell(events.WorkloadGone(ObjectKey("ns", "w")))
    await place.run(7200)
    assert place.shown is None
    assert (await place.reconciler.reconcile(KEY)).requeue_after is None


@pytest.mark.parametrize(("rule", "spec"), [(None, BY_USAGE), (HOUR, {})])
async def test_where_it_does_not_count_nothing_is_written_for_it(
    rule: UsageRule | None, spec: Any
) -> None:
    place = Place(rule, **spec)
    place.admit(cpu=2)
    await place.run(7200)
    assert len(place.writes) == 1
    assert place.shown is None
    assert b"kueue_local_queue_admission_fair_sharing_usage{" not in place.telemetry.render()


async def test_the_gauge_shows_usage_with_penalties_and_goes_with_the_queue() -> None:
    place = Place(HOUR, **BY_USAGE)
    place.admit(cpu=2)
    await place.run(0)
    gauge = (
        'kueue_local_queue_admission_fair_sharing_usage{cluster_queue="q",'
        'name="team",namespace="ns"} '
    )
    (line,) = [each for each in place.telemetry.render().decode().split("\n") if gauge in each]
    assert float(line.removeprefix(gauge)) == pytest.approx(2 * (1 - 0.5 ** (1 / 12)))
    place.queue = None
    await place.reconciler.reconcile(KEY)
    assert gauge not in place.telemetry.render().decode()
