"""`ApiServer`: a Kubernetes API server in this process, on loopback, in memory."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

from kueuelib.embedded import tls
from kueuelib.embedded.admission.hook_client import HookClient
from kueuelib.embedded.admission.plugin import Caller
from kueuelib.embedded.assembly import new_service
from kueuelib.embedded.http import bodies
from kueuelib.embedded.http.authentication import AUTHENTICATED, Authenticator
from kueuelib.embedded.http.face import Face
from kueuelib.embedded.service import ApiService
from kueuelib.errors import ConfigError

ADMIN = "kubernetes-admin"
ADMIN_GROUP = "system:masters"
CLUSTER = "kueuelib"
STOP_SECONDS = 2.0
BACKLOG = 1024


class ApiServer:
    """An API server as an async context manager.

    Args:
        port: to listen on; 0 takes a free one.
        simulate: also run the simulated cluster: Jobs, pods, nodes, garbage collection, namespaces.
        host: the address to listen on.

    Raises:
        ConfigError: on entering, when the address cannot be had.
    """

    def __init__(self, port: int = 0, simulate: bool = False, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = port
        self.token = secrets.token_urlsafe(32)
        self._simulate = simulate
        self._service: ApiService | None = None
        self._credentials: tls.Credentials | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []

    @property
    def service(self) -> ApiService:
        """The verbs, without HTTP."""
        assert self._service is not None, "the server is not started"
        return self._service

    @property
    def url(self) -> str:
        """`https://host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    @property
    def ca(self) -> bytes:
        """The CA certificate that clients have to trust, as PEM."""
        assert self._credentials is not None, "the server is not started"
        return self._credentials.ca

    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig of the administrator, with token and client certificate."""
        assert self._credentials is not None, "the server is not started"
        given = self._credentials

        def text(data: bytes) -> str:
            return base64.b64encode(data).decode()

        cluster = {"server": self.url, "certificate-authority-data": text(given.ca)}
        user = {
            "token": self.token,
            "client-certificate-data": text(given.client_certificate),
            "client-key-data": text(given.client_key),
        }
        context = {"cluster": CLUSTER, "user": ADMIN, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CLUSTER, "cluster": cluster}],
            "users": [{"name": ADMIN, "user": user}],
            "contexts": [{"name": CLUSTER, "context": context}],
            "current-context": CLUSTER,
        }

    async def __aenter__(self) -> Self:
        listener = self._listen()
        try:
            self.port = listener.getsockname()[1]
            await self._start(listener)
        except BaseException:
            listener.close()
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stop()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            address = f"{self.host}:{self.port}"
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    address,
                    "another program listens there",
                    "choose another port, or 0 for any free one",
                ) from error
            raise ConfigError(
                address, error.strerror or str(error), "choose an address of this machine"
            ) from error
        listener.setblocking(False)
        return listener

    async def _start(self, listener: socket.socket) -> None:
        hosts = tuple(dict.fromkeys((self.host, "127.0.0.1", "localhost")))
        self._credentials = tls.credentials(time.time(), hosts, ADMIN, ADMIN_GROUP)
        hooks = HookClient()
        self._closers.append(hooks.close)
        self._service = await new_service(hooks)
        admin = Caller(ADMIN, groups=(ADMIN_GROUP, AUTHENTICATED))
        face = Face(self._service, Authenticator({self.token: admin}), f"{self.host}:{self.port}")
        server = web.Server(
            face.handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=120,
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        self._closers.append(runner.cleanup)
        site = web.SockSite(
            runner, listener, ssl_context=self._credentials.server_context(), backlog=BACKLOG
        )
        await site.start()
        self._closers.append(self._service.close)
        if self._simulate:
            from kueuelib.embedded.cluster.simulation import SimulatedCluster

            cluster = SimulatedCluster(self._service)
            await cluster.start()
            self._closers.append(cluster.close)

    async def _stop(self) -> None:
        while self._closers:
            await self._closers.pop()()


def _request(
    message: Any,
    payload: Any,
    protocol: Any,
    writer: Any,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=bodies.LIMIT,
    )
