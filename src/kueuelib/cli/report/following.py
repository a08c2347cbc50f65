"""Keeps a live page up to date: follows a cluster, and computes the page in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.app.explaining.decoder import Decoder
from kueuelib.app.explaining.gather import Lists
from kueuelib.cli.report.board import State, answer, next_to_explain, state_of, with_change
from kueuelib.cli.report.reading import Read
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.informer import Informer
from kueuelib.scheduler.explain.answer import Explanation

SOON = 0.1
"""Seconds after which changes are shown; all changes meanwhile become one state."""
PAUSE = 1.0
"""Seconds between two searches, at least."""
EASE = 2.0
"""It rests for this multiple of its last processor time, to use at most a third of a core."""
LONGEST = 30.0
"""Seconds after which the page is computed again although only the time has changed."""
SYNC_TIMEOUT = 120.0
LONG_COLLECTION = 0.03
"""After a garbage collection of so many seconds, the present objects are exempt from further ones.
"""
T = TypeVar("T")


class Following:
    """The states of a page, one after the other.

    Args:
        client: follows the cluster.
        read: what the caller may read.
        namespace: where kinds were listed that may not be listed in the whole cluster.
        changes: for how many Workloads to search for changes without a request.
        clock: time.

    Attributes:
        readers: how many pages are open; without any, nothing is computed.
        changed: set when there is another state, and then replaced by a new event.
    """

    def __init__(
        self,
        client: Client,
        read: Read,
        namespace: str,
        changes: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.readers = 0
        self._read = read
        self._changes = changes
        self._clock = clock
        self._name, self._number = secrets.token_hex(4), 0
        self.changed = anyio.Event()
        self._stale, self._worked_out = True, 0.0
        self._one = anyio.Lock()
        self._decoder = Decoder()
        self._state: State | None = None
        hidden = {one.kind for one in read.unseen}
        self._informers = [
            Informer(client, one, namespace=namespace if one.kind in hidden else "", clock=clock)
            for one in read.resources
            if one.kind in read.near.objects
        ]
        for informer in self._informers:
            informer.add_handler(self._note)

    @property
    def state(self) -> State:
        """The last one."""
        assert self._state is not None, "the first one is worked out before anything is served"
        return self._state

    @property
    def trouble(self) -> str:
        """Why the state may be out of date; empty if it is not."""
        failing = [(one.resource.plural, one.failing) for one in self._informers if one.failing]
        return "; ".join(f"{plural} are not up to date: {why}" for plural, why in failing)

    async def run(self, ready: Callable[[], None]) -> None:
        """Follows the cluster until cancelled; `ready` is called with the first state.

        Raises:
            ConfigError: the first lists took too long.
        """
        async with anyio.create_task_group() as group:
            for informer in self._informers:
                group.start_soon(informer.run)
            for informer in self._informers:
                await informer.wait_synced(SYNC_TIMEOUT)
            await self._look()
            ready()
            group.start_soon(self._in_turns, self._look_again, SOON)
            group.start_soon(self._in_turns, self._search, PAUSE)
            await anyio.sleep_forever()

    async def _in_turns(self, turn: Callable[[], Awaitable[float]], least: float) -> None:
        """Repeats a step, which returns its processor time, while the page has readers."""
        pause = least
        while True:
            await self._clock.sleep(pause)
            spent = await turn() if self.readers else 0.0
            pause = max(least, EASE * spent)

    async def _look_again(self) -> float:
        if self._stale or self._clock.now() - self._worked_out > LONGEST:
            return await self._look()
        return 0.0

    async def _look(self) -> float:
        """Computes the page again."""
        async with self._one:
            self._stale = False
            lists, now = self._lists(), self._clock.now()
            self._worked_out = now
            version, before = self._version(), self._state

            def work() -> State:
                facts = self._read.facts(lists, now, self._decoder)
                self._decoder.end()
                return state_of(version, facts, before)

            state, spent = await _in_thread(work)
            self._publish(state)
            return spent

    async def _search(self) -> float:
        """Searches for the change of one Workload."""
        key = None if self._stale else next_to_explain(self.state, self._changes)
        if key is None:
            return 0.0
        _, spent = await self._explain(key)
        return spent

    async def explain(self, key: ObjectKey) -> Explanation | None:
        """The whole answer about one Workload; None when it no longer waits.

        Its smallest change is part of the next state, if the Workload still waits as it did.
        """
        explanation, _ = await self._explain(key)
        return explanation

    async def _explain(self, key: ObjectKey) -> tuple[Explanation | None, float]:
        asked = self.state
        answered, spent = await _in_thread(lambda: answer(asked.facts, key))
        if answered is None:
            return None, spent
        explanation, verified = answered
        async with self._one:
            version, state = self._version(), self.state
            after, more = await _in_thread(
                lambda: with_change(version, state, asked, key, verified)
            )
            self._publish(after)
        return explanation, spent + more

    def _lists(self) -> Lists:
        by_kind: dict[str, Sequence[Obj]] = {
            one.resource.kind: tuple(one.store.items()) for one in self._informers
        }
        return Lists(by_kind, self._read.near.refused)

    def _version(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    def _publish(self, state: State) -> None:
        self._state = state
        self.changed.set()
        self.changed = anyio.Event()

    def _note(self, _: Delta[Obj]) -> None:
        self._stale = True


def _tidy() -> None:
    """Collects the garbage of a step at once, and exempts what remains from later collections.

    A full collection stops all threads, and takes the longer the more objects there are: with
    thousands of Workloads, longer than a page should have to wait.
    """
    began = time.perf_counter()
    gc.collect()
    if time.perf_counter() - began > LONG_COLLECTION:
        gc.freeze()


async def _in_thread(work: Callable[[], T]) -> tuple[T, float]:
    """The result of some work, and its processor time in seconds.

    The thread is a daemon: a search may take seconds, and the program ends without waiting for it.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[tuple[T, float]] = loop.create_future()

    def give(outcome: tuple[T, float] | None, error: BaseException | None) -> None:
        if result.cancelled():
            return
        if outcome is not None:
            result.set_result(outcome)
        elif error is not None:
            result.set_exception(error)

    def run() -> None:
        began, outcome, problem = time.thread_time(), None, None
        try:
            value = work()
            _tidy()
            outcome = value, time.thread_time() - began
        except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(give, outcome, problem)

    threading.Thread(target=run, name="report", daemon=True).start()
    return await result
