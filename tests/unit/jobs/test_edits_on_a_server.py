"""Edits that the status of a Workload stands against, on an embedded API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, ObjectKey, Resource, find_condition
from kueuelib.api.patterns import POD_SET_LIMIT
from kueuelib.errors import Conflict
from kueuelib.jobs import GenericJob, JobEnd, JobWithReclaimablePods, PodSet, PodSetInfo
from kueuelib.runtime import Client, PatchType, kinds
from kueuelib.testing import (
    eventually,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    queueing,
)
from kueuelib.workload import states

AT = "2024-01-01T00:00:00Z"
HOLD = {"spec": {"stopPolicy": "HoldAndDrain"}}
QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
BUNCHES = Resource("example.com", "v1", "bunches", "Bunch", namespaced=True)


class Bunch(GenericJob, JobWithReclaimablePods):
    """A job with a number of pods by pod set."""

    resource = BUNCHES

    def pod_sets(self) -> tuple[PodSet, ...]:
        return tuple(PodSet(name, each, template()) for name, each in self.spec["sets"].items())

    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    def suspend(self) -> None:
        self.spec["suspend"] = True

    def run_with_podsets_info(self, infos: Any) -> None:
        self.spec["suspend"] = False

    def restore_podsets_info(self, infos: tuple[PodSetInfo, ...]) -> bool:
        return False

    def finished(self) -> JobEnd | None:
        return None

    def is_active(self) -> bool:
        return bool(self.status.get("active"))

    def pods_ready(self) -> bool:
        return True

    def reclaimable_pods(self) -> Mapping[str, int]:
        return dict(self.status.get("done") or {})


def template(cpu: str = "1") -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


class World:
    """What a test changes and reads."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def queues(self, *checks: str, cpu: int = 4) -> None:
        for name in checks:
            spec = {"controllerName": "example.com/other"}
            check = kinds.ADMISSION_CHECKS.new(name, spec=spec)
            await self.client.create(kinds.ADMISSION_CHECKS, check)
            active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
            status = {"conditions": [{**active, "lastTransitionTime": AT}]}
            await self.patch(kinds.ADMISSION_CHECKS, name, {"status": status}, "status")
        for each in (
            make_flavor("spot"),
            make_cluster_queue("all", {"spot": {"cpu": cpu}}, checks=list(checks)),
            make_local_queue("q", "all", "default"),
        ):
            await self.client.of(type(each)).create(each)

    async def bunch(self, **sets: int) -> None:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {"kind": BUNCHES.kind, "plural": BUNCHES.plural, "singular": "bunch"}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }
        spec = {"group": BUNCHES.group, "scope": "Namespaced", "names": names}
        crd = kinds.CRDS.new("bunches.example.com", spec={**spec, "versions": [version]})
        await self.client.create(kinds.CRDS, crd)
        job = BUNCHES.new("j", "default", labels=QUEUED, spec={"suspend": True, "sets": sets})
        await eventually(lambda: self.client.create(BUNCHES, job))

    async def patch(self, kind: Resource, name: str, body: Obj, subresource: str = "") -> None:
        key = ObjectKey("default" if kind.namespaced else "", name)
        await self.client.patch(kind, key, body, PatchType.MERGE, subresource=subresource)

    async def workload(self) -> Obj:
        (found,) = (await self.client.list(kinds.WORKLOADS)).items
        return found

    async def when(self, test: Any) -> Obj:
        async def found() -> Obj | None:
            found = (await self.client.list(kinds.WORKLOADS)).items
            return next(filter(test, found), None)

        return await eventually(found)

    async def runs(self, kind: Resource, *, suspended: bool = False) -> None:
        async def looks() -> bool:
            job = await self.client.get(kind, ObjectKey("default", "j"))
            return job["spec"]["suspend"] is suspended

        await eventually(looks)

    async def answers(self, **answer: Any) -> None:
        async def written() -> bool:
            workload = await self.workload()
            (entry,) = workload["status"]["admissionChecks"]
            status = {"admissionChecks": [{**entry, **answer, "lastTransitionTime": AT}]}
            version = {"resourceVersion": workload["metadata"]["resourceVersion"]}
            body = {"metadata": version, "status": status}
            try:
                await self.patch(kinds.WORKLOADS, workload["metadata"]["name"], body, "status")
            except Conflict:
                return False
            return True

        await eventually(written)


def asked(workload: Obj) -> dict[str, int]:
    return {each["name"]: each["count"] for each in workload["spec"]["podSets"]}


def reclaimed(workload: Obj) -> list[Obj]:
    return list(states.status_of(workload).get("reclaimablePods") or ())


async def test_a_job_that_gets_fewer_pods_after_some_have_finished_runs_again(
    kube_client: Client,
) -> None:
    world = World(kube_client)
    async with queueing(kube_client):
        await world.queues()
        spec = {"suspend": True, "parallelism": 4, "completions": 6, "template": template()}
        job = kinds.JOBS.new("j", "default", labels=QUEUED, spec=spec)
        await kube_client.create(kinds.JOBS, job)
        await world.runs(kinds.JOBS)
        status: Obj = {"startTime": AT, "active": 1, "ready": 1, "succeeded": 5}
        await world.patch(kinds.JOBS, "j", {"status": status}, "status")
        await world.when(lambda wl: reclaimed(wl) == [{"name": "main", "count": 3}])
        await world.patch(kinds.CLUSTER_QUEUES, "all", HOLD)
        await world.runs(kinds.JOBS, suspended=True)
        seen = {"type": "Suspended", "status": "True", "lastTransitionTime": AT}
        status = {"active": 0, "ready": 0, "conditions": [seen]}
        await world.patch(kinds.JOBS, "j", {"status": status}, "status")
        await world.when(lambda wl: not states.has_quota(wl))
        await world.patch(kinds.JOBS, "j", {"spec": {"parallelism": 2}})
        await world.when(lambda wl: asked(wl) == {"main": 2})
        await world.when(lambda wl: reclaimed(wl) == [{"name": "main", "count": 1}])
        await world.patch(kinds.CLUSTER_QUEUES, "all", {"spec": {"stopPolicy": "None"}})
        await world.runs(kinds.JOBS)


async def test_a_waiting_workload_follows_its_job_after_an_early_answer(
    kube_client: Client,
) -> None:
    world = World(kube_client)
    async with queueing(kube_client, Bunch):
        await world.queues("check")
        await world.bunch(main=9)
        await world.when(lambda wl: states.checks_in(wl, "Pending"))
        await world.answers(state="Ready", podSetUpdates=[{"name": "main", "labels": {"a": "b"}}])
        await world.patch(BUNCHES, "j", {"spec": {"sets": {"main": None, "one": 1, "two": 1}}})
        workload = await world.when(states.has_quota)
        assert asked(workload) == {"one": 1, "two": 1}
        assert states.checks_in(workload, "Pending") == ("check",)
        await world.answers(state="Ready")
        await world.runs(BUNCHES)


async def test_an_update_that_the_server_refuses_costs_one_reservation(kube_client: Client) -> None:
    """A Workload has only so many pod sets."""
    world = World(kube_client)
    async with queueing(kube_client, Bunch):
        await world.queues("check", cpu=POD_SET_LIMIT)
        await world.bunch(main=1)
        await world.when(states.has_quota)
        more = {f"set{number}": 1 for number in range(POD_SET_LIMIT)}
        await world.patch(BUNCHES, "j", {"spec": {"sets": more}})
        await world.when(states.is_held_back)
        await asyncio.sleep(1)
        before = await world.workload()
        await asyncio.sleep(1)
        assert await world.workload() == before
        assert not states.has_quota(before)
        await world.patch(BUNCHES, "j", {"spec": {"sets": {"set0": None}}})
        workload = await world.when(states.has_quota)
        assert len(asked(workload)) == POD_SET_LIMIT
        requeued = find_condition(workload["status"]["conditions"], "Requeued")
        assert requeued["status"] == "True"
