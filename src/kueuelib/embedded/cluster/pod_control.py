"""Creates, deletes, adopts and releases in the name of a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from kueuelib.api.meta import Obj, key_of, owner_reference
from kueuelib.embedded.cluster.controller import ControllerTools, Events
from kueuelib.embedded.cluster.kinds import Mirror
from kueuelib.embedded.cluster.owned_pods import claims, with_owner
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.verbs import Propagation
from kueuelib.errors import ApiError, NotFound
from kueuelib.machinery.store import Delta

CLUSTER = "simulated-cluster"
POD_LIMIT = 12_000
"""Controllers create no further pods while this many, theirs and others, have not ended."""
FULL_PAUSE = 5.0
"""Seconds until the next look at an object that the cluster has no room for."""
_LARGEST_BATCH = 16
"""The number of pods that are written before other tasks run."""


class PodRoom:
    """How many more pods the cluster takes.

    Args:
        pods: those that there are.
        limit: how many may exist that have not ended.
    """

    def __init__(self, pods: Mirror, limit: int = POD_LIMIT) -> None:
        self.limit = limit
        self.promised = 0
        """Pods that are being created."""
        self._alive = 0
        pods.add_handler(self._on_pod)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        for pod, step in ((delta.old, -1), (delta.new, 1)):
            if pod is not None and not is_terminal(pod):
                self._alive += step

    @property
    def left(self) -> int:
        """How many more pods may be created."""
        return max(self.limit - self._alive - self.promised, 0)


class PodControl:
    """Creates and deletes pods, with events about it.

    Args:
        parts: of the cluster.
        pods: all of them.
        room: shared by all controllers.
        component: the source of events.
    """

    def __init__(self, parts: ControllerTools, pods: Mirror, room: PodRoom, component: str) -> None:
        self.room = room
        self._clock = parts.clock
        self._events: Events = parts.events
        self._pods = pods
        self._component = component

    async def delete(self, owner: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> None:
        """Deletes pods; ignores those that are gone already."""
        for number, pod in enumerate(pods, 1):
            try:
                await self._pods.delete(pod, propagation=Propagation.BACKGROUND)
            except NotFound:
                continue
            text = f"Deleted pod: {pod['metadata']['name']}"
            self._events.normal(owner, self._component, "SuccessfulDelete", text)
            if number % _LARGEST_BATCH == 0:
                await asyncio.sleep(0)

    async def create(
        self, owner: Mapping[str, Any], pods: Iterator[Obj], count: int
    ) -> tuple[int, ApiError | None]:
        """Creates pods in batches, which begin with one and double as long as nothing is refused.

        Args:
            owner: their controller.
            pods: as many as `count`.
            count: how many.

        Returns:
            how many were not created, and the first refusal.
        """
        self.room.promised += count
        size, left = 1, count
        try:
            while left:
                batch = list(islice(pods, min(size, left)))
                size = min(2 * size, _LARGEST_BATCH)
                left -= len(batch)
                outcomes = await asyncio.gather(*(self._create(owner, pod) for pod in batch))
                refusals = [error for error in outcomes if error is not None]
                await asyncio.sleep(0)
                if refusals:
                    return len(refusals) + left, refusals[0]
        finally:
            self.room.promised -= left
        return 0, None

    async def _create(self, owner: Mapping[str, Any], pod: Obj) -> ApiError | None:
        try:
            made = await self._pods.create(pod)
        except ApiError as error:
            text = f"Error creating: {error.message}"
            self._events.warning(owner, self._component, "FailedCreate", text)
            return error
        finally:
            self.room.promised -= 1
        text = f"Created pod: {made['metadata']['name']}"
        self._events.normal(owner, self._component, "SuccessfulCreate", text)
        return None

    def wait_for_room(self, owner: Mapping[str, Any], due: float | None) -> float:
        """Says that the cluster is full; returns when to look again, at the latest at `due`."""
        # Under the cluster's name: the controller's limit may be used up by events about pods.
        text = (
            f"Error creating: the simulated cluster takes at most {self.room.limit} pods that "
            "have not ended"
        )
        self._events.warning(owner, CLUSTER, "FailedCreate", text)
        again = self._clock.now() + FULL_PAUSE
        return again if due is None else min(again, due)


async def claimed(mirror: Mirror, owner: Obj) -> list[Obj]:
    """The objects of an owner with a label selector, after it has adopted and released some.

    Args:
        mirror: of the kind of objects.
        owner: their controller.
    """
    meta = owner["metadata"]
    claim = claims(owner, mirror.owned_by(meta["uid"]), mirror.orphans(meta["namespace"]))
    for each in claim.released:
        await mirror.patch(key_of(each), with_owner(each, None))
    ref = owner_reference(owner)
    adopted = [await mirror.patch(key_of(each), with_owner(each, ref)) for each in claim.adopted]
    return [*claim.kept, *adopted]
