"""Defaulting, validation and conversion of the queueing objects, asked for by an API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.kinds import V1BETA1
from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.controllers.webhooks import (
    by_url,
    queueing_entries,
    serve,
    webhook_configurations,
    with_conversion,
)
from kueuelib.errors import ApiError
from kueuelib.runtime.certificates import host_names, load, renewed, server_context
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.webhook.server import WebhookServer
from kueuelib.runtime.webhook.trust import with_bundle

if TYPE_CHECKING:
    from .conftest import World


@contextlib.asynccontextmanager
async def webhooks(world: World) -> AsyncIterator[None]:
    """Serves the webhooks and makes the API server ask them."""
    made = renewed(None, host_names(["127.0.0.1"]), 1_790_000_000.0)
    context = server_context()
    load(context, made)
    server = WebhookServer("127.0.0.1", 0, context)
    serve(server)
    started = asyncio.Event()
    task = asyncio.create_task(server.run(started.set))
    try:
        await started.wait()
        config = by_url(f"https://127.0.0.1:{server.port}")
        for crd in all_crds():
            wanted = with_bundle(with_conversion(crd, config), made.ca_cert)
            body = {"spec": {"conversion": wanted["spec"]["conversion"]}}
            name = ObjectKey("", crd["metadata"]["name"])
            await world.client.patch(kinds.CRDS, name, body, PatchType.MERGE)
        mutating, validating = webhook_configurations(queueing_entries(), config)
        for resource, obj in (
            (kinds.MUTATING_WEBHOOKS, mutating),
            (kinds.VALIDATING_WEBHOOKS, validating),
        ):
            await world.client.create(resource, with_bundle(obj, made.ca_cert))
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_objects_are_defaulted_and_denied(world: World) -> None:
    async with webhooks(world):
        await world.cluster_queue()
        found = await world.get(kinds.CLUSTER_QUEUES, "cq")
        assert found["metadata"]["finalizers"] == [IN_USE_FINALIZER]
        row = {"name": "cpu", "nominalQuota": "1", "lendingLimit": "2"}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [row]}]}
        with pytest.raises(ApiError, match=r"lendingLimit.*must be less than") as denied:
            await world.cluster_queue("other", cohortName="all", resourceGroups=[group])
        assert denied.value.code == 403
        await world.local_queue()
        with pytest.raises(ApiError, match=r"spec\.clusterQueue"):
            await world.patch(
                kinds.LOCAL_QUEUES, "main", {"spec": {"clusterQueue": "b"}}, "default"
            )


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_cohort_is_denied_with_the_field_and_the_fix(world: World, version: str) -> None:
    cohorts = kinds.COHORTS.at(version)
    async with webhooks(world):
        row = {"name": "cpu", "nominalQuota": "1", "lendingLimit": "2"}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [row]}]}
        good = {"parentName": "top", "resourceGroups": [group], "fairSharing": {"weight": "0"}}
        await world.create(cohorts, "team", good)
        with pytest.raises(ApiError) as denied:
            await world.patch(cohorts, "team", {"spec": {"parentName": None}})
        assert denied.value.code == 422
        assert "spec.resourceGroups: " in str(denied.value)
        assert "lendingLimit need a parent: set parentName" in str(denied.value)
        with pytest.raises(ApiError, match="must be 0 or greater than 1n"):
            await world.create(cohorts, "other", {"fairSharing": {"weight": "1n"}})


async def test_an_admission_is_accepted_and_its_change_is_denied(world: World) -> None:
    async with webhooks(world), world.running():
        await world.queues()
        await world.workload("wl")
        await world.is_("wl", "Admitted")
        body = {"status": {"admission": {"clusterQueue": "other"}}}
        with pytest.raises(ApiError, match=r"status\.admission"):
            await world.patch(kinds.WORKLOADS, "wl", body, "default", "status")


async def test_a_manager_may_speak_the_old_version(world: World) -> None:
    async with webhooks(world), world.running(version=V1BETA1):
        await world.queues(cpu="1", cohortName="cohort")
        await world.workload("first")
        await world.is_("first", "Admitted")
        await world.workload("second")
        await world.is_("second", "QuotaReserved", "False")

        async def counted() -> bool:
            old = await world.get(kinds.LOCAL_QUEUES.at(V1BETA1), "main", "default")
            new = await world.get(kinds.LOCAL_QUEUES, "main", "default")
            assert old["status"]["flavorUsage"] == new["status"]["flavorsUsage"]
            (row,) = new["status"]["flavorsUsage"]
            assert row["resources"] == [{"name": "cpu", "total": "1"}]
            return bool(new["status"]["pendingWorkloads"] == 1)

        await world.until(counted)
        queue = await world.get(kinds.CLUSTER_QUEUES.at(V1BETA1), "cq")
        assert queue["spec"]["cohort"] == "cohort"
