"""What an API server does not finish by itself when everything is removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import ObjectKey, Resource, annotations_of, format_time
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.app.configuration import Configuration
from kueuelib.app.installation import Installation, install
from kueuelib.app.uninstallation import RETRIED, Removal, uninstall
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType

CRD = ObjectKey("", "cohorts.kueue.x-k8s.io")
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "mine-7c9f",
    "uid": "u",
    "controller": True,
}
STUCK = {"type": "Terminating", "status": "True", "reason": "InstanceDeletionFailed"}


async def test_a_kind_whose_removal_is_stuck_is_tried_again(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            installation = Installation("kueue-system")
            await install(client, installation, 60.0)
            held = {"metadata": {"finalizers": ["example.com/held"]}}
            await client.patch(kinds.CRDS, CRD, held, PatchType.MERGE)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                removal = group.create_task(uninstall(client, FORCED, 50.0))
                group.create_task(stick_until_retried(client))
            assert f"customresourcedefinition/{CRD.name} deleted" in removal.result()
            assert not (await client.list(kinds.CRDS)).items


async def stick_until_retried(client: Client) -> None:
    """Plays a kube-apiserver that waits for a change of the definition."""
    stuck = False
    while True:
        obj = await client.get(kinds.CRDS, CRD)
        if RETRIED in annotations_of(obj):
            break
        if obj["metadata"].get("deletionTimestamp") and not stuck:
            old = [one for one in obj["status"]["conditions"] if one["type"] != STUCK["type"]]
            status = {"status": {"conditions": [*old, STUCK]}}
            await client.patch(kinds.CRDS, CRD, status, PatchType.MERGE, subresource="status")
            stuck = True
    await client.patch(kinds.CRDS, CRD, {"metadata": {"finalizers": None}}, PatchType.MERGE)


async def test_the_secret_of_another_name_is_removed_even_after_a_stop(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            await install(client, Installation("kueue-system", secret="our-certificate"), 60.0)
            secret = ObjectKey("kueue-system", "our-certificate")
            assert await read(client, kinds.SECRETS, secret)
            told = await uninstall(client, Removal(Installation("kueue-system")), 50.0)
            assert await read(client, kinds.SECRETS, secret) is None
    gone = told.index("secret/our-certificate deleted")
    assert gone < told.index("role/kueue-certificates-role deleted"), "which names the Secret"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            await install(client, Installation("kueue-system"), 60.0)
            yield client


async def lead(client: Client, holder: str, seconds: int = 15) -> None:
    """Renews the Lease, which may not exist yet."""
    lease = Configuration().lease
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "renewTime": f"{format_time(time.time())[:-1]}.{time.time_ns() // 1000 % 10**6:06}Z",
    }
    if await read(client, kinds.LEASES, lease) is None:
        meta = {"name": lease.name, "namespace": lease.namespace}
        kind = {"apiVersion": kinds.LEASES.api_version, "kind": "Lease"}
        await client.create(kinds.LEASES, {**kind, "metadata": meta, "spec": spec})
    else:
        await client.patch(kinds.LEASES, lease, {"spec": spec}, PatchType.MERGE)


FORCED = Removal(Installation("kueue-system"), force=True)


async def test_not_even_force_removes_anything_below_a_manager_that_leads(client: Client) -> None:
    await lead(client, "desk_1")

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.1)
            await lead(client, "desk_1")

    async with asyncio.TaskGroup() as group:
        leader = group.create_task(renew())
        with pytest.raises(ConfigError, match="manager desk_1 leads, and would stop") as it:
            await uninstall(client, FORCED, 60.0)
        assert it.value.fix.startswith("stop its process on desk, and try again; if it no longer")
        assert it.value.fix.endswith("-n kueue-system delete lease c1f6bfd2.kueue.x-k8s.io")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "desk", "namespace": "team", "ownerReferences": [OWNER]},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await client.create(kinds.NAMESPACES, space)
        await client.create(kinds.PODS, pod)
        with pytest.raises(ConfigError) as it:
            await uninstall(client, FORCED, 60.0)
        command = "kubectl -n team scale deployment mine --replicas=0"
        assert it.value.fix.startswith(f"end it with {command}, and try again; ")
        leader.cancel()
    assert (await client.list(kinds.VALIDATING_WEBHOOKS)).items
    assert (await client.list(kinds.CRDS)).items


async def test_another_namespace_neither_takes_over_nor_removes_what_a_manager_uses(
    client: Client,
) -> None:
    other = Installation("staging", webhook_url="https://127.0.0.1:9443")
    await client.create(kinds.NAMESPACES, kinds.NAMESPACES.new("staging"))
    await lead(client, "desk_1", 600)
    with pytest.raises(ConfigError, match="leads from namespace 'kueue-system', and a cluster"):
        await install(client, other, 60.0)
    with pytest.raises(ConfigError, match="manager desk_1 leads from namespace 'kueue-system'"):
        await uninstall(client, Removal(other), 60.0)
    lease = Configuration("kueue-system").lease
    await client.delete(kinds.LEASES, lease)
    with pytest.raises(ConfigError, match="its roles are those of 'kueue-system'") as it:
        await uninstall(client, Removal(other), 60.0)
    assert it.value.fix == "give --namespace kueue-system"
    assert (await client.list(kinds.CRDS)).items
    await install(client, other, 60.0)  # nobody leads: the installation moves


@pytest.mark.parametrize(
    ("holder", "seconds"), [("desk_1", 1), ("", 600), ("kueue-controller-manager-1_1", 600)]
)
async def test_a_manager_that_has_ended_or_is_removed_too_stops_nothing(
    client: Client, holder: str, seconds: int
) -> None:
    """One that has crashed holds the Lease for some seconds more."""
    await lead(client, holder, seconds)
    await uninstall(client, FORCED, 60.0)
    assert not (await client.list(kinds.CRDS)).items


HOLD = "velero.io/backup-hold"


async def hold(client: Client) -> None:
    """Another program keeps a flavor."""
    flavor = {
        "apiVersion": kinds.RESOURCE_FLAVORS.api_version,
        "kind": "ResourceFlavor",
        "metadata": {"name": "f", "finalizers": [HOLD, "kueue.x-k8s.io/resource-in-use"]},
        "spec": {},
    }
    for resource in (kinds.VALIDATING_WEBHOOKS, kinds.MUTATING_WEBHOOKS):
        for one in (await client.list(resource)).items:  # no manager answers
            await client.delete(resource, ObjectKey("", one["metadata"]["name"]))
    await client.create(kinds.RESOURCE_FLAVORS, flavor)


async def test_objects_that_another_program_keeps_are_named_before_anything_is_removed(
    client: Client,
) -> None:
    await hold(client)
    with pytest.raises(ConfigError, match=r"resourceflavor f \(velero\.io/backup-hold\)") as it:
        await uninstall(client, Removal(Installation("kueue-system")), 60.0)
    assert "kubectl patch resourceflavor f --type=json -p '[" in it.value.fix
    assert len((await client.list(kinds.CRDS)).items) == len(all_crds())
    assert not (await client.list_all(kinds.CRDS).__anext__())["metadata"].get("deletionTimestamp")
    keeping = Removal(Installation("kueue-system"), keep_kinds=True)
    assert await uninstall(client, keeping, 60.0), "which the flavor does not hinder"


async def test_what_keeps_a_kind_is_named_after_a_forced_uninstallation(client: Client) -> None:
    await hold(client)
    with pytest.raises(ConfigError, match="keep these objects") as it:
        await uninstall(client, FORCED, 1.0)
    assert it.value.subject == "resourceflavors.kueue.x-k8s.io"
    assert "resourceflavor f (velero.io/backup-hold)" in it.value.problem
    assert it.value.fix.endswith("; then try again")
    free = {"metadata": {"finalizers": None}}
    await client.patch(kinds.RESOURCE_FLAVORS, ObjectKey("", "f"), free, PatchType.MERGE)
    await uninstall(client, FORCED, 60.0)
    assert not (await client.list(kinds.CRDS)).items


async def test_the_account_loses_its_rights_before_the_workloads_go(client: Client) -> None:
    """A manager without leader election is recognized only at the address of the webhooks."""
    told = await uninstall(client, FORCED, 60.0)
    first = min(number for number, line in enumerate(told) if line.startswith("customresourcedef"))
    for name in ("kueue-manager-rolebinding", "kueue-jobs-rolebinding"):
        assert told.index(f"clusterrolebinding/{name} deleted") < first


async def freeze(client: Client, name: str, group: str, *resources: str) -> None:
    """A dead webhook refuses that anything of some kinds is changed or removed."""
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["UPDATE", "DELETE"],
        "resources": [*resources],
    }
    hook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": kinds.VALIDATING_WEBHOOKS.api_version, "kind": VALIDATING}
    body = {**kind, "metadata": {"name": name}, "webhooks": [hook]}
    await client.create(kinds.VALIDATING_WEBHOOKS, body)


VALIDATING = kinds.VALIDATING_WEBHOOKS.kind


async def test_what_would_be_refused_is_said_before_anything_is_removed(client: Client) -> None:
    """Also of objects that are changed last, and not what only our own webhooks refuse."""
    group = {"apiVersion": kinds.CLUSTER_QUEUES.api_version, "kind": "ClusterQueue"}
    queue = {**group, "metadata": {"name": "cq", "finalizers": [IN_USE_FINALIZER]}, "spec": {}}
    kept = []
    for resource in (kinds.VALIDATING_WEBHOOKS, kinds.MUTATING_WEBHOOKS):
        for one in (await client.list(resource)).items:  # no manager answers
            await client.delete(resource, ObjectKey("", one["metadata"]["name"]))
            meta = {"name": one["metadata"]["name"]}
            kept.append((resource, {**one, "metadata": meta}))
    await client.create(kinds.CLUSTER_QUEUES, queue)
    for resource, one in kept:
        await client.create(resource, one)
    await freeze(client, "roles", "rbac.authorization.k8s.io", "clusterroles")
    await freeze(client, "queues", "kueue.x-k8s.io", "*")
    before = await stored(client)
    removal = Removal(Installation("kueue-system"))
    with pytest.raises(ConfigError) as it:
        await uninstall(client, removal, 60.0)
    assert await stored(client) == before
    assert it.value.problem.startswith("the API server would refuse to remove ")
    assert it.value.problem.endswith("; nothing was changed")
    assert "clusterrole/kueue-batch-admin-role, clusterrole/" in it.value.problem
    assert "; finalizer of clusterqueue cq: " in it.value.problem
    for name in ("roles", "queues"):
        assert f"kubectl delete validatingwebhookconfiguration {name} " in it.value.fix
    for name in ("roles", "queues"):
        await client.delete(kinds.VALIDATING_WEBHOOKS, ObjectKey("", name))
    assert await uninstall(client, removal, 60.0)
    assert not (await client.list(kinds.CRDS)).items


async def stored(client: Client) -> list[tuple[str, str, str]]:
    """Everything that a removal may change, with its version."""
    every = (
        kinds.CRDS,
        kinds.CLUSTER_QUEUES,
        kinds.VALIDATING_WEBHOOKS,
        kinds.SECRETS,
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    )
    return [
        (resource.kind, one["metadata"]["name"], one["metadata"]["resourceVersion"])
        for resource in every
        async for one in client.list_all(resource)
    ]
