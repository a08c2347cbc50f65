"""Informers shared by everybody who asks for the same objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kueuelib.api.meta import Resource
from kueuelib.machinery.reflector import ReflectorOptions
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.informer import Informer, Transform, strip

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

SYNC_TIMEOUT = 120.0
"""Seconds that the first lists may take."""


class _Scope(NamedTuple):
    group: str
    plural: str
    namespace: str
    label_selector: str
    field_selector: str


class Cache:
    """One informer per kind, namespace and selectors.

    Args:
        client: lists and watches.
        options: how to list and watch.
        sync_timeout: seconds that the first lists may take.
        clock: monotonic time.
        telemetry: where informers report.
    """

    def __init__(
        self,
        client: Client,
        *,
        options: ReflectorOptions | None = None,
        sync_timeout: float = SYNC_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._client = client
        self._options = options
        self._sync_timeout = sync_timeout
        self._clock = clock
        self._telemetry = telemetry
        self._informers: dict[_Scope, tuple[Informer, Transform]] = {}
        self._group: asyncio.TaskGroup | None = None

    def informer(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
    ) -> Informer:
        """The shared informer; it starts with the cache, or at once when the cache runs already.

        Raises:
            ValueError: there is one with another version or another transform.
        """
        scope = _Scope(resource.group, resource.plural, namespace, label_selector, field_selector)
        found = self._informers.get(scope)
        if found is not None:
            informer, used = found
            if informer.resource.version != resource.version or used is not transform:
                raise ValueError(
                    f"{resource.plural} are cached with another version or transform already"
                )
            return informer
        informer = self.apart(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            transform=transform,
        )
        self._informers[scope] = (informer, transform)
        if self._group is not None:
            self._start(self._group, informer)
        return informer

    def apart(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
    ) -> Informer:
        """A new informer that is not shared, for a kind that may come and go.

        The caller runs it. The cache neither starts it nor waits until it is synced.
        """
        return Informer(
            self._client,
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            transform=transform,
            options=self._options,
            clock=self._clock,
            telemetry=self._telemetry,
        )

    @property
    def synced(self) -> bool:
        """Whether every informer is synced."""
        return all(informer.synced for informer, _ in self._informers.values())

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """Wait until every informer is synced.

        Raises:
            ConfigError: one was not within `timeout` seconds; it is named.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        for informer, _ in list(self._informers.values()):
            left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.001)
            await informer.wait_synced(left)

    async def run(self, ready: Callable[[], None]) -> None:
        """Run all informers until cancelled; `ready` is called once all are synced.

        Raises:
            ConfigError: the first lists took too long.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for informer, _ in self._informers.values():
                    self._start(group, informer)
                await self.wait_synced(self._sync_timeout)
                ready()
        finally:
            self._group = None

    @staticmethod
    def _start(group: asyncio.TaskGroup, informer: Informer) -> None:
        group.create_task(informer.run(), name=f"informer-{informer.resource.plural}")
