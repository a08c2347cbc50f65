"""Owners of kinds without an informer: read one by one, and remembered for a while.

Between a pod and the job that is queued on its behalf there may be objects of any kind, for example
a ReplicaSet, and the job itself may be of a kind that another process manages. Only their metadata
matter. An owner that may not be read ends the search, like one that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.jobs.lookups.remembered import Remembered
from kueuelib.jobs.lookups.stores import owner_uids
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

REMEMBERED = 30.0
"""Seconds that an owner is remembered, unless a Workload appears or disappears for it."""
LIMIT = 10_000
"""The maximum number of owners that are remembered."""


class ForeignOwners:
    """Metadata of owners by UID.

    Args:
        client: reads.
        clock: the time.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._known = Remembered[str](REMEMBERED, LIMIT, clock)
        self._resources: dict[tuple[str, str], Resource] = {}

    def heard(self, delta: Delta[Obj]) -> None:
        """Forget the owners that a Workload is made for, or no longer is: their queue names have
        changed.
        """
        old, new = ({*owner_uids(obj)} if obj else set() for obj in (delta.old, delta.new))
        for uid in old ^ new:
            self._known.outdate(uid)

    def get(self, ref: Mapping[str, Any]) -> Obj | None:
        """The owner that a reference names, as last read; None if it is not known."""
        return self._known.get(ref["uid"])

    async def learn(self, ref: Mapping[str, Any], namespace: str) -> Obj | None:
        """Read the owner that a reference names, unless it was read a moment ago.

        Raises:
            Unavailable: the API server does not answer.
        """
        name = f"the owner {ref['kind']} {namespace}/{ref['name']}"
        return await self._known.learn(ref["uid"], name, lambda: self._read(ref, namespace))

    async def _read(self, ref: Mapping[str, Any], namespace: str) -> Obj | None:
        kind = (ref["apiVersion"], ref["kind"])
        resource = self._resources.get(kind)
        if resource is None:
            resource = await self._client.find_resource(*kind)
            if resource is None:
                return None
            self._resources[kind] = resource
        key = ObjectKey(namespace if resource.namespaced else "", ref["name"])
        owner = await self._client.get(resource, key)
        if owner["metadata"]["uid"] != ref["uid"]:
            return None
        kept = ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")
        return {
            "metadata": {name: value for name, value in owner["metadata"].items() if name in kept}
        }
