"""The base of the simulated cluster's controllers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Generic, TypeVar

import attrs

from kueuelib.api.kinds import NAMESPACES, NODES, PODS
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.events import Events
from kueuelib.embedded.cluster.kinds import Kinds
from kueuelib.embedded.cluster.loop import ControlLoop
from kueuelib.embedded.service import ApiService

K = TypeVar("K", bound=Hashable)


@attrs.frozen(eq=False)
class Parts:
    """The tools of controllers: the API, mirrors of its objects, the time, events."""

    service: ApiService
    kinds: Kinds
    clock: Clock
    events: Events


class Controller(ABC, Generic[K]):
    """Reconciles keys.

    Attributes:
        name: of the work queue, shown in logs.
        workers: how many keys at once.
        loop: the work queue; run it.
    """

    name: ClassVar[str]
    workers: ClassVar[int] = 4

    def __init__(self, parts: Parts) -> None:
        self._service = parts.service
        self._kinds = parts.kinds
        self._clock = parts.clock
        self._events = parts.events
        self._pods = parts.kinds.of(PODS)
        self._nodes = parts.kinds.of(NODES)
        self._namespaces = parts.kinds.of(NAMESPACES)
        self.loop: ControlLoop[K] = ControlLoop(
            self.name, self._reconcile, parts.clock, self.workers
        )

    @abstractmethod
    async def _reconcile(self, key: K) -> float | None:
        """Does what is due for a key; returns the instant of the next work, or None."""
