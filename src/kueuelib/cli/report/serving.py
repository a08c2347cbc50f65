"""Serves a live page on loopback, to the browsers of this machine and to nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import orjson
from aiohttp import web

from kueuelib.api.kinds import NODES, PODS
from kueuelib.api.meta import Obj, ObjectKey, Resource, format_time
from kueuelib.app.configuration import Configuration
from kueuelib.app.explaining.gather import ASK_DOCTOR, Decoder, Lists
from kueuelib.app.explaining.nodes import ON_NODES
from kueuelib.cli.report.board import PageState, answer, next_to_explain, state_of, with_change
from kueuelib.cli.report.page import POLICY, explanation, page
from kueuelib.cli.report.reading import Read, read, with_places
from kueuelib.errors import KueuelibError
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import reached
from kueuelib.runtime.entry import run_program
from kueuelib.runtime.http import serving
from kueuelib.runtime.informer import Informer
from kueuelib.scheduler.explain.answer import Explanation

# ---- keeps a live page up to date: follows a cluster, and computes the page in a thread ----------

SOON = 0.1
"""Seconds after which changes are shown; all changes meanwhile become one state."""
PAGE_PAUSE = 1.0
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


class PageStates:
    """The states of a page, one after the other.

    Args:
        client: follows the cluster.
        read: what the caller may read.
        namespace: where kinds were listed that may not be listed in the whole cluster.
        changes: for how many Workloads to search for changes without a request.

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
    ) -> None:
        self.readers = 0
        self._read = read
        self._changes = changes
        self._name, self._number = secrets.token_hex(4), 0
        self.changed = anyio.Event()
        self._stale, self._worked_out = True, 0.0
        self._one = anyio.Lock()
        self._decoder = Decoder()
        self._state: PageState | None = None
        self._client, self._namespace = client, namespace
        self._follows_places = read.needs_places(read.near)
        self._informers = self._followed(read, read.resources)
        self._joining: anyio.abc.TaskGroup | None = None

    def _followed(self, read: Read, resources: Sequence[Resource]) -> list[Informer]:
        """Informers of some kinds; if nodes are among them, also of the pods on nodes."""
        hidden = {one.kind for one in read.unseen}
        made = [
            Informer(
                self._client,
                one,
                namespace=self._namespace if one.kind in hidden else "",
            )
            for one in resources
            if one.kind in read.near.objects
        ]
        if NODES in resources and ON_NODES in read.near.objects:
            from kueuelib.controllers.nodes import BOUND

            made.append(Informer(self._client, PODS, field_selector=BOUND))
        for informer in made:
            informer.add_handler(self._note)
        return made

    @property
    def state(self) -> PageState:
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
            self._joining = group
            for informer in self._informers:
                group.start_soon(informer.run)
            for informer in self._informers:
                await informer.wait_synced(SYNC_TIMEOUT)
            await self._look()
            ready()
            group.start_soon(self._in_turns, self._look_again, SOON)
            group.start_soon(self._in_turns, self._search, PAGE_PAUSE)
            await anyio.sleep_forever()

    async def _in_turns(self, turn: Callable[[], Awaitable[float]], least: float) -> None:
        """Repeats a step, which returns its processor time, while the page has readers."""
        pause = least
        while True:
            await SYSTEM_CLOCK.sleep(pause)
            spent = await turn() if self.readers else 0.0
            pause = max(least, EASE * spent)

    async def _follow_places(self) -> None:
        """Follows nodes, Topologies and the pods on nodes once a flavor names a Topology."""
        lists, group = self._lists(), self._joining
        if self._follows_places or group is None or not self._read.needs_places(lists):
            return
        known = self._read.resources
        try:
            read = await with_places(self._client, self._read, lists)
        except KueuelibError:
            return  # the next turn tries again, and the informers report the failure
        self._follows_places = True
        more = self._followed(read, read.resources[len(known) :])

        async def join() -> None:
            for informer in more:
                await informer.wait_synced()
            self._read, self._informers = read, [*self._informers, *more]
            self._stale = True

        for informer in more:
            group.start_soon(informer.run)
        group.start_soon(join)

    async def _look_again(self) -> float:
        if self._stale:
            await self._follow_places()
        if self._stale or SYSTEM_CLOCK.now() - self._worked_out > LONGEST:
            return await self._look()
        return 0.0

    async def _look(self) -> float:
        """Computes the page again."""
        async with self._one:
            self._stale = False
            lists, now = self._lists(), SYSTEM_CLOCK.now()
            self._worked_out = now
            version, before = self._version(), self._state

            def work() -> PageState:
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
        by_kind[ON_NODES] = by_kind.get(PODS.kind, ())
        return Lists(by_kind, self._read.near.refused)

    def _version(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    def _publish(self, state: PageState) -> None:
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


# --------------------------------------------------------------------------------------------------

LOOPBACK: Final = "127.0.0.1"
MOST_READERS: Final = 16
"""Pages that may be open at the same time."""
MOST_REQUESTS: Final = 64
"""Requests that are answered at the same time, those of open pages included."""
MOST_ANSWERS: Final = 4
"""Whole answers that are computed or awaited at the same time."""
PAUSE: Final = 0.5
"""Seconds between two changes of one page, at least."""
HEARTBEAT: Final = 15.0
"""Seconds of silence after which a line shows that the server is still running."""
_HEADERS: Final = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FROM_HERE: Final = ("same-origin", "none")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ReportSite:
    """The page, its changes, and whole answers on demand.

    Args:
        following: the states of the page.

    Attributes:
        port: of the server; requests that name another host are refused.
        answers: how many whole answers are computed or awaited.
    """

    def __init__(self, following: PageStates) -> None:
        self.port = 0
        self._following = following
        self._requests = self.answers = 0
        self._closing = anyio.Event()

    def application(self) -> web.Application:
        """The web application."""
        application = web.Application(middlewares=[self._guarded])
        application.router.add_get("/", self._page, allow_head=False)
        application.router.add_get("/events", self._events, allow_head=False)
        application.router.add_get("/explain/{namespace}/{name}", self._explain, allow_head=False)
        return application

    def close(self) -> None:
        """Ends the streams of all open pages."""
        self._closing.set()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses requests that do not come from a page of this server, and too many requests."""
        refusal = self._refusal(request)
        if refusal is None and self._requests >= MOST_REQUESTS:
            refusal = web.Response(status=503, text="too many requests at the same time\n")
        if refusal is not None:
            refusal.headers.update(_HEADERS)
            return refusal
        self._requests += 1
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
        finally:
            self._requests -= 1
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.method != "GET":
            text = "this page can only be read\n"
            return web.Response(status=405, text=text, headers={"Allow": "GET"})
        if request.headers.get("Host") not in (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"):
            text = f"ask for http://{LOOPBACK}:{self.port}/\n"
            return web.Response(status=421, text=text)
        if request.headers.get("Sec-Fetch-Site", "none") not in _FROM_HERE:
            navigates = request.headers.get("Sec-Fetch-Mode") == "navigate"
            if not (navigates and request.path == "/"):
                return web.Response(status=403, text="other sites may not read this page\n")
        return None

    async def _page(self, _: web.Request) -> web.Response:
        state = self._following.state
        text = await anyio.to_thread.run_sync(
            lambda: page(state.view, SYSTEM_CLOCK.now(), state.version)
        )
        return web.Response(text=text, content_type="text/html")

    async def _explain(self, request: web.Request) -> web.Response:
        key = ObjectKey(request.match_info["namespace"], request.match_info["name"])
        if self.answers >= MOST_ANSWERS:
            return web.Response(status=503, text="busy with other answers; try again\n")
        self.answers += 1
        try:
            answer = await self._following.explain(key)
        finally:
            self.answers -= 1
        if answer is None:
            return web.Response(status=404, text=f"Workload {key} no longer waits\n")
        return web.Response(text=explanation(answer), content_type="text/html")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        following = self._following
        if following.readers >= MOST_READERS:
            return web.Response(status=503, text="too many pages are open\n")
        known = request.headers.get("Last-Event-ID") or request.query.get("from", "")
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        following.readers += 1
        try:
            await response.prepare(request)
            await self._send_changes(response, known)
        except ConnectionError:
            return response  # the page was closed
        finally:
            following.readers -= 1
        return response

    async def _send_changes(self, response: web.StreamResponse, known: str) -> None:
        """Sends every change, with a pause in between, until the page or the server is closed."""
        following, trouble = self._following, ""
        state = following.state
        sent: PageState | None = state if state.version == known else None
        await response.write(b"retry: 2000\n\n")
        while not self._closing.is_set():
            changed, state = following.changed, following.state
            if state is not sent:
                await response.write(_change(state, sent))
                sent = state
            if following.trouble != trouble:
                trouble = following.trouble
                await response.write(_event("trouble" if trouble else "well", trouble))
            with anyio.move_on_after(PAUSE):
                await self._closing.wait()
            if following.state is sent and following.trouble == trouble:
                await self._rest(response, changed)

    async def _rest(self, response: web.StreamResponse, changed: anyio.Event) -> None:
        """Waits for another state, or until a heartbeat is due."""
        with anyio.move_on_after(HEARTBEAT):
            async with anyio.create_task_group() as group:

                async def first(wait: Callable[[], Awaitable[None]]) -> None:
                    await wait()
                    group.cancel_scope.cancel()

                group.start_soon(first, changed.wait)
                group.start_soon(first, self._closing.wait)
            return
        await response.write(b": still here\n\n")


def _change(state: PageState, before: PageState | None) -> bytes:
    change, moment = state.since(before), format_time(state.overview.now)
    data = {
        "html": change.html,
        "order": change.order,
        "marks": change.marks,
        "whole": before is None,
        "read": moment,
        "now": moment,
    }
    return _event("change", data, state.version)


def _event(name: str, data: object, version: str = "") -> bytes:
    """One server-sent event; its JSON has no line breaks."""
    identity = f"id: {version}\n" if version else ""
    return f"{identity}event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


# ---- `kueuelib report --serve` -------------------------------------------------------------------

DRAIN = 1.0
"""Seconds that open pages have to end."""


def run(
    kubeconfig: Path | None,
    given: Configuration | None,
    namespace: str,
    changes: int,
    server_timeout: float,
    port: int,
) -> int:
    """Serves until SIGTERM or SIGINT; see `command.run`.

    Raises:
        KueuelibError: objects that are read as they are stored cannot be followed.
    """
    serve = partial(_serve, kubeconfig, given, namespace, changes, server_timeout, port)
    run_program(_until_signal, serve)
    return 0


async def _until_signal(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            async for _ in received:
                group.cancel_scope.cancel()
                break


async def _serve(
    kubeconfig: Path | None,
    given: Configuration | None,
    namespace: str,
    changes: int,
    server_timeout: float,
    port: int,
) -> None:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-report") as client:
        reading = await read(client, namespace, given)
        if reading.near.unconverted:
            why = next(iter(reading.near.unconverted.values()))
            fix = f"leave out --serve, or {ASK_DOCTOR}"
            raise KueuelibError(f"the API server cannot follow all objects: {why}; {fix}")
        following = PageStates(client, reading, namespace, changes)
        site, ready = ReportSite(following), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(following.run, ready.set)
            await ready.wait()
            app = site.application()
            async with serving(app, LOOPBACK, port, drain=DRAIN, subject="--port") as site.port:
                sys.stdout.write(f"serving http://{LOOPBACK}:{site.port}/ until Ctrl-C\n")
                sys.stdout.flush()
                try:
                    await anyio.sleep_forever()
                finally:
                    site.close()
