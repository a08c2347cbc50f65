"""Starts the parts of a program in order, and stops them in order."""

from __future__ import annotations

import asyncio
import enum
import math
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, runtime_checkable

import anyio
import attrs

from kueuelib.errors import ApiError, ConfigError, LeadershipLost, StopTimeout, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.leader import Elector
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import until_set

STOP_DEADLINE = 30.0
"""Seconds that all parts together have to end."""
ABORT_DEADLINE = 1.0
"""Seconds for parts that are cancelled a second time, or stopped without grace."""


class Group(enum.Enum):
    """When a part starts and stops.

    Servers come first so that probes answer during a slow start; webhooks precede caches because a
    list may need our own conversion; elected parts run only on the leader; the event recorder
    outlives all others so that their last events are still written.
    """

    EVENTS = "events"
    SERVERS = "servers"
    WEBHOOKS = "webhooks"
    CACHES = "caches"
    OTHERS = "others"
    ELECTED = "elected"


START_ORDER = (
    Group.EVENTS,
    Group.SERVERS,
    Group.WEBHOOKS,
    Group.CACHES,
    Group.OTHERS,
    Group.ELECTED,
)
STOP_ORDER = (
    Group.OTHERS,
    Group.ELECTED,
    Group.CACHES,
    Group.WEBHOOKS,
    Group.SERVERS,
)


class Runnable(Protocol):
    """A part of a program."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Work until cancelled, then clean up; call `ready` once others may rely on it."""
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A part with a copy of what the server has, such as a `Cache`."""

    async def catch_up(self) -> None:
        """Make the copy as new as the server is at the time of the call."""
        ...


@attrs.define(eq=False)
class _Part:
    name: str
    runnable: Runnable
    ready: asyncio.Event = attrs.field(factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


@attrs.frozen
class _CatchingUp:
    """Brings the copies of all parts up to date, once."""

    parts: tuple[CatchesUp, ...]

    async def run(self, ready: Callable[[], None]) -> None:
        async with anyio.create_task_group() as group:
            for part in self.parts:
                group.start_soon(part.catch_up)
        ready()


class Manager:
    """Runs parts until one fails, `stop` is called, or `run` is cancelled.

    Elected parts start once this process leads and every part that is a `CatchesUp` has caught up:
    a watch of a candidate may lag, and what the previous leader wrote last must be known before
    anything is decided.

    Args:
        elector: decides whether elected parts may run; without it they simply do.
        stop_deadline: seconds that all parts together have to end.
    """

    def __init__(
        self, *, elector: Elector | None = None, stop_deadline: float = STOP_DEADLINE
    ) -> None:
        self._parts: dict[Group, list[_Part]] = {group: [] for group in Group}
        self._elector = _Part("leader election", elector) if elector is not None else None
        self._catching: _Part | None = None
        self._stop_deadline = stop_deadline
        self._started: set[Group] = set()
        self._added: set[str] = set()
        self._running = False
        self._stopping = False
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._log = get_logger("manager")

    @property
    def ready(self) -> bool:
        """Whether every part that may run here is ready.

        With an elector these are all but the elected ones: a candidate and a new leader serve
        probes and webhooks as well as others.
        """
        if self._stopping or not self._running:
            return False
        needed = set(START_ORDER) - ({Group.ELECTED} if self._elector is not None else set())
        return needed <= self._started

    @property
    def leading(self) -> bool | None:
        """Whether this process leads; None without an election."""
        return None if self._elector is None else self._elector_part().leading

    @property
    def identity(self) -> str:
        """The holder of the Lease while this process leads; empty without an election."""
        return "" if self._elector is None else self._elector_part().identity

    def annotate_lease(self, key: str, value: str) -> None:
        """Annotate the Lease while this process leads; do nothing without an election."""
        if self._elector is not None:
            self._elector_part().annotate(key, value)

    def require_leadership(self) -> None:
        """Do nothing while this process may act as the leader; for `Client.guarded`.

        The elector notices a lost Lease a moment later than the Lease is lost, for example after
        the process was paused. Whatever must not happen without the Lease calls this first.

        Raises:
            LeadershipLost: the Lease is not ours, or was not renewed in time, or a part has failed
                with this error.
        """
        if isinstance(self._error, LeadershipLost):
            raise self._error
        if self._elector is not None and not self._elector_part().is_leader():
            raise LeadershipLost("the lease is not held at this moment")

    def add(self, group: Group, runnable: Runnable, name: str = "") -> None:
        """Add a part; it starts at once when its group has been started.

        Raises:
            RuntimeError: the manager is stopping.
        """
        if self._stopping:
            raise RuntimeError("a manager that stops takes no further parts")
        part = _Part(name or type(runnable).__name__, runnable)
        self._parts[group].append(part)
        if group in self._started:
            self._start(part)

    def once(self, what: str, fix: str) -> None:
        """Note what was added; for functions such as `jobs.setup`, which add many parts.

        Args:
            what: was added.
            fix: what to do instead of adding it again.

        Raises:
            ConfigError: it was added to this manager before.
        """
        if what in self._added:
            raise ConfigError(what, "is in this manager already", fix)
        self._added.add(what)

    def stop(self) -> None:
        """Ask `run` to stop everything and return; calling again does nothing."""
        self._stop.set()

    async def run(self) -> None:
        """Start all parts, wait, stop all parts.

        Raises:
            RuntimeError: it was run before.
            StopTimeout: parts did not end in time.
            BaseException: what the first failing part raised.
        """
        if self._running or self._stopping:
            raise RuntimeError("a manager can run only once")
        self._running = True
        try:
            await self._start_all()
            await self._stop.wait()
        finally:
            self._stopping = True
            late = await self._stop_all()
        if self._error is not None:
            raise self._error
        if late:
            raise StopTimeout(late, self._stop_deadline)

    async def _start_all(self) -> None:
        if self._elector is not None:
            # The time that a dead leader's lease has left runs while our own parts start.
            self._elector_part().hold()
            self._start(self._elector)
        for group in START_ORDER:
            if group is Group.ELECTED and self._elector is not None:
                self._elector_part().stand()
                await self._until_ready([self._elector])
                await self._catch_up()
            if self._stop.is_set():
                return
            self._started.add(group)
            for part in self._parts[group]:
                self._start(part)
            await self._until_ready(self._parts[group])
        if not self._stop.is_set():
            self._log.info("started")

    async def _catch_up(self) -> None:
        parts = (part.runnable for group in self._parts.values() for part in group)
        copies = tuple(part for part in parts if isinstance(part, CatchesUp))
        if self._stop.is_set() or not copies:
            return
        self._catching = _Part("catching up", _CatchingUp(copies))
        self._start(self._catching)
        await self._until_ready([self._catching])

    def _start(self, part: _Part) -> None:
        # Not in a task group, which would wait for what does not end: docs/designs/0011-anyio.md
        part.task = asyncio.create_task(part.runnable.run(part.ready.set), name=part.name)
        part.task.add_done_callback(lambda task: self._ended(part, task))

    def _ended(self, part: _Part, task: asyncio.Task[None]) -> None:
        part.ready.set()
        error = None if task.cancelled() else task.exception()
        if task.cancelled() and not self._stopping:
            error = RuntimeError(f"{part.name}: ended by a cancellation although nobody stopped it")
        if error is None:
            return
        if self._stopping:
            self._log.error("failed while stopping", part=part.name, error=str(error))
            return
        while isinstance(error, BaseExceptionGroup):
            lost = error.subgroup(LeadershipLost)  # whatever else failed with it does not matter
            if lost is None and len(error.exceptions) > 1:
                break
            error = (lost or error).exceptions[0]
        if self._error is None:
            self._error = error
        self._log.error("failed, stopping", part=part.name, error=str(error))
        self._stop.set()

    async def _until_ready(self, parts: Iterable[_Part]) -> None:
        """Wait until all of them are ready, or until it is time to stop."""
        async with until_set(self._stop):
            for part in list(parts):
                await part.ready.wait()

    async def _stop_all(self) -> list[str]:
        """Stop group after group; the names of the parts that were late."""
        lost = isinstance(self._error, LeadershipLost)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (ABORT_DEADLINE if lost else self._stop_deadline)
        late: list[str] = []
        if self._catching is not None:
            late += await self._stop_parts([self._catching], deadline)
        for group in STOP_ORDER:
            late += await self._stop_parts(self._parts[group], deadline)
        if self._elector is not None:
            late += await self._stop_parts([self._elector], deadline)
        late += await self._stop_parts(self._parts[Group.EVENTS], deadline)
        self._log.info("stopped", late=late) if late else self._log.info("stopped")
        return [] if lost else late

    async def _stop_parts(self, parts: Iterable[_Part], deadline: float) -> list[str]:
        tasks = {part.task: part.name for part in parts if part.task and not part.task.done()}
        if not tasks:
            return []
        for task in tasks:
            task.cancel()
        left = max(deadline - asyncio.get_running_loop().time(), 0.0)
        _, late = await asyncio.wait(tasks, timeout=left)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=ABORT_DEADLINE)
        return sorted(tasks[task] for task in late)

    def _elector_part(self) -> Elector:
        assert self._elector is not None
        assert isinstance(self._elector.runnable, Elector)
        return self._elector.runnable


class Signals:
    """While entered: the first SIGTERM or SIGINT calls `stop`, the second ends the process with 1.

    Args:
        stop: called once, on the event loop.
    """

    _installed = False

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._seen = 0

    def __enter__(self) -> None:
        if Signals._installed:
            raise RuntimeError("signal handlers are installed already")
        Signals._installed = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    def __exit__(self, *_: object) -> None:
        Signals._installed = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def _received(self, number: signal.Signals) -> None:
        self._seen += 1
        if self._seen > 1:
            os._exit(1)
        get_logger("manager").info("stopping", signal=signal.Signals(number).name)
        self._stop()


# ---- one process, several lives: after a lost lease a program starts over as a candidate ---------


@attrs.define
class ProgramRun:
    """What a signal has to end: the running manager, or a start that waits for something.

    Attributes:
        manager: the running one; None during the start.
        start: cancelled by a signal while there is no manager.
        stopped: whether a signal came.
        has_run: whether the manager of this life has begun to run.
    """

    manager: Manager | None = None
    start: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    stopped: bool = False
    has_run: bool = False

    async def run(self, manager: Manager) -> None:
        """Run the manager; the start is over."""
        self.manager, self.has_run = manager, True
        try:
            await manager.run()
        finally:
            self.manager = None

    def stop(self) -> None:
        """End this life, and start no other one."""
        self.stopped = True
        if self.manager is None:
            self.start.cancel()
        else:
            self.manager.stop()


async def run_until_signal(
    once: Callable[[ProgramRun, float], Awaitable[None]], patience: float
) -> None:
    """Runs a program until SIGTERM or SIGINT, again after each lost lease.

    Use one identity for all lives (see `ElectionOptions`): then the next one takes the lease of the
    lost one at once, unless another process has it.

    Args:
        once: one life: connects, runs the manager by `ProgramRun.run`, and closes its clients. It
            is given the seconds to wait for the API server.
        patience: these seconds at the start; later there is no limit.
    """
    life = ProgramRun()
    with Signals(life.stop):
        await run_until_stopped(life, once, patience)


async def run_until_stopped(
    life: ProgramRun, once: Callable[[ProgramRun, float], Awaitable[None]], patience: float
) -> None:
    """As `run_until_signal`, without signal handlers: for callers that use `ProgramRun.stop`.

    A server that has just been restarted refuses requests at first, for example because it does not
    know its roles yet. So once the program has run, a start that fails is tried again.

    Args:
        life: ends it.
        once: one life.
        patience: seconds to wait for the API server at the start.
    """
    pauses = Backoff(base=0.5, cap=10.0, jitter=0.2)
    while not life.stopped:
        life.has_run = False
        with anyio.CancelScope() as life.start:
            try:
                await once(life, patience)
            except LeadershipLost as error:
                # All parts were stopped, so this is as good as a new process: be a candidate
                # again, however long the server stays away, and whatever history it has.
                get_logger("app").warning("starting over as a candidate", why=str(error))
                patience = math.inf
                continue
            except (ApiError, TransportError, ConfigError) as error:
                if life.has_run or patience < math.inf:
                    raise
                pause = pauses.next(anyio.current_time(), random.random())
                get_logger("app").warning(
                    "cannot start again yet", why=str(error), again_in=f"{pause:.1f} s"
                )
                await anyio.sleep(pause)
                continue
        return
