"""An event loop in virtual time: no selector, no threads, one history per seed.

Ready callbacks run in their order, or in an order chosen by a seed; timers run by instant, then in
the order they were set. When nothing is ready, time jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import heapq
import itertools
import math
import random
import socket
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import anyio
import attrs

from kueuelib.errors import KueuelibError

# ---- callbacks and timers of a simulated event loop, without debug checks: there are millions ----


class Handle:
    """A callback; what asyncio asks of its own `Handle`.

    Args:
        callback: what is called.
        args: with these.
        context: in this; None: in a copy of the present one.

    Attributes:
        dead: whether it was cancelled.
    """

    __slots__ = ("args", "callback", "context", "dead")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.context = contextvars.copy_context() if context is None else context
        self.callback = callback
        self.args = args
        self.dead = False

    def cancel(self) -> None:
        """It will not be called, and holds nothing."""
        self.dead = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.dead

    def get_context(self) -> contextvars.Context:
        """The context in which it is called."""
        return self.context

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call it; the loop's handler hears of what it raises."""
        try:
            self.context.run(self.callback, *self.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as every loop does
            message = f"Exception in callback {self.callback!r}"
            loop.call_exception_handler({"message": message, "exception": error, "handle": self})

    def is_step(self) -> bool:
        """Whether it is a step of a task.

        Only tasks may overtake: asyncio guarantees that plain callbacks, for example those of a
        transport to its protocol, run in the order they were registered.
        """
        return isinstance(getattr(self.callback, "__self__", None), asyncio.Task)


class Timer(Handle):
    """A callback at an instant.

    Args:
        instant: the clock of the owner then.
        cancelled: called when it is cancelled before it was taken.
    """

    __slots__ = ("_cancelled", "_instant")

    def __init__(
        self,
        instant: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        cancelled: Callable[[], None],
    ) -> None:
        super().__init__(callback, args, context)
        self._instant = instant
        self._cancelled: Callable[[], None] | None = cancelled

    def when(self) -> float:
        """The clock of the owner when it is called."""
        return self._instant

    def cancel(self) -> None:
        """It will not be called, and holds nothing."""
        if not self.dead and self._cancelled is not None:
            self._cancelled()
        super().cancel()

    def taken(self) -> None:
        """It waits no longer."""
        self._cancelled = None


def _nothing() -> None:
    """What a cancelled callback is."""


# ---- the simulated processes: the owner of the running code, its clock and its random numbers ----
# A context variable names the owner of the running code. Tasks, callbacks and timers inherit it
# with their context, so that a whole process can be killed or paused, and has its own clock.

EPOCH = 1_790_000_000.0
"""Seconds since the epoch at which every world begins, by a correct clock."""
UPTIME = 10_000.0
"""The time of monotonic clocks at that moment."""


class SimulatedProcess:
    """One simulated process: its name, whether it runs, its clocks and its random numbers.

    A restarted process is another owner with the same name.

    Args:
        name: for example `manager-1`.
        life: the number of this start of the process, from 0.

    Attributes:
        alive: False once it was killed: nothing of it still runs.
        paused: whether its callbacks are held back.
        held: callbacks that wait for the end of the pause, in the order they became ready.
        woken_at: when its last pause ended, in seconds since the beginning of the world.
        rate: seconds of its clocks in one second of the world.
        offset: seconds by which its wall clock is ahead.
        chance: the source of its random numbers.
        world_anchor: an instant, in seconds since the beginning of the world ...
        own_anchor: ... and the time of its monotonic clock then.
    """

    def __init__(self, name: str, life: int = 0) -> None:
        self.name = name
        self.life = life
        self.alive = True
        self.paused = False
        self.held: list[Handle] = []
        self.woken_at = -math.inf
        self.rate = 1.0
        self.offset = 0.0
        self.chance = random.Random(0)
        self.world_anchor = 0.0
        self.own_anchor = UPTIME
        self.reseed(0)

    def __repr__(self) -> str:
        return f"{self.name}/{self.life}"

    def reseed(self, seed: int) -> None:
        """Begin a new sequence of random numbers, which also depends on the name and the life."""
        text = f"{seed}/{self.name}/{self.life}".encode()
        self.chance.seed(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big"))

    def monotonic(self, world: float) -> float:
        """The time of its monotonic clock, in seconds.

        Args:
            world: seconds since the beginning of the world.
        """
        return self.own_anchor + (world - self.world_anchor) * self.rate

    def wall(self, world: float) -> float:
        """The time of its wall clock, in seconds since the epoch."""
        return EPOCH - UPTIME + self.monotonic(world) + self.offset

    def instant(self, monotonic: float) -> float:
        """When its monotonic clock shows this, in seconds since the beginning of the world."""
        return self.world_anchor + (monotonic - self.own_anchor) / self.rate

    def skew(self, world: float, offset: float, rate: float) -> None:
        """Set the wall clock wrong by `offset` seconds, and let both clocks run at `rate`.

        Raises:
            ValueError: a clock would stand still or run backwards.
        """
        if rate <= 0:
            raise ValueError(f"a clock cannot run at {rate!r}: give a rate above 0")
        self.own_anchor, self.world_anchor = self.monotonic(world), world
        self.rate, self.offset = rate, offset


STORM = SimulatedProcess("storm")
"""The owner of code outside all simulated processes: the test and the wire."""
OWNER: contextvars.ContextVar[SimulatedProcess] = contextvars.ContextVar(
    "storm_owner", default=STORM
)
ACTOR: contextvars.ContextVar[str] = contextvars.ContextVar("storm_actor", default="")
"""Inside the server, the sender of the present request; empty for the server itself."""


def context_of(owner: SimulatedProcess, actor: str = "") -> contextvars.Context:
    """An otherwise empty context for the code of a process."""
    context = contextvars.Context()
    context.run(OWNER.set, owner)
    if actor:
        context.run(ACTOR.set, actor)
    return context


def process_of(handle: Handle) -> SimulatedProcess:
    """The owner of a callback."""
    return handle.context.get(OWNER, STORM)


# --------------------------------------------------------------------------------------------------

_CANCELLED_KEPT = 512


class Stuck(KueuelibError):
    """The simulation cannot continue: nothing will ever happen again, or too much happens."""


class StormFuture(asyncio.Future[Any]):
    """A future whose place in a set is the same in every run."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class StormTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run.

    Attributes:
        owner: its process.
    """

    def __init__(self, number: int, coro: Any, loop: StormLoop, **options: Any) -> None:
        self._number = number
        context = options.get("context")
        self.owner = OWNER.get() if context is None else context.get(OWNER, STORM)
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


@attrs.frozen
class ListenAddress:
    """An address, in the form of a listening socket."""

    host: str
    port: int
    family: int = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    def close(self) -> None:
        """Does nothing."""


class Wire(Protocol):
    """What a loop needs of its network."""

    async def reach(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Reach a listener."""
        ...

    def connect(self, factory: Callable[[], Any], sock: socket.socket) -> tuple[Any, Any]:
        """Connect a protocol with the listener that its socket has reached."""
        ...

    def listen(self, factory: Callable[[], Any], port: int) -> Any:
        """Listen at a port of the present process."""
        ...


class StormLoop(asyncio.BaseEventLoop):
    """The loop of a simulated world.

    Args:
        seed: for the order of callbacks.
        disorder: the share of steps (0 to 1) that run any ready callback instead of the first.

    Attributes:
        now: seconds since the beginning of the world.
        cost: seconds that every callback takes.
        steps: the number of callbacks so far.
        limit: the maximum number of callbacks.
        wire: carries connections; set by its creator.
        scopes: the numbers of cancel scopes.
        problems: uncaught exceptions of callbacks and tasks, as text.
    """

    def __init__(self, seed: int = 0, disorder: float = 0.0) -> None:
        super().__init__()
        self.now = 0.0
        self.cost = 2e-5
        self.steps = 0
        self.limit = 50_000_000
        self.disorder = disorder
        self.schedule = random.Random(seed)
        self.wire: Wire | None = None
        self.problems: list[str] = []
        self._queue: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._cancelled = 0
        self._numbers = itertools.count(1)
        self.scopes = itertools.count(1)
        self._graveyard: list[Any] = []
        self.set_task_factory(_new_task)
        self.set_exception_handler(_note)

    # ---- time

    def time(self) -> float:
        """Seconds by the monotonic clock of the running process."""
        owner = OWNER.get()
        return owner.own_anchor + (self.now - owner.world_anchor) * owner.rate

    def wall(self) -> float:
        """Seconds since the epoch by the clock of the running process."""
        return OWNER.get().wall(self.now)

    def after(
        self, seconds: float, callback: Callable[..., object], *args: Any, context: Any
    ) -> Timer:
        """Call back after a number of seconds of the world, independent of clocks."""
        instant = self.now + max(seconds, 0.0)
        own = context.get(OWNER, STORM).monotonic(instant)
        handle = Timer(own, callback, args, context, self._forget)
        return self._push(instant, handle)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Timer:
        """Call back when the clock of the calling process shows `when`."""
        handle = Timer(when, callback, args, context, self._forget)
        return self._push(process_of(handle).instant(when), handle)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Timer:
        """Call back after a number of seconds of the calling process's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def retime(self, owner: SimulatedProcess) -> None:
        """Move the timers of a process whose clock was changed."""
        timers = [
            (owner.instant(handle.when()) if process_of(handle) is owner else at, number, handle)
            for at, number, handle in self._timers
        ]
        heapq.heapify(timers)
        self._timers = timers

    def _push(self, instant: float, handle: Timer) -> Timer:
        heapq.heappush(self._timers, (instant, next(self._numbers), handle))
        return handle

    def _forget(self) -> None:
        """One more timer that waits was cancelled."""
        self._cancelled += 1
        if self._cancelled > _CANCELLED_KEPT and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].dead]
            heapq.heapify(self._timers)
            self._cancelled = 0

    # ---- callbacks

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        """Call back at the present instant."""
        handle = Handle(callback, args, context)
        self._queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return StormFuture(next(self._numbers), self)

    def new_number(self) -> int:
        """A unique number in this world."""
        return next(self._numbers)

    def spawn(
        self, owner: SimulatedProcess, work: Coroutine[Any, Any, Any], actor: str = ""
    ) -> StormTask:
        """Start a task that belongs to a process."""
        context = context_of(owner, actor)
        task: StormTask = self.create_task(work, context=context)  # type: ignore[assignment]
        return task

    def kill(self, owner: SimulatedProcess) -> None:
        """Keep everything of a process from ever running again.

        Its tasks are kept, so that no `finally` runs when memory is freed.
        """
        owner.alive = False
        self._graveyard.append(owner.held)
        tasks = asyncio.all_tasks(self)
        self._graveyard += [task for task in tasks if getattr(task, "owner", STORM) is owner]
        self._graveyard += [handle for handle in self._queue if process_of(handle) is owner]
        self._graveyard += [entry for entry in self._timers if process_of(entry[2]) is owner]
        owner.held = []
        self._queue = deque(handle for handle in self._queue if process_of(handle) is not owner)
        self._timers = [entry for entry in self._timers if process_of(entry[2]) is not owner]
        heapq.heapify(self._timers)

    def bury(self, *objects: Any) -> None:
        """Keep an object that must not be freed before the process ends."""
        self._graveyard += objects

    def resume(self, owner: SimulatedProcess) -> None:
        """End the pause of a process, and run what became ready meanwhile."""
        owner.paused, owner.woken_at = False, self.now
        held, owner.held = owner.held, []
        self._queue.extend(held)

    def _run_once(self) -> None:
        """Run callbacks until the loop is asked to stop."""
        while not self._stopping:  # type: ignore[attr-defined]
            timers = self._timers
            while timers and timers[0][0] <= self.now:
                self._take_timer()
            if self._queue:
                self._step()
                continue
            while timers and timers[0][2].dead:
                self._take_timer()
            if not timers:
                raise Stuck("nothing will ever happen again: no callback and no timer is left")
            self.now = max(self.now, timers[0][0])

    def _take_timer(self) -> None:
        _, _, handle = heapq.heappop(self._timers)
        handle.taken()
        if handle.dead:
            self._cancelled = max(self._cancelled - 1, 0)
        else:
            self._queue.append(handle)

    def _step(self) -> None:
        queue = self._queue
        if self.disorder and len(queue) > 1 and self.schedule.random() < self.disorder:
            index = self.schedule.randrange(len(queue))
            if not queue[index].is_step():
                index = 0
            handle = queue[index]
            del queue[index]
        else:
            handle = queue.popleft()
        if handle.dead:
            return
        owner = process_of(handle)
        if not owner.alive:
            self._graveyard.append(handle)
            return
        if owner.paused:
            owner.held.append(handle)
            return
        self.steps += 1
        if self.steps > self.limit:
            raise Stuck(f"more than {self.limit} callbacks were run")
        self.now += self.cost
        handle.run(self)

    # ---- what other loops do with threads, sockets and signals

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function at once: there are no threads here."""
        del executor
        ended = self.create_future()
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - is passed to the waiter
            ended.set_exception(error)
        else:
            ended.set_result(result)
        return ended

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Does nothing: there are no signals here."""

    def remove_signal_handler(self, sig: int) -> bool:
        """Does nothing: there are no signals here."""
        del sig
        return False

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Returns the address itself, because there are no names here."""
        del family, flags
        return [(socket.AF_INET, type or socket.SOCK_STREAM, proto or 6, "", (host, port))]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Reach a listener on the wire."""
        assert self.wire is not None, "a world has a wire"
        await self.wire.reach(sock, address)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, *args: Any, **options: Any
    ) -> Any:
        """Connect a protocol with the listener that its socket has reached; `ssl` is ignored."""
        del args
        assert self.wire is not None, "a world has a wire"
        transport, protocol = self.wire.connect(factory, options["sock"])
        made: Any = type(protocol)
        if not made.__module__.startswith("kueuelib."):  # aiohttp keeps its own in sets
            protocol.storm_number = self.new_number()
            protocol.__class__ = _numbered(made)
        return transport, protocol

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Listen on the wire, at the address of the process; `ssl` is ignored."""
        del host
        assert self.wire is not None, "a world has a wire"
        sock = options.get("sock")
        return self.wire.listen(factory, sock.getsockname()[1] if sock is not None else port)

    def _process_events(self, event_list: Any) -> None:
        """Does nothing: there is no selector."""

    def _write_to_self(self) -> None:
        """Does nothing: there is no selector to wake."""


@functools.cache
def _numbered(cls: Any) -> Any:
    """A class whose objects have the same place in a set in every run."""
    return type(cls.__name__, (cls,), {"__hash__": lambda self: self.storm_number})


def _new_task(loop: Any, coro: Any, **options: Any) -> asyncio.Future[Any]:
    if loop.is_running() and asyncio.current_task() is not None:
        _number_scopes()
    return StormTask(loop.new_number(), coro, loop, **options)


@functools.cache
def _number_scopes() -> None:
    """Gives cancel scopes of anyio a place in sets that is the same in every run.

    anyio cancels the scopes inside a scope in the order of a set.
    """
    cls: Any = type(anyio.CancelScope())
    cls.__hash__ = _place


_PLACES: dict[int, tuple[int, weakref.ref[Any]]] = {}


def _place(scope: Any) -> int:
    key = id(scope)
    known = _PLACES.get(key)
    if known is None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, StormLoop):
            return object.__hash__(scope)
        number = next(loop.scopes)
        known = _PLACES[key] = (number, weakref.ref(scope, lambda _: _PLACES.pop(key, None)))
    return known[0]


def _note(loop: Any, context: dict[str, Any]) -> None:
    error = context.get("exception")
    loop.problems.append(f"{OWNER.get().name}: {context.get('message')}: {error!r}")
