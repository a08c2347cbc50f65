"""What a manager notes on its Lease for the commands that look at it, and the writer of such notes
where no election renews the Lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import attrs
import orjson

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, parse_time
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_text import as_content
from kueuelib.errors import ApiError, Forbidden, NotFound, TransportError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger

PAUSE = 10.0
"""Seconds until the next try after a failure."""
SKEW: Final = 30.0
"""Seconds by which clocks may differ; a renewal may be under way for some of them."""
PUBLISHED: Final = "kueuelib.dev/configuration"
"""The annotation of the Lease with the leader's configuration."""
DECISIVE: Final = (
    "leader_election",
    "manage_jobs_without_queue_name",
    "managed_jobs_namespace_selector",
    "wait_for_pods_ready",
    "object_retention_policies",
    "fair_sharing",
    "preemption",
    "borrowing",
    "admission_fair_sharing",
    "integrations",
    "resources",
    "quota_release_strategy",
    "feature_gates",
)
"""The blocks that are published."""
_HEADS: Final = ("apiVersion", "kind")


def written_at(lease: Obj) -> float | None:
    """When the API server stored the last renewal, by its own clock; None if unknown.

    Args:
        lease: the raw one.
    """
    times = [
        parse_time(entry["time"])
        for entry in lease["metadata"].get("managedFields") or ()
        if "f:renewTime" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        and entry.get("time")
    ]
    return max(times, default=None)


def is_abandoned(lease: Obj, now: float) -> bool:
    """Whether no manager has renewed a Lease in time. One that was never renewed is that of a
    manager without election.

    Args:
        lease: the raw one.
        now: by our clock, which may differ from that of the API server.
    """
    spec = lease.get("spec") or {}
    if not spec.get("renewTime"):
        return False
    renewed = written_at(lease) or parse_time(spec["renewTime"])
    return now - renewed > int(spec.get("leaseDurationSeconds") or 0) + SKEW


def published(configuration: Configuration, holder: str) -> str:
    """The value of the annotation.

    Args:
        configuration: the leader's. Its preemption policy is left out: a reader need not have it.
        holder: its identity in the Lease; empty without leader election.
    """
    preemption = attrs.evolve(configuration.preemption, policy="", parameters={})
    configuration = attrs.evolve(configuration, preemption=preemption)
    decisive = {name: getattr(configuration, name) for name in DECISIVE}
    content, default = as_content(Configuration(**decisive)), as_content(Configuration())
    told = {key: one for key, one in content.items() if key in _HEADS or one != default.get(key)}
    return orjson.dumps({"holder": holder, "configuration": told}).decode()


def holder_of(lease: Obj) -> str:
    """Who wrote the annotation, also after it gave up the Lease; empty if nobody is known.

    Args:
        lease: the stored one.
    """
    return str(_note(lease).get("holder") or "")


def tells_of_a_file(lease: Obj) -> bool:
    """Whether the annotation says that a manager ran with another configuration than the default.

    Args:
        lease: the stored one.
    """
    told = _note(lease).get("configuration")
    return isinstance(told, dict) and bool(told.keys() - {*_HEADS})


def _note(lease: Obj) -> Obj:
    """The value of the annotation; empty if it is not valid."""
    with contextlib.suppress(orjson.JSONDecodeError):
        note = orjson.loads(annotations_of(lease).get(PUBLISHED) or "{}")
        return note if isinstance(note, dict) else {}
    return {}


class LeaseNotes:
    """Annotates the Lease of a manager without leader election; a part of it.

    The Lease has no holder. It is made only if there is something to say.

    Args:
        client: reads and writes the Lease.
        lease: the one that an election would use.
        clock: time.
    """

    def __init__(self, client: Client, lease: ObjectKey, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._lease = lease
        self._clock = clock
        self._notes: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._log = get_logger("configuration")

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation, as `Manager.annotate_lease` does with an election."""
        self._notes[key] = value
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Write the annotations whenever one changes, until cancelled."""
        ready()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write(dict(self._notes))
            except Forbidden as error:
                self._log.warning("kueuelib doctor will not know", error=str(error))
            except (ApiError, TransportError) as error:
                self._log.info("the lease is out of reach", error=str(error))
                self._changed.set()
                await self._clock.sleep(PAUSE)

    async def _write(self, notes: dict[str, str]) -> None:
        meta = {"namespace": self._lease.namespace, "name": self._lease.name}
        try:
            lease = await self._client.get(LEASES, self._lease)
        except NotFound:
            if any(notes.values()):
                body = {**meta, "annotations": notes}
                head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
                await self._client.create(LEASES, {**head, "metadata": body, "spec": {}})
            return
        known = annotations_of(lease)
        if any(known.get(key, "") != value for key, value in notes.items()):
            body = {**lease, "metadata": {**lease["metadata"], "annotations": {**known, **notes}}}
            await self._client.replace(LEASES, body)
