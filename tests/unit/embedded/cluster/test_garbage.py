"""Garbage collection and the end of namespaces."""

from __future__ import annotations

import asyncio

from kueuelib.api.kinds import CONFIG_MAPS, CRDS, EVENTS, JOBS, NAMESPACES, PODS
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.embedded.verbs import Propagation


def config_map(name, *owners, namespace="default", **meta):
    refs = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
        }
        | extra
        for o, extra in owners
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": refs, **meta},
    }


async def test_dependents_go_with_their_last_owner(sandbox) -> None:
    first = await sandbox.create(CONFIG_MAPS, config_map("first"))
    second = await sandbox.create(CONFIG_MAPS, config_map("second"))
    await sandbox.create(CONFIG_MAPS, config_map("child", (first, {}), (second, {})))
    await sandbox.delete(CONFIG_MAPS, "first")
    child = await sandbox.get(CONFIG_MAPS, "child")
    assert [ref["name"] for ref in child["metadata"]["ownerReferences"]] == ["second"]
    await sandbox.delete(CONFIG_MAPS, "second")
    assert not await sandbox.exists(CONFIG_MAPS, "child")


async def test_dependents_go_down_the_line(sandbox) -> None:
    owner = await sandbox.create(CONFIG_MAPS, config_map("a"))
    child = await sandbox.create(CONFIG_MAPS, config_map("b", (owner, {})))
    await sandbox.create(CONFIG_MAPS, config_map("c", (child, {})))
    await sandbox.delete(CONFIG_MAPS, "a")
    assert not await sandbox.exists(CONFIG_MAPS, "b")
    assert not await sandbox.exists(CONFIG_MAPS, "c")


async def test_an_object_whose_owner_never_was_is_deleted(sandbox) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await sandbox.create(CONFIG_MAPS, config_map("child", (ghost, {})))
    assert not await sandbox.exists(CONFIG_MAPS, "child")


async def test_an_object_whose_owner_is_of_an_unknown_kind_stays(sandbox) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "no-such-uid"}}
    unknown = {"apiVersion": "example.com/v1", "kind": "Ghost"}
    await sandbox.create(CONFIG_MAPS, config_map("child", (ghost, unknown)))
    assert await sandbox.exists(CONFIG_MAPS, "child")


async def test_a_namesake_of_the_owner_keeps_nobody_alive(sandbox) -> None:
    owner = await sandbox.create(CONFIG_MAPS, config_map("owner"))
    await sandbox.delete(CONFIG_MAPS, "owner")
    await sandbox.create(CONFIG_MAPS, config_map("owner"))
    await sandbox.create(CONFIG_MAPS, config_map("child", (owner, {})))
    assert not await sandbox.exists(CONFIG_MAPS, "child")


async def test_finalizers_hold_a_dependent(sandbox) -> None:
    owner = await sandbox.create(CONFIG_MAPS, config_map("owner"))
    child = config_map("child", (owner, {}), finalizers=["example.com/keep"])
    await sandbox.create(CONFIG_MAPS, child)
    await sandbox.delete(CONFIG_MAPS, "owner")
    held = await sandbox.get(CONFIG_MAPS, "child")
    assert held["metadata"]["deletionTimestamp"]
    await sandbox.patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}})
    assert not await sandbox.exists(CONFIG_MAPS, "child")


async def test_a_cycle_of_owners_goes_in_the_foreground(sandbox) -> None:
    blocking = {"blockOwnerDeletion": True}
    names = ("a", "b", "c")
    made = {name: await sandbox.create(CONFIG_MAPS, config_map(name)) for name in names}
    for name, owner in zip(names, ("b", "c", "a"), strict=True):
        refs = config_map("", (made[owner], blocking))["metadata"]["ownerReferences"]
        await sandbox.patch(CONFIG_MAPS, name, {"metadata": {"ownerReferences": refs}})
    await sandbox.delete(CONFIG_MAPS, "a", Propagation.FOREGROUND)
    assert [name for name in names if await sandbox.exists(CONFIG_MAPS, name)] == []


async def test_a_foreground_deletion_waits_for_blocking_dependents_only(sandbox) -> None:
    owner = await sandbox.create(CONFIG_MAPS, config_map("owner"))
    blocking = {"blockOwnerDeletion": True}
    keep = {"finalizers": ["example.com/keep"]}
    await sandbox.create(CONFIG_MAPS, config_map("blocks", (owner, blocking), **keep))
    await sandbox.create(CONFIG_MAPS, config_map("does-not", (owner, {}), **keep))
    await sandbox.delete(CONFIG_MAPS, "owner", Propagation.FOREGROUND)
    assert await sandbox.exists(CONFIG_MAPS, "owner")
    await sandbox.patch(CONFIG_MAPS, "blocks", {"metadata": {"finalizers": None}})
    assert not await sandbox.exists(CONFIG_MAPS, "blocks")
    assert not await sandbox.exists(CONFIG_MAPS, "owner")
    assert await sandbox.exists(CONFIG_MAPS, "does-not")


async def test_a_namespace_goes_after_its_content(sandbox) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}}
    await sandbox.create(NAMESPACES, namespace)
    job = sandbox.new_job("job")
    job["metadata"]["namespace"] = "doomed"
    await sandbox.create(JOBS, job)
    held = config_map("held", namespace="doomed", finalizers=["example.com/keep"])
    await sandbox.create(CONFIG_MAPS, held)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "event", "namespace": "doomed"},
        "involvedObject": {"kind": "Job", "name": "job", "namespace": "doomed"},
    }
    await sandbox.create(EVENTS, event)
    await sandbox.delete(NAMESPACES, "doomed")
    found = await sandbox.get(NAMESPACES, "doomed")
    assert found["status"]["phase"] == "Terminating"
    assert not await sandbox.exists(JOBS, "job", "doomed")
    await sandbox.pass_time(31)
    assert await sandbox.pods("doomed") == []
    assert await sandbox.exists(NAMESPACES, "doomed")
    held = await sandbox.get(CONFIG_MAPS, "held", "doomed")
    held["metadata"].pop("finalizers")
    await sandbox.service.update(CONFIG_MAPS, held)
    await sandbox.settle()
    assert not await sandbox.exists(NAMESPACES, "doomed")
    assert (await sandbox.service.list(EVENTS, "doomed")).items == ()


async def test_an_empty_namespace_goes_at_once(sandbox) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "empty"}}
    await sandbox.create(NAMESPACES, namespace)
    await sandbox.delete(NAMESPACES, "empty")
    assert not await sandbox.exists(NAMESPACES, "empty")


async def test_what_existed_before_the_start_is_taken_up(sandbox) -> None:
    await sandbox.job(parallelism=2, completions=2, backoffLimit=0)
    first, _ = await sandbox.pods()
    await sandbox.finish(first)
    await sandbox.cluster.close()
    again = sandbox.restarted()
    async with again.cluster:
        await again.settle()
        status = await again.status()
        assert (status["succeeded"], status["active"], status.get("failed")) == (1, 1, None)
        for pod in await again.pods():
            if pod["status"]["phase"] == "Running":
                await again.finish(pod)
        assert (await again.status())["succeeded"] == 2
    assert len((await sandbox.service.list(PODS, "default")).items) == 2


async def test_what_custom_objects_own_goes_with_their_definition(sandbox) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "metadata": {"name": "sweeps.lab.dev"},
        "spec": {
            "group": "lab.dev",
            "scope": "Namespaced",
            "names": {"plural": "sweeps", "kind": "Sweep"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    await sandbox.create(CRDS, definition)
    sweeps = Resource("lab.dev", "v1", "sweeps", "Sweep", namespaced=True)
    sweep = {"apiVersion": "lab.dev/v1", "kind": "Sweep"}
    owner = await sandbox.create(
        sweeps, {**sweep, "metadata": {"name": "s", "namespace": "default"}}
    )
    reference = {**sweep, "name": "s", "uid": owner["metadata"]["uid"]}
    meta = {"name": "owned", "namespace": "default", "ownerReferences": [reference]}
    await sandbox.create(CONFIG_MAPS, {"metadata": meta})
    await sandbox.service.delete(CRDS, ObjectKey("", "sweeps.lab.dev"))
    async with asyncio.timeout(60):
        while await sandbox.exists(CONFIG_MAPS, "owned"):
            await asyncio.sleep(0.01)
