"""Keeps ResourceFlavors and AdmissionChecks while a ClusterQueue uses them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.finalizers import CONFLICT_PAUSE, add_finalizer, drop_finalizer
from kueuelib.errors import Conflict
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.workload.checks import named_checks


class InUseReconciler:
    """Keeps our finalizer on objects that ClusterQueues name, until none does.

    Args:
        client: writes the finalizer.
        informer: the objects, cluster-scoped.
        users: the names of the ClusterQueues that use the object of that name.
    """

    def __init__(
        self, client: Client, informer: Informer, users: Callable[[str], Collection[str]]
    ) -> None:
        self._client = client
        self._informer = informer
        self._users = users

    async def reconcile(self, key: ObjectKey) -> Result:
        """Adds the finalizer to a living object, removes it from a deleted one without users."""
        obj: Obj | None = self._informer.store.get(key)
        if obj is None:
            return DONE
        try:
            if not obj["metadata"].get("deletionTimestamp"):
                await add_finalizer(self._client, self._informer, obj)
            elif not self._users(key.name):
                await drop_finalizer(self._client, self._informer, obj)
        except Conflict:
            return Result(requeue_after=CONFLICT_PAUSE)
        return DONE


def flavors_of(delta: Delta[Obj]) -> Iterator[ObjectKey]:
    """The flavors that a ClusterQueue names, or named before."""
    for queue in (delta.old, delta.new):
        for group in ((queue or {}).get("spec") or {}).get("resourceGroups") or ():
            for flavor in group.get("flavors") or ():
                yield ObjectKey("", flavor["name"])


def checks_of(delta: Delta[Obj]) -> Iterator[ObjectKey]:
    """The checks that a ClusterQueue requires, or required before."""
    for queue in (delta.old, delta.new):
        if queue is not None:
            for name in named_checks(queue):
                yield ObjectKey("", name)
