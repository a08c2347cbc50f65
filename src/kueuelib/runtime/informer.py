"""A local copy of objects that follows the server, and calls handlers with what changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import anyio

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.errors import (
    ApiError,
    ConfigError,
    Forbidden,
    Gone,
    HistoryLost,
    NotFound,
    TransportError,
)
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.options import PAGE_SIZE, ReflectorOptions
from kueuelib.machinery.reflector import ReflectorCore
from kueuelib.machinery.reflector_protocol import (
    Apply,
    Command,
    Input,
    List,
    Listed,
    ListFailed,
    MarkSynced,
    Received,
    Replace,
    ReportError,
    Sleep,
    StreamEnded,
    Tick,
    Watch,
    WatchEvent,
    WatchOpened,
)
from kueuelib.machinery.replica import WatchScope, is_last_state, number_of, version_number
from kueuelib.machinery.store import (
    NAMESPACE_INDEX,
    Store,
    StoreUpdate,
    Transform,
    metadata_of,
    namespace_of,
    same_version,
    strip,
)
from kueuelib.runtime.client import Client, read, unlisted
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock, Deadlines, Limit
from kueuelib.runtime.dispatch import Dispatch, Handler
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import ObjectList
from kueuelib.runtime.watch import WatchStream

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


# The requests of an informer: what a reflector wants from the server, one activity at a time.


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


# --------------------------------------------------------------------------------------------------


class Informer:
    """The objects of one kind, as the server has them, a moment ago.

    Guarantees:
        - The store sees, per object, true states in their order; between objects there is none.
        - Handlers are called in order, on the event loop, after the store was changed; a handler
          may see a store that is newer than its delta.
        - When `synced` is set, every handler has received the whole first list.
        - An answer passed to `learn` is dispatched in one order with the events of the watch. An
          older state never replaces a newer one.
        - A watch that breaks is resumed, a version that is too old leads to a new list; objects
          that vanished meanwhile are reported as deleted. This continues until `run` is cancelled.

    Caveats: objects are shared; a receiver must not change one. A handler must be quick and must
    not raise.

    An error of the server never ends `run`: it is logged and tried again. Whatever a handler, a
    transform or `_take` raises does, and with it the manager and the program, which prints a
    `ConfigError` as problem and fix.

    Args:
        client: lists and watches.
        resource: the kind.
        namespace: only this one; all when empty.
        label_selector: only objects with these labels.
        field_selector: only objects with these fields.
        transform: applied to each object before it is stored; `strip` by default.
        metadata_only: ask for the metadata of objects, and store nothing else.
        cluster: the name of a cluster that the program can do without; see `Cluster`.
        options: how to list and watch.
        backoff: pauses after errors.
        clock: monotonic time.
        telemetry: where to report.
        one_history: whether `run` raises `HistoryLost` when the server was restored from an older
            copy. Otherwise the store follows, alone.

    Raises:
        InvalidSelector: a selector has no such form.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
        metadata_only: bool = False,
        cluster: str = "",
        options: ReflectorOptions | None = None,
        backoff: Backoff | None = None,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
        one_history: bool = False,
    ) -> None:
        self.resource = resource
        self._type_meta = resource.api_version, resource.kind
        self.cluster = cluster
        self.store: Store[Obj] = Store({NAMESPACE_INDEX: namespace_of})
        self.last_error: Exception | None = None
        self.failing: Exception | None = None  # None again once a list or watch succeeds
        self._client = client
        self._one_history = one_history
        options = options or ReflectorOptions()
        self._requests = ListWatch(
            client,
            resource,
            clock,
            options,
            InformerMetrics(telemetry, resource.plural, cluster),
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            metadata_only=metadata_only,
        )
        self._requests.metrics.measure(self.store, self._requests)
        self._scope = WatchScope.parse(namespace, label_selector, field_selector)
        self._clock = clock
        if metadata_only:
            kept, transform = transform, lambda obj: kept(metadata_of(obj))
        self._core = ReflectorCore(resource, transform=transform, options=options, backoff=backoff)
        where = {"cluster": cluster} if cluster else {}
        self._log = get_logger("informer", resource=resource.plural, **where)
        self._dispatch = Dispatch(self._log)
        self._take = self._dispatch.put
        """Every change of the store comes this way: from a list, a watch, or an answer."""
        self._failure: Exception | None = None
        self._running: anyio.CancelScope | None = None
        self.ended = False  # `run` was called and is over
        self._synced = False
        self._decided = asyncio.Event()  # synced, or failed
        self._settled = asyncio.Event()  # the same, or refused

    @property
    def started(self) -> bool:
        """Whether `run` was called; a `Cache` calls it."""
        return self.ended or self._running is not None

    @property
    def synced(self) -> bool:
        """Whether the store has had its first full content, and handlers received it."""
        return self._synced

    @property
    def settled(self) -> bool:
        """Whether `synced`, or it is known that there is no such kind, or that it is forbidden."""
        return self.synced or isinstance(self.failing, NotFound | Forbidden)

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """Wait for `synced`.

        Raises:
            ConfigError: it did not come within `timeout` seconds.
            Exception: what ended `run`, for example the error of a handler.
        """
        try:
            with anyio.fail_after(timeout):
                await self._decided.wait()
        except TimeoutError as error:
            raise unlisted(self.resource, self.last_error) from error
        if self._failure is not None:
            raise self._failure

    async def wait_settled(self) -> None:
        """Wait until the first list was answered or refused, or `run` has failed."""
        await self._settled.wait()

    def add_handler(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` with every delta from now on.

        If the store has content, the handler receives it first, as initial additions, before this
        returns.

        Args:
            handler: a plain function. What it raises is logged, and ends `run`: the informer, and
                the `Cache` or `Manager` that runs it.

        Returns:
            a function that removes the handler; it may be called again.

        Raises:
            ConfigError: the handler is not a function, or is async.
        """
        return self._dispatch.add(handler, self.store.as_initial())

    def add_index(self, name: str, function: Callable[[Obj], Iterable[Hashable]]) -> None:
        """Add an index to the store; see `Store.add_index`."""
        self.store.add_index(name, function)

    def learn(self, answer: Obj | Typed, *, shared: bool = False) -> None:
        """Store the object that the server returned from a write or a `get`.

        When this returns, the store has the answer, unless it has a newer state or the object does
        not match the selectors. Handlers are called in order. So a reconciler that reads the store
        never acts on a state older than its own last write.

        Nothing is learned before the first list is complete, after `run` has ended, or if resource
        versions are not decimal. In the last case the watch delivers the change.

        Args:
            answer: the whole object, in this informer's API version, also as a model; or the
                `Status` of a deletion, which names its UID. Anything else is ignored.
            shared: whether the store may hold the answer itself instead of a copy. Then the caller
                must not change it, and the transform drops fields of it.
        """
        answer = raw_of(answer)
        if answer.get("kind") == "Status":
            details = answer.get("details") or {}
            for obj in self.store.items() if self._is_end(details) else ():
                if obj["metadata"].get("uid") == details["uid"]:
                    self.learn_gone(obj)
                    return
        if not self._is_ours(answer):
            return
        if is_last_state(answer):
            self.learn_gone(answer)
            return
        included = self._scope.includes(answer)
        if included is not None:
            self._change(self._core.learn(answer, included=included, shared=shared))

    def includes(self, obj: Obj) -> bool | None:
        """Whether an object belongs into the store; None if only the server can decide."""
        return self._scope.includes(obj)

    def learn_gone(self, obj: Obj) -> None:
        """Drop an object that the server reports as not found.

        Args:
            obj: any state of it. An object of the same name with another UID stays.
        """
        held = self.store.get(key_of(obj)) if self._is_ours(obj) else None
        if held is not None and held["metadata"].get("uid") == obj["metadata"].get("uid"):
            self._change(self._core.lose(held))

    def learn_deleted(self, obj: Obj, answer: Obj) -> None:
        """Store the result of a `delete`.

        Args:
            obj: any state of the object.
            answer: what `Client.delete` returned: the terminating object, or a `Status` if the
                object is gone.
        """
        if answer.get("kind") == "Status":
            self.learn_gone(obj)
        else:
            self.learn(answer)

    async def refresh(self, key: ObjectKey) -> Obj | None:
        """Read one object from the server and learn the answer.

        Use it when a write was refused because the store is stale (`Conflict`, `AlreadyExists`,
        `NotFound`), or when its answer was lost.

        Returns:
            the object as the server returned it, or a newer state that became known while the
            answer was on its way; None if it does not exist.

        Raises:
            ApiError: it could not be read; `NotFound` if the kind is not served.
            TransportError: the same.
        """
        held = self.store.get(key)
        answer = await read(self._client, self.resource, key)
        if answer is not None:
            self.learn_again(answer, held)
            newest = self.store.get(key)
            if newest is not None and version_number(newest) > version_number(answer):
                return newest
        elif held is not None:
            self.learn_gone(held)
        return answer

    def learn_again(self, answer: Obj, held: Obj | None) -> None:
        """Learn the answer to a `get`.

        Args:
            answer: the object.
            held: what the store had when the server was asked.

        Raises:
            HistoryLost: the answer is older, and this informer ends: see `Informer`.
        """
        if held is not None:
            self._compare(version_number(held), version_number(answer))
        self.learn(answer)

    def _compare(self, seen: int, got: int) -> None:
        """End if a consistent read is older than what was known before it.

        Raises:
            HistoryLost: it is.
        """
        if self._one_history and 0 < got < seen:
            error = HistoryLost(self.resource.plural, seen, got)
            self._fail(error)
            raise error

    async def catch_up(self) -> None:
        """Read everything from the server, and learn it.

        When this returns, the store is not older than the server was at the time of the call, as
        far as `learn` says. A watch that lags behind is neither waited for nor closed.

        Raises:
            ApiError: it could not be read; `Gone` if that took longer than the server keeps a list.
            TransportError: the same.
            HistoryLost: the server was restored from an older copy; see `Informer`.
        """
        self._requests.metrics.requested("list", "catch-up")
        listed: set[ObjectKey] = set()
        seen, version, token = number_of(self._core.version), 0, ""
        while True:
            page = await self._requests.page(limit=PAGE_SIZE, continue_token=token)
            version = version or number_of(page.resource_version)
            self._compare(seen, version)
            for obj in page.items:
                listed.add(key_of(obj))
                self.learn(obj, shared=True)
            token = page.continue_token
            if not token:
                break
        for obj in tuple(self.store.items()):
            if key_of(obj) not in listed and 0 < version_number(obj) <= version:
                self.learn_gone(obj)

    def _is_end(self, details: Mapping[str, Any]) -> bool:
        """Whether the details of a `Status` are of an object of this kind that was deleted."""
        kind = (details.get("group") or "", details.get("kind"))
        return bool(details.get("uid")) and kind == (self.resource.group, self.resource.plural)

    def _is_ours(self, obj: Obj) -> bool:
        return not self.ended and (obj.get("apiVersion"), obj.get("kind")) == self._type_meta

    def _change(self, changes: Sequence[StoreUpdate[Obj]]) -> None:
        try:
            self._take(self.store.apply(changes, same=same_version))
            self._dispatch.flush()
        except Exception as error:
            if self._running is None:
                raise
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End `run` with an error."""
        self._failure = error
        if self._running is not None:
            self._running.cancel()

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """List and watch until cancelled; `ready` is called when the first list was dispatched."""
        try:
            with anyio.CancelScope() as self._running:
                try:
                    await self._follow(ready)
                except Exception as error:  # noqa: BLE001 - is raised below
                    self._failure = error
        finally:
            self._running, self.ended = None, True
            with anyio.CancelScope(shield=True):  # it is quick
                await self._requests.close()
        if self._failure is not None:
            self._decide()
            raise self._failure

    def _decide(self) -> None:
        self._decided.set()
        self._settled.set()

    async def _follow(self, ready: Callable[[], None] | None) -> None:
        commands: Sequence[Command] = self._core.start(self._clock.monotonic(), random.random())
        while True:
            activity = self._carry_out(commands)
            await self._dispatch.drain()
            if self._core.synced and not self.synced:
                self._synced = True
                self._decide()
                if ready is not None:
                    ready()
            requests = self._requests
            event = await (
                requests.go_on(self._core.deadline)
                if activity is None
                else requests.begin(activity)
            )
            if isinstance(event, Listed | WatchOpened):
                self.failing = None
            commands = self._core.step(event, self._clock.monotonic(), random.random())

    def _carry_out(self, commands: Sequence[Command]) -> List | Watch | Sleep | None:
        """Change the store without awaiting, as `ReflectorCore` demands; the next activity."""
        activity = None
        for command in commands:
            match command:
                case List() | Watch() | Sleep():
                    activity = command
                case Apply(changes):
                    self._take(self.store.apply(changes, same=same_version))
                case Replace(items, initial, kept):
                    same = None if initial else same_version
                    self._take(self.store.replace(items, initial=initial, same=same, kept=kept))
                case MarkSynced():
                    pass  # `_follow` does that after the handlers were called
                case ReportError(error, during):
                    self._note(error, during)
        return activity

    def _note(self, error: Exception, during: str) -> None:
        if isinstance(error, HistoryLost) and self._one_history:
            raise error
        self.last_error = self.failing = error
        if self.settled:
            self._settled.set()
        expected = isinstance(error, Gone)
        log = self._log.info if expected else self._log.warning
        fix = {}
        if isinstance(error, NotFound):
            fix["fix"] = f"install what serves {self.resource.api_version} {self.resource.plural}"
        log(f"{during} failed", error=with_fix(error), kind=type(error).__name__, **fix)
