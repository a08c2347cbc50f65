"""Puts a service together: kinds, their rules, plug-ins, and the objects that every cluster has."""

from __future__ import annotations

from kueuelib.embedded.builtins.registry import builtin_plugins, builtin_rules, system_objects
from kueuelib.embedded.conversion import HookCaller
from kueuelib.embedded.service import ApiService


async def new_service(hooks: HookCaller) -> ApiService:
    """A service with namespaces and system PriorityClasses; `hooks` calls webhooks for it."""
    service = ApiService(builtin_rules(), builtin_plugins(), hooks)
    for obj in system_objects():
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = service.registry.by_kind(group, obj["kind"])
        assert kind is not None
        await service.create(kind.resource(version), obj)
    return service
