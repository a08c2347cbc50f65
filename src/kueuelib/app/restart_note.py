"""Notes on the Lease which keys need a restart, where no election renews it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import ObjectKey, annotations_of
from kueuelib.app.reloading import RESTART_NEEDED
from kueuelib.errors import ApiError, Forbidden, NotFound, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger

PAUSE = 10.0
"""Seconds until the next try after a failure."""


class RestartNote:
    """Writes for `kueuelib doctor` what a manager without leader election holds back; a part of it.

    The Lease has no holder. It is made only if a key is held back.

    Args:
        client: reads and writes the Lease.
        lease: the one that an election would use.
        clock: time.
    """

    def __init__(self, client: Client, lease: ObjectKey, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._lease = lease
        self._clock = clock
        self._keys = ""
        self._changed = asyncio.Event()
        self._changed.set()  # the last life may have left something
        self._log = get_logger("configuration")

    def note(self, keys: tuple[str, ...]) -> None:
        """Note that these keys need a restart, and no others."""
        self._keys = ", ".join(keys)
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Write the keys whenever they change, until cancelled."""
        ready()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write(self._keys)
            except Forbidden as error:
                self._log.warning("kueuelib doctor will not know", error=str(error))
            except (ApiError, TransportError) as error:
                self._log.info("the lease is out of reach", error=str(error))
                self._changed.set()
                await self._clock.sleep(PAUSE)

    async def _write(self, keys: str) -> None:
        meta = {"namespace": self._lease.namespace, "name": self._lease.name}
        try:
            lease = await self._client.get(LEASES, self._lease)
        except NotFound:
            if keys:
                body = {**meta, "annotations": {RESTART_NEEDED: keys}}
                head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
                await self._client.create(LEASES, {**head, "metadata": body, "spec": {}})
            return
        known = annotations_of(lease)
        if known.get(RESTART_NEEDED, "") != keys:
            notes = {**known, RESTART_NEEDED: keys}
            body = {**lease, "metadata": {**lease["metadata"], "annotations": notes}}
            await self._client.replace(LEASES, body)
