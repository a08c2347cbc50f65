"""From a kubeconfig to a client that has reached its server."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import TypeAlias

import orjson

from kueuelib.errors import (
    ApiError,
    ConfigError,
    Forbidden,
    TransportError,
    Unauthorized,
)
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.endpoint import (
    HOOK_TIMEOUT,
    ClientConfiguration,
    ConfigurationSource,
    Configured,
    Endpoint,
    EndpointSource,
    is_configuration,
    is_configured,
)
from kueuelib.runtime.kubeconfig import find_source
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.network_errors import (
    CHECK_PROXY,
    Disconnected,
    NoConnection,
    NoProxy,
    NoTls,
)
from kueuelib.runtime.transport import REQUEST_TIMEOUT, Observer, Throttle, Transport

WAIT_FOR_SERVER = 60.0
"""Seconds that a program waits for its server at the start."""
ATTEMPT_TIMEOUT = 10.0
LAST_ATTEMPT = 1.0
"""Seconds that an attempt gets at least, even at the end of the deadline."""
_CHECK_SERVER = "check the cluster's server"
_START_SERVER = "start it, or correct the cluster's server"

Kubeconfig: TypeAlias = str | os.PathLike[str] | Endpoint | Configured | ClientConfiguration | None
"""What names a server for `connect`."""


async def connect(
    kubeconfig: Kubeconfig = None,
    context: str | None = None,
    *,
    observer: Observer | None = None,
    user_agent: str = "",
    field_manager: str = "kueuelib",
    qps: float | None = None,
    burst: int | None = None,
    timeout: float = REQUEST_TIMEOUT,  # noqa: ASYNC109 - of later calls
    clock: Clock = SYSTEM_CLOCK,
) -> Client:
    """A client for the server that a kubeconfig, or the pod's service account, names.

    No request is sent; see `wait_for_server`.

    Args:
        kubeconfig: the path of a kubeconfig, or an `Endpoint`; if None, kubectl's rules find the
            file. Or an `ApiClient` or a `Configuration` of kubernetes_asyncio or kubernetes: its
            server, certificates, proxy, token with its refresh hook, and default headers are used,
            but not its connections.
        context: the context of a kubeconfig; if None, the current one.
        observer: receives every call.
        user_agent: the `User-Agent` header; if empty, that of the `ApiClient`, or `kueuelib`.
        field_manager: the owner of the fields that the client writes.
        qps: calls per second; unlimited when None.
        burst: calls that may exceed that rate for a moment.
        timeout: seconds until the last byte of an answer, unless a call says otherwise.
        clock: time.

    Raises:
        ConfigError: there is no usable configuration; it says which file, what and the fix.
    """
    source: EndpointSource | Endpoint
    if isinstance(kubeconfig, Endpoint):
        source = kubeconfig
    elif is_configured(kubeconfig) or is_configuration(kubeconfig):
        if context is not None:
            problem = f"has no contexts, but context={context!r} is given"
            raise ConfigError(type(kubeconfig).__name__, problem, "leave it out")
        patience = min(timeout, HOOK_TIMEOUT)
        source = ConfigurationSource(kubeconfig, clock=clock, patience=patience)
        user_agent = user_agent or source.user_agent or ""
    elif not isinstance(kubeconfig, str | os.PathLike | None):
        fix = "give a path, an Endpoint, or an ApiClient or a Configuration of kubernetes_asyncio"
        if isinstance(kubeconfig, Mapping):
            fix = (
                "write the kubeconfig to a file, or use load_kube_config_from_dict of your package"
            )
        raise ConfigError(f"{kubeconfig!r:.60}", "does not say where a server is", fix)
    else:
        source = find_source(kubeconfig, context, clock=clock)
    transport = Transport(
        source,
        observer=observer,
        user_agent=user_agent or "kueuelib",
        clock=clock,
        request_timeout=timeout,
    )
    await transport.endpoint()
    throttle = None if not qps or qps < 0 else Throttle(qps, burst or max(int(qps), 1), clock)
    return Client(transport, field_manager=field_manager, throttle=throttle, clock=clock)


@asynccontextmanager
async def reached(
    kubeconfig: str | os.PathLike[str] | None, seconds: float, *, user_agent: str
) -> AsyncIterator[Client]:
    """A client whose server answers, for an interactive command.

    It does not wait for a server that refuses connections.

    Args:
        kubeconfig: a file, found by kubectl's rules when None.
        seconds: how long to wait for a server that does not answer; also the limit for later calls,
            and for all their repetitions together.
        user_agent: the `User-Agent` header.

    Raises:
        ConfigError: as `connect` and `wait_for_server`.
    """
    patience = max(seconds, ATTEMPT_TIMEOUT)
    async with await connect(kubeconfig, user_agent=user_agent, timeout=patience) as client:
        await wait_for_server(client, seconds, starting=False)
        yield client.hurried(patience)


async def wait_for_server(
    client: Client,
    deadline: float = WAIT_FOR_SERVER,
    *,
    starting: bool = True,
    clock: Clock = SYSTEM_CLOCK,
    backoff: Backoff | None = None,
) -> None:
    """Wait until the server answers, and log every attempt.

    Args:
        client: whose server.
        deadline: seconds until the wait fails.
        starting: whether the server may be about to start, so that a refused connection is tried
            again.
        clock: time.
        backoff: the pauses between attempts.

    Raises:
        ConfigError: it did not answer in time, is not trusted, refused the credentials, or (unless
            `starting`) refused the connection.
    """
    log = get_logger("connect")
    endpoint = await client.transport.endpoint()
    subject = f"{endpoint.url} (from {endpoint.source})" if endpoint.source else endpoint.url
    pauses = backoff or Backoff(base=0.5, cap=10.0, jitter=0.2)
    started, waited = clock.monotonic(), 0.0
    while True:
        left = min(max(deadline - waited, LAST_ATTEMPT), ATTEMPT_TIMEOUT)
        try:
            answer = await client.transport.request("GET", "/version", timeout=left, verb="get")
            if not _is_version(answer.body):
                raise ConfigError(
                    subject, "is not an API server (/version is not JSON)", _CHECK_SERVER
                )
        except Forbidden:
            return
        except Unauthorized as error:
            raise ConfigError(
                subject,
                f"the API server refused the credentials ({error})",
                "check the user of the kubeconfig's context",
            ) from error
        except TransportError as error:
            if isinstance(error.__cause__, NoTls):
                raise ConfigError(
                    subject, error.problem, "check the cluster's server and certificate-authority"
                ) from error
            if not starting and isinstance(error.__cause__, NoProxy):
                raise ConfigError(subject, error.problem, CHECK_PROXY) from error
            if not starting and _nobody_listens(error):
                raise ConfigError(
                    subject, f"no API server listens there ({error.problem})", _START_SERVER
                ) from error
            problem = error.problem
            fix = CHECK_PROXY if isinstance(error.__cause__, NoProxy) else _START_SERVER
            ended = isinstance(error.__cause__, Disconnected)
            if ended and endpoint.url.startswith("http://"):
                problem += "; does the server need https://?"
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                raise ConfigError(
                    subject, f"is not an API server ({error})", _CHECK_SERVER
                ) from error
            problem, fix = str(error), _START_SERVER
        else:
            return
        waited = clock.monotonic() - started
        pause = min(pauses.next(clock.monotonic(), random.random()), deadline - waited)
        if pause <= 0:
            raise ConfigError(
                subject,
                f"the API server did not answer within {deadline:.0f} s ({problem})",
                fix,
            )
        log.info(
            "waiting for the API server",
            server=endpoint.url,
            problem=problem,
            again_in=f"{pause:.1f} s",
            gives_up_in=f"{deadline - waited:.0f} s",
        )
        await clock.sleep(pause)


def _nobody_listens(error: TransportError) -> bool:
    """Whether the connection was refused: by the host, as nothing listens on that port."""
    cause = error.__cause__
    return isinstance(cause, NoConnection) and cause.error.errno == errno.ECONNREFUSED


def _is_version(body: bytes) -> bool:
    """Whether a body is a JSON object, as the version of every API server."""
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


async def server_time(client: Client, clock: Clock = SYSTEM_CLOCK) -> float:
    """Seconds since the epoch by the clock of the API server; by ours if it does not say.

    Args:
        client: of the server.
        clock: ours.
    """
    try:
        answer = await client.transport.request("GET", "/version")
        return parsedate_to_datetime(answer.headers.first("Date") or "").timestamp()
    except (ApiError, ValueError):
        return clock.now()
