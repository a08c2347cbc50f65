"""The controller that gives every namespace its ServiceAccount `default`."""

from __future__ import annotations

from kueuelib.api.kinds import NAMESPACES, SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.kinds import Kinds
from kueuelib.embedded.cluster.loop import Loop
from kueuelib.embedded.service import ApiService
from kueuelib.errors import AlreadyExists
from kueuelib.machinery.store import Delta

DEFAULT = "default"


class AccountController:
    """Makes the account again when somebody deletes it.

    Attributes:
        loop: the work queue, by namespace; run it.
    """

    def __init__(self, service: ApiService, kinds: Kinds, clock: Clock) -> None:
        self._service = service
        self._namespaces = kinds.of(NAMESPACES)
        self._accounts = kinds.of(SERVICE_ACCOUNTS)
        self.loop: Loop[str] = Loop("serviceaccount", self._reconcile, clock, workers=2)
        self._namespaces.add_handler(self._on_namespace)
        self._accounts.add_handler(self._on_account)

    def _on_namespace(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self.loop.add(delta.key.name)

    def _on_account(self, delta: Delta[Obj]) -> None:
        if delta.new is None and delta.key.name == DEFAULT:
            self.loop.add(delta.key.namespace)

    async def _reconcile(self, namespace: str) -> float | None:
        found = self._namespaces.get(ObjectKey("", namespace))
        if found is None or found["metadata"].get("deletionTimestamp"):
            return None
        if self._accounts.get(ObjectKey(namespace, DEFAULT)) is not None:
            return None
        meta = {"name": DEFAULT, "namespace": namespace}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        try:
            await self._service.create(SERVICE_ACCOUNTS, account)
        except AlreadyExists:
            return None
        return None
