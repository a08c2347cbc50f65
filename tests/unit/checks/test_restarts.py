"""What a check does when its process starts again, and while a workload leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.checks import (
    Check,
    Pending,
    PodSetUpdate,
    Ready,
    Retry,
    Verdict,
    Workload,
    check,
    current,
)
from kueuelib.checks.owned import OwnedObjects
from kueuelib.errors import ApiError, Forbidden, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import PatchType
from kueuelib.workload import states

if TYPE_CHECKING:
    from .conftest import Checks

NAME = "example.com/test"
LIMITS = Resource("example.com", "v1", "limits", "Limit", namespaced=False)
REF = {"apiGroup": LIMITS.group, "kind": LIMITS.kind, "name": "limit"}


async def install_limits(checks: Checks) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": LIMITS.plural, "singular": "limit", "kind": LIMITS.kind}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{LIMITS.plural}.{LIMITS.group}"},
        "spec": {
            "group": LIMITS.group,
            "scope": "Cluster",
            "names": {**names, "listKind": "LimitList"},
            "versions": [{"name": "v1", **version}],
        },
    }
    await checks.client.create(kinds.CRDS, definition)
    await checks.until(lambda: checks.world.create(LIMITS, "limit", {"cpu": 2}))


async def listed(checks: Checks) -> None:
    """A Workload that waits for a check with parameters."""
    await checks.admission_check("check", NAME, parameters=REF)
    await checks.is_active("check", "True")
    await checks.queues("check")
    await checks.world.workload("wl")


async def versions(checks: Checks) -> list[str]:
    """The versions of the AdmissionCheck, the ClusterQueue and the Workload."""
    check = await checks.client.get(kinds.ADMISSION_CHECKS, ObjectKey("", "check"))
    queue = await checks.client.get(kinds.CLUSTER_QUEUES, ObjectKey("", "cq"))
    return [one["metadata"]["resourceVersion"] for one in (check, queue, await checks.get("wl"))]


async def at_rest(checks: Checks) -> list[str]:
    """The same, once nothing has changed for a second."""
    last: list[str] = []
    while (found := await versions(checks)) != last:
        last = found
        await asyncio.sleep(1.0)
    return last


async def test_a_restart_takes_no_answer_back(checks: Checks) -> None:
    calls = []

    @check(NAME, parameters=LIMITS)
    async def limited(workload: Workload, parameters: Obj) -> Verdict:
        calls.append(workload.name)
        return Ready("enough", (PodSetUpdate("main", labels={"a": "b"}),))

    @check("example.com/other")
    async def other(workload: Workload, parameters: None) -> Verdict:
        return Pending("never")

    await install_limits(checks)
    async with checks.world.running():
        async with checks.deciding(limited, other):
            await checks.admission_check("check", NAME, parameters=REF)
            await checks.admission_check("other", "example.com/other")
            await checks.is_active("check", "True")
            await checks.queues("check", "other")
            await checks.world.workload("wl")
            await checks.state("wl", "Ready")
        before = await at_rest(checks)
        async with checks.deciding(limited, other):
            await checks.until(lambda: len(calls) == 2)
            await asyncio.sleep(0.3)
        assert await versions(checks) == before
        await checks.world.delete(LIMITS, "limit")
        async with checks.deciding(limited, other):
            await checks.is_active("check", "False", "does not exist")


@pytest.mark.parametrize("refusal", [None, NotFound, Forbidden], ids=["slow", "absent", "denied"])
async def test_nothing_is_written_before_the_parameters_are_known(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, refusal: type[ApiError] | None
) -> None:
    """The next process gets no parameters for a while: it takes nothing back meanwhile."""

    @check(NAME, parameters=LIMITS)
    async def limited(workload: Workload, parameters: Obj) -> Verdict:
        return Ready()

    await install_limits(checks)
    async with checks.world.running():
        async with checks.deciding(limited):
            await listed(checks)
            await checks.state("wl", "Ready")
        (check_before, _, workload_before), asked = await versions(checks), 0
        with monkeypatch.context() as patched:
            for name in ("list", "watch"):
                request = getattr(Client, name)

                async def late(
                    client: Client, resource: Resource, *, _request: Any = request, **more: Any
                ) -> Any:
                    nonlocal asked
                    if resource.kind == LIMITS.kind:
                        asked += 1
                        if refusal is not None:
                            raise refusal("not now")
                        await asyncio.sleep(1.5)
                    return await _request(client, resource, **more)

                patched.setattr(Client, name, late)
            async with checks.deciding(limited):
                await asyncio.sleep(1.5)
                assert asked
                check_now, _, workload_now = await versions(checks)
                assert (check_now, workload_now) == (check_before, workload_before)
                patched.undo()
                await checks.world.patch(LIMITS, "limit", {"spec": {"cpu": 3}})
                await checks.world.workload("next")
                await checks.state("next", "Ready")
        assert (await versions(checks))[0] == check_before


async def test_parameters_that_change_around_a_restart_reach_workloads_that_run(
    checks: Checks,
) -> None:
    @check(NAME, parameters=LIMITS)
    async def limited(workload: Workload, parameters: Obj) -> Verdict:
        return Ready() if parameters["spec"]["cpu"] >= 2 else Retry("too much", after=60)

    await install_limits(checks)
    async with checks.world.running():
        async with checks.deciding(limited):
            await listed(checks)
            await checks.world.is_("wl", "Admitted")
        await checks.world.patch(LIMITS, "limit", {"spec": {"cpu": 1}})
        async with checks.deciding(limited):
            await checks.world.is_("wl", "Evicted")


@pytest.mark.parametrize("changes", ["meanwhile", "later"])
async def test_owned_objects_that_change_after_a_restart_reach_workloads_that_run(
    checks: Checks, changes: str
) -> None:
    seen: list[bool] = []

    def check_with_objects() -> Check:
        owned = OwnedObjects("", ("v1",), "configmaps", "ConfigMap")

        @check(NAME, owned=owned)
        async def machine(workload: Workload, parameters: None) -> Verdict:
            key = ObjectKey(workload.namespace, workload.name)
            broken = any("broken" in (one.get("data") or {}) for one in owned.of(key, workload.uid))
            seen.append(broken)
            return Retry("broken", after=60) if broken else Ready()

        return machine

    async def breaks() -> None:
        workload = await checks.get("wl")
        ref = {"apiVersion": workload["apiVersion"], "kind": "Workload", "controller": True}
        ref |= {field: workload["metadata"][field] for field in ("name", "uid")}
        made = kinds.CONFIG_MAPS.new("m", "default", data={"broken": "yes"})
        made["metadata"]["ownerReferences"] = [ref]
        await checks.client.create(kinds.CONFIG_MAPS, made)

    async with checks.world.running():
        async with checks.deciding(check_with_objects()):
            await checks.admission_check("check", NAME)
            await checks.queues("check")
            await checks.world.workload("wl")
            await checks.world.is_("wl", "Admitted")
        if changes == "meanwhile":
            await breaks()
        seen.clear()
        async with checks.deciding(check_with_objects()):
            await checks.until(lambda: seen)
            if changes == "later":
                await breaks()
            await checks.world.is_("wl", "Evicted")


async def test_a_check_that_the_queue_gets_later_stops_nothing_by_failing(checks: Checks) -> None:
    @check("example.com/first")
    async def first(workload: Workload, parameters: None) -> Verdict:
        return Ready()

    @check(NAME)
    async def failing(workload: Workload, parameters: None) -> Verdict:
        raise RuntimeError("the backend is down")

    async with checks.running(first, failing):
        await checks.admission_check("first", "example.com/first")
        await checks.admission_check("check", NAME)
        await checks.queues("first")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        strategy = {"admissionChecks": [{"name": "first"}, {"name": "check"}]}
        spec = {"spec": {"admissionChecksStrategy": strategy}}
        await checks.world.patch(kinds.CLUSTER_QUEUES, "cq", spec)
        assert "the backend is down" in await checks.event("wl", "AdmissionCheckFailed")
        await asyncio.sleep(0.3)
        assert (await checks.entry("wl"))["state"] == "Pending"
        assert not states.is_evicted(await checks.get("wl"))


async def test_the_last_unit_is_not_given_twice_while_its_owner_is_evicted(checks: Checks) -> None:
    seen: dict[str, list[str]] = {}

    @check(NAME, serialize=lambda workload: 0, interval=0.1)
    async def unit(workload: Workload, parameters: None) -> Verdict:
        owners = seen[workload.name] = [one.name for one in current().passed("default")]
        return Pending("in use") if owners else Ready()

    async with checks.running(unit):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        off = {"spec": {"active": False}}
        key = ObjectKey("default", "wl")
        await checks.client.patch(kinds.WORKLOADS, key, off, PatchType.MERGE)
        await checks.world.is_("wl", "Evicted")
        await checks.world.workload("next")
        await checks.until(lambda: "next" in seen)
        assert seen["next"] == ["wl"]
        await checks.release("wl")
        await checks.world.is_("next", "Admitted")


@pytest.mark.parametrize("ends", ["evicted", "deleted"])
async def test_a_call_ends_at_once_when_its_reservation_does(checks: Checks, ends: str) -> None:
    began: list[str] = []
    ended: list[str] = []

    @check(NAME, timeout=600)
    async def slow(workload: Workload, parameters: Any) -> Verdict:
        began.append(workload.name)
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(workload.name)
        return Ready()

    async with checks.running(slow):
        await checks.admission_check("check", NAME)
        await checks.queues("check")
        await checks.world.workload("wl")
        await checks.until(lambda: began)
        if ends == "evicted":
            hold = {"spec": {"stopPolicy": "Hold"}}
            await checks.world.patch(kinds.CLUSTER_QUEUES, "cq", hold)
        else:
            await checks.world.delete(kinds.WORKLOADS, "wl", "default")
        await checks.until(lambda: ended, "the call goes on")
