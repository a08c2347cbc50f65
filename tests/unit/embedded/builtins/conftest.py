from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kueuelib.api.kinds import JOBS, LIMIT_RANGES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from kueuelib.api.meta import Obj, Resource
from kueuelib.embedded.server import new_service
from kueuelib.embedded.service import ApiService
from kueuelib.errors import ApiError


class NoHooks:
    """Webhooks of a server that has none."""

    async def call(self, *_: object) -> Any:
        raise AssertionError("there are no webhooks")


class Writer:
    """Short words for writes to a server without a cluster."""

    def __init__(self, service: ApiService) -> None:
        self.service = service

    async def pod(self, name: str = "p", **spec: Any) -> Obj:
        return await self.service.create(PODS, new_pod(name, **spec))

    async def job(self, name: str = "j", **spec: Any) -> Obj:
        return await self.service.create(JOBS, new_job(name, **spec))

    async def limits(self, *items: Obj) -> Obj:
        obj = obj_of(LIMIT_RANGES, "limits")
        return await self.service.create(LIMIT_RANGES, {**obj, "spec": {"limits": list(items)}})

    async def priority_class(self, name: str, value: int, **fields: Any) -> Obj:
        obj = {**obj_of(PRIORITY_CLASSES, name), "value": value, **fields}
        return await self.service.create(PRIORITY_CLASSES, obj)

    async def namespace(self, name: str, **fields: Any) -> Obj:
        return await self.service.create(NAMESPACES, {**obj_of(NAMESPACES, name), **fields})

    async def node(self, name: str, **fields: Any) -> Obj:
        return await self.service.create(NODES, {**obj_of(NODES, name), **fields})

    async def change(
        self, resource: Resource, obj: Obj, edit: Callable[[Obj], None], subresource: str = ""
    ) -> Obj:
        edit(obj)
        return await self.service.update(resource, obj, subresource=subresource)

    async def refusal(self, writing: Any) -> str:
        """The message with which a write is refused."""
        with pytest.raises(ApiError) as caught:
            await writing
        return caught.value.message


def obj_of(resource: Resource, name: str) -> Obj:
    meta: Obj = {"name": name}
    if resource.namespaced:
        meta["namespace"] = "default"
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def new_pod(name: str, **spec: Any) -> Obj:
    container = {"name": "c", "image": "i:1"}
    return {**obj_of(PODS, name), "spec": {"containers": [container], **spec}}


def new_job(name: str, **spec: Any) -> Obj:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}
    return {**obj_of(JOBS, name), "spec": {"template": {"spec": pod}, **spec}}


@pytest.fixture
async def writer() -> Writer:
    return Writer(await new_service(NoHooks()))
