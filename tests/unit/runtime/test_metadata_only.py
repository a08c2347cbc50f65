"""Informers of metadata only, on an API server of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kueuelib.machinery.options import ReflectorOptions
from kueuelib.runtime import (
    Cache,
    Client,
    Informer,
    KubeObject,
    ObjectKey,
    PatchType,
    crd,
    frozen,
    kinds,
)
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport
from kueuelib.testing import eventually

A, B = ObjectKey("default", "a"), ObjectKey("default", "b")


@asynccontextmanager
async def following(client: Client, **options: Any) -> AsyncIterator[tuple[Cache, Informer]]:
    cache = Cache(client, options=options.pop("options", None))
    informer = cache.informer(kinds.CONFIG_MAPS, namespace="default", metadata_only=True, **options)
    task = asyncio.create_task(cache.run(lambda: None))
    try:
        await informer.wait_synced(30)
        yield cache, informer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def create(client: Client, name: str, **data: str) -> Any:
    return await client.create(kinds.CONFIG_MAPS, kinds.CONFIG_MAPS.new(name, "default", data=data))


@pytest.mark.parametrize("stream_lists", [True, False])
async def test_only_metadata_is_read_and_kept(kube_client: Client, stream_lists: bool) -> None:
    await create(kube_client, "a", text="secret")
    options = ReflectorOptions(stream_lists=stream_lists)
    async with following(kube_client, options=options) as (_, informer):
        listed = informer.store.get(A)
        assert listed is not None
        assert set(listed) == {"apiVersion", "kind", "metadata"}
        assert (listed["apiVersion"], listed["kind"]) == ("v1", "ConfigMap")
        assert "managedFields" not in listed["metadata"]
        await create(kube_client, "b", text="secret")
        watched = await eventually(lambda: informer.store.get(B))
        assert set(watched) == {"apiVersion", "kind", "metadata"}
        assert watched["kind"] == "ConfigMap"
        await kube_client.delete(kinds.CONFIG_MAPS, A)
        await eventually(lambda: informer.store.get(A) is None)


async def test_answers_are_learned_and_reduced(kube_client: Client) -> None:
    await create(kube_client, "a", text="old")
    async with following(kube_client) as (cache, informer):
        patch = {"metadata": {"labels": {"x": "y"}}, "data": {"text": "new"}}
        answer = await kube_client.patch(kinds.CONFIG_MAPS, A, patch, PatchType.MERGE)
        cache.learn(answer)
        held = informer.store.get(A)
        assert held is not None
        assert held["metadata"]["labels"] == {"x": "y"}
        assert "data" not in held
        assert answer["data"] == {"text": "new"}
        assert "data" in (await informer.refresh(A) or {})
        assert "data" not in (informer.store.get(A) or {"data": ""})


async def test_catching_up_reads_metadata(kube_client: Client) -> None:
    async with following(kube_client) as (cache, informer):
        await create(kube_client, "a", text="x")
        await cache.catch_up()
        held = informer.store.get(A)
        assert held is not None
        assert set(held) == {"apiVersion", "kind", "metadata"}


async def test_whole_objects_and_metadata_live_side_by_side(kube_client: Client) -> None:
    cache = Cache(kube_client)
    whole, bare = (
        cache.informer(kinds.CONFIG_MAPS, metadata_only=metadata_only)
        for metadata_only in (False, True)
    )
    assert whole is not bare
    assert cache.informer(kinds.CONFIG_MAPS, metadata_only=True) is bare


async def test_a_transform_sees_what_is_left(kube_client: Client) -> None:
    await create(kube_client, "a", text="x")
    seen = []

    def names(obj: Any) -> Any:
        seen.append(set(obj))
        return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "labels"}}

    async with following(kube_client, transform=names):
        pass
    assert seen
    assert all(each == {"apiVersion", "kind", "metadata"} for each in seen)


def test_a_class_cannot_be_filled_with_metadata() -> None:
    @crd("example.com", "v1", plural="boxes")
    @frozen
    class Box(KubeObject):
        """A thing."""

    client = Client(Transport(Endpoint("http://127.0.0.1:1")))
    with pytest.raises(ValueError, match="metadata alone is not a Box"):
        Cache(client).informer(Box, metadata_only=True)  # type: ignore[call-overload]


async def test_a_server_that_cannot_reduce_sends_whole_objects(serve: Any) -> None:
    accepted = []
    meta = {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "5"}

    async def answer(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept"])
        item = {"metadata": dict(meta), "data": {"text": "x"}}
        head = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}}
        if "watch" in request.query:
            await asyncio.sleep(30)
        return web.json_response({**head, "items": [item]})

    async with Client(Transport(Endpoint(await serve(answer)))) as client:
        options = ReflectorOptions(stream_lists=False)
        async with following(client, options=options) as (_, informer):
            held = informer.store.get(A)
            assert held is not None
            assert set(held) == {"apiVersion", "kind", "metadata"}
    assert accepted[0].startswith("application/json;as=PartialObjectMetadataList;g=meta.k8s.io")
    assert accepted[0].endswith(",application/json")
