"""The HTTPS server of a kubelet, which API servers dial: logs, processes, ports.

Paths, parameters and words are those of Kubernetes' kubelet.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import anyio
import orjson
from aiohttp import web
from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup

from kueuelib.api.meta import Obj, parse_time
from kueuelib.errors import ApiError, BadRequest, MethodNotAllowed, NotFound
from kueuelib.node.certificate import certificate_for
from kueuelib.node.channels import CHANNELS, PROTOCOLS, V4, wanted_streams
from kueuelib.node.containers import Containers, LogOptions, ProcessStreams
from kueuelib.node.streaming import (
    FORWARD_PROTOCOL,
    TUNNEL_PROTOCOL,
    PortForwards,
    ProcessSession,
    SocketPipe,
    SocketStreams,
    SpdyStreams,
    Streams,
    chosen,
    is_websocket,
    opened_pipe,
    opened_socket,
    port_of,
)
from kueuelib.runtime.certificates import (
    KUBELET_CLIENT,
    KUBELET_CLIENT_GROUPS,
    server_context,
    show_certificate,
)
from kueuelib.runtime.http import serving
from kueuelib.runtime.server_limits import Connection
from kueuelib.runtime.upgrades import break_off

_SOCKET, _SPDY = "Sec-WebSocket-Protocol", "X-Stream-Protocol-Version"
_NUMBERS: Final = ("tailLines", "limitBytes", "sinceSeconds")
_STREAMS: Final = ("All", "Stdout", "Stderr")


class KubeletServer:
    """Serves API servers, and nobody else.

    Args:
        containers: what runs the pods.
        pods: the pods of the node.
        client_ca: the signers of API servers' certificates, PEM: `client-ca-file` of the ConfigMap
            `kube-system/extension-apiserver-authentication`.
        host: the address to bind.
        port: 0 for any free one; see `port`.

    Attributes:
        port: where it listens, once it does.
    """

    def __init__(
        self,
        containers: Containers,
        pods: Callable[[], Sequence[Obj]],
        client_ca: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.port = port
        self._containers = containers
        self._pods = pods
        self._host = host
        self._tls = server_context()
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self._tls.load_verify_locations(cadata=client_ca)
        self._ends: TaskGroup

    async def run(self, ready: Callable[[], None]) -> None:
        """Serves until cancelled.

        Args:
            ready: called when it listens.

        Raises:
            ConfigError: the address cannot be bound.
        """
        show_certificate(self._tls, await certificate_for(self._host))
        server = web.Server(self._answer, handler_cancellation=True)
        subject = "the kubelet's port"
        async with (
            create_task_group() as self._ends,
            serving(
                server, self._host, self.port, tls=self._tls, drain=0.0, subject=subject
            ) as self.port,
        ):
            ready()
            await anyio.sleep_forever()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        refused = _refusal(request)
        if refused is not None:
            return refused
        try:
            return await self._serve(request)
        except ApiError as error:
            return web.Response(status=error.code, text=error.message)
        except web.HTTPException as error:
            return web.Response(status=error.status, text=error.text)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        root, *rest = request.path.strip("/").split("/")
        if request.method not in ("GET", "POST"):
            raise MethodNotAllowed("Method Not Allowed")
        match root, rest:
            case "healthz", []:
                return web.Response(text="ok")
            case "pods", []:
                listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {}}
                body = orjson.dumps({**listed, "items": list(self._pods())})
                return web.Response(body=body, content_type="application/json")
            case "containerLogs", [namespace, pod, container]:
                return await self._logs(request, namespace, pod, container)
            case (("exec" | "attach"), [namespace, pod, *_, container]) if len(rest) in (3, 4):
                return await self._process(request, root, (namespace, pod, container))
            case "portForward", [namespace, pod, *_] if len(rest) in (2, 3):
                return await self._ports(request, namespace, pod)
        raise NotFound("404 page not found")

    async def _logs(
        self, request: web.BaseRequest, namespace: str, pod: str, container: str
    ) -> web.StreamResponse:
        options = log_options(request.query, time.time())
        pieces: Any = await self._containers.logs(namespace, pod, container, options)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            await response.prepare(request)
            cast("Connection", request.protocol).wait_for_reader()
            async for piece in pieces:
                await response.write(piece)
            await response.write_eof()
        except (ApiError, ConnectionError):  # the latter: the reader has left
            break_off(request)
        finally:
            await pieces.aclose()
        return response

    async def _process(
        self, request: web.BaseRequest, root: str, at: tuple[str, str, str]
    ) -> web.StreamResponse:
        wanted = wanted_streams(request.query)
        socket = is_websocket(request)
        known = PROTOCOLS if socket else (V4,)
        protocol = chosen(request, _SOCKET if socket else _SPDY, known)
        if root == "exec":
            command = request.query.getall("command", [])
            if not command:
                raise BadRequest("you must specify a command")
            process = await self._containers.exec(*at, command, stdin=wanted.stdin, tty=wanted.tty)
        else:
            process = await self._containers.attach(*at, stdin=wanted.stdin, tty=wanted.tty)
        try:
            opened = await (opened_socket if socket else opened_pipe)(request, protocol)
            response: web.StreamResponse
            streams: Streams
            if isinstance(opened, web.WebSocketResponse):
                headers = [{"streamtype": name} for name in CHANNELS]
                response, streams = opened, SocketStreams(opened, protocol, headers)
            else:
                response, streams = opened.response, SpdyStreams(opened)
                protocol = V4
            attached = root == "attach"
            await ProcessSession(streams, wanted.names, protocol, process, attached).serve()
        finally:
            self._ends.start_soon(_end, process)
        return response

    async def _ports(
        self, request: web.BaseRequest, namespace: str, pod: str
    ) -> web.StreamResponse:
        async def dial(port: int) -> Any:
            return await self._containers.dial(namespace, pod, port)

        if not is_websocket(request):
            pipe = await opened_pipe(request, chosen(request, _SPDY, (FORWARD_PROTOCOL,)))
            await PortForwards(SpdyStreams(pipe), dial).serve()
            return pipe.response
        protocol = chosen(request, _SOCKET, (TUNNEL_PROTOCOL, *PROTOCOLS))
        if protocol == TUNNEL_PROTOCOL:
            socket = await opened_socket(request, protocol)
            await PortForwards(SpdyStreams(SocketPipe(socket)), dial).serve()
            await socket.close()
            return socket
        asked = ",".join(request.query.getall("port", [])).split(",")
        if None in map(port_of, asked):
            raise BadRequest('query parameter "port" is required and lists port numbers')
        headers = [
            {"streamtype": type_, "port": port, "requestid": str(number)}
            for number, port in enumerate(asked)
            for type_ in ("data", "error")
        ]
        socket = await opened_socket(request, protocol)
        await PortForwards(SocketStreams(socket, protocol, headers), dial).serve()
        return socket


async def _end(process: ProcessStreams) -> None:
    """In a task of the server, since aiohttp cancels a handler at any time, also twice."""
    with CancelScope(shield=True):
        await process.kill()


def log_options(query: Any, now: float) -> LogOptions:
    """What the parameters of a request say about a log; `now` in seconds since the epoch.

    Raises:
        BadRequest: one of them cannot be read.
    """
    try:
        numbers = {name: int(query[name]) for name in _NUMBERS if name in query}
        since = parse_time(query["sinceTime"]) if "sinceTime" in query else None
    except ValueError as error:
        raise BadRequest(f"Unable to decode query: {error}") from error
    if "sinceSeconds" in numbers:
        since = now - numbers["sinceSeconds"]
    stream = query.get("stream", "All")
    if any(number < 0 for number in numbers.values()) or stream not in _STREAMS:
        raise BadRequest("Invalid request.")
    follow, previous, timestamps = (
        query.get(name) in ("true", "1") for name in ("follow", "previous", "timestamps")
    )
    return LogOptions(
        follow=follow,
        previous=previous,
        since=since,
        tail_lines=numbers.get("tailLines"),
        limit_bytes=numbers.get("limitBytes"),
        timestamps=timestamps,
        stream=stream,
    )


def _refusal(request: web.BaseRequest) -> web.Response | None:
    """The answer to a client that is not an API server; None for one."""
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return web.Response(status=HTTPStatus.UNAUTHORIZED, text="Unauthorized")
    names = [pair for part in certificate.get("subject", ()) for pair in part]
    groups = {value for key, value in names if key == "organizationName"}
    if ("commonName", KUBELET_CLIENT) in names and groups.intersection(KUBELET_CLIENT_GROUPS):
        return None
    return web.Response(status=HTTPStatus.FORBIDDEN, text="Forbidden")
