"""Objects that jobs refer to: read one by one, and remembered for a while."""

from __future__ import annotations

from kueuelib.api.meta import Obj
from kueuelib.jobs.contract.integration import REFERRED, Integration, Reference
from kueuelib.jobs.lookups.remembered import Remembered
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

REMEMBERED = 10.0
"""Seconds that an object is remembered; a job that waits sees a change after that."""
LIMIT = 1_000
"""The maximum number of objects that are remembered."""


class Referred:
    """Completes jobs with the objects that they refer to.

    Args:
        client: reads.
        clock: the time.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._known = Remembered[Reference](REMEMBERED, LIMIT, clock)

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
