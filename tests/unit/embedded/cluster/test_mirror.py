"""Local copies of the server's objects."""

from __future__ import annotations

import asyncio
import contextlib
import copy

import pytest

from kueuelib.api.kinds import CONFIG_MAPS, CRDS
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.embedded.cluster.kinds import Mirror, without_ended_specs, without_ended_templates
from kueuelib.machinery.store import DeltaKind

KEY = ObjectKey("default", "a")
THINGS = Resource("example.com", "v1", "things", "Thing", namespaced=True)


def config_map(name="a", **meta):
    meta = {"name": name, "namespace": "default", **meta}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


@pytest.fixture
async def mirror(sandbox):
    mirror = Mirror(sandbox.service, CONFIG_MAPS)
    task = asyncio.create_task(mirror.run())
    await mirror.synced.wait()
    yield mirror
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_mirror_holds_what_is_there_and_follows(sandbox, mirror) -> None:
    seen = []
    mirror.add_handler(lambda delta: seen.append((delta.kind, delta.key.name)))
    await sandbox.create(CONFIG_MAPS, config_map())
    await sandbox.patch(CONFIG_MAPS, "a", {"data": {"x": "y"}})
    assert mirror.get(KEY)["data"] == {"x": "y"}
    await sandbox.delete(CONFIG_MAPS, "a")
    assert mirror.get(KEY) is None
    kinds = [DeltaKind.ADDED, DeltaKind.UPDATED, DeltaKind.DELETED]
    assert seen == [(kind, "a") for kind in kinds]


async def test_own_writes_are_seen_at_once_and_told_once(sandbox, mirror) -> None:
    seen = []
    mirror.add_handler(lambda delta: seen.append(delta.kind))
    written = await sandbox.service.create(CONFIG_MAPS, config_map())
    mirror.written(written)
    assert mirror.get(KEY) is not None
    await sandbox.settle()
    assert seen == [DeltaKind.ADDED]


async def test_an_own_write_that_the_watch_has_overtaken_is_ignored(sandbox, mirror) -> None:
    written = await sandbox.create(CONFIG_MAPS, config_map())
    await sandbox.delete(CONFIG_MAPS, "a")
    mirror.written(written)
    assert mirror.get(KEY) is None


async def test_an_old_event_does_not_undo_an_own_write(sandbox, mirror) -> None:
    created = await sandbox.service.create(CONFIG_MAPS, config_map())
    changed = await sandbox.service.update(CONFIG_MAPS, {**created, "data": {"x": "y"}})
    mirror.written(changed)
    seen = []
    mirror.add_handler(lambda delta: seen.append(delta.new["data"]))
    await sandbox.settle()
    assert seen == [{"x": "y"}]


async def test_custom_resources_are_collected_from_the_moment_of_their_definition(sandbox) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [version],
        },
    }
    await sandbox.create(CRDS, crd)
    await asyncio.sleep(0)
    await sandbox.settle()
    owner = await sandbox.create(CONFIG_MAPS, config_map())
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner["metadata"]["uid"]}
    meta = {"name": "thing", "namespace": "default", "ownerReferences": [ref]}
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta}
    thing = await sandbox.create(THINGS, thing)
    ref = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "thing"}
    child = config_map("child", ownerReferences=[{**ref, "uid": thing["metadata"]["uid"]}])
    await sandbox.create(CONFIG_MAPS, child)
    await sandbox.delete(CONFIG_MAPS, "a")
    assert not await sandbox.exists(THINGS, "thing")
    assert not await sandbox.exists(CONFIG_MAPS, "child")


def test_of_a_pod_that_has_ended_little_is_kept() -> None:
    spec = {"nodeName": "n", "containers": [{"name": "c"}]}
    running = {"metadata": {}, "spec": spec, "status": {"phase": "Running"}}
    assert without_ended_specs(copy.deepcopy(running)) == running
    ended = {"metadata": {"managedFields": [{}], "uid": "u"}, "spec": spec}
    ended["status"] = {"phase": "Succeeded", "conditions": [{}], "reason": "r"}
    assert without_ended_specs(ended) == {
        "metadata": {"uid": "u"},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Succeeded", "reason": "r"},
    }


def test_of_a_job_that_is_over_the_template_is_not_kept() -> None:
    job = {"metadata": {"uid": "u"}, "spec": {"suspend": False, "template": {"spec": {}}}}
    assert without_ended_templates(copy.deepcopy(job)) == job
    over = {**job, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    assert without_ended_templates(copy.deepcopy(over))["spec"] == {"suspend": False}
