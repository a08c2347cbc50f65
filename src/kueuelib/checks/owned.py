"""Objects that a check makes for workloads: followed, and deleted when no longer needed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.checks.moves import held_reservation
from kueuelib.errors import ApiError, NotFound, TransportError
from kueuelib.machinery.backoff import Backoff, ItemExponential
from kueuelib.machinery.ownership import controller_key
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, Result
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks

_BY_OWNER = "objects by workload"


class OwnedObjects:
    """The objects of one kind whose controller is a Workload; a part of a `Manager`.

    No request is sent until there is an AdmissionCheck for it, and the kind may be installed later.
    An object whose workload no longer uses quota is deleted.

    Args:
        group: the API group of the kind.
        versions: of the kind, the preferred one first; the first served one is used.
        plural: of the kind.
        kind: of the objects.
    """

    def __init__(self, group: str, versions: tuple[str, ...], plural: str, kind: str) -> None:
        self._versions = versions
        self.resource = Resource(group, versions[0], plural, kind, namespaced=True)
        self._needed = asyncio.Event()
        self._missing = False
        self._informer: Informer | None = None
        self._client: Client | None = None
        self._workloads: Informer | None = None
        self._mine: Callable[[], Mapping[str, Obj]] = dict
        self._changed: Callable[[ObjectKey], None] = lambda _: None
        self._clock = SYSTEM_CLOCK

    def attach(
        self,
        client: Client,
        workloads: Informer,
        mine: Callable[[], Mapping[str, Obj]],
        changed: Callable[[ObjectKey], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Sets what to work with, before `run`.

        Args:
            client: lists, watches and deletes.
            workloads: the informer of Workloads.
            mine: the AdmissionChecks of the check.
            changed: is called with the workload of every object that changes.
            clock: monotonic time.
        """
        self._client = client
        self._workloads = workloads
        self._mine = mine
        self._changed = changed
        self._clock = clock

    def heard(self, _: Delta[Obj]) -> None:
        """An AdmissionCheck was created or changed."""
        if self._mine():
            self._needed.set()

    @property
    def synced(self) -> bool:
        """Whether the objects are known."""
        return self._informer is not None and self._informer.synced

    @property
    def settled(self) -> bool:
        """Whether the objects are known, or that there can be none at present."""
        return self._missing if self._informer is None else self._informer.settled

    def of(self, workload: ObjectKey, uid: str) -> tuple[Obj, ...]:
        """The objects of a workload, by name; do not change them."""
        if self._informer is None:
            return ()
        objects = [
            obj
            for obj in self._informer.store.by_index(_BY_OWNER, workload)
            if any(ref.get("uid") == uid for ref in obj["metadata"].get("ownerReferences") or ())
        ]
        return tuple(sorted(objects, key=lambda obj: str(obj["metadata"]["name"])))

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the objects until cancelled, from the first AdmissionCheck on."""
        assert self._client is not None
        assert self._workloads is not None
        ready()
        await self._needed.wait()
        self.resource = await self._served()
        self._informer = informer = Informer(self._client, self.resource, clock=self._clock)
        informer.add_index(_BY_OWNER, _owner)
        informer.add_handler(self._on_change)
        # Its own informer is not among what it waits for: the kind may not be installed.
        cleaner = Controller(
            f"unneeded-{self.resource.plural}",
            _Cleaner(self._client, informer, self._workloads),
            limiter=ItemExponential(0.1, 60.0),
            clock=self._clock,
        ).watches(self._workloads, lambda delta: self._names_of(delta.key))
        informer.add_handler(lambda delta: cleaner.enqueue(delta.key))
        async with lasting_tasks(f"{self.resource.plural} of checks") as group:
            group.start_soon(informer.run)
            group.start_soon(cleaner.run, lambda: None)

    async def _served(self) -> Resource:
        """The kind at its first version that the server serves, as soon as there is one."""
        assert self._client is not None
        wanted, backoff = self.resource, Backoff()
        log = get_logger("checks", resource=wanted.plural)
        while True:
            try:
                for version in self._versions:
                    api_version = wanted.at(version).api_version
                    served = await self._client.find_resource(api_version, wanted.kind)
                    if served is not None:
                        return served
                self._missing = True
                log.warning("not installed", fix=f"install what serves {wanted.group}")
            except (ApiError, TransportError) as error:
                log.warning("discovery failed", error=with_fix(error), kind=type(error).__name__)
            await self._clock.sleep(backoff.next(self._clock.monotonic(), random.random()))

    def _on_change(self, delta: Delta[Obj]) -> None:
        for obj in (delta.old, delta.new):
            for key in () if obj is None else _owner(obj):
                self._changed(key)

    def _names_of(self, workload: ObjectKey) -> tuple[ObjectKey, ...]:
        assert self._informer is not None
        return self._informer.store.keys_by_index(_BY_OWNER, workload)


class _Cleaner:
    """Deletes what belongs to a workload that holds no quota."""

    def __init__(self, client: Client, objects: Informer, workloads: Informer) -> None:
        self._client = client
        self._objects = objects
        self._workloads = workloads

    async def reconcile(self, key: ObjectKey) -> Result:
        """Looks at one object."""
        obj = self._objects.store.get(key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return DONE
        for owner in _owner(obj):
            wl = self._workloads.store.get(owner)
            if wl is not None and held_reservation(wl) is not None:
                return DONE
            try:
                answer = await self._client.delete(
                    self._objects.resource,
                    key,
                    uid=obj["metadata"]["uid"],
                    propagation="Background",
                )
            except NotFound:
                await self._objects.refresh(key)
                return DONE
            self._objects.learn_deleted(obj, answer)
            return DONE
        return DONE


def _owner(obj: Mapping[str, Any]) -> tuple[ObjectKey, ...]:
    key = controller_key(dict(obj), WORKLOADS)
    return () if key is None else (ObjectKey(key_of(obj).namespace, key.name),)
