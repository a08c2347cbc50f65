"""Creates the ServiceAccount `default` in every namespace."""

from __future__ import annotations

import contextlib

from kueuelib.api.kinds import SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.cluster.controller import Controller, Parts
from kueuelib.errors import AlreadyExists
from kueuelib.machinery.store import Delta

DEFAULT = "default"


class AccountController(Controller[str]):
    """Creates the account, again if it is deleted; its keys are namespaces."""

    name = "serviceaccount"
    workers = 2

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._accounts = parts.kinds.of(SERVICE_ACCOUNTS)
        self._namespaces.add_handler(self._on_namespace)
        self._accounts.add_handler(self._on_account)

    def _on_namespace(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self.loop.add(delta.key.name)

    def _on_account(self, delta: Delta[Obj]) -> None:
        if delta.new is None and delta.key.name == DEFAULT:
            self.loop.add(delta.key.namespace)

    async def _reconcile(self, namespace: str) -> float | None:
        obj = self._namespaces.get(ObjectKey("", namespace))
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        if self._accounts.get(ObjectKey(namespace, DEFAULT)) is not None:
            return None
        with contextlib.suppress(AlreadyExists):
            await self._service.create(SERVICE_ACCOUNTS, SERVICE_ACCOUNTS.new(DEFAULT, namespace))
        return None
