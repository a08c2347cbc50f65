"""Controllers: deltas to keys, keys to reconciliations, results to the queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio
import attrs
from anyio.lowlevel import checkpoint

from kueuelib.api.forms import Kind, resource_of
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ConfigError, KueuelibError
from kueuelib.machinery.backoff import RateLimiter
from kueuelib.machinery.ownership import controller_key
from kueuelib.machinery.queue import LOW_PRIORITY, Item, QueueCore
from kueuelib.machinery.store import Delta
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.dispatch import Handler, is_old_news
from kueuelib.runtime.failures import is_terminal
from kueuelib.runtime.logs import get_logger, run_of
from kueuelib.runtime.predicates import Predicate
from kueuelib.runtime.steps import LONG, Steps, contained, lasting_tasks

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import QueueTimes, Telemetry


# ---- the work queue as controllers see it: waiting around `QueueCore` ----------------------------

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to work on, for workers on one event loop.

    Args:
        name: for metrics.
        limiter: how long failed keys wait; exponential from 5 ms to 60 s by default.
        clock: monotonic time for delays.
        telemetry: where depth and durations are reported.
    """

    def __init__(
        self,
        name: str,
        *,
        limiter: RateLimiter[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.name = name
        self.core: QueueCore[K] = QueueCore(limiter)
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._times = self._report(telemetry)

    def __len__(self) -> int:
        """How many keys are ready."""
        return len(self.core)

    def add(
        self, *keys: K, after: float = 0.0, priority: int | None = None, rate_limited: bool = False
    ) -> None:
        """Ask for a run of each key; see `QueueCore.add`."""
        now = self._clock.monotonic()
        if self.core.add(*keys, now=now, after=after, priority=priority, rate_limited=rate_limited):
            self._wake(now)

    def add_later(
        self,
        keys: Iterable[K],
        after: float,
        not_before: Callable[[K], float] = lambda _: 0.0,
    ) -> None:
        """Ask for a run of each key that is not due by then, or at most `after` later.

        Asking often costs little.

        Args:
            keys: what to work on.
            after: not before so many seconds.
            not_before: not before an instant either, for each, in monotonic seconds of the clock.
        """
        now, is_due = self._clock.monotonic(), self.core.is_due
        for key in keys:
            at = max(now + after, not_before(key))
            if not is_due(key, at + after):
                self.add(key, after=at - now)

    async def get(self) -> Item[K] | None:
        """The next key; None once the queue is shut down and empty."""
        while True:
            now = self._clock.monotonic()
            item = self.core.pop_ready(now)
            if item is not None:
                if self._times is not None:
                    self._times.waited(item.waited)
                self._wake(now)
                return item
            if self.core.exhausted:
                return None
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._wake(now)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(self._clock.monotonic())
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: K, *, settled: bool = False) -> None:
        """The worker ended its run of `key`; see `QueueCore.done`."""
        now = self._clock.monotonic()
        took, again = self.core.done(key, now, settled=settled)
        if self._times is not None:
            self._times.worked(took)
        if again or settled:
            self._wake(now)

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is its first."""
        self.core.forget(key)

    def shut_down(self, *, drain: bool = False) -> None:
        """Ignore adds; hand out what is ready (`drain`), or nothing."""
        self.core.shut_down(drain=drain)
        self._wake(self._clock.monotonic())

    def _wake(self, now: float) -> None:
        """Wake a worker if there is something to do, else set the timer for the next delayed key.

        One at a time: a worker that gets a key wakes the next one. Keys that wait for their own
        earlier run do not count, so no worker wakes without work.
        """
        deadline = self.core.next_deadline(now) if self._waiters else None
        if deadline is not None and deadline > now:
            if self._timer is None or self._timer_at != deadline:
                self._stop_timer()
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(deadline - now, self._on_timer)
                self._timer_at = deadline
            return
        self._stop_timer()
        if deadline is not None:
            self._wake_one()
        elif self.core.exhausted:
            while self._waiters:
                self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _on_timer(self) -> None:
        self._timer = None
        self._wake(self._clock.monotonic())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self, telemetry: Telemetry | None) -> QueueTimes | None:
        if telemetry is None:
            return None
        from kueuelib.runtime.telemetry import QueueSample

        def sample() -> QueueSample:
            now = self._clock.monotonic()
            core = self.core
            return QueueSample(
                core.depth, core.adds, core.retries, core.unfinished(now), core.longest_running(now)
            )

        return telemetry.add_queue(self.name, sample)


# --------------------------------------------------------------------------------------------------

SYNC_TIMEOUT = 120.0
"""Seconds that a controller waits for the first lists of what it watches."""
START_GRACE = 1.0
"""Seconds in which informers have to start; after that, the cache was probably forgotten."""
RECONCILE_GRACE = 10.0
"""Seconds that running reconciliations have to end when the controller stops."""
Ready = Callable[[], None]
MapFunction = Callable[[Delta[Obj]], Iterable[ObjectKey]]
Observer = Callable[[str, ObjectKey, str], None]
"""Learns how a reconciliation ended: the controller's name, the key, the error or an empty text."""
OBSERVER: ContextVar[Observer | None] = ContextVar("observer of reconciliations", default=None)
"""Every controller that runs in a context where it is set reports to it; tests set it."""
Failed = Callable[[ObjectKey, Exception, str], None]
"""Learns of a failed reconciliation: the key, the error, and what it says to people."""


def _check_seconds(_: object, __: object, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, (int, float, type(None))):
        fix = "give seconds, for example timedelta(minutes=5).total_seconds()"
        raise TypeError(f"requeue_after is {given!r:.60}; {fix}")


@attrs.frozen
class Result:
    """How a reconciliation without error ended.

    Attributes:
        requeue_after: seconds until the key is reconciled again; None or 0: only after a change.
        priority: the priority of that next reconciliation; None keeps the present one.
        rate_limited: reconcile again after a delay that grows with each such result and each error
            in a row, but is at most `requeue_after` seconds.
        settled: nothing is left to do in the state that was known after the last `await` of the
            reconciliation. So changes that arrived during it, such as those by its own writes, do
            not trigger another one. Ignored if a requeue is requested.
    """

    requeue_after: float | None = attrs.field(default=None, validator=_check_seconds)
    priority: int | None = None
    rate_limited: bool = False
    settled: bool = False


DONE = Result()
"""Nothing more to do until something changes."""
SETTLED = Result(settled=True)
"""The same, and changes that arrived during the reconciliation need no other one."""


class Reconciler(Protocol):
    """Makes one object as it should be.

    It receives only the key, never the event: it reads the present state and acts on that. Errors
    are retried with growing delays, except `TerminalError`.
    """

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one object and act."""
        ...


class Source(Protocol):
    """What a controller listens to: an `Informer`, typed or not, or an `OptionalInformer`."""

    @property
    def resource(self) -> Resource:
        """The kind."""
        ...

    @property
    def cluster(self) -> str:
        """The name of a cluster that the program can do without; empty for its own."""
        ...

    @property
    def started(self) -> bool:
        """Whether it is running."""
        ...

    def add_handler(self, handler: Handler) -> Callable[[], None]:
        """See `Informer.add_handler`."""
        ...

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """See `Informer.wait_synced`."""
        ...


@attrs.frozen(eq=False)
class _Worker:
    """One that reconciles. The end of the scope that it is started in only lets it end.

    Attributes:
        scope: ends its reconciliation.
        ended: set at its end.
    """

    scope: anyio.CancelScope = attrs.field(factory=lambda: anyio.CancelScope(shield=True))
    ended: anyio.Event = attrs.field(factory=anyio.Event)


class Controller:
    """A queue of keys, what fills it, and the workers that empty it.

    It listens to its informers from the beginning of `run`, or of `listen`, and first receives
    their content. So a controller that waits for a Lease collects no keys of objects that come and
    go meanwhile. It does not wait for objects of another `Cluster`, which may be unreachable.

    Args:
        name: for logs and metrics; unique in the process.
        reconciler: does the work.
        workers: how many keys may be worked on at once, never the same key twice.
        timeout: seconds after which one reconciliation is cancelled and counts as an error.
        limiter: how long failed keys wait.
        sync_timeout: seconds to wait for the first lists.
        clock: monotonic time.
        telemetry: where to report.
        failed: learns of failures, after the log.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        workers: int = 1,
        *,
        timeout: float | None = None,
        limiter: RateLimiter[ObjectKey] | None = None,
        sync_timeout: float = SYNC_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
        failed: Failed | None = None,
    ) -> None:
        self.name = name
        self._on_failure = failed
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            name, limiter=limiter, clock=clock, telemetry=telemetry
        )
        self._reconciler = reconciler
        self._workers = workers
        self._timeout = timeout
        self._sync_timeout = sync_timeout
        self._clock = clock
        self._sources: list[tuple[Source, Handler]] = []
        self._unsubscribe: list[Callable[[], None]] = []
        self._metrics = None if telemetry is None else telemetry.controller(name, workers)
        if self._metrics is not None:
            self._metrics.active_workers.set_function(lambda: self.queue.core.processing)
        self._log = get_logger(f"controller.{name}")

    def for_(
        self,
        informer: Source,
        predicate: Predicate | None = None,
        first: Predicate | None = None,
    ) -> Controller:
        """Reconcile the objects of an informer themselves; see `watches`."""
        return self.watches(informer, lambda delta: (delta.key,), predicate, first)

    def owns(self, informer: Source, owner: Kind, predicate: Predicate | None = None) -> Controller:
        """Reconcile the controller, of kind `owner`, of an informer's objects.

        Its version may differ. On an update, both the old and the new controller are reconciled.
        """
        kind = resource_of(owner)

        def controllers(delta: Delta[Obj]) -> Iterator[ObjectKey]:
            for obj in (delta.old, delta.new):
                key = None if obj is None else controller_key(obj, kind)
                if key is not None:
                    yield key

        return self.watches(informer, controllers, predicate)

    def watches(
        self,
        informer: Source,
        map_fn: MapFunction,
        predicate: Predicate | None = None,
        first: Predicate | None = None,
    ) -> Controller:
        """Reconcile the keys that a function derives from each delta.

        Live changes overtake the objects of a first list.

        Args:
            informer: delivers the deltas.
            map_fn: the keys.
            predicate: the deltas that matter; all by default.
            first: the objects of a first list that probably need something, before the others.
        """

        def handler(delta: Delta[Obj]) -> None:
            if predicate is not None and not predicate(delta):
                return
            keys = tuple(dict.fromkeys(map_fn(delta)))
            if not keys:
                return
            priority = None
            if is_old_news(delta):
                priority = LOW_PRIORITY + (first is not None and first(delta))
            self.queue.add(*keys, priority=priority)

        self._sources.append((informer, handler))
        return self

    @property
    def listening(self) -> bool:
        """Whether deltas become keys now."""
        return bool(self._unsubscribe)

    def listen(self) -> None:
        """Let deltas become keys from now on, after what the informers hold; `run` does it."""
        if not self._unsubscribe:
            self._unsubscribe = [each.add_handler(handler) for each, handler in self._sources]

    def enqueue(self, *keys: ObjectKey, after: float = 0.0, priority: int | None = None) -> None:
        """Reconcile these keys, not before `after` seconds."""
        self.queue.add(*keys, after=after, priority=priority)

    async def run(self, ready: Ready) -> None:
        """Work until cancelled; then let running reconciliations end.

        Raises:
            ConfigError: something watched could not be listed in time, or its informer is not
                running.
        """
        self.listen()
        sources = list(dict.fromkeys(informer for informer, _ in self._sources))
        await self._until_started(sources)
        for informer in sources:
            if not informer.cluster:
                await informer.wait_synced(self._sync_timeout)
        workers = [_Worker() for _ in range(self._workers)]
        async with lasting_tasks(f"controller {self.name}") as group:
            for number, worker in enumerate(workers):
                group.start_soon(self._work, worker, name=f"{self.name}-{number}")
            ready()
            try:
                await anyio.sleep_forever()
            finally:
                while self._unsubscribe:
                    self._unsubscribe.pop()()
                self.queue.shut_down(drain=False)
                try:  # a second cancellation of the task ends the grace
                    with anyio.move_on_after(RECONCILE_GRACE, shield=True):
                        for worker in workers:
                            await worker.ended.wait()
                finally:
                    for worker in workers:
                        worker.scope.cancel()

    async def _until_started(self, sources: Iterable[Source]) -> None:
        """Fail soon when the cache was forgotten, and not after the whole sync timeout."""
        end = self._clock.monotonic() + START_GRACE
        while idle := [source.resource.plural for source in sources if not source.started]:
            if self._clock.monotonic() >= end:
                raise ConfigError(
                    f"controller {self.name}",
                    f"nothing runs the informers of {', '.join(idle)}",
                    "add the cache to the manager: manager.add(Group.CACHES, cache)",
                )
            await self._clock.sleep(START_GRACE / 20)

    async def _work(self, worker: _Worker) -> None:
        try:
            with worker.scope:
                while (item := await self.queue.get()) is not None:
                    settled = False
                    try:
                        settled = await self._process(item)
                    finally:
                        self.queue.done(item.key, settled=settled)
                    if item.priority < 0:  # most have nothing to await, and there may be many
                        await checkpoint()
        finally:
            worker.ended.set()

    async def _process(self, item: Item[ObjectKey]) -> bool:
        """Reconcile a key; returns whether the result says that it is settled."""
        key, started = item.key, self._clock.monotonic()
        try:
            with run_of(self.name, key):
                steps = Steps(self._reconciler.reconcile(key), self._clock.monotonic)
                try:
                    with anyio.fail_after(self._timeout) as limit:
                        result = checked(await contained(steps))
                except Exception as error:  # noqa: BLE001 - the one place: whatever it is, continue
                    self._failed(item, error, timed_out=limit.cancel_called)
                    result = DONE
                else:
                    self._succeeded(item, result)
                if steps.longest > LONG:
                    self._log.warning(
                        "blocks the event loop",
                        seconds=round(steps.longest, 1),
                        fix="await what waits, and move long work to anyio.to_thread",
                    )
                return result.settled and not result.requeue_after and not result.rate_limited
        finally:
            if self._metrics is not None:
                self._metrics.seconds.observe(self._clock.monotonic() - started)

    def _succeeded(self, item: Item[ObjectKey], result: Result) -> None:
        if (observer := OBSERVER.get()) is not None:
            observer(self.name, item.key, "")
        if result.rate_limited:
            priority = item.priority if result.priority is None else result.priority
            after = result.requeue_after or 0.0
            self.queue.add(item.key, after=after, priority=priority, rate_limited=True)
            self._count("requeue")
            return
        self.queue.forget(item.key)
        if result.requeue_after is not None and result.requeue_after > 0:
            priority = item.priority if result.priority is None else result.priority
            self.queue.add(item.key, after=result.requeue_after, priority=priority)
            self._count("requeue_after")
        else:
            self._count("success")

    def _failed(self, item: Item[ObjectKey], error: Exception, *, timed_out: bool) -> None:
        terminal = is_terminal(error)
        self._count("error")
        if self._metrics is not None:
            self._metrics.errors.inc()
            if terminal:
                self._metrics.terminal_errors.inc()
            if timed_out:
                self._metrics.timeouts.inc()
            elif _is_unforeseen(error):
                self._metrics.panics.inc()
        foreseen = timed_out or isinstance(error, KueuelibError)
        problem = f"took longer than {self._timeout} s" if timed_out else str(error)
        if (observer := OBSERVER.get()) is not None:
            observer(self.name, item.key, f"{type(error).__name__}: {problem}")
        self._log.error(
            "reconciliation failed",
            error=problem,
            kind=type(error).__name__,
            again=not terminal,
            exc_info=None if foreseen else error,
        )
        if self._on_failure is not None:
            self._on_failure(item.key, error, problem)
        if not terminal:
            self.queue.add(item.key, priority=item.priority, rate_limited=True)

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.results[result].inc()


def _is_unforeseen(error: BaseException) -> bool:
    """Whether it is what a panic is in Go, or a group with such an error."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_unforeseen, error.exceptions))
    return not isinstance(error, KueuelibError)


def checked(result: object, function: object = None) -> Result:
    """The result of a function that may return None or a `Result`.

    Args:
        result: what it returned.
        function: is named in the error.

    Raises:
        ConfigError: it is something else.
    """
    if result is None or isinstance(result, Result):
        return result or DONE
    raise ConfigError(
        getattr(function, "__name__", "reconciler"),
        f"returned {result!r:.60}",
        "return None, or for example Result(requeue_after=60)",
    )
