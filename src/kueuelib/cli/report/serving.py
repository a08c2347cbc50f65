"""Serves a live page on loopback, to the browsers of this machine and to nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import orjson
from aiohttp import web

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.cli.report.board import State
from kueuelib.cli.report.following import Following
from kueuelib.cli.report.page import POLICY, explanation, page
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

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


class Site:
    """The page, its changes, and whole answers on demand.

    Args:
        following: the states of the page.
        clock: time.

    Attributes:
        port: of the server; requests that name another host are refused.
        answers: how many whole answers are computed or awaited.
    """

    def __init__(self, following: Following, clock: Clock = SYSTEM_CLOCK) -> None:
        self.port = 0
        self._following = following
        self._clock = clock
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
            lambda: page(state.view, self._clock.now(), state.version)
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
            await self._tell(response, known)
        except ConnectionError:
            return response  # the page was closed
        finally:
            following.readers -= 1
        return response

    async def _tell(self, response: web.StreamResponse, known: str) -> None:
        """Sends every change, with a pause in between, until the page or the server is closed."""
        following, trouble = self._following, ""
        state = following.state
        sent: State | None = state if state.version == known else None
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


def _change(state: State, before: State | None) -> bytes:
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
