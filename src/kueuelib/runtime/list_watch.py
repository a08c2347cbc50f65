"""The requests of an informer: what a reflector wants from the server, one activity at a time."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

from kueuelib.api.meta import Resource
from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.machinery.reflector_options import ReflectorOptions
from kueuelib.machinery.reflector_protocol import (
    Input,
    List,
    Listed,
    ListFailed,
    Received,
    Sleep,
    StreamEnded,
    Tick,
    Watch,
    WatchEvent,
    WatchOpened,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.deadlines import Deadlines, Limit
from kueuelib.runtime.queries import ObjectList
from kueuelib.runtime.watch import WatchStream

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


class InformerMetrics:
    """What an informer reports about itself; nothing without telemetry.

    Args:
        telemetry: where to report.
        plural: of the kind.
        cluster: see `Informer`.
    """

    def __init__(self, telemetry: Telemetry | None, plural: str, cluster: str) -> None:
        self._telemetry = telemetry
        self._labels = (plural, cluster)
        self.requested: Callable[[str, str], None] = lambda _, __: None
        self.received: Callable[[int], None] = lambda _: None

    def measure(self, store: Sized, requests: ListWatch) -> None:
        """Begin to report a store and the requests that fill it."""
        telemetry, labels = self._telemetry, self._labels
        if telemetry is None:
            return
        own = ("resource", "cluster")
        counter = telemetry.counter(
            "kueuelib_informer_requests_total",
            "Lists and watches begun, by reason.",
            (*own, "verb", "cause"),
        )
        self.requested = lambda verb, cause: counter.labels(*labels, verb, cause).inc()
        self.received = (
            telemetry.counter("kueuelib_informer_events_total", "Watch events received.", own)
            .labels(*labels)
            .inc
        )
        telemetry.gauge("kueuelib_informer_objects", "Objects in the local copy.", own).labels(
            *labels
        ).set_function(lambda: len(store))
        telemetry.gauge(
            "kueuelib_watch_silence_seconds",
            "Seconds since the open watch delivered a byte; 0 without a watch.",
            own,
        ).labels(*labels).set_function(lambda: requests.silence)


class ListWatch:
    """Carries out the activities of a `ReflectorCore`.

    Args:
        client: lists and watches.
        resource: the kind.
        clock: monotonic time.
        options: the limits.
        metrics: counts requests and events.
        selection: the parameters of every list and watch.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        clock: Clock,
        options: ReflectorOptions,
        metrics: InformerMetrics,
        **selection: Any,
    ) -> None:
        self.metrics = metrics
        self._client = client
        self._resource = resource
        self._clock = clock
        self._options = options
        self._selection = selection
        self._deadlines = Deadlines()
        self._stream: WatchStream | None = None

    @property
    def silence(self) -> float:
        """Seconds since the open watch delivered a byte; 0 without a watch."""
        return 0.0 if self._stream is None else self._stream.silence

    async def page(self, **part: Any) -> ObjectList:
        """One page of the objects; see `Client.list`."""
        return await self._client.list(self._resource, **self._selection, **part)

    async def begin(self, activity: List | Watch | Sleep) -> Input:
        """Begin an activity, and return its first input."""
        await self.close()
        match activity:
            case Sleep(seconds):
                await self._clock.sleep(seconds)
                return Tick()
            case List():
                return await self._list(activity)
            case Watch():
                return await self._watch(activity)

    async def _list(self, wanted: List) -> Input:
        self.metrics.requested("list", wanted.cause)
        try:
            page = await self.page(
                limit=wanted.limit,
                continue_token=wanted.continue_token,
                resource_version=wanted.resource_version,
            )
        except (ApiError, TransportError, ConfigError) as error:
            return ListFailed(error)
        return Listed(page.items, page.resource_version, page.continue_token)

    async def _watch(self, wanted: Watch) -> Input:
        self.metrics.requested("watch", wanted.cause)
        try:
            self._stream = await self._client.watch(
                self._resource,
                **self._selection,
                resource_version=wanted.resource_version,
                timeout=wanted.timeout_seconds,
                send_initial_events=wanted.initial_events,
            )
        except (ApiError, TransportError, ConfigError) as error:
            return StreamEnded(error)
        return WatchOpened()

    async def go_on(self, deadline: float | None) -> Input:
        """Wait for what the open stream brings, or for a deadline of the core."""
        assert self._stream is not None, "the core asks for a stream before it continues"
        seconds = None if deadline is None else max(deadline - self._clock.monotonic(), 0.0)
        try:
            with Limit(self._deadlines, seconds) as limit:
                events = await self._stream.batch(self._options.batch)
        except TimeoutError:
            if not limit.expired:
                raise
            return Tick()
        except TransportError as error:
            return StreamEnded(error)
        if not events:
            return StreamEnded()
        self.metrics.received(len(events))
        return Received([WatchEvent(event["type"], event["object"]) for event in events])

    async def close(self) -> None:
        """Close the open stream, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()
