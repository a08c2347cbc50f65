"""Objects outside all informers, owners among them: read one by one, and remembered a while."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import anyio

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, TransportError, Unavailable
from kueuelib.jobs.contract.integration import REFERRED, Integration, Reference
from kueuelib.jobs.lookups.stores import owner_uids
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger

PATIENCE = 3.0
"""The time limit of an answer, in seconds."""
_PASSING = frozenset({401, 408, 429})
"""Temporary refusals, which say nothing about the object."""

K = TypeVar("K", bound=Hashable)


class Remembered(Generic[K]):
    """The objects as last read; one that is gone or may not be read counts as absent.

    Args:
        seconds: how long it is remembered.
        limit: the maximum number of objects that are remembered; the oldest are forgotten first.
        clock: the time.
    """

    def __init__(self, seconds: float, limit: int, clock: Clock) -> None:
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._known: dict[K, tuple[float, Obj | None]] = {}
        self._reading: set[K] = set()
        self._log = get_logger("jobs")

    def get(self, key: K) -> Obj | None:
        """The object as last read, however long ago; None if it is not known."""
        entry = self._known.get(key)
        return None if entry is None else entry[1]

    def outdate(self, key: K) -> None:
        """Read the object at the next `learn`, also if it is being read now."""
        self._reading.discard(key)
        if key in self._known:
            self._known[key] = (-math.inf, self._known[key][1])

    async def learn(
        self, key: K, name: str, read: Callable[[], Awaitable[Obj | None]]
    ) -> Obj | None:
        """The object; it is read unless it was read a moment ago.

        Args:
            key: identifies the object.
            name: of the object, for people.
            read: reads it.

        Raises:
            Unavailable: the API server does not answer, so the object is not known.
        """
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < self._seconds:
            return known[1]
        self._reading.add(key)
        try:
            with anyio.fail_after(PATIENCE):
                obj = await read()
        except (ApiError, TransportError, TimeoutError) as error:
            if not isinstance(error, ApiError) or error.code in _PASSING or error.code >= 500:
                raise Unavailable(f"{name} cannot be read now; try again") from error
            if known is None or known[1] is not None:
                self._log.info("an object counts as absent", object=name, error=str(error))
            obj = None
        finally:
            current = key in self._reading
            self._reading.discard(key)
        self._known.pop(key, None)
        if len(self._known) >= self._limit:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (now if current else -math.inf, obj)
        return obj


# ---- owners of kinds without an informer: read one by one, and remembered for a while ------------
# Between a pod and the job that is queued on its behalf there may be objects of any kind, for
# example a ReplicaSet, and the job itself may be of a kind that another process manages. Only their
# metadata matter. An owner that may not be read ends the search, like one that is gone.

OWNERS_REMEMBERED = 30.0
"""Seconds that an owner is remembered, unless a Workload appears or disappears for it."""
REMEMBERED_OWNERS = 10_000
"""The maximum number of owners that are remembered."""


class ForeignOwners:
    """Metadata of owners by UID.

    Args:
        client: reads.
        clock: the time.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._known = Remembered[str](OWNERS_REMEMBERED, REMEMBERED_OWNERS, clock)
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


# ---- objects that jobs refer to: read one by one, and remembered for a while ---------------------

REFERENCES_REMEMBERED = 10.0
"""Seconds that an object is remembered; a job that waits sees a change after that."""
REMEMBERED_REFERENCES = 1_000
"""The maximum number of objects that are remembered."""


class Referred:
    """Completes jobs with the objects that they refer to.

    Args:
        client: reads.
        clock: the time.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._known = Remembered[Reference](REFERENCES_REMEMBERED, REMEMBERED_REFERENCES, clock)

    async def complete(self, integration: Integration, job: Obj) -> Obj:
        """The raw job with the object that it refers to; the same one without a reference.

        Raises:
            Unavailable: the API server does not answer.
        """
        reference = integration.refers(job) if integration.refers else None
        if reference is None:
            return job
        referred = await self._known.learn(
            reference,
            f"{reference.resource.kind} {reference.key}",
            lambda: self._client.get(reference.resource, reference.key),
        )
        return job if referred is None else {**job, REFERRED: referred}
