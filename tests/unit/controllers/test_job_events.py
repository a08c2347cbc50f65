"""The Events of jobs about their Workloads: places, memory, and what is not said again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.job_events import MOST, CachedPlaces, JobEventReconciler
from kueuelib.controllers.workload import Informers
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.controller import DONE
from kueuelib.workload.job_events import HOLD, MINUTE

KEY, OTHER = ObjectKey("ns", "wl"), ObjectKey("ns", "other")
JOB: Obj = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def workload(reason: str = "WaitingForQuota") -> Obj:
    condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": "why"}
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "ownerReferences": [JOB]},
        "spec": {"queueName": "main"},
        "status": {"conditions": [condition]},
    }


class Engine:
    """Two Workloads wait, or very many."""

    def __init__(self, waiting: int = 2) -> None:
        self.waiting, self.sorted = waiting, 0

    def waits_in(self, name: str) -> int:
        return self.waiting if name == "cq" else 0

    def places(self, _name: str) -> dict[ObjectKey, None]:
        self.sorted += 1
        return {OTHER: None, KEY: None}


class Shell:
    """A reconciler, and what it records."""

    def __init__(self, engine: Engine) -> None:
        self.store: dict[ObjectKey, Obj] = {KEY: workload()}
        self.events: list[tuple[Any, ...]] = []
        self.now = 100.0
        workloads = SimpleNamespace(store=self.store)
        informers = SimpleNamespace(workloads=workloads, cluster_queue_of=lambda _: "cq")
        self.reconciler = JobEventReconciler(
            cast(Informers, informers),
            self,
            CachedPlaces(engine),
            clock=self,  # type: ignore[arg-type]
        )

    def monotonic(self) -> float:
        return self.now

    def event(self, about: Obj, *said: Any, component: str | None = None) -> None:
        del component
        self.events.append((about["kind"], about["namespace"], about["name"], *said))


def changed(old: Obj | None, new: Obj | None, *, initial: bool = False) -> Delta[Obj]:
    kind = (
        DeltaKind.ADDED if old is None else DeltaKind.DELETED if new is None else DeltaKind.UPDATED
    )
    return Delta(kind, KEY, old, new, initial=initial)


async def test_an_event_comes_when_the_reason_lasts_and_has_the_place() -> None:
    shell = Shell(Engine())
    result = await shell.reconciler.reconcile(KEY)
    assert (result.requeue_after, shell.events) == (HOLD, [])
    shell.now += HOLD
    await shell.reconciler.reconcile(KEY)
    said = ("Normal", "WaitingForQuota", "Waiting for quota: why; place 2")
    assert shell.events == [("Job", "ns", "j", *said)]
    assert shell.reconciler.is_news(changed(workload(), None))
    del shell.store[KEY]
    assert (await shell.reconciler.reconcile(KEY)).requeue_after == MINUTE
    shell.now += MINUTE
    assert await shell.reconciler.reconcile(KEY) == DONE
    assert not shell.reconciler.is_news(changed(workload(), None)), "nothing is remembered"


async def test_a_queue_is_sorted_once_a_second_and_not_if_it_is_long() -> None:
    engine = Engine()
    places = CachedPlaces(engine)
    assert [places.of(key, "cq") for key in (OTHER, KEY, ObjectKey("ns", "x"))] == [1, 2, None]
    assert engine.sorted == 1
    engine.waiting = MOST + 1
    assert places.of(KEY, "cq") is None


def test_only_another_reason_is_news_and_not_what_was_there_before() -> None:
    news = Shell(Engine()).reconciler.is_news
    assert news(changed(None, workload()))
    assert news(changed(workload(), workload("Suspended")))
    assert not news(changed(workload(), workload()))
    assert not news(changed(None, workload(), initial=True))
