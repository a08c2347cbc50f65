"""Puts the parts of a server together: kinds, rules, webhooks, and the cluster when it is simulated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from kueuelib.api.meta import Resource
from kueuelib.embedded.admission.hook_client import HookClient
from kueuelib.embedded.builtins.registry import builtin_plugins, builtin_rules, system_objects
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions


@attrs.define
class Assembly:
    """A running service and how to end it."""

    service: ApiService
    closers: list[Callable[[], Awaitable[None]]] = attrs.field(factory=list)

    async def close(self) -> None:
        """Ends the parts in the opposite order of their start."""
        while self.closers:
            await self.closers.pop()()


async def assemble(*, simulate: bool) -> Assembly:
    """A service with the objects that every cluster has."""
    hooks = HookClient()
    service = ApiService(builtin_rules(), builtin_plugins(), hooks)
    assembly = Assembly(service, [hooks.close])
    for obj in system_objects():
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = service.registry.by_kind(group, obj["kind"])
        assert kind is not None
        resource: Resource = kind.resource(version)
        await service.create(resource, obj, options=WriteOptions())
    del simulate
    return assembly
