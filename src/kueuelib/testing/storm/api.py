"""Calls to the API server in the name of a user, without wire and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import DeleteOptions, Propagation, WriteOptions
from kueuelib.errors import AlreadyExists, NotFound
from kueuelib.runtime.queries import PatchType
from kueuelib.testing.storm.loop import SimulatedProcess, StormLoop

T = TypeVar("T")
_PATCHES = {"merge": PatchType.MERGE, "json": PatchType.JSON, "strategic": PatchType.STRATEGIC}


class Api:
    """The verbs on raw objects; resources are named `plural.group`.

    Every method raises the errors of the API server: `NotFound`, `Conflict`, `AlreadyExists`,
    `Invalid`, `Forbidden` and other kinds of `kueuelib.errors.ApiError`.

    Args:
        loop: of the world.
        service: the verbs of the server.
        server: the process that handles the calls.
        actor: the user.
    """

    def __init__(
        self, loop: StormLoop, service: ApiService, server: SimulatedProcess, actor: str
    ) -> None:
        self._loop = loop
        self._service = service
        self._server = server
        self._actor = actor

    async def get(self, resource: str, namespace: str, name: str) -> Obj:
        """The object."""
        key = ObjectKey(namespace, name)
        return await self._handled(self._service.get(self._resource(resource), key))

    async def list(self, resource: str, namespace: str = "") -> list[Obj]:
        """The objects of one namespace, or of all."""
        page = await self._handled(self._service.list(self._resource(resource), namespace))
        return list(page.items)

    async def create(self, resource: str, obj: Mapping[str, Any]) -> Obj:
        """Store a new object."""
        namespace = obj["metadata"].get("namespace") or ""
        kind = self._resource(resource)
        return await self._handled(self._service.create(kind, obj, namespace=namespace))

    async def create_missing(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Store objects in their order; existing ones are not changed."""
        for obj in objects:
            try:
                await self.create(self.resource_of(obj), obj)
            except AlreadyExists:
                continue

    async def replace(self, resource: str, obj: Mapping[str, Any], subresource: str = "") -> Obj:
        """Replace an object, or a part of it; a resource version in it must be the stored one."""
        kind = self._resource(resource)
        return await self._handled(self._service.update(kind, obj, subresource=subresource))

    async def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Any,
        subresource: str = "",
        kind: str = "merge",
    ) -> Obj:
        """Change an object.

        Args:
            resource: of the object.
            namespace: empty for objects of the cluster.
            name: of the object.
            body: the patch.
            subresource: empty, or `status`.
            kind: `merge`, `json` or `strategic`.
        """
        call = self._service.patch(
            self._resource(resource),
            ObjectKey(namespace, name),
            body,
            _PATCHES[kind],
            subresource=subresource,
            options=WriteOptions(field_manager=self._actor),
        )
        return await self._handled(call)

    async def delete(
        self, resource: str, namespace: str, name: str, propagation: str = "Background"
    ) -> None:
        """Delete an object; `propagation` is `Background`, `Foreground` or `Orphan`."""
        options = DeleteOptions(propagation=Propagation(propagation))
        key = ObjectKey(namespace, name)
        await self._handled(self._service.delete(self._resource(resource), key, options))

    def resource_of(self, obj: Mapping[str, Any]) -> str:
        """The resource of an object, by its `apiVersion` and `kind`.

        Raises:
            NotFound: the server does not serve that kind.
        """
        group = obj["apiVersion"].rpartition("/")[0]
        kind = self._service.registry.by_kind(group, obj["kind"])
        if kind is None:
            raise NotFound(f"the server has no {obj['kind']} in {obj['apiVersion']}")
        return f"{kind.plural}.{kind.group}" if kind.group else kind.plural

    def _resource(self, resource: str) -> Resource:
        plural, _, group = resource.partition(".")
        kind = self._service.registry.by_plural(group, plural)
        if kind is None:
            raise NotFound(f"the server has no {resource}")
        return kind.resource(kind.storage)

    async def _handled(self, call: Coroutine[Any, Any, T]) -> T:
        """Let the server's process handle a call."""
        task: asyncio.Task[T] = self._loop.spawn(self._server, call, self._actor)
        return await task
