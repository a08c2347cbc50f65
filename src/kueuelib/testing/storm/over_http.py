"""Does to any client over real HTTP what a storm does in memory.

The weather, the disasters and the fate of each call and event are drawn as for a storm; here they
are executed in real time, between the connections of an embedded API server and its own handler.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
import attrs
import orjson
from aiohttp import web

from kueuelib.embedded import failures
from kueuelib.embedded.cluster.simulation import SimulatedCluster
from kueuelib.embedded.http.request_handler import HEALTH
from kueuelib.embedded.http.resources import FILTER, Batches
from kueuelib.embedded.reading import Frame
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.server import Handler
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.storage import StorageEvent
from kueuelib.embedded.storage.memory import Compacted
from kueuelib.errors import ApiError, ConfigError
from kueuelib.runtime.server_limits import body_of
from kueuelib.testing.storm.adversary import Hostile
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.exchange import ObservedRequest, Request, RequestRecognizer, chunk
from kueuelib.testing.storm.faults import CATALOGUE, FLOWING, WRITES, Adversary, EventFate, Fate
from kueuelib.testing.storm.network import SERVER
from kueuelib.testing.storm.profiles import (
    PROFILES,
    RESOURCES,
    Disaster,
    Weather,
    disasters,
    perform_on_server,
    weather,
)

# ---- lists from the past, as a lagging replica of the server would answer them -------------------

_PLAIN = frozenset({"resourceVersion", "resourceVersionMatch", "limit", "timeoutSeconds"})


def past_list(
    service: ApiService,
    revisions: Sequence[tuple[float, int]],
    call: ObservedRequest,
    moment: float,
) -> bytes | None:
    """The body of a list at a past moment.

    Only for calls that allow any version, or any not older than a given one, of all objects of a
    kind, in the stored API version. None for all others, and if the past is no longer known.
    """
    query = parse_qs(call.query)
    (least,) = query.get("resourceVersion", [""])
    if call.verb != "list" or not least.isdecimal() or not query.keys() <= _PLAIN:
        return None
    plural, _, group = call.resource.partition(".")
    kind = service.registry.by_plural(group, plural)
    if kind is None:
        return None
    index = bisect_right(revisions, (moment, 2**62))
    if not index:
        return None
    revision = max(revisions[index - 1][1], int(least))
    if revision > revisions[-1][1]:
        return None
    table = service.storage.table(kind.table)
    version = call.path.split("/")[3 if group else 2]
    try:
        past = table.as_of(revision)
    except Compacted:
        return None
    present = {entry.key: entry for entry in table.entries(call.namespace)}
    for key, entry in past.items():
        if call.namespace and key.namespace != call.namespace:
            continue
        if entry is None:
            present.pop(key, None)
        else:
            present[key] = entry
    if any(entry.version != version for entry in present.values()):
        return None
    body: dict[str, Any] = {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version(version),
        "metadata": {"resourceVersion": str(revision)},
        "items": [orjson.Fragment(present[key].raw) for key in sorted(present)],
    }
    return orjson.dumps(body)


# ---- what is decided before: which faults there are over HTTP, and when --------------------------

OFFERED: Final = ("swarm", "calm", "slow", "lossy", "stale", "unobserved", "server")
"""The profiles whose faults strike between a server and a client that is not ours."""
_OF_CLUSTER: Final = frozenset({"jobs-held", "jobs-late", "garbage-late"})
_OVER_HTTP: Final = frozenset(
    kind.name
    for kind in CATALOGUE.values()
    if kind.place in {"connect", "call", "watch", "event"} and kind.name != "overtaken"
) | {"server-restart", "server-amnesia", "trickle"}
SILENCE: Final = 150.0
"""Seconds after which a silent connection is reset, as the kernel of a client does whose peer is
gone: nine probes, fifteen seconds apart, after fifteen seconds.
"""
_SPARED: Final = frozenset({"exec", "attach", "portforward", "proxy", "log"})
"""Subresources that are streams of bytes."""
_NAME: Final = re.compile(r"[\w.-]+")


def round_of(
    profile: str, seed: int, number: int, watched: Sequence[str] = (), *, simulated: bool = False
) -> tuple[Weather, tuple[Disaster, ...]]:
    """Draw the weather and the disasters of one round.

    Args:
        profile: One of `OFFERED`.
        seed: Any whole number.
        number: The number of the round, from 0.
        watched: Further resources on which faults may focus.
        simulated: Whether there is a simulated cluster.

    Raises:
        ConfigError: The profile is not offered.
    """
    if profile not in OFFERED:
        raise ConfigError(
            f"--hostile {profile}",
            "is not a profile of faults that strike a client over HTTP",
            f"choose one of {', '.join(OFFERED)}",
        )
    draws = Draws(seed).stream(f"round-{number}")
    whole = PROFILES[profile]
    kinds = _OVER_HTTP | (_OF_CLUSTER if simulated else frozenset())
    family = attrs.evolve(whole, kinds=whole.kinds & kinds, always=whole.always & kinds)
    resources = tuple(sorted({*RESOURCES, *watched}))
    drawn = weather(draws.stream("weather"), family, resources=resources)
    outages = tuple(attrs.evolve(each, owner="") for each in drawn.outages)
    drawn = attrs.evolve(drawn, outages=outages)
    return drawn, disasters(draws.stream("disasters"), drawn)


def client_of(request: web.BaseRequest) -> str:
    """The program that sends a request: the first word of its `User-Agent`."""
    name = _NAME.match(request.headers.get("User-Agent", ""))
    return name[0] if name else "client"


def _shown(fate: Fate | EventFate) -> str:
    """The faults of a fate, with its seconds."""
    late = [fate.delay]
    if isinstance(fate, Fate):
        late += [fate.answer_delay, fate.stale_list or 0.0]
    return " ".join([*fate.faults, *(f"{seconds:.1f}s" for seconds in late if seconds)])


# ---- what is done --------------------------------------------------------------------------------


@attrs.frozen
class _Watching:
    """A watch, with its request and the number of its connection."""

    call: ObservedRequest
    request: web.BaseRequest
    connection: int


class HostileServer:
    """What stands between an API server and its clients; `interpose` is a middleware of the server.

    Args:
        profile: The family of storms, one of `OFFERED`.
        seed: Decides everything.
        note: Called with a line for each fault.

    Attributes:
        adversary: Decides the fates; None: no faults.
        spared: The bearer token of a client without faults.

    Raises:
        ConfigError: The profile is not offered.
    """

    def __init__(self, profile: str, seed: int, note: Callable[[str], None]) -> None:
        round_of(profile, seed, 0)
        self.spared = secrets.token_urlsafe(32)
        self._profile = profile
        self._seed = seed
        self._tell = note
        self._service: ApiService | None = None
        self._handler: Handler | None = None
        self._cluster: SimulatedCluster | None = None
        self.adversary: Adversary | None = None
        self._begun = 0.0
        self._down = False
        self._calls = RequestRecognizer()
        self._revisions: list[tuple[float, int]] = []
        self._connections: dict[Any, int] = {}
        self._numbers = count(1)
        self._attempts: Counter[str] = Counter()
        self._writes: set[asyncio.Task[web.StreamResponse]] = set()

    def interpose(self, service: ApiService, handler: Handler) -> Handler:
        """Return a handler that treats requests with hostility before or after the given one."""
        self._service, self._handler = service, handler
        self._begun = asyncio.get_running_loop().time()
        self._revisions = [(0.0, service.storage.revision)]
        service.commits.listen(self._committed)
        return self._handle

    def begin(
        self, cluster: SimulatedCluster | None, seconds: float | None = None
    ) -> Callable[[], object]:
        """Be hostile in the background; return what ends it early."""
        return asyncio.create_task(self.rage(cluster, seconds)).cancel

    async def rage(self, cluster: SimulatedCluster | None, seconds: float | None = None) -> None:
        """Be hostile, one round after another, until cancelled or for a number of seconds."""
        self._cluster = cluster
        try:
            with anyio.move_on_after(seconds):
                for number in count():
                    await self._round(number)
        finally:
            self.adversary, self._down = None, False
            if cluster is not None:
                cluster.hold_jobs(held=False)
                cluster.hold_garbage(held=False)
                cluster.delay_jobs(0.0)
            for task in self._writes:
                task.cancel()
        self._note("calm")

    async def _round(self, number: int) -> None:
        watched = self._calls.watched("")
        simulated = self._cluster is not None
        drawn, coming = round_of(self._profile, self._seed, number, watched, simulated=simulated)
        active = " ".join(f"{kind}={rate:.2f}" for kind, rate in drawn.rates.items())
        focus = f", mostly at {drawn.focus}" if drawn.focus else ""
        self._note(f"round {number} of {drawn.seconds:.0f}s: {active or 'nothing'}{focus}")
        draws = Draws(self._seed).stream(f"round-{number}").stream("faults")
        self.adversary = Hostile(draws, drawn, start=self._now, meddlers=False, owners="")
        async with anyio.create_task_group() as group:
            for disaster in coming:
                group.start_soon(self._strike, disaster)
            await anyio.sleep(drawn.seconds)
            group.cancel_scope.cancel()

    async def _strike(self, disaster: Disaster) -> None:
        await anyio.sleep(disaster.at)
        self._note(f"[{disaster.kind}]")
        await perform_on_server(disaster, self)

    # ---- what disasters do

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await anyio.sleep(seconds)

    async def restart_server(self, *, history: bool) -> None:
        """Reset all connections, and refuse calls for half a second."""
        assert self._service is not None, "the server runs"
        self._down = True
        for connection in tuple(self._connections):
            connection.cut_off()
        await anyio.sleep(0.5)
        if not history:
            self._service.storage.compact()
        self._down = False

    def hold_jobs(self, *, held: bool) -> None:
        """Pause or resume the Job controller of the simulated cluster."""
        assert self._cluster is not None, "only drawn with a simulated cluster"
        self._cluster.hold_jobs(held)

    def hold_garbage(self, *, held: bool) -> None:
        """Pause or resume the garbage collector of the simulated cluster."""
        assert self._cluster is not None, "only drawn with a simulated cluster"
        self._cluster.hold_garbage(held)

    def delay_jobs(self, seconds: float) -> None:
        """Let the Job controller of the simulated cluster write that long after it has read."""
        assert self._cluster is not None, "only drawn with a simulated cluster"
        self._cluster.delay_jobs(seconds)

    # ---- calls

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        adversary, handler = self.adversary, self._handler
        assert handler is not None, "interposed"
        given = request.headers.get("Authorization", "")
        spared = secrets.compare_digest(given.encode(), f"Bearer {self.spared}".encode())
        if adversary is None or spared or request.path.startswith(HEALTH):
            return await handler(request)
        owner = client_of(request)
        is_new, connection = self._connection(request)
        if self._down:
            return _reset(request)
        if is_new:
            fate = adversary.connect(owner, SERVER, self._attempts[owner], self._now)
            self._attempts[owner] += 1
            self._note_fate(connection, f"{owner}: connects", fate)
            await anyio.sleep(fate.delay)
            if fate.refuse is not None:
                return _reset(request)
        content_type = request.headers.get("Content-Type", "")
        asked = Request(request.method, request.path, request.query_string, content_type, b"")
        call = self._calls.observe(owner, SERVER, asked)
        if call.subresource in _SPARED:
            return await handler(request)
        fate = adversary.call(call, self._now)
        answer = self._answer(handler, request, call, fate, connection)
        if call.verb not in WRITES:
            token = FILTER.set(partial(self._filtered, _Watching(call, request, connection)))
            try:
                return await answer
            finally:
                FILTER.reset(token)
        # What is on its way arrives although its sender has given up.
        with suppress(ApiError, web.HTTPRequestEntityTooLarge):  # the handler meets it again
            await body_of(request)
        return await self._shielded(answer)

    async def _shielded(
        self, answer: Coroutine[Any, Any, web.StreamResponse]
    ) -> web.StreamResponse:
        task = asyncio.create_task(answer)
        self._writes.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[web.StreamResponse]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # the client has left

    async def _answer(
        self,
        handler: Handler,
        request: web.BaseRequest,
        call: ObservedRequest,
        fate: Fate,
        connection: int,
    ) -> web.StreamResponse:
        """The answer to a call, as far as its fate permits."""
        past = None if fate.stale_list is None else self._past(call, fate.stale_list)
        if past is None and fate.stale_list is not None:
            rest = tuple(kind for kind in fate.faults if kind != "stale-list")
            fate = attrs.evolve(fate, stale_list=None, faults=rest)
        self._note_fate(connection, f"{call.owner}: {call.title} #{call.ordinal}", fate)
        await anyio.sleep(fate.delay)
        if fate.refuse is not None:
            answer = fate.refuse
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        response = await handler(request)
        if response.prepared or not isinstance(response, web.Response):
            return response
        plain = response.headers.get("Content-Type") == "application/json"
        if past is not None and response.status == 200 and plain:
            response = web.Response(body=past, content_type="application/json")
        await anyio.sleep(fate.answer_delay)
        if fate.instead is not None:
            other = fate.instead
            return web.Response(status=other.status, body=other.body, headers=other.headers)
        if fate.silent:
            await anyio.sleep(SILENCE)
        elif fate.cut_answer is not None:
            await _cut(request, response, fate.cut_answer)
        elif not fate.lose_answer:
            return response
        return _reset(request)

    def _past(self, call: ObservedRequest, seconds: float) -> bytes | None:
        assert self._service is not None, "interposed"
        return past_list(self._service, self._revisions, call, self._now - seconds)

    # ---- watches

    async def _filtered(self, watching: _Watching, batches: Batches) -> Batches:
        """The events of a watch, as far as their fates permit."""
        judged: asyncio.Queue[tuple[Frame, EventFate, float] | None] = asyncio.Queue()
        judge = asyncio.create_task(self._judge(watching, batches, judged))
        try:
            while (item := await judged.get()) is not None:
                frame, fate, due = item
                await anyio.sleep(max(0.0, due - self._now))
                if fate.silence:
                    await anyio.sleep(SILENCE)
                    _reset(watching.request)
                    return
                if fate.cut:
                    await _cut_frame(watching.request, frame)
                    return
                if fate.close:
                    return
                if fate.gone:
                    error = failures.expired("too old resource version")
                    yield [("ERROR", orjson.dumps(error.status()))]
                    return
                if not fate.drop:
                    yield [frame]
        finally:
            judge.cancel()

    async def _judge(
        self,
        watching: _Watching,
        batches: Batches,
        judged: asyncio.Queue[tuple[Frame, EventFate, float] | None],
    ) -> None:
        """Draw the fate of each event when it happens, and the time at which it is due."""
        numbers, due = count(), 0.0
        try:
            async for batch in batches:
                for frame in batch:
                    number = next(numbers)
                    fate = self._event_fate(watching, number, frame)
                    due = max(due, self._now + fate.delay)
                    judged.put_nowait((frame, fate, due))
                    if fate.silence or fate.gone or fate.close or fate.cut:
                        return
        finally:
            judged.put_nowait(None)

    def _event_fate(self, watching: _Watching, number: int, frame: Frame) -> EventFate:
        if self.adversary is None:
            return FLOWING
        call = watching.call
        line = b'{"type":"%b",%b' % (frame[0].encode(), frame[1])
        fate = self.adversary.event(call, number, line, self._now)
        what = f"{call.owner}: {call.title} #{call.ordinal} event {number}"
        self._note_fate(watching.connection, what, fate)
        return fate

    # ---- time, connections and the log

    @property
    def _now(self) -> float:
        """Seconds since the server began."""
        return asyncio.get_running_loop().time() - self._begun

    def _committed(self, _kind: Kind, change: StorageEvent) -> None:
        self._revisions.append((self._now, change.revision))
        if len(self._revisions) > 200_000:
            del self._revisions[:100_000]

    def _connection(self, request: web.BaseRequest) -> tuple[bool, int]:
        """Whether the connection is new, and its number."""
        known = self._connections.get(request.protocol)
        if known is not None:
            return False, known
        self._connections = {
            each: number for each, number in self._connections.items() if each.transport
        }
        number = self._connections[request.protocol] = next(self._numbers)
        return True, number

    def _note_fate(self, connection: int, what: str, fate: Fate | EventFate) -> None:
        if fate.faults:
            self._note(f"connection {connection} {what} [{_shown(fate)}]")

    def _note(self, text: str) -> None:
        self._tell(f"{self._now:10.3f} {text}")


def _reset(request: web.BaseRequest) -> web.Response:
    """Reset the connection of a request; the answer returned here is never sent."""
    if request.transport is not None:
        sock = request.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response(status=503)


async def _cut(request: web.BaseRequest, response: web.Response, share: float) -> None:
    """Send the head and a share of the body of an answer."""
    body: Any = response.body
    data = body if isinstance(body, bytes) else await body.as_bytes() if body else b""
    part = web.StreamResponse(status=response.status, headers=response.headers)
    part.content_length = len(data)
    with suppress(ConnectionError):
        await part.prepare(request)
        await part.write(data[: int(len(data) * share)])
        await anyio.sleep(_TRAVEL)


async def _cut_frame(request: web.BaseRequest, frame: Frame) -> None:
    """Send half of the line of an event, and reset the connection."""
    line = chunk(b'{"type":"%b","object":%b}\n' % (frame[0].encode(), frame[1]))
    if request.transport is not None:
        request.transport.write(line[: len(line) // 2])
        await anyio.sleep(_TRAVEL)
    _reset(request)


_TRAVEL: Final = 0.05
"""Seconds for bytes to arrive before their connection is reset."""
