"""The shell of the jobs package against the embedded API server with its simulated cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time

import attrs
import pytest
import yaml

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import (
    CRDS,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from kueuelib.api.meta import ObjectKey, is_true, key_of
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import KueuelibError, NotFound
from kueuelib.jobs.assembly import wire
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType
from kueuelib.workload import states
from kueuelib.workload.states import status_writes

KUEUE = "kueue.x-k8s.io"
NS = "jobs"
PATIENCE = 120.0


@attrs.define
class Notes:
    """Remembers events instead of writing them."""

    found: list[tuple[str, str]] = attrs.field(factory=list)

    def event(self, obj_or_ref, type, reason, message, component=None):
        self.found.append((reason, message))

    @property
    def reasons(self):
        return [reason for reason, _ in self.found]


@attrs.define
class HeldBack:
    """A watch whose events wait at the gate of its client, when that has one for its kind."""

    stream: object
    client: Counting
    kind: str

    async def batch(self, most):
        events = await self.stream.batch(most)
        if self.client.gate is not None and self.client.held_kind == self.kind:
            await self.client.gate.wait()
        return events

    async def aclose(self):
        await self.stream.aclose()


class Counting(Client):
    """Counts writes by verb and kind, and the Jobs that were read one by one."""

    writes: list[tuple[str, str, str]]
    gate: asyncio.Event | None = None
    held_kind = "Workload"
    jobs_read = 0

    async def watch(self, resource, *arguments, **rest):
        stream = await super().watch(resource, *arguments, **rest)
        return HeldBack(stream, self, resource.kind)

    async def get(self, resource, key, **rest):
        self.jobs_read += resource == JOBS
        return await super().get(resource, key, **rest)

    async def create(self, resource, obj, **rest):
        self.writes.append(("create", resource.kind, ""))
        return await super().create(resource, obj, **rest)

    async def patch(self, resource, key, body, patch_type, **rest):
        self.writes.append(("patch", resource.kind, rest.get("subresource", "")))
        return await super().patch(resource, key, body, patch_type, **rest)


class World:
    """A client of the test's own, and the jobs package running beside it."""

    def __init__(self, client, own, notes):
        self.client = client
        self.own = own
        self.notes = notes
        self._running = None

    async def start(self):
        cache = Cache(self.own)
        jobs = wire(self.own, cache, self.notes, JobSettings())
        ready = asyncio.Event()

        async def run():
            async with asyncio.TaskGroup() as group:
                group.create_task(cache.run(ready.set))
                await ready.wait()
                for controller in jobs.controllers:
                    group.create_task(controller.run(lambda: None))

        self._running = asyncio.create_task(run())
        await asyncio.wait_for(ready.wait(), PATIENCE)

    async def stop(self):
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def job(
        self, name, *, queue="main", cpu="1", parallelism=1, pod=None, labels=None, **spec
    ):
        template = {
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
                ],
                **(pod or {}),
            }
        }
        return await self.client.create(
            JOBS,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": name,
                    "namespace": NS,
                    "labels": {f"{KUEUE}/queue-name": queue, **(labels or {})},
                },
                "spec": {
                    "suspend": True,
                    "parallelism": parallelism,
                    "completions": parallelism,
                    "backoffLimit": 0,
                    "template": template,
                    **spec,
                },
            },
        )

    async def get(self, obj):
        resource = {"Job": JOBS, "Workload": WORKLOADS}[obj["kind"]]
        return await self.client.get(resource, key_of(obj))

    async def until(self, question):
        """The first true answer of an asynchronous question."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found = await question()
            except (NotFound, AssertionError) as error:
                found = None
                last = error
            else:
                last = None
            if found:
                return found
            assert time.monotonic() < deadline, f"it never became true ({last})"
            await asyncio.sleep(0.02)

    async def workload(self, job):
        async def find():
            for found in (await self.client.list(WORKLOADS, NS)).items:
                refs = found["metadata"].get("ownerReferences") or ()
                if job["metadata"]["uid"] in [ref["uid"] for ref in refs]:
                    return None if found["metadata"].get("deletionTimestamp") else found
            return None

        return await self.until(find)

    async def step(self, wl, step):
        """What a queueing controller writes."""
        wl = await self.get(wl)
        for write in status_writes(wl, step(wl)):
            style = PatchType.APPLY if write.style == "apply" else PatchType.MERGE
            await self.client.patch(
                WORKLOADS,
                key_of(wl),
                write.body,
                style,
                subresource="status",
                field_manager=write.field_manager,
                force=write.style == "apply",
            )

    async def admit(self, wl):
        count = wl["spec"]["podSets"][0]["count"]
        assigned = {"name": "main", "flavors": {"cpu": "spot"}, "count": count}
        admission = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
        await self.step(wl, lambda found: states.reserve(found, admission, (), time.time()))

    async def evict(self, wl):
        await self.step(wl, lambda found: states.evict(found, "Preempted", "room", time.time()))

    async def running(self, job):
        async def check():
            found = await self.get(job)
            active = (found.get("status") or {}).get("active")
            return found if not found["spec"]["suspend"] and active else None

        return await self.until(check)

    async def suspended(self, job):
        async def check():
            found = await self.get(job)
            return found if found["spec"]["suspend"] else None

        return await self.until(check)

    async def finish(self, job):
        selector = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
        body = {"metadata": {"annotations": {"kueuelib.dev/run-seconds": "0"}}}
        for pod in (await self.client.list(PODS, NS, label_selector=selector)).items:
            await self.client.patch(PODS, key_of(pod), body, PatchType.MERGE)


async def client_of(server, folder, kind=None):
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(server.kubeconfig()))
    made = await connect(path)
    if kind is None:
        return made
    counting = kind(made.transport)
    counting.writes = []
    return counting


@pytest.fixture
async def world(tmp_path):
    async with (
        ApiServer(simulate=True) as server,
        await client_of(server, tmp_path) as client,
        await client_of(server, tmp_path, Counting) as own,
    ):
        for crd in all_crds():
            crd["spec"]["conversion"] = {"strategy": "None"}
            await client.create(CRDS, crd)

        made = World(client, own, Notes())

        async def served():
            return "Workload" in await client.served_kinds(KUEUE, "v1beta2")

        await made.until(served)
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
        )
        flavor = {
            "apiVersion": RESOURCE_FLAVORS.api_version,
            "kind": "ResourceFlavor",
            "metadata": {"name": "spot"},
            "spec": {
                "nodeLabels": {"kueuelib.dev/pool": "spot"},
                "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            },
        }
        await client.create(RESOURCE_FLAVORS, flavor)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


async def test_a_job_costs_one_write_each_to_queue_and_start_and_two_to_finish(world):
    job = await world.job("job")
    wl = await world.workload(job)
    await world.admit(wl)
    await world.running(job)
    await world.finish(job)

    async def over():
        found = await world.get(wl)
        return is_true(found, "Finished") and not found["metadata"].get("finalizers")

    await world.until(over)
    assert world.own.writes == [
        ("create", "Workload", ""),
        ("patch", "Job", ""),
        ("patch", "Workload", "status"),
        ("patch", "Workload", ""),
    ]
    assert world.notes.reasons == ["CreatedWorkload", "Started", "FinishedWorkload"]


async def test_a_watch_that_lags_makes_nobody_write_twice(world):
    world.own.gate = asyncio.Event()
    job = await world.job("job")
    wl = await world.workload(job)
    for number in range(3):
        body = {"metadata": {"annotations": {"looked-at": str(number)}}}
        await world.client.patch(JOBS, key_of(job), body, PatchType.MERGE)
        await world.workload(await world.job(f"later-{number}"))
    assert world.own.writes == [("create", "Workload", "")] * 4
    await world.admit(wl)
    world.own.gate.set()
    await world.running(job)
    assert world.own.writes[4:] == [("patch", "Job", "")]


async def test_no_workload_is_created_again_for_a_job_that_is_gone(world):
    job = await world.job("job")
    await world.workload(job)
    world.own.held_kind = "Job"
    world.own.gate = asyncio.Event()
    await world.client.delete(JOBS, key_of(job), propagation="Background")

    async def read():
        return world.own.jobs_read

    await world.until(read)

    async def gone():
        return not (await world.client.list(WORKLOADS, NS)).items

    await world.until(gone)
    assert world.own.writes.count(("create", "Workload", "")) == 1
    world.own.gate.set()


async def test_a_preempted_job_is_restored_and_starts_again(world):
    job = await world.job("job", pod={"nodeSelector": {"kueuelib.dev/simulated": "true"}})
    wl = await world.workload(job)
    await world.admit(wl)
    started = await world.running(job)
    own = {"kueuelib.dev/simulated": "true"}
    spec = started["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {**own, "kueuelib.dev/pool": "spot"}
    await world.evict(wl)

    async def free():
        return not states.has_quota(await world.get(wl))

    await world.until(free)
    stopped = await world.get(job)
    assert stopped["spec"]["suspend"] is True
    assert stopped["spec"]["template"]["spec"]["nodeSelector"] == own
    assert not stopped["spec"]["template"]["spec"].get("tolerations")
    assert not stopped["metadata"].get("annotations")
    assert not stopped["status"].get("startTime")
    await world.admit(wl)
    await world.running(job)
    assert world.notes.reasons == ["CreatedWorkload", "Started", "Stopped", "Started"]


async def test_a_job_whose_workload_is_deleted_stops_and_waits_again(world):
    job = await world.job("job")
    wl = await world.workload(job)
    await world.admit(wl)
    await world.running(job)
    await world.client.delete(WORKLOADS, key_of(wl))

    async def another():
        found = await world.workload(job)
        return found if found["metadata"]["uid"] != wl["metadata"]["uid"] else None

    await world.until(another)
    await world.suspended(job)


async def test_a_job_that_came_unsuspended_while_nobody_looked_is_stopped(world):
    await world.stop()
    job = await world.job("job", suspend=False)
    await world.running(job)
    await world.start()
    await world.suspended(job)
    await world.workload(job)
    assert not (await world.get(job))["metadata"].get("annotations")


async def test_the_workload_of_a_deleted_job_disappears(world):
    job = await world.job("job")
    wl = await world.workload(job)
    await world.client.delete(JOBS, key_of(job), propagation="Background")

    async def gone():
        with contextlib.suppress(NotFound):
            return not await world.get(wl)
        return True

    await world.until(gone)


async def test_a_job_deleted_while_nobody_looked_leaves_nothing_behind(world):
    job = await world.job("job")
    wl = await world.workload(job)
    await world.admit(wl)
    await world.running(job)
    await world.stop()
    await world.client.delete(JOBS, key_of(job), propagation="Background")

    async def deleted():
        try:
            await world.get(job)
        except NotFound:
            return True
        return False

    await world.until(deleted)
    await world.start()

    async def gone():
        try:
            await world.get(wl)
        except NotFound:
            return True
        return False

    await world.until(gone)


async def test_a_priority_class_that_comes_later_is_found(world, monkeypatch):
    monkeypatch.setattr("kueuelib.jobs.reconcile.steps.MISSING_RETRY", 0.05)
    job = await world.job("job")
    name = {"metadata": {"labels": {f"{KUEUE}/priority-class": "later"}}}
    await world.workload(job)
    await world.client.patch(JOBS, key_of(job), name, PatchType.MERGE)

    async def told():
        return "ErrWorkloadCompose" in world.notes.reasons

    await world.until(told)
    await world.client.create(
        WORKLOAD_PRIORITY_CLASSES,
        {
            "apiVersion": WORKLOAD_PRIORITY_CLASSES.api_version,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "later"},
            "value": 7,
        },
    )

    async def followed():
        return (await world.workload(job))["spec"]["priority"] == 7

    await world.until(followed)


async def test_a_prebuilt_workload_is_used_when_it_comes(world):
    labels = {f"{KUEUE}/prebuilt-workload-name": "made"}
    job = await world.job("job")
    wl = await world.workload(job)
    made = {
        "apiVersion": WORKLOADS.api_version,
        "kind": "Workload",
        "metadata": {"name": "made", "namespace": NS},
        "spec": wl["spec"],
    }
    other = await world.job("other", labels=labels)
    await world.client.create(WORKLOADS, made)
    adopted = await world.workload(other)
    assert adopted["metadata"]["name"] == "made"
    await world.admit(adopted)
    await world.running(other)


async def test_the_start_survives_a_change_of_the_job_by_somebody_else(world):
    job = await world.job("job")
    wl = await world.workload(job)

    async def disturb():
        for number in range(30):
            body = {"metadata": {"annotations": {"disturbed": str(number)}}}
            await world.client.patch(JOBS, key_of(job), body, PatchType.MERGE)

    await asyncio.gather(disturb(), world.admit(wl))
    await world.running(job)
    assert world.notes.reasons.count("Started") == 1


def test_errors_of_this_package_belong_to_the_tree():
    from kueuelib.jobs.contract.podset_info import FlavorNotFound
    from kueuelib.jobs.reconcile.priority import PriorityClassNotFound

    assert issubclass(FlavorNotFound, KueuelibError)
    assert issubclass(PriorityClassNotFound, KueuelibError)
    assert ObjectKey("a", "b") == ("a", "b")
