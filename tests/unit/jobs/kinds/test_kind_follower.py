"""Kinds that come, change and go, on the embedded API server with its garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import CRDS, JOBS, WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ApiError, Forbidden, NotFound, Unavailable
from kueuelib.jobs.assembly import Jobs, wire
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.declared.declarative import declare, equals
from kueuelib.jobs.declared.pod_shape import Pods
from kueuelib.jobs.kinds.follower import KindState
from kueuelib.jobs.webhooks.serving import JobWebhook
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.admission import AdmissionRequest

THINGS = Resource("g.example.com", "v1", "things", "Thing", namespaced=True)
INTEGRATION = declare(
    THINGS,
    pods=[Pods()],
    active="status.active",
    ready="status.ready",
    succeeded=equals("status.phase", "Succeeded"),
    failed=equals("status.phase", "Failed"),
    other_versions=("v1beta1",),
)
NAME = "things.g.example.com"
NS = "default"
KIND = "Thing.g.example.com"
PATIENCE = 20.0
_STATUS = {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@attrs.define
class Notes:
    """Remembers events instead of writing them."""

    found: list[tuple[str, str, str]] = attrs.field(factory=list)

    def event(
        self, obj_or_ref: Any, type: str, reason: str, message: str, component: str | None = None
    ) -> None:
        name = obj_or_ref.get("name") or obj_or_ref["metadata"]["name"]
        self.found.append((name, reason, message))

    def about(self, name: str) -> list[str]:
        return [reason for about, reason, _ in self.found if about == name]


class Limited(Client):
    """May do everything but what it is told not to."""

    forbidden: frozenset[str] = frozenset()
    asked: list[str]
    discovers = True

    async def find_resource(self, api_version: str, kind: str) -> Resource | None:
        if not self.discovers:
            raise Unavailable("discovery is away")
        return await super().find_resource(api_version, kind)

    async def list(self, resource: Resource, namespace: str = "", **rest: Any) -> Any:
        self._check(resource)
        return await super().list(resource, namespace, **rest)

    async def watch(self, resource: Resource, namespace: str = "", **rest: Any) -> Any:
        self._check(resource)
        return await super().watch(resource, namespace, **rest)

    async def get(self, resource: Resource, key: ObjectKey, **rest: Any) -> Obj:
        self._check(resource)
        return await super().get(resource, key, **rest)

    def _check(self, resource: Resource) -> None:
        self.asked.append(resource.plural)
        if resource.plural in self.forbidden:
            raise Forbidden(f"{resource.plural} is forbidden")


def definition(*versions: str, stored: str = "") -> Obj:
    """Serves these versions; the stored one may be one that is not served."""
    stored = stored or versions[0]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    listed = [
        {
            "name": version,
            "served": version in versions,
            "storage": version == stored,
            "schema": {"openAPIV3Schema": schema},
        }
        for version in sorted({*versions, stored})
    ]
    return {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": THINGS.group,
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": listed,
        },
    }


def thing(name: str, version: str = "v1") -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": f"{THINGS.group}/{version}",
        "kind": "Thing",
        "metadata": {
            "name": name,
            "namespace": NS,
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": [container]}}},
    }


class World:
    """A client of the test's own, and the jobs package running beside it."""

    def __init__(self, client: Client, own: Limited) -> None:
        self.client = client
        self.own = own
        self.notes = Notes()
        self.telemetry = Telemetry()
        self.cache = Cache(own)
        self.jobs: Jobs = wire(
            own,
            self.cache,
            self.notes,
            JobSettings(frameworks=("batch/job", INTEGRATION.name)),
            registry=builtin_registry().register(INTEGRATION),
            telemetry=self.telemetry,
        )
        (self.follower,) = self.jobs.followers
        self._running: list[asyncio.Task[None]] = []

    async def start(self, *, elected: bool = True) -> None:
        """As a manager does: each part once the one before is ready."""
        await self._begin(self.cache.run)
        await self._begin(self.follower.run)
        if elected:
            await self.lead()

    async def lead(self) -> None:
        for controller in self.jobs.controllers:
            await self._begin(controller.run)

    async def _begin(self, run: Callable[[Callable[[], None]], Any]) -> None:
        ready = asyncio.Event()
        self._running.append(asyncio.create_task(run(ready.set)))
        await asyncio.wait_for(ready.wait(), PATIENCE)

    async def stop(self) -> None:
        for task in reversed(self._running):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, question: Callable[[], Awaitable[Any]]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = None
            with contextlib.suppress(ApiError):
                found = await question()
            if found:
                return found
            assert time.monotonic() < deadline, f"it never came; {self.follower.standing}"
            await asyncio.sleep(0.02)

    async def stands(self, state: KindState) -> str:
        """Waits for a state; why it is so."""
        async with asyncio.timeout(PATIENCE):
            standing = self.follower.standing
            while standing.state is not state:
                standing = await self.follower.moved_from(standing)
        return standing.why

    def state_told(self, state: KindState) -> float | None:
        labels = {"kind": KIND, "state": state}
        return self.telemetry.registry.get_sample_value("kueuelib_job_kind_state", labels)

    async def define(self, *versions: str, stored: str = "") -> None:
        await self.client.create(CRDS, definition(*versions, stored=stored))

    async def serve(self, *versions: str, stored: str = "") -> None:
        """Changes the versions of the definition."""
        spec = {"versions": definition(*versions, stored=stored)["spec"]["versions"]}
        await self.client.patch(CRDS, ObjectKey("", NAME), {"spec": spec}, PatchType.MERGE)

    async def describe(self, properties: Obj) -> None:
        """Give the stored definition another schema."""
        crd = await self.client.get(CRDS, ObjectKey("", NAME))
        (version,) = crd["spec"]["versions"]
        version["schema"] = {
            "openAPIV3Schema": {"type": "object", "properties": properties | _STATUS}
        }
        await self.client.replace(CRDS, crd)

    async def undefine(self) -> None:
        await self.client.delete(CRDS, ObjectKey("", NAME))

        async def gone() -> bool:
            try:
                await self.client.get(CRDS, ObjectKey("", NAME))
            except NotFound:
                return True
            return False

        await self.until(gone)

    async def create(self, name: str, version: str = "v1") -> Obj:
        async def created() -> Obj:
            return await self.client.create(THINGS.at(version), thing(name, version))

        found: Obj = await self.until(created)
        return found

    async def workload_of(self, job: Obj) -> Obj:
        async def find() -> Obj | None:
            for found in (await self.client.list(WORKLOADS, NS)).items:
                refs = found["metadata"].get("ownerReferences") or ()
                if job["metadata"]["uid"] in [ref["uid"] for ref in refs]:
                    return found
            return None

        found: Obj = await self.until(find)
        return found

    async def no_workloads(self) -> None:
        async def none() -> bool:
            return not (await self.client.list(WORKLOADS, NS)).items

        await self.until(none)


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    simulate = getattr(request, "param", True)
    monkeypatch.setattr("kueuelib.jobs.kinds.follower.LAST_PAUSE", 0.3)
    monkeypatch.setattr("kueuelib.jobs.kinds.follower.GRACE", 0.1)
    path = tmp_path / "kubeconfig"
    async with ApiServer(simulate=simulate) as server:
        path.write_text(yaml.safe_dump(server.kubeconfig()))
        async with await connect(path) as client, Limited((await connect(path)).transport) as own:
            own.asked = []
            for crd in all_crds():
                crd["spec"]["conversion"] = {"strategy": "None"}
                await client.create(CRDS, crd)
            made = World(client, own)

            async def served() -> bool:
                return "Workload" in await client.served_kinds(WORKLOADS.group, "v1beta2")

            await made.until(served)
            try:
                yield made
            finally:
                await made.stop()


async def test_a_kind_that_comes_late_is_managed_then(world: World) -> None:
    await world.start()
    assert world.follower.standing.state is KindState.MISSING
    assert world.state_told(KindState.MISSING) == 1
    await world.define("v1")
    job = await world.create("late")
    await world.workload_of(job)
    assert world.follower.standing.state is KindState.MANAGED
    assert (world.state_told(KindState.MISSING), world.state_told(KindState.MANAGED)) == (0, 1)
    assert world.notes.about(NAME) == [], "an installation is nothing to warn of"


async def test_workloads_of_a_kind_that_is_uninstalled_go(world: World) -> None:
    await world.define("v1")
    job = await world.create("first")
    await world.start()
    await world.workload_of(job)
    await world.undefine()
    await world.no_workloads()
    await world.stands(KindState.MISSING)
    world.own.asked.clear()
    await asyncio.sleep(0.7)
    assert "things" not in world.own.asked, "nobody lists what is not there"
    await world.define("v1")
    await world.workload_of(await world.create("second"))


@pytest.mark.parametrize("world", [True, False], indirect=True, ids=["collector", "alone"])
async def test_workloads_of_a_kind_that_went_while_nobody_looked_go(world: World) -> None:
    await world.define("v1")
    job = await world.create("first")
    owner = {"apiVersion": f"{THINGS.group}/v1", "kind": "Thing", "name": "first"}
    meta = {
        "name": "left",
        "namespace": NS,
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        "ownerReferences": [{**owner, "uid": job["metadata"]["uid"], "controller": True}],
    }
    sets = [{"name": "main", "count": 1, "template": job["spec"]["template"]}]
    left = {"apiVersion": WORKLOADS.api_version, "kind": "Workload", "metadata": meta}
    await world.client.create(WORKLOADS, {**left, "spec": {"podSets": sets}})
    await world.undefine()
    await world.start()
    await world.no_workloads()


async def test_a_version_that_is_served_no_more_is_left_for_another(world: World) -> None:
    await world.define("v1", "v1beta1", stored="v1beta1")
    await world.start()
    first = await world.workload_of(await world.create("first"))
    turn = world.follower.standing.turn
    assert turn is not None
    assert turn.integration.resource.version == "v1"
    await world.serve("v1beta1")
    second = await world.create("second", "v1beta1")
    await world.workload_of(second)
    turn = world.follower.standing.turn
    assert turn is not None
    assert turn.integration.resource.version == "v1beta1"
    kept = await world.client.get(WORKLOADS, ObjectKey(NS, first["metadata"]["name"]))
    assert kept["metadata"]["uid"] == first["metadata"]["uid"]


async def test_a_kind_in_versions_that_nobody_reads_is_told_of_and_kept(world: World) -> None:
    await world.define("v1")
    await world.start()
    job = await world.create("first")
    workload = await world.workload_of(job)
    await world.serve("v2", stored="v1")
    why = await world.stands(KindState.UNFIT)
    assert why == "it is served in v2; the integration reads v1 or v1beta1"

    async def told() -> bool:
        return world.notes.about(NAME) == ["NotManaged"]

    await world.until(told)
    assert world.state_told(KindState.UNFIT) == 1
    kept = await world.client.get(WORKLOADS, ObjectKey(NS, workload["metadata"]["name"]))
    assert kept["metadata"].get("deletionTimestamp") is None
    await world.serve("v1", "v2")
    await world.stands(KindState.MANAGED)

    async def calmed() -> bool:
        return world.notes.about(NAME) == ["NotManaged", "Managed"]

    await world.until(calmed)


async def test_a_kind_that_may_not_be_listed_keeps_nobody_else_waiting(world: World) -> None:
    world.own.forbidden = frozenset({"things"})
    await world.define("v1")
    await world.start()
    why = await world.stands(KindState.UNREADABLE)
    assert why.startswith("its objects cannot be read: things is forbidden")
    plain = {**thing("plain"), "apiVersion": "batch/v1", "kind": "Job"}
    plain["spec"] = {"suspend": True, "template": {"spec": {**_pod(), "restartPolicy": "Never"}}}
    await world.workload_of(await world.client.create(JOBS, plain))
    job = await world.create("first")

    async def told() -> bool:
        return world.notes.about(NAME) == ["NotManaged"]

    await world.until(told)
    world.own.forbidden = frozenset()
    await world.workload_of(job)


async def test_a_kind_whose_definition_lacks_the_field_that_suspends_is_not_managed(
    world: World,
) -> None:
    await world.define("v1")
    await world.start()
    await world.stands(KindState.MANAGED)
    fields = {"suspended": {"type": "boolean"}, "template": {"type": "object"}}
    await world.describe({"spec": {"type": "object", "properties": fields}})
    why = "suspend='spec.suspend' is not a field of the CRD: write 'suspended' for 'suspend'"
    assert await world.stands(KindState.UNFIT) == why

    async def told() -> bool:
        text = f"Jobs of this kind that name a queue stay as they are: {why}"
        return (NAME, "NotManaged", text) in world.notes.found

    await world.until(told)
    fields["suspend"] = fields.pop("suspended")
    await world.describe({"spec": {"type": "object", "properties": fields}})
    await world.stands(KindState.MANAGED)


async def test_who_may_not_read_definitions_looks_for_kinds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.own.forbidden = frozenset({CRDS.plural})
    await world.start()
    await world.define("v1")
    await world.workload_of(await world.create("first"))
    monkeypatch.setattr("kueuelib.jobs.kinds.follower.PATIENCE", 0.2)
    await world.undefine()
    assert await world.stands(KindState.MISSING) == "the API server does not serve it"
    assert world.follower.standing.turn is None, "that it is gone for good nobody said"
    world.own.asked.clear()
    await asyncio.sleep(0.7)
    assert "things" not in world.own.asked, "nobody lists what is not there"
    await world.define("v1")
    await world.workload_of(await world.create("second"))


async def test_an_api_server_that_cannot_tell_changes_nothing(world: World) -> None:
    await world.define("v1")
    world.own.discovers = False
    await world.start()
    assert world.follower.standing.why == "the API server does not list it"
    assert world.follower.standing.turn is None
    world.own.discovers = True
    await world.workload_of(await world.create("first"))
    standing = world.follower.standing
    world.own.discovers = False
    await world.serve("v2", stored="v1")
    await asyncio.sleep(0.5)
    assert world.follower.standing == standing
    world.own.discovers = True
    await world.stands(KindState.UNFIT)


async def test_a_kind_that_was_replaced_unseen_is_read_afresh(world: World) -> None:
    await world.define("v1")
    await world.start()
    workload = await world.workload_of(await world.create("first"))
    before = world.follower.standing.turn
    world.own.discovers = False
    await world.undefine()
    await world.define("v1")
    world.own.discovers = True
    await world.workload_of(await world.create("second"))

    async def gone() -> bool:
        left = (await world.client.list(WORKLOADS, NS)).items
        return workload["metadata"]["uid"] not in [each["metadata"]["uid"] for each in left]

    await world.until(gone)
    after = world.follower.standing.turn
    assert after is not None
    assert after is not before


async def test_what_is_held_back_is_told_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kueuelib.jobs.kinds.kind_controller.REMIND", 0.05)
    await world.define("v2")
    await world.start()

    async def told() -> bool:
        return world.notes.about(NAME)[:3] == ["NotManaged"] * 3

    await world.until(told)


async def test_only_the_leader_reconciles(world: World) -> None:
    await world.define("v1")
    await world.start(elected=False)
    await world.stands(KindState.MANAGED)
    job = await world.create("first")

    async def seen() -> bool:
        turn = world.follower.standing.turn
        return turn is not None and len(turn.store) == 1

    await world.until(seen)
    assert (await world.client.list(WORKLOADS, NS)).items == ()
    assert world.notes.found == []
    await world.lead()
    await world.workload_of(job)


async def test_whoever_creates_what_nobody_can_start_is_warned(world: World) -> None:
    hook = next(
        each
        for each in world.jobs.webhooks
        if isinstance(each, JobWebhook) and "thing" in each.mutate_path
    )
    obj = thing("new")
    obj["spec"]["suspend"] = False
    request = AdmissionRequest("uid", "CREATE", namespace=NS, object=obj)
    await world.define("v2")
    await world.start()
    await world.stands(KindState.UNFIT)
    made = hook.mutate(obj, request)
    assert made["spec"]["suspend"] is True
    (warning,) = hook.judge(made, None, request).warnings
    assert "it is served in v2" in warning
    assert hook.judge(made, made, request).warnings == []
    hook.mutate(obj, attrs.evolve(request, dry_run=True))
    count = world.telemetry.registry.get_sample_value
    assert count("kueuelib_jobs_held_back_total", {"kind": KIND}) == 1
    await world.serve("v1", "v2", stored="v2")
    await world.stands(KindState.MANAGED)
    assert hook.mutate(obj, request)["spec"]["suspend"] is True
    assert hook.judge(made, None, request).warnings == []
    assert count("kueuelib_jobs_held_back_total", {"kind": KIND}) == 1


def _pod() -> Obj:
    spec: Obj = thing("x")["spec"]["template"]["spec"]
    return spec
