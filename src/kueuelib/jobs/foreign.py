"""Owners of kinds that no informer holds: read one by one, and remembered for a while.

Between a pod and the job that is queued on its behalf there may be objects of any kind, for example
a ReplicaSet, and the job itself may be of a kind that another process manages. Only their metadata
matter. An owner that may not be read ends the way up, as one that is gone does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, TransportError, Unavailable
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger

REMEMBERED = 30.0
"""Seconds that an owner is remembered; its queue name may change."""
LIMIT = 10_000
"""Owners that are remembered at most."""
PATIENCE = 3.0
"""Seconds that an answer may take."""


class ForeignOwners:
    """Metadata of owners by UID.

    Args:
        client: reads.
        clock: the time.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, tuple[float, Obj | None]] = {}
        self._resources: dict[tuple[str, str], Resource] = {}
        self._log = get_logger("jobs")

    def get(self, ref: Mapping[str, Any]) -> Obj | None:
        """The owner that a reference names, as it was read last; None when it is not known."""
        found = self._known.get(ref["uid"])
        return None if found is None else found[1]

    async def learn(self, ref: Mapping[str, Any], namespace: str) -> Obj | None:
        """Read the owner that a reference names, unless that was done a moment ago.

        Raises:
            Unavailable: the API server does not answer; what nobody knows now is not guessed.
        """
        now = self._clock.monotonic()
        known = self._known.get(ref["uid"])
        if known is not None and now - known[0] < REMEMBERED:
            return known[1]
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._read(ref, namespace)
        except (ApiError, TransportError, TimeoutError) as error:
            if not isinstance(error, ApiError) or error.code == 429 or error.code >= 500:
                owner = f"{ref['kind']} {namespace}/{ref['name']}"
                raise Unavailable(f"the owner {owner} cannot be read now; try again") from error
            self._log.info(
                "an owner cannot be read; who is above it is not known",
                owner=f"{ref['kind']} {namespace}/{ref['name']}",
                error=str(error) or "no answer in time",
            )
            found = None
        if len(self._known) >= LIMIT:
            self._known.pop(next(iter(self._known)))
        self._known.pop(ref["uid"], None)
        self._known[ref["uid"]] = (now, found)
        return found

    async def _read(self, ref: Mapping[str, Any], namespace: str) -> Obj | None:
        kind = (ref["apiVersion"], ref["kind"])
        resource = self._resources.get(kind)
        if resource is None:
            resource = await self._client.find_resource(*kind)
            if resource is None:
                return None
            self._resources[kind] = resource
        key = ObjectKey(namespace if resource.namespaced else "", ref["name"])
        found = await self._client.get(resource, key)
        if found["metadata"]["uid"] != ref["uid"]:
            return None
        kept = ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")
        return {
            "metadata": {name: value for name, value in found["metadata"].items() if name in kept}
        }
