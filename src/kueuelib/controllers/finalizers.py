"""Our finalizer on an object: added while it lives, removed once nothing needs it.

Only `metadata.finalizers` is sent, with UID and resource version, so that other finalizers and a
recreated object are safe. The informer learns the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType
from kueuelib.workload.checks import named_checks

CONFLICT_PAUSE = 0.5
"""Seconds until the next try after a conflict; the object has been read again."""


def has_finalizer(obj: Obj) -> bool:
    """Whether the object carries our finalizer."""
    return IN_USE_FINALIZER in (obj["metadata"].get("finalizers") or ())


async def add_finalizer(client: Client, informer: Informer, obj: Obj) -> bool:
    """Adds our finalizer to a living object; False if there was nothing to do.

    Raises:
        Conflict: the object changed since it was read; it has been read again.
        ApiError: the server refuses.
        TransportError: no answer.
    """
    if has_finalizer(obj) or obj["metadata"].get("deletionTimestamp"):
        return False
    return await _write(
        client, informer, obj, [*(obj["metadata"].get("finalizers") or ()), IN_USE_FINALIZER]
    )


async def drop_finalizer(client: Client, informer: Informer, obj: Obj) -> bool:
    """Removes our finalizer; False if there was nothing to do. Raises like `add_finalizer`."""
    if not has_finalizer(obj):
        return False
    left = [name for name in obj["metadata"]["finalizers"] if name != IN_USE_FINALIZER]
    return await _write(client, informer, obj, left)


async def _write(client: Client, informer: Informer, obj: Obj, finalizers: list[str]) -> bool:
    meta = obj["metadata"]
    body = {
        "metadata": {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "finalizers": finalizers or None,
        }
    }
    try:
        answer = await client.patch(informer.resource, key_of(obj), body, PatchType.MERGE)
    except NotFound:
        informer.learn_gone(obj)
        return False
    except Conflict:
        await informer.refresh(key_of(obj))
        raise
    informer.learn(answer)
    return True


# ---- keeps ResourceFlavors and AdmissionChecks while a ClusterQueue uses them --------------------


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
