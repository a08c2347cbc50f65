"""Plug-ins and webhooks in the order of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.admission.plugin import AdmissionAttributes, AdmissionPlugin
from kueuelib.embedded.registry.kinds import Kind, Registry
from kueuelib.embedded.storage import Storage


class WebhookCaller(Protocol):
    """Calls the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations."""

    async def mutate(self, kind: Kind, request: AdmissionAttributes) -> bool:
        """Lets webhooks change `request.obj`; returns whether one did."""

    async def validate(self, kind: Kind, request: AdmissionAttributes) -> None:
        """Lets webhooks refuse the request."""


@attrs.frozen(eq=False)
class StoredObjects:
    """The `StoreReader` of the storage for plug-ins."""

    _storage: Storage
    _registry: Registry

    def get(self, resource: Resource, key: ObjectKey) -> Obj | None:
        """The object at its stored version, or None."""
        entry = self._storage.table(f"{resource.plural}.{resource.group}").get(key)
        return None if entry is None else entry.obj()

    def items(self, resource: Resource, namespace: str = "") -> Iterator[Obj]:
        """All objects of the kind, decoded one by one."""
        table = self._storage.table(f"{resource.plural}.{resource.group}")
        return (entry.obj() for entry in table.entries(namespace))


class Chain:
    """Everything that may change or refuse a write."""

    def __init__(
        self, plugins: Sequence[AdmissionPlugin], reader: StoredObjects, webhooks: WebhookCaller
    ) -> None:
        self._plugins = tuple(plugins)
        self._reader = reader
        self._webhooks = webhooks

    async def mutate(self, kind: Kind, request: AdmissionAttributes) -> bool:
        """Plug-ins, then mutating webhooks; returns whether a webhook changed the object.

        Raises:
            ApiError: the write is refused.
        """
        for plugin in self._plugins:
            if plugin.handles(request):
                plugin.admit(request, self._reader)
        return await self._webhooks.mutate(kind, request)

    async def validate(self, kind: Kind, request: AdmissionAttributes) -> None:
        """Plug-ins, then validating webhooks.

        Raises:
            ApiError: the write is refused.
        """
        for plugin in self._plugins:
            if plugin.handles(request):
                plugin.validate(request, self._reader)
        await self._webhooks.validate(kind, request)
