"""The program of an operator: election, caches, controllers, webhooks, probes, metrics, events."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType

import attrs

from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.machinery.options import ElectionOptions
from kueuelib.runtime.addresses import check_servable, own_namespace, parse_address
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.certificates import service_names
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.cluster import Cluster, ServerContact
from kueuelib.runtime.connection import WAIT_FOR_SERVER, connect, wait_for_server
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.http import MetricsServer, ProbeServer
from kueuelib.runtime.leader import Elector, default_identity
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.manager import Group, Manager, ProgramRun, run_until_signal
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import serve_hooks, trusting
from kueuelib.runtime.operator.reconciling import controller_for
from kueuelib.runtime.queries import Unserved, api_versions, served_plurals, unserved
from kueuelib.runtime.telemetry import LoopLag, RestMetrics, Telemetry, process_telemetry
from kueuelib.runtime.webhook.server import WEBHOOK, add_webhook_server

# ---- whether the API server has the kinds that an operator names; asked once, before it runs -----

PATIENCE = 5.0
"""Seconds that an API server may need until it serves a CRD that was just applied."""
PAUSE = 0.25
"""Seconds between two looks."""


async def check_served(
    operator: Operator, client: Client, patience: float, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Refuses to start without the kinds that an operator reconciles, owns, watches or writes.

    A kind that is only written may belong to a group that is not installed: that is a warning.
    Kinds of other clusters are not looked at.

    Args:
        operator: the declaration.
        client: of the API server.
        patience: seconds to wait for a kind that may still come.
        clock: how to wait.

    Raises:
        ConfigError: a kind is not served.
    """
    log = get_logger("operator")
    deadline, warned = clock.monotonic() + patience, False
    needed = _followed(operator)
    while True:
        missing = await _look(operator, client)
        fatal = [each for kind, each in missing.items() if kind in needed or not each.absent]
        sure = [each for each in fatal if each.misnamed]
        if not fatal:
            break
        if sure or clock.monotonic() >= deadline:
            raise (sure or fatal)[0].error
        if not warned:
            log.warning("waiting for a kind", why=str(fatal[0].error), seconds=patience)
            warned = True
        await clock.sleep(PAUSE)
    for each in missing.values():
        log.warning("cannot be written", why=str(each.error))


def _followed(operator: Operator) -> dict[Resource, None]:
    """The kinds of this cluster that are read, in the order of the declaration."""
    followed = [
        kind
        for each in operator.reconciled
        for kind in (each.resource, *each.owns, *each.watches)
        if isinstance(kind, Resource)
    ]
    return dict.fromkeys(followed)


async def _look(operator: Operator, client: Client) -> dict[Resource, Unserved]:
    """What is not served; a group that does not answer is left to the caches, which report it."""
    own = {each.resource.group_kind for each in operator.definitions}
    written = [kind for each in operator.reconciled for kind in each.writes]
    served: dict[str, Mapping[str, str]] = {}
    missing = {}
    for kind in dict.fromkeys([*_followed(operator), *written]):
        version = kind.api_version
        try:
            if version not in served:
                served[version] = await served_plurals(client.request, version)
            others = () if served[version] else await api_versions(client.request)
        except (ApiError, TransportError):
            continue
        if wrong := unserved(kind, served[version], others, own=kind.group_kind in own):
            missing[kind] = wrong
    return missing


# --------------------------------------------------------------------------------------------------

OFF = "0"
HEALTH, METRICS = "health address", "metrics address"
"""What addresses are called in errors."""
ClusterTarget = str | os.PathLike[str] | Endpoint
"""A kubeconfig, or where a server is."""


@attrs.frozen
class ServeOptions:
    """How an operator runs.

    Attributes:
        kubeconfig: a file, found by kubectl's rules when None; or where the server is.
        context: the context of the kubeconfig.
        clusters: the other clusters of the operator, by name.
        namespace: of Lease and certificate; when empty the pod's, or `default` outside a cluster.
        leader_elect: whether to wait for the Lease; without it only one replica may run.
        webhook_address: `host:port` of the webhooks.
        health_address: `host:port` of the probes; `0` turns them off.
        metrics_address: `host:port` of the metrics; `0` turns them off.
        server_timeout: seconds to wait for the API server at the start.
    """

    kubeconfig: ClusterTarget | None = None
    context: str | None = None
    clusters: Mapping[str, ClusterTarget] = MappingProxyType({})
    namespace: str = ""
    leader_elect: bool = False
    webhook_address: str = ":9443"
    health_address: str = OFF
    metrics_address: str = OFF
    server_timeout: float = WAIT_FOR_SERVER


async def serve(
    operator: Operator, options: ServeOptions, telemetry: Telemetry | None = None
) -> None:
    """Run an operator until SIGTERM or SIGINT, again after each lost Lease.

    Args:
        operator: the declaration.
        options: how it runs.
        telemetry: where to report; None: beside the metrics of prometheus_client's registry.

    Raises:
        ConfigError: there is no usable configuration or no server, an address cannot be bound, or a
            kind is not served or cannot be listed.
    """
    lease = ObjectKey(options.namespace or own_namespace("default"), operator.name)
    election = ElectionOptions(lease=lease, identity=default_identity(), release_on_cancel=True)
    once = partial(_serve_once, operator, options, election, telemetry or process_telemetry())
    listening = [
        (options.health_address, HEALTH),
        (options.metrics_address, METRICS),
        *([(options.webhook_address, WEBHOOK)] if operator.needs_webhooks else ()),
    ]
    for text, subject in listening:
        if address := parse_address(text, subject):
            await check_servable(*address, subject=subject)
    await run_until_signal(once, options.server_timeout)


async def _serve_once(
    operator: Operator,
    options: ServeOptions,
    election: ElectionOptions,
    telemetry: Telemetry,
    life: ProgramRun,
    patience: float,
) -> None:
    async with (
        await _connect(operator, options, telemetry) as client,
        _elector(operator, options, election, telemetry) as elector,
        AsyncExitStack() as stack,
    ):
        clusters = {
            name: await stack.enter_async_context(
                await _connect(operator, ServeOptions(kubeconfig=place))
            )
            for name, place in options.clusters.items()
        }
        await wait_for_server(client, patience)
        manager = Manager(elector=elector)
        assemble(operator, manager, client, options, telemetry, clusters)
        await check_served(operator, client, PATIENCE)
        await life.run(manager)


def assemble(
    operator: Operator,
    manager: Manager,
    client: Client,
    options: ServeOptions,
    telemetry: Telemetry,
    clusters: Mapping[str, Client] = MappingProxyType({}),
) -> None:
    """Add all parts of an operator to a manager.

    Args:
        operator: the declaration.
        manager: runs the parts.
        client: of the API server; its field manager should be the operator's name.
        options: where to listen.
        telemetry: where to report.
        clusters: a client of each other cluster of the operator, by name; the caller closes them.

    Raises:
        ConfigError: the operator has nothing to do, an address is malformed, or a cluster is
            missing or not declared.
    """
    if not operator.reconciled and not operator.needs_webhooks:
        raise ConfigError(
            f"operator {operator.name}",
            "has nothing to do",
            "decorate a function with @operator.reconciles(...)",
        )
    recorder = EventRecorder(client, operator.name, telemetry=telemetry)
    cache = Cache(client, telemetry=telemetry)
    manager.add(Group.EVENTS, recorder, "event recorder")
    manager.add(Group.CACHES, cache, "caches")
    leading = client.guarded(manager.require_leadership)
    others = _other_clusters(operator, manager, clusters, telemetry)
    for declared in operator.reconciled:
        controller = controller_for(
            operator, declared, leading, cache, recorder, clusters=others, telemetry=telemetry
        )
        manager.add(Group.ELECTED, controller, f"{controller.name} controller")
    if operator.needs_webhooks:
        _add_webhooks(operator, manager, client, options, telemetry)
    _add_servers(manager, client, options, telemetry, cache, others)


def _other_clusters(
    operator: Operator, manager: Manager, clients: Mapping[str, Client], telemetry: Telemetry
) -> dict[str, Cluster]:
    """The other clusters, as parts of the manager; their clients write as the leader only."""
    subject = f"operator {operator.name}"
    if missing := sorted(operator.clusters.keys() - clients.keys()):
        where = " ".join(f"--cluster {name}=KUBECONFIG" for name in missing)
        raise ConfigError(subject, f"cluster {', '.join(missing)}: no kubeconfig", f"add {where}")
    if unknown := sorted(clients.keys() - operator.clusters.keys()):
        declared = ", ".join(sorted(operator.clusters)) or "none"
        raise ConfigError(
            subject, f"has no cluster {', '.join(unknown)}", f"leave it out; declared: {declared}"
        )
    clusters = {}
    for name, client in clients.items():
        guarded = client.guarded(manager.require_leadership)
        clusters[name] = Cluster(guarded, name, telemetry=telemetry)
        manager.add(Group.CACHES, clusters[name], f"cluster {name}")
    return clusters


def _add_webhooks(
    operator: Operator,
    manager: Manager,
    client: Client,
    options: ServeOptions,
    telemetry: Telemetry,
) -> None:
    namespace = options.namespace or own_namespace("default")
    server = add_webhook_server(
        manager,
        client,
        options.webhook_address,
        service_names(operator.name, namespace),
        ObjectKey(namespace, f"{operator.name}-cert"),
        trusting(operator),
        organisation=operator.name,
        telemetry=telemetry,
    )
    serve_hooks(operator, server)


def _add_servers(
    manager: Manager,
    client: Client,
    options: ServeOptions,
    telemetry: Telemetry,
    cache: Cache,
    clusters: Mapping[str, Cluster],
) -> None:
    if address := parse_address(options.health_address, HEALTH):
        contact = ServerContact(client)
        probes = ProbeServer(*address, subject=HEALTH)
        probes.add_ready_check("apiserver", contact.problem, shown=True)
        probes.add_ready_check("kinds", cache.unserved, shown=True)
        probes.add_ready_check("manager", lambda: "" if manager.ready else "not all parts run")
        for name, cluster in clusters.items():
            probes.add_ready_check(f"cluster-{name}", cluster.problem, shown=True, required=False)
        manager.add(Group.SERVERS, contact, "contact with the API server")
        manager.add(Group.SERVERS, probes, "probes")
    if address := parse_address(options.metrics_address, METRICS):
        server = MetricsServer(*address, telemetry, subject=METRICS)
        manager.add(Group.SERVERS, LoopLag(telemetry), "loop lag")
        manager.add(Group.SERVERS, server, "metrics")


async def _connect(
    operator: Operator, options: ServeOptions, telemetry: Telemetry | None = None
) -> Client:
    return await connect(
        options.kubeconfig,
        options.context,
        observer=None if telemetry is None else RestMetrics(telemetry),
        user_agent=f"kueuelib/{operator.name}",
        field_manager=operator.name,
    )


@asynccontextmanager
async def _elector(
    operator: Operator, options: ServeOptions, election: ElectionOptions, telemetry: Telemetry
) -> AsyncIterator[Elector | None]:
    """The elector with a client of its own, so that other calls cannot delay a renewal."""
    if not options.leader_elect:
        yield None
        return
    async with await _connect(operator, options) as client:
        yield Elector(client, election, telemetry=telemetry)
