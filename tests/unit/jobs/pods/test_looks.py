"""How often a group is looked at while its pods come, and after what is written for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kueuelib.api.kinds import NAMESPACES, PODS, WORKLOADS
from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.api.patch import merge_patch
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.settings import JobSettings, PodSettings
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.stores import (
    OWNER_NAME,
    OWNER_UID,
    JobStores,
    owner_names,
    owner_uids,
)
from kueuelib.jobs.pods.integration import GATHERING, MANAGED_PODS, wire
from kueuelib.jobs.pods.reading import group_key, is_gated, trim
from kueuelib.jobs.reconcile.self_wired import IntegrationParts
from kueuelib.machinery.store import Store, StoreUpdate
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.controller import OBSERVER
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.workload import states

GROUP = group_key("ns", "group")
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "ns", "uid": "uid-ns", "resourceVersion": "1", "labels": {"team": "x"}},
}
ALL_PODS = PodSettings()


class Clock:
    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    monotonic = now


class Server:
    """Answers to writes, and counts them."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.known: Any = None

    async def create(self, resource: Any, obj: Any) -> Any:
        self.writes.append(f"create {resource.plural}")
        meta = {
            "uid": "wl-uid",
            "resourceVersion": "7",
            "creationTimestamp": "2023-11-14T22:13:20Z",
        }
        return {**obj, "metadata": {**obj["metadata"], **meta}}

    async def patch(self, resource: Any, key: ObjectKey, body: Any, *_: Any, **__: Any) -> Any:
        self.writes.append(f"patch {resource.plural}")
        held = self.known.informer(PODS, **POD_INFORMER).store.get(key)
        return newer(merge_patch(held, body))

    async def delete(self, resource: Any, *_: Any, **__: Any) -> Any:
        self.writes.append(f"delete {resource.plural}")
        return {"kind": "Status"}


def newer(obj: Any) -> Any:
    version = int(obj["metadata"]["resourceVersion"]) + 1
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


class Known(Cache):
    """A cache that is synced from the start, and holds what it is told."""

    def learn(self, answer: Any, *, shared: bool = False) -> None:
        del shared
        for informer in self._learners(answer):
            if informer.includes(answer):
                informer._change([StoreUpdate(key_of(answer), answer)])


class Recorder:
    def event(self, *_: Any, **__: Any) -> None:
        pass


POD_INFORMER: dict[str, Any] = {"label_selector": MANAGED_PODS, "transform": trim}


class Looks:
    """The controller of pods, its cache, and the keys that it looked at."""

    def __init__(
        self,
        now: float,
        frameworks: tuple[str, ...] = ("pod",),
        options: PodSettings = ALL_PODS,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.server = Server()
        self.known = self.server.known = Known(self.server)  # type: ignore[arg-type]
        enabled = builtin_registry().enabled(frameworks)
        (integration,) = [each for each in enabled if each.name == "pod"]
        self.pods = self.known.informer(PODS, **POD_INFORMER)
        workloads = self.known.informer(WORKLOADS)
        workloads.add_index(OWNER_UID, owner_uids)
        workloads.add_index(OWNER_NAME, owner_names)
        jobs = {integration.name: self.pods.store}
        self.namespaces = self.known.informer(NAMESPACES)
        spaces = self.namespaces.store
        stores = JobStores(jobs, workloads.store, Store(), Store(), Store(), spaces)
        settings = JobSettings(frameworks=("pod",), pods=options)
        self.clock = Clock(now)
        parts = IntegrationParts(
            integration,
            tuple(each for each in enabled if each.makes_pods),
            self.server,  # type: ignore[arg-type]
            self.known,
            Recorder(),
            settings,
            "v1beta2",
            stores,
            Owners([integration], stores, settings, None),
            workloads,
            self.namespaces,
            (),
            self.clock,  # type: ignore[arg-type]
            telemetry,
        )
        self.controller = wire(parts).controllers[0]
        self.controller.listen()
        self.looked: list[tuple[ObjectKey, str]] = []
        self.come(NAMESPACE)

    def come(self, *objects: Any) -> None:
        """Objects are new, or have changed."""
        for obj in objects:
            self.known.learn(obj)

    def work(self) -> int:
        """Look at all keys that are due; returns how many looks that took."""
        before = len(self.looked)

        async def work() -> None:
            OBSERVER.set(lambda _, key, problem: self.looked.append((key, problem)))
            while self.controller.queue.core.next_deadline(self.clock.time) == self.clock.time:
                item = await self.controller.queue.get()
                assert item is not None
                settled = await self.controller._process(item)
                self.controller.queue.done(item.key, settled=settled)

        asyncio.run(work())
        assert not any(problem for _, problem in self.looked)
        return len(self.looked) - before


@pytest.fixture
def looks(pods: Any) -> Looks:
    return Looks(pods.now)


def members(pods: Any, total: int, **fields: Any) -> list[Any]:
    return [
        pods.waiting(f"pod-{number}", group="group", total=total, **fields)
        for number in range(total)
    ]


def test_a_group_is_looked_at_once_per_step(pods: Any, looks: Looks) -> None:
    for pod in members(pods, 10):
        assert looks.work() == 0
        looks.come(pod)
    assert looks.work() == 1
    assert looks.server.writes == ["create workloads"]
    (workload,) = looks.known.informer(WORKLOADS).store.items()
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": each["name"], "count": each["count"]} for each in workload["spec"]["podSets"]
        ],
    }
    looks.come(newer(states.reserve(workload, admission, (), pods.now)))
    assert looks.work() == 1
    assert looks.server.writes[1:] == ["patch pods"] * 10
    assert not any(map(is_gated, looks.pods.store.items()))


def test_pods_of_an_incomplete_group_are_looked_at_together(pods: Any, looks: Looks) -> None:
    looks.come(*members(pods, 10)[:9])
    assert looks.work() == 0
    looks.clock.time += GATHERING
    assert looks.work() == 1
    assert not looks.server.writes


@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true"}},
        {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "other"}},
        {"labels": {"kueue.x-k8s.io/pod-group-role": "main"}},
    ],
)
def test_a_pod_that_may_be_enough_is_looked_at_at_once(
    pods: Any, looks: Looks, fields: dict[str, Any]
) -> None:
    looks.come(members(pods, 10, **fields)[0])
    assert looks.work() >= 1


def test_a_pod_that_runs_is_looked_at_at_once(pods: Any, looks: Looks) -> None:
    looks.come(pods.running("pod", group="group", total=10))
    assert len(looks.controller.queue) == 1


def test_a_replacement_is_looked_at_at_once(pods: Any, looks: Looks) -> None:
    looks.come(*members(pods, 10))
    looks.work()
    looks.pods._change([StoreUpdate(key, None) for key in looks.pods.store.keys()[:2]])
    looks.work()
    looks.come(pods.waiting("other", group="group", total=10))
    assert len(looks.controller.queue) == 1


def test_a_pod_of_a_queued_job_belongs_to_no_group_that_it_names(pods: Any) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-job"}
    pod = pods.running("pod", group="group", total=1)
    pod["metadata"] |= {"finalizers": [], "ownerReferences": [{**owner, "controller": True}]}
    looks = Looks(pods.now, ("batch/job", "pod"))
    looks.come(pod)
    assert looks.work() == 1
    assert not looks.server.writes
    alone = Looks(pods.now)
    alone.come(pod)
    alone.work()
    assert alone.server.writes, "nobody else knows such a job"


def test_a_pod_that_we_manage_stays_in_its_group_when_the_kind_of_its_owner_is_enabled(
    pods: Any,
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-job"}
    pod = pods.waiting("pod", group="group", total=1)
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    looks = Looks(pods.now, ("batch/job", "pod"))
    looks.come(pod)
    looks.work()
    assert looks.server.writes == ["create workloads"]


@pytest.mark.parametrize("total", ["1" * 5000, "1" * 10, "many"])
def test_a_count_that_nobody_can_read_does_not_end_the_manager(
    pods: Any, looks: Looks, total: str
) -> None:
    looks.come(pods.waiting("pod", group="group", total=total))
    assert looks.work() == 1
    assert not looks.server.writes


@pytest.mark.parametrize(
    "options",
    [
        PodSettings(pod_selector={"matchLabels": {"app": "other"}}),
        PodSettings(namespace_selector={"matchLabels": {"team": "y"}}),
    ],
)
@pytest.mark.parametrize("group", ["", "group"])
@pytest.mark.parametrize("kind", ["waiting", "running"])
def test_an_excluded_pod_is_left_alone_unless_it_was_queued_before(
    pods: Any, options: PodSettings, group: str, kind: str
) -> None:
    pod = getattr(pods, kind)("pod", group=group, total=1 if group else None)
    before = Looks(pods.now, options=options)
    before.come(pod)
    before.work()
    assert before.server.writes, "it has our finalizer"
    pod["metadata"]["finalizers"] = []
    copied = Looks(pods.now, options=options)
    copied.come(pod)
    assert copied.work() == 1
    assert not copied.server.writes
    selected = Looks(pods.now)
    selected.come(pod)
    selected.work()
    assert selected.server.writes


@pytest.mark.parametrize("group", ["", "group"])
def test_nothing_is_deleted_before_it_is_known_whether_it_is_excluded(
    pods: Any, group: str
) -> None:
    looks = Looks(pods.now, options=PodSettings(namespace_selector={"matchLabels": {"team": "x"}}))
    looks.namespaces._change([StoreUpdate(ObjectKey("", "ns"), None)])
    pod = pods.running("pod", group=group, total=1 if group else None)
    pod["metadata"]["finalizers"] = []
    looks.come(pod)
    looks.work()
    assert not looks.server.writes
    looks.come(NAMESPACE)
    looks.clock.time += 1.0
    looks.work()
    assert looks.server.writes


def test_a_pod_counts_as_gated_once_it_exists(pods: Any) -> None:
    telemetry = Telemetry()
    looks = Looks(pods.now, telemetry=telemetry)

    def counted() -> float | None:
        return telemetry.registry.get_sample_value("kueue_pods_gated_total", {"namespace": "ns"})

    pod = pods.waiting("pod")
    looks.come(pod, newer(pod), pods.running("other"))
    assert counted() == 1
    while looks.controller._unsubscribe:
        looks.controller._unsubscribe.pop()()
    looks.controller.listen()
    assert counted() == 1, "another manager has counted what exists already"
