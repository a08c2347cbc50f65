"""The configuration that commands find in the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import CONFIG_MAPS, CRDS, LEASES, NAMESPACES
from kueuelib.api.meta import ObjectKey, Resource, format_time
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP, Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.running_configuration import (
    DECISIVE,
    OTHERWISE,
    PUBLISHED,
    AssumedConfiguration,
    published,
    running_configuration,
)
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import Forbidden, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import server_time

PODS_READY = {"waitForPodsReady": {"enable": True, "blockAdmission": True}}
FAIR = {"fairSharing": {"enable": True, "preemptionStrategies": ["LessThanInitialShare"]}}
NAMESPACE = "kueue-system"
DEFAULT = Configuration()


def configuration(**content: Any) -> Configuration:
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration"}
    return parse_configuration({**head, **content}, "test")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ApiServer() as server, server.client() as found:
        meta = {"name": NAMESPACE}
        await found.create(NAMESPACES, {"metadata": meta})
        yield found


async def mount(client: Client, text: str) -> None:
    meta = {"name": CONFIG_MAP, "namespace": NAMESPACE}
    await client.create(CONFIG_MAPS, {"metadata": meta, "data": {CONFIG_FILE: text}})


async def lead(client: Client, holder: str, note: str) -> None:
    lease, annotations = DEFAULT.lease, {PUBLISHED: note}
    meta = {"name": lease.name, "namespace": lease.namespace, "annotations": annotations}
    await client.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": holder}})


def unled(why: str) -> str:
    lease = f"no manager holds the Lease {DEFAULT.lease}, {why}, so nothing is queued or admitted"
    return f"{lease} {OTHERWISE}; see kueuelib doctor"


def mounted(**content: Any) -> str:
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration"}
    return yaml.safe_dump({**head, **content})


async def test_a_cluster_that_says_nothing_has_the_default_one(client: Client) -> None:
    expected = AssumedConfiguration(DEFAULT, leaderless=(unled("which does not exist"),))
    assert await running_configuration(client) == expected


async def test_what_the_user_gave_is_used(client: Client) -> None:
    await mount(client, mounted(**PODS_READY))
    given = configuration(**FAIR)
    expected = AssumedConfiguration(given, leaderless=(unled("which does not exist"),))
    assert await running_configuration(client, given) == expected
    given = configuration(**FAIR, leaderElection={"leaderElect": False})
    assert await running_configuration(client, given) == AssumedConfiguration(given)


async def test_the_configmap_of_an_installation_is_read(client: Client) -> None:
    await mount(client, mounted(**PODS_READY))
    found = await running_configuration(client)
    assert found.configuration == configuration(**PODS_READY)
    assert found.notes == (
        "decided by the manager's configuration, from ConfigMap kueue-system/kueue-manager-config",
    )


@pytest.mark.parametrize("text", ["a: [", "- 1", mounted(unknown=1), mounted(multiKueue={})])
async def test_a_configmap_that_is_not_valid_is_named(client: Client, text: str) -> None:
    await mount(client, text)
    found = await running_configuration(client)
    assert found.configuration == DEFAULT
    (note,) = found.notes
    assert "ConfigMap kueue-system/kueue-manager-config" in note
    assert "with --config" in note


@pytest.mark.parametrize("holder", ["me", ""])
async def test_what_the_leader_published_comes_first(client: Client, holder: str) -> None:
    await mount(client, mounted(**PODS_READY, clientConnection={"qps": 7}))
    await lead(client, holder, published(configuration(**FAIR), "me"))
    found = await running_configuration(client)
    assert found.configuration.wait_for_pods_ready is None
    assert found.configuration.fair_sharing == configuration(**FAIR).fair_sharing
    assert found.configuration.client_connection.qps == 7
    assert "from Lease kueue-system/" in found.notes[0]


async def test_what_another_leader_left_is_not_read(client: Client) -> None:
    await mount(client, mounted(**PODS_READY))
    await lead(client, "of the go manager", published(configuration(**FAIR), "me"))
    assert (await running_configuration(client)).configuration == configuration(**PODS_READY)


@pytest.mark.parametrize("note", ["{", "[]", '{"holder": "me", "configuration": {"x": 1}}'])
async def test_an_annotation_that_is_not_valid_is_named(client: Client, note: str) -> None:
    await lead(client, "me", note)
    found = await running_configuration(client)
    assert found.configuration == DEFAULT
    assert "Lease kueue-system/" in found.notes[0]


async def test_who_may_read_neither_is_told_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(resource: Resource, key: ObjectKey, **_: Any) -> Any:
        raise Forbidden(f"{resource.plural} {key} is forbidden")

    monkeypatch.setattr(client, "get", forbidden)
    found = await running_configuration(client)
    assert found.configuration == DEFAULT
    assert "forbidden" in found.notes[0]
    assert "the default one is assumed" in found.notes[0]


async def test_who_may_read_the_lease_only_needs_no_more(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(client, "me", published(configuration(**PODS_READY), "me"))
    get = client.get

    async def limited(resource: Resource, key: ObjectKey, **options: Any) -> Any:
        if resource is not LEASES:
            raise Forbidden("no")
        return await get(resource, key, **options)

    monkeypatch.setattr(client, "get", limited)
    found = await running_configuration(client)
    assert found.configuration == configuration(**PODS_READY)


async def test_a_policy_that_is_not_installed_here_is_left_out(client: Client) -> None:
    policy = {"policy": "example.com/mine", "parameters": {"a": 1}, "parallelPreemptors": False}
    await mount(client, mounted(preemption=policy))
    found = await running_configuration(client)
    assert found.configuration == configuration(preemption={"parallelPreemptors": False})


@pytest.mark.parametrize(
    "content",
    [
        {},
        PODS_READY,
        FAIR,
        {"manageJobsWithoutQueueName": True, "quotaReleaseStrategy": "OnTerminal"},
        {"featureGates": {"PartialAdmission": False}, "leaderElection": {"leaderElect": False}},
        {"resources": {"excludeResourcePrefixes": ["example.com/"]}},
        {"integrations": {"frameworks": ["pod"], "podOptions": {"podSelector": {}}}},
        {"integrations": {"podOptions": {"podSelector": {"matchLabels": {"a": "b"}}}}},
    ],
)
async def test_what_is_published_is_what_decides(client: Client, content: dict[str, Any]) -> None:
    wanted = configuration(**content, clientConnection={"qps": 7})
    await lead(client, "me", published(wanted, "me"))
    found = (await running_configuration(client)).configuration
    for name in DECISIVE:
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.client_connection == DEFAULT.client_connection


@pytest.mark.parametrize(
    ("holder", "ago", "lasts", "expected"),
    [
        ("me", 5, 15, ""),
        ("me", 20, 15, "me renewed it 20s ago"),
        ("ghost", 78, 86400, "ghost renewed it 78s ago"),
        ("", 5, 15, ""),
        ("", 20, 15, "the last one has left"),
    ],
)
async def test_a_lease_that_nobody_renews_is_told_at_once(
    client: Client,
    holder: str,
    ago: float,
    lasts: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = await server_time(client)
    renewed = format_time(now - ago).replace("Z", ".000000Z")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": lasts, "renewTime": renewed}
    meta = {"name": DEFAULT.lease.name, "namespace": DEFAULT.lease.namespace}
    written = {"time": format_time(now - ago), "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    lease = {"metadata": {**meta, "managedFields": [written]}, "spec": spec}

    async def get(resource: Resource, key: ObjectKey, **_: Any) -> Any:
        if resource is LEASES:
            return lease
        raise NotFound(str(key))

    client.get = get  # type: ignore[method-assign]
    monkeypatch.setattr("kueuelib.app.running_configuration.server_time", stopped(now))
    found = await running_configuration(client)
    told = (unled(expected),) if expected else ()
    assert (found.configuration, found.leaderless) == (DEFAULT, told)


def stopped(now: float) -> Any:
    async def at_a_moment(_: Client) -> float:
        return now

    return at_a_moment


async def test_kinds_that_are_being_deleted_are_named(client: Client) -> None:
    crd = next(one for one in all_crds() if one["metadata"]["name"].startswith("workloads."))
    crd = {**crd, "metadata": {**crd["metadata"], "finalizers": ["velero.io/hold"]}}
    await client.create(CRDS, crd)
    assert (await running_configuration(client)).ending == ()
    await client.delete(CRDS, ObjectKey("", crd["metadata"]["name"]))
    (note,) = (await running_configuration(client)).ending
    assert note == (
        "these kinds are being deleted with all objects, of which some may be gone already: "
        "workloads; see kueuelib doctor"
    )
