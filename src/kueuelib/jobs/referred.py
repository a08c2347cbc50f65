"""Objects that jobs refer to: read one by one, and remembered for a while."""

from __future__ import annotations

import asyncio

from kueuelib.api.meta import Obj
from kueuelib.errors import ApiError, TransportError, Unavailable
from kueuelib.jobs.registry import REFERRED, Integration, Reference
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

REMEMBERED = 10.0
"""Seconds that an object is remembered; a job that waits sees a change after that."""
LIMIT = 1_000
"""Objects that are remembered at most."""
PATIENCE = 3.0
"""Seconds that an answer may take."""


class Referred:
    """Completes jobs with what they refer to.

    Args:
        client: reads.
        clock: the time.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[Reference, tuple[float, Obj | None]] = {}

    async def complete(self, integration: Integration, job: Obj) -> Obj:
        """The raw job with the object that it refers to; the same one without a reference.

        Raises:
            Unavailable: the API server does not answer.
        """
        reference = integration.refers(job) if integration.refers else None
        if reference is None:
            return job
        now = self._clock.monotonic()
        known = self._known.get(reference)
        if known is None or now - known[0] >= REMEMBERED:
            known = (now, await self._read(reference))
            self._known.pop(reference, None)
            if len(self._known) >= LIMIT:
                self._known.pop(next(iter(self._known)))
            self._known[reference] = known
        return job if known[1] is None else {**job, REFERRED: known[1]}

    async def _read(self, reference: Reference) -> Obj | None:
        """The object; None when it is gone or may not be read."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._client.get(reference.resource, reference.key)
        except (ApiError, TransportError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.code in {403, 404}:
                return None
            name = f"{reference.resource.kind} {reference.key}"
            raise Unavailable(f"{name} cannot be read now; try again") from error
