"""Which jobs a change of a Workload or of an owner wakes."""

from __future__ import annotations

from time import monotonic
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import Obj, Resource, key_of
from kueuelib.jobs.assembly import wire
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.machinery.store import Delta, DeltaKind, StoreUpdate
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.controller import Controller


def owned(kind: Resource, name: str, owner: str = "", **metadata: Any) -> Obj:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
    refs = [ref] if owner else []
    made = kind.new(name, "ns", spec={"suspend": True})
    made["metadata"].update(uid=name, ownerReferences=refs, generation=1, **metadata)
    return made


class World:
    """Jobs `low` below `middle` below `top`, a job `other`, and their controller."""

    def __init__(self) -> None:
        client = Mock(Client)
        self.cache = Cache(client)
        (made,) = wire(client, self.cache, Mock(), JobSettings()).controllers
        self.controller = cast(Controller, made)
        self.store = self.cache.informer(JOBS, transform=BATCH_JOB.transform).store
        for name, owner in (("top", ""), ("middle", "top"), ("low", "middle"), ("other", "")):
            self.put(owned(JOBS, name, owner))
        for key in self.store:
            self.look(key.name)

    def put(self, job: Obj) -> None:
        self.store.put(key_of(job), job)

    def look(self, name: str) -> None:
        key = next(key for key in self.store if key.name == name)
        cast(Any, self.controller)._reconciler.observe(key, self.store.get(key))

    def woken(self, kind: Resource, old: Obj | None, new: Obj | None) -> set[str]:
        """The jobs that a change of an object wakes."""
        obj = new or old
        assert obj is not None
        delta = Delta(DeltaKind.UPDATED, key_of(obj), old, new)
        for informer, handler in cast(Any, self.controller)._sources:
            if informer.resource == kind:
                handler(delta)
        core = self.controller.queue.core
        items = [*iter(lambda: core.pop_ready(monotonic()), None)]
        for item in items:
            core.done(item.key, now=monotonic())
        return {item.key.name for item in items}


def test_a_change_of_a_workload_wakes_all_jobs_below_its_owners() -> None:
    world = World()
    for owner, woken in (
        ("top", {"top", "middle", "low"}),
        ("middle", {"middle", "low"}),
        ("other", {"other"}),
    ):
        workload = owned(WORKLOADS, "wl", owner)
        assert world.woken(WORKLOADS, None, workload) == woken
        assert world.woken(WORKLOADS, workload, None) == woken


def test_a_job_is_woken_for_the_owners_that_it_has_now() -> None:
    world = World()
    world.put(owned(JOBS, "low", "other"))
    world.look("low")
    assert world.woken(WORKLOADS, None, owned(WORKLOADS, "wl", "top")) == {"top", "middle"}
    assert world.woken(WORKLOADS, None, owned(WORKLOADS, "wl", "other")) == {"other", "low"}
    world.put(owned(JOBS, "low"))
    world.look("low")
    assert world.woken(WORKLOADS, None, owned(WORKLOADS, "wl", "other")) == {"other"}


def test_a_job_is_woken_by_an_owner_that_was_not_known() -> None:
    world = World()
    world.put(owned(JOBS, "low", "late"))
    world.look("low")
    assert world.woken(JOBS, None, owned(JOBS, "late")) == {"late", "low"}


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
        {"annotations": {"kueue.x-k8s.io/queue-name": "q"}},
        {"generation": 2},
        {"uid": "another"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_an_owner_becomes_wakes_all_jobs_below(change: Obj) -> None:
    world = World()
    top = owned(JOBS, "top")
    changed = {**top, "metadata": {**top["metadata"], **change}}
    assert world.woken(JOBS, top, changed) == {"top", "middle", "low"}
    assert world.woken(JOBS, top, {**top, "status": {"active": 1}}) == {"top"}
    assert world.woken(JOBS, top, None) == {"top", "middle", "low"}


def test_a_job_that_names_the_workload_of_its_parent_is_woken_for_all_its_owners() -> None:
    """It may be owned by the parent without being controlled by it."""
    world = World()
    parent = {"kueue.x-k8s.io/parent-workload": "wl"}
    job = owned(JOBS, "low", "top", annotations=parent)
    job["metadata"]["ownerReferences"][0]["controller"] = False
    world.put(job)
    world.look("low")
    assert "low" in world.woken(WORKLOADS, None, owned(WORKLOADS, "wl", "top"))


async def test_a_job_is_below_an_owner_without_an_informer_once_it_has_a_workload() -> None:
    """Its manager has made a Workload, so it must have got a queue name since the last look."""
    trains = Resource("example.com", "v1", "trains", "Train", namespaced=True)
    client, settings = (
        Mock(Client),
        JobSettings(external_kinds=frozenset({("example.com", "Train")})),
    )
    client.find_resource, client.get = AsyncMock(return_value=trains), AsyncMock()
    cache = Cache(client)
    (made,) = wire(client, cache, Mock(), settings).controllers
    reconciler = cast(Any, made)._reconciler
    train = client.get.return_value = owned(trains, "train")
    job = owned(JOBS, "job", "train")
    job["metadata"]["ownerReferences"][0] |= {"apiVersion": "example.com/v1", "kind": "Train"}
    jobs, key = cache.informer(JOBS, transform=BATCH_JOB.transform).store, key_of(job)
    jobs.put(key, job)

    async def ancestor() -> str | None:
        await reconciler.reconcile(key)
        found = reconciler.observe(key, jobs.get(key)).ancestor
        return None if found is None else str(found.name)

    assert await ancestor() is None
    named = {**train["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    client.get.return_value = {**train, "metadata": named}
    assert await ancestor() is None, "it was read a moment ago"
    workload = owned(WORKLOADS, "wl", "train")
    cast(Any, cache.informer(WORKLOADS))._change([StoreUpdate(key_of(workload), workload)])
    assert await ancestor() == "Train ns/train"
    assert client.get.await_count == 2
