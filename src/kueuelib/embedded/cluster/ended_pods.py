"""The pod collector: keeps a limited number of ended pods, as Kubernetes does."""

from __future__ import annotations

import asyncio
import contextlib
from heapq import nsmallest
from typing import Final

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.cluster.controller import Controller, Parts
from kueuelib.embedded.cluster.pod_status import is_terminal
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta

ENDED_LIMIT: Final = 12_500
"""The default of `--terminated-pod-gc-threshold` of kube-controller-manager."""

PERIOD: Final = 20.0
"""Seconds between two looks, and between the end of a pod and its deletion: controllers must
count it first.
"""

_BATCH: Final = 50
_ALL: Final = ""


class EndedPods(Controller[str]):
    """Deletes the oldest ended pods if there are too many.

    Args:
        parts: of the cluster.
        limit: how many ended pods are kept.
    """

    name = "ended pods"
    workers = 1

    def __init__(self, parts: Parts, limit: int = ENDED_LIMIT) -> None:
        super().__init__(parts)
        self._limit = limit
        self._ended: dict[ObjectKey, float] = {}
        self._pods.add_handler(self._on_pod)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if delta.new is None or not is_terminal(delta.new):
            self._ended.pop(delta.key, None)
        elif delta.key not in self._ended:
            self._ended[delta.key] = self._clock.now()
            if len(self._ended) == self._limit + 1:
                self.loop.add(_ALL, after=PERIOD)

    async def _reconcile(self, _: str) -> float | None:
        now = self._clock.now()
        surplus = len(self._ended) - self._limit
        settled = [key for key, since in self._ended.items() if since + PERIOD <= now]
        for number, key in enumerate(nsmallest(max(0, surplus), settled, self._age), 1):
            await self._delete(key)
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        return now + PERIOD if len(self._ended) > self._limit else None

    def _age(self, key: ObjectKey) -> tuple[str, ObjectKey]:
        pod = self._pods.get(key)
        return (pod["metadata"]["creationTimestamp"] if pod is not None else ""), key

    async def _delete(self, key: ObjectKey) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        with contextlib.suppress(NotFound, Conflict):  # replaced: the watch reports it
            await self._pods.delete(pod, grace_period=0)
