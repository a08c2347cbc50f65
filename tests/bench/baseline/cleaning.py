"""Takes the objects of a run away again, from a server that stays."""

from __future__ import annotations

import asyncio

from kueuelib.api.kinds import (
    CLUSTER_QUEUES,
    CRDS,
    LOCAL_QUEUES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
)
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.errors import NotFound
from kueuelib.runtime.queries import PatchType

from .calls import CountedClient
from .shape import FLAVOR, TOPOLOGY, Shape

GONE_SECONDS = 120.0
OWN_CONFIGURATIONS = "kueue-"
HEARD_SECONDS = 2.0
"""Seconds until a server has surely heard of a change of webhooks."""


async def remove_all(client: CountedClient, shape: Shape) -> None:
    """Delete what `Shape` describes, and wait until the queues and the flavor are gone."""
    for place in shape.places():
        await client.client.delete_collection(WORKLOADS, place.name)
        await _delete(client, LOCAL_QUEUES, ObjectKey(place.name, place.name))
        await _delete(client, CLUSTER_QUEUES, ObjectKey("", place.name))
        await _delete(client, NAMESPACES, ObjectKey("", place.name))
    await _delete(client, RESOURCE_FLAVORS, ObjectKey("", FLAVOR))
    await _delete(client, TOPOLOGIES, ObjectKey("", TOPOLOGY))
    for node in shape.nodes():
        await _delete(client, NODES, ObjectKey("", node["metadata"]["name"]))
    names = {place.name for place in shape.places()}
    async with asyncio.timeout(GONE_SECONDS):
        for resource, own in ((CLUSTER_QUEUES, names), (RESOURCE_FLAVORS, {FLAVOR})):
            while own & await _names(client, resource):
                await asyncio.sleep(0.2)


async def remove_webhooks(client: CountedClient) -> None:
    """Delete the webhooks of kueuelib, and wait until the server no longer calls them.

    That includes conversion: kube-apiserver keeps a cache per served version, and asks for the
    other version of every object that changes.
    """
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for name in sorted(await _names(client, resource)):
            if name.startswith(OWN_CONFIGURATIONS):
                await _delete(client, resource, ObjectKey("", name))
    for crd in (await client.client.list(CRDS)).items:
        if crd["spec"].get("conversion", {}).get("strategy") == "Webhook":
            patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
            key = ObjectKey("", crd["metadata"]["name"])
            await client.client.patch(CRDS, key, patch, PatchType.MERGE)
    await asyncio.sleep(HEARD_SECONDS)


async def _names(client: CountedClient, resource: Resource) -> set[str]:
    return {each["metadata"]["name"] for each in (await client.client.list(resource)).items}


async def _delete(client: CountedClient, resource: Resource, key: ObjectKey) -> None:
    try:
        await client.client.delete(resource, key)
    except NotFound:
        return
