"""The network of a simulated world: in-memory connections, owned by an adversary.

Every connection carries HTTP exchanges, one after the other. A request is held until it is
complete; then the adversary decides its fate and that of its answer. Watches are split into events.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

from kueuelib.testing.storm.exchange import ObservedRequest, RequestRecognizer
from kueuelib.testing.storm.faults import FINE, FLOWING, Adversary, EventFate, Fate
from kueuelib.testing.storm.link import LATENCY, ConnectionEnd, Link
from kueuelib.testing.storm.loop import OWNER, SimulatedProcess, StormLoop, context_of

SERVER_HOST: Final = "10.0.0.1"
"""The address of the API server."""
WEBHOOK_HOST: Final = "10.0.0.2"
"""The address of the webhooks' Service: any other listening process."""
SERVER: Final = "server"


@attrs.define(eq=False)
class PortListener(asyncio.AbstractServer):
    """A listener on a port of a process."""

    owner: SimulatedProcess
    port: int
    factory: Callable[[], Any]
    wire: Network
    open: bool = True

    @property
    def sockets(self) -> list[ListenAddress]:
        """One stand-in with its address."""
        return [
            ListenAddress(SERVER_HOST if self.owner.name == SERVER else WEBHOOK_HOST, self.port)
        ]

    def close(self) -> None:
        """Accept no more connections."""
        self.open = False
        self.wire.listeners = [each for each in self.wire.listeners if each is not self]

    async def wait_closed(self) -> None:
        """Returns at once: it is closed immediately."""

    async def start_serving(self) -> None:
        """Does nothing: it accepts connections from the beginning."""

    async def serve_forever(self) -> None:
        """Wait until cancelled; connections are accepted anyway."""
        await self.wire.loop.create_future()

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return self.open

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the world."""
        return self.wire.loop


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


class Witness(Protocol):
    """Observes sent calls and arriving answers."""

    def sent(self, call: ObservedRequest, now: float) -> None:
        """A call is sent."""
        ...

    def answered(self, call: ObservedRequest, status: int, body: bytes, now: float) -> None:
        """The whole answer to a call has arrived."""
        ...

    def reborn(self, owner: str) -> None:
        """A process of that name starts."""
        ...

    def woken(self, owner: str, now: float) -> None:
        """A paused process continues."""
        ...


class Network:
    """All connections of a world.

    Args:
        loop: of the world.

    Attributes:
        adversary: decides the fates; None: no faults.
        clean: names of processes without faults.
        down: whether the server refuses connections.
        links: the open connections, oldest first.
        stale: returns the body of an answer from some seconds ago, or None if it is not available.
        tell: receives a line about every call, answer and event.
        witness: receives every call, and every answer that arrives.
    """

    def __init__(self, loop: StormLoop) -> None:
        self.loop = loop
        self.adversary: Adversary | None = None
        self.clean: set[str] = set()
        self.down = False
        self.links: dict[int, Link] = {}
        self.listeners: list[PortListener] = []
        self.calls = RequestRecognizer()
        self.stale: Callable[[ObservedRequest, float], bytes | None] = lambda _call, _seconds: None
        self.tell: Callable[[str], None] | None = None
        self.witness: Witness | None = None
        self.requests = 0
        self._reached: dict[int, tuple[PortListener, str]] = {}
        self._attempts: Counter[tuple[str, str]] = Counter()
        loop.wire = self

    @property
    def behind(self) -> bool:
        """Whether anything is on its way, or a silent connection has not been noticed yet."""
        return any(link.behind for link in self.links.values())

    # ---- what the loop asks for

    def listen(self, factory: Callable[[], Any], port: int) -> PortListener:
        """Accept connections for the running process.

        Raises:
            OSError: it already listens on that port.
        """
        owner = OWNER.get()
        if any(each.owner is owner and each.port == port for each in self.listeners):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = PortListener(owner, port, factory, self)
        self.listeners.append(listener)
        return listener

    async def reach(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Find the listener of an address.

        Raises:
            ConnectionRefusedError: there is none, or the adversary refuses.
        """
        host, port = address[0], address[1]
        owner = OWNER.get()
        peer = SERVER if host == SERVER_HOST else "webhook"
        ordinal = self._attempts[owner.name, peer]
        self._attempts[owner.name, peer] += 1
        listener = self._listener(host, port, ordinal)
        if peer != SERVER and listener is not None:
            peer = f"{peer}@{listener.owner.name}"
        fate = FINE
        if self.adversary is not None and owner.name not in self.clean:
            fate = self.adversary.connect(owner.name, peer, ordinal, self.loop.now)
        arrived = self.loop.create_future()
        if not fate.silent:
            context = contextvars.copy_context()
            self.loop.after(2 * LATENCY + fate.delay, _arrive, arrived, context=context)
        await arrived
        if fate.refuse is not None or listener is None or not self._accepts(listener):
            self.note(f"{owner.name} -> {peer}: connection refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._reached[sock.fileno()] = (listener, peer)

    def connect(self, factory: Callable[[], Any], sock: socket.socket) -> tuple[ConnectionEnd, Any]:
        """Open the connection that a socket has reached.

        Raises:
            ConnectionResetError: the listener is gone.
        """
        listener, peer = self._reached.pop(sock.fileno())
        sock.close()
        if not self._accepts(listener):
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        owner = OWNER.get()
        number = self.loop.new_number()
        client_context = contextvars.copy_context()
        server_context = context_of(listener.owner, owner.name)
        link = Link(self, number, peer, (owner, client_context), (listener.owner, server_context))
        self.links[number] = link
        protocol = factory()
        link.open(protocol, listener.factory)
        return link.client, protocol

    def _listener(self, host: str, port: int, ordinal: int) -> PortListener | None:
        wanted = host == SERVER_HOST
        listeners = [
            each
            for each in self.listeners
            if each.port == port and (each.owner.name == SERVER) is wanted and each.owner.alive
        ]
        return listeners[ordinal % len(listeners)] if listeners else None

    def _accepts(self, listener: PortListener) -> bool:
        if self.down and listener.owner.name == SERVER:
            return False
        return listener.open and listener.owner.alive

    # ---- what links ask

    def fate(self, call: ObservedRequest) -> Fate:
        """The fate of a call."""
        self.requests += 1
        if self.adversary is None or call.owner in self.clean:
            return FINE
        return self.adversary.call(call, self.loop.now)

    def event_fate(self, watch: ObservedRequest, number: int, event: bytes) -> EventFate:
        """The fate of an event."""
        if self.adversary is None or watch.owner in self.clean:
            return FLOWING
        return self.adversary.event(watch, number, event, self.loop.now)

    def note(self, line: str) -> None:
        """Report the event to the listener."""
        if self.tell is not None:
            self.tell(line)

    # ---- disasters

    def drop(self, owner: SimulatedProcess) -> None:
        """A process has died: its peers get a reset."""
        self.listeners = [each for each in self.listeners if each.owner is not owner]
        for link in list(self.links.values()):
            link.died(owner)

    def reset(self, owner: SimulatedProcess) -> None:
        """Break all connections of a process, which continues."""
        for link in list(self.links.values()):
            if owner in (link.client.owner, link.server.owner):
                link.reset()


def _arrive(arrived: asyncio.Future[Any]) -> None:
    if not arrived.done():
        arrived.set_result(None)
