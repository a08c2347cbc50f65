"""The servers of probes and metrics of a program, as its configuration asks for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from kueuelib.app.configuration import Configuration
from kueuelib.controllers.visibility.server import VisibilityServer
from kueuelib.runtime.client import Client
from kueuelib.runtime.contact import ServerContact
from kueuelib.runtime.http import MetricsServer, ProbeServer, parse_address
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.manager import ABORT_DEADLINE, Group, Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.server import WebhookServer
from kueuelib.scheduler.engine import Engine


def add_servers(
    manager: Manager,
    configuration: Configuration,
    client: Client,
    telemetry: Telemetry,
    webhooks: WebhookServer,
    source: str,
) -> None:
    """Adds the servers of probes and metrics that the configuration asks for."""
    probes = _probe_server(configuration, source)
    if probes:
        contact = ServerContact(client)
        probes.add_ready_check("apiserver", contact.problem, shown=True)
        probes.add_ready_check("webhook", lambda: "" if webhooks.serving else "not serving yet")
        probes.add_ready_check("manager", lambda: "" if manager.ready else "not all parts run")
        manager.add(Group.SERVERS, contact, "contact with the API server")
        manager.add(Group.SERVERS, probes, "probes")
    address = parse_address(configuration.metrics.bind_address, f"{source}: metrics.bindAddress")
    if address:
        server = MetricsServer(*address, telemetry, subject=f"{source}: metrics.bindAddress")
        manager.add(Group.SERVERS, server, "metrics")


def add_visibility(
    manager: Manager,
    configuration: Configuration,
    client: Client,
    engine: Engine,
    context: ssl.SSLContext,
    source: str,
) -> None:
    """Adds the visibility API, if the configuration asks for it; it is served in every replica.

    It starts after the caches, when the engine knows what waits, and the context has a certificate.
    """
    wanted = configuration.visibility_server
    if wanted is None:
        return
    key = f"{source}: visibilityServer"
    server = VisibilityServer(
        wanted.bind_address, wanted.bind_port, context, client, engine, subject=key
    )
    manager.add(Group.OTHERS, server, "visibility API")


@asynccontextmanager
async def waiting_probes(
    configuration: Configuration, client: Client, source: str
) -> AsyncIterator[None]:
    """Serves probes while the API server is waited for: alive, but not ready.

    An address that cannot be bound is not an error here: that a server does not answer is the first
    thing to know, and the manager binds the same address once it starts.

    Args:
        configuration: where to listen.
        client: of the server that is waited for.
        source: what to call the configuration in errors.
    """
    probes = _probe_server(configuration, source)
    if probes is None:
        yield
        return
    contact = ServerContact(client, patience=0.0)
    probes.add_ready_check("apiserver", contact.problem, shown=True)
    probes.add_ready_check("manager", lambda: "waits for the API server")
    started = asyncio.Event()
    task = asyncio.create_task(probes.run(started.set), name="probes")
    waiting = asyncio.create_task(started.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done() and (error := task.exception()):
            get_logger("probes").warning("not served yet", error=str(error))
        yield
    finally:
        waiting.cancel()
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,), timeout=ABORT_DEADLINE)


def _probe_server(configuration: Configuration, source: str) -> ProbeServer | None:
    """The server of probes, without checks; None when the configuration turns it off."""
    health = configuration.health
    subject = f"{source}: health.healthProbeBindAddress"
    address = parse_address(health.health_probe_bind_address, subject)
    if address is None:
        return None
    return ProbeServer(
        *address,
        live_path=health.liveness_endpoint_name,
        ready_path=health.readiness_endpoint_name,
        subject=subject,
    )
