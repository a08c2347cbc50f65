"""The servers of a program, according to its configuration."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from kueuelib.api.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import ObjectKey
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.program_context import ProgramContext
from kueuelib.controllers.feed import Feed
from kueuelib.controllers.manifests import server_names
from kueuelib.runtime.access_reviews import PathReaders
from kueuelib.runtime.addresses import parse_address
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.certificates import CertificateFiles, host_names
from kueuelib.runtime.client import Client
from kueuelib.runtime.cluster import ServerContact
from kueuelib.runtime.http import MetricsServer, ProbeServer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.manager import ABORT_DEADLINE, Group
from kueuelib.runtime.telemetry import LoopLag
from kueuelib.runtime.webhook.server import WebhookServer
from kueuelib.runtime.webhook.trust import CertificateKeeper, Trusting
from kueuelib.scheduler.engine import Engine
from kueuelib.workload.life import LifeSettings

if TYPE_CHECKING:
    from kueuelib.app.expected_starts import ExpectedStarts


def add_servers(
    program: ProgramContext,
    webhooks: WebhookServer,
    cache: Cache,
    metrics_tls: ssl.SSLContext | None = None,
) -> None:
    """Adds the servers of probes and metrics that the configuration asks for.

    Args:
        program: gets them.
        webhooks: must serve before the program is ready.
        cache: the program is not ready while one of its kinds is not served.
        metrics_tls: the context for metrics over HTTPS, with authorization; None: plain HTTP, open
            to everyone.
    """
    manager, configuration, client = program.manager, program.configuration, program.client
    probes = _probe_server(configuration, program.source)
    if probes:
        contact = ServerContact(client)
        probes.add_ready_check("apiserver", contact.problem, shown=True)
        probes.add_ready_check("kinds", cache.unserved, shown=True)
        probes.add_ready_check("webhook", lambda: "" if webhooks.serving else "not serving yet")
        probes.add_ready_check("manager", lambda: "" if manager.ready else "not all parts run")
        manager.add(Group.SERVERS, contact, "contact with the API server")
        manager.add(Group.SERVERS, probes, "probes")
    subject, telemetry = f"{program.source}: metrics.bindAddress", program.telemetry
    address = parse_address(configuration.metrics.bind_address, subject)
    if address:
        guard = None if metrics_tls is None else PathReaders(client, "/metrics").check
        server = MetricsServer(*address, telemetry, subject=subject, tls=metrics_tls, guard=guard)
        manager.add(Group.SERVERS, LoopLag(telemetry), "loop lag")
        manager.add(Group.SERVERS, server, "metrics")


def add_webhooks(
    program: ProgramContext,
    names: tuple[str, str],
    trusting: Iterable[Trusting] = (),
    contexts: Iterable[ssl.SSLContext] = (),
) -> WebhookServer:
    """Adds the webhook server, and the keeper of its certificate.

    Args:
        program: gets both.
        names: of the mutating and of the validating webhook configuration.
        trusting: further objects that carry the certificate of our authority.
        contexts: of further servers with the same certificate.
    """
    configuration, telemetry = program.configuration, program.telemetry
    certificates = configuration.internal_cert_management
    namespace = configuration.manager_namespace
    host = configuration.webhook.host
    hosts = server_names(certificates.webhook_service_name, namespace)
    if host and host not in ("0.0.0.0", "::"):
        hosts |= host_names([host])
    context = configuration.tls.context()
    keeper: CertificateKeeper | CertificateFiles
    all_trusting = [
        Trusting(MUTATING_WEBHOOKS, names[0]),
        Trusting(VALIDATING_WEBHOOKS, names[1]),
        *trusting,
    ]
    if certificates.enable:
        secret = ObjectKey(namespace, certificates.webhook_secret_name)
        keeper = CertificateKeeper(
            program.client, [context, *contexts], secret, hosts, all_trusting
        )
    else:
        folder = configuration.webhook.certificate_folder
        keeper = CertificateFiles([context, *contexts], folder, telemetry=telemetry)
    server = WebhookServer(
        host,
        configuration.webhook.port,
        context,
        telemetry=telemetry,
        subject=f"{program.source}: webhook.port",
    )
    program.manager.add(Group.WEBHOOKS, keeper, "certificates")
    program.manager.add(Group.WEBHOOKS, server, "webhook server")
    return server


def add_visibility(
    program: ProgramContext,
    engine: Engine,
    feed: Feed,
    life: LifeSettings,
    context: ssl.SSLContext,
) -> ExpectedStarts | None:
    """Adds the visibility API, if the configuration asks for it; it is served in every replica.

    It starts after the caches, when the engine knows what waits, and the context has a certificate.

    Returns:
        What predicts starts, whose settings for times may change; None without the API.
    """
    manager, wanted = program.manager, program.configuration.visibility_server
    if wanted is None:
        return None
    from kueuelib.app.expected_starts import ExpectedStarts
    from kueuelib.controllers.visibility.server import VisibilityServer

    starts = ExpectedStarts(engine, engine_settings(program.configuration, program.source), life)
    feed.follow(starts.observe)
    server = VisibilityServer(
        wanted.bind_address,
        wanted.bind_port,
        context,
        program.client,
        engine,
        starts,
        subject=f"{program.source}: visibilityServer.bindPort",
    )
    manager.add(Group.OTHERS, starts, "expected starts")
    manager.add(Group.OTHERS, server, "visibility API")
    return starts


@asynccontextmanager
async def waiting_probes(
    configuration: Configuration, client: Client, source: str
) -> AsyncIterator[None]:
    """Serves probes during the wait for the API server: alive, but not ready.

    An address that cannot be bound is not an error here: the missing server is the more important
    message, and the manager binds the same address once it starts.

    Args:
        configuration: where to listen.
        client: of the API server.
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
