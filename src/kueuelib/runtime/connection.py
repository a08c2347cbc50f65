"""From a kubeconfig to a client that has reached its server."""

from __future__ import annotations

import os
import random

import aiohttp

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
from kueuelib.runtime.endpoint import Endpoint, EndpointSource
from kueuelib.runtime.kubeconfig import find_source
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.throttle import Throttle
from kueuelib.runtime.transport import Observer, Transport

WAIT_FOR_SERVER = 60.0
"""Seconds that a program waits for its server at the start."""
ATTEMPT_TIMEOUT = 10.0


async def connect(
    kubeconfig: str | os.PathLike[str] | Endpoint | None = None,
    context: str | None = None,
    *,
    observer: Observer | None = None,
    user_agent: str = "kueuelib",
    field_manager: str = "kueuelib",
    qps: float | None = None,
    burst: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Client:
    """A client for the server that a kubeconfig, or the pod's service account, names.

    No request is sent; see `wait_for_server`.

    Args:
        kubeconfig: a file, found by kubectl's rules when None; or where the server is.
        context: the context; the current one when None.
        observer: receives every call.
        user_agent: the `User-Agent` header.
        field_manager: who owns what the client writes.
        qps: calls per second; unlimited when None.
        burst: calls that may exceed that rate for a moment.
        clock: time.

    Raises:
        ConfigError: there is no usable configuration; it says which file, what and the fix.
    """
    source: EndpointSource | Endpoint
    if isinstance(kubeconfig, Endpoint):
        source = kubeconfig
    else:
        source = find_source(kubeconfig, context, clock=clock)
    transport = Transport(source, observer=observer, user_agent=user_agent, clock=clock)
    await transport.endpoint()
    throttle = None if not qps or qps < 0 else Throttle(qps, burst or max(int(qps), 1), clock)
    return Client(transport, field_manager=field_manager, throttle=throttle, clock=clock)


async def wait_for_server(
    client: Client,
    deadline: float = WAIT_FOR_SERVER,
    *,
    clock: Clock = SYSTEM_CLOCK,
    backoff: Backoff | None = None,
) -> None:
    """Wait until the server answers, telling every attempt in the log.

    Args:
        client: whose server.
        deadline: seconds until it is given up.
        clock: time.
        backoff: the pauses between attempts.

    Raises:
        ConfigError: it did not answer in time, is not trusted, or refuses the credentials.
    """
    log = get_logger("connect")
    endpoint = await client.transport.endpoint()
    subject = f"{endpoint.url} (from {endpoint.source})" if endpoint.source else endpoint.url
    pauses = backoff or Backoff(base=0.5, cap=10.0, jitter=0.2)
    started = clock.monotonic()
    while True:
        try:
            await client.transport.request("GET", "/version", timeout=ATTEMPT_TIMEOUT, verb="get")
        except Forbidden:
            return
        except Unauthorized as error:
            raise ConfigError(
                subject,
                f"the API server refused the credentials ({error})",
                "check the user of the kubeconfig's context",
            ) from error
        except TransportError as error:
            if isinstance(error.__cause__, aiohttp.ClientSSLError):
                raise ConfigError(
                    subject, error.problem, "check the cluster's server and certificate-authority"
                ) from error
            problem = error.problem
        except ApiError as error:
            if error.code < 500 and error.code != 429:
                raise ConfigError(
                    subject, f"is not an API server ({error})", "check the cluster's server"
                ) from error
            problem = str(error)
        else:
            return
        waited = clock.monotonic() - started
        pause = min(pauses.next(clock.monotonic(), random.random()), deadline - waited)
        if pause <= 0:
            raise ConfigError(
                subject,
                f"the API server did not answer within {deadline:.0f} s ({problem})",
                "start it, or correct the cluster's server",
            )
        log.warning(
            "waiting for the API server",
            server=endpoint.url,
            problem=problem,
            again_in=f"{pause:.1f} s",
            gives_up_in=f"{deadline - waited:.0f} s",
        )
        await clock.sleep(pause)
