"""`ApiServer`: a Kubernetes API server in this process, on loopback, in memory."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import logging
import os
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import orjson
from aiohttp import web
from yarl import URL

from kueuelib.api.kinds import (
    CONFIG_MAPS,
    CRDS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from kueuelib.api.meta import Obj, ObjectKey, parse_time
from kueuelib.embedded import credentials
from kueuelib.embedded.access.attributes import AUTHENTICATED, AlwaysAllow, Authorizer
from kueuelib.embedded.admission.dialling import Services, read_addresses
from kueuelib.embedded.admission.hook_client import HookClient
from kueuelib.embedded.admission.plugin import AdmissionPlugin, KindRules, UserInfo
from kueuelib.embedded.builtins.batch_rules import JobRules
from kueuelib.embedded.builtins.core_rules import NamespaceRules, NodeRules
from kueuelib.embedded.builtins.limits import LimitRangePlugin
from kueuelib.embedded.builtins.network_rules import ServiceRules, own_service
from kueuelib.embedded.builtins.pod_rules import PodRules, ServiceAccountPlugin, TolerationPlugin
from kueuelib.embedded.builtins.priority import (
    PriorityClassRules,
    PriorityPlugin,
    system_priority_classes,
)
from kueuelib.embedded.builtins.stored_rules import stored_rules
from kueuelib.embedded.conversion import HookCaller
from kueuelib.embedded.http import bodies
from kueuelib.embedded.http.aggregation import Aggregation, FrontProxyCertificate
from kueuelib.embedded.http.answers import StatusConnection
from kueuelib.embedded.http.authentication import Authenticator
from kueuelib.embedded.http.backends import Backends
from kueuelib.embedded.http.request_handler import RequestHandler
from kueuelib.embedded.http.requests import readable
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.storage import StaleWrite, StorageEvent, StoredState
from kueuelib.embedded.storage.folder import DataFolder, StoredRow
from kueuelib.embedded.storage.memory import NOTHING, Journal
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import AlreadyExists, ConfigError
from kueuelib.runtime.http import close_connections
from kueuelib.runtime.server_limits import BACKLOG, Site

if TYPE_CHECKING:
    from kueuelib.embedded.cluster.clock import WakeableClock
    from kueuelib.embedded.cluster.simulation import SimulatedCluster
    from kueuelib.runtime.client import Client


# ---- restores a service from a data folder -------------------------------------------------------

_LOG = logging.getLogger("kueuelib.embedded")
GAP = 10_000
"""Resource versions that are skipped after a crash.

Clients may have seen changes that were never acknowledged and are lost; their resource versions
must not be reused.
"""

CRD_TABLE = f"{CRDS.plural}.{CRDS.group}"


def restore(service: ApiService, folder: DataFolder) -> None:
    """Fills an empty service with the stored state, and saves its changes from now on.

    After a clean end the history is restored too, and watches continue. After a crash they get a
    410 and list again.

    Raises:
        ConfigError: the state is damaged.
    """
    latest = folder.latest()
    clean = folder.fact("clean") == str(latest).encode()
    history = int(folder.fact("compacted") or b"0")
    saved = max(latest, folder.begun())
    if folder.mark > saved:
        _LOG.warning(
            "%s has lost its latest records: it ends at resource version %d, and %d had been "
            "saved. What was written in between is gone, or is as it was before. The server "
            "continues without it; to have it again, stop the server and restore a copy of %s",
            folder.file,
            latest,
            folder.mark,
            folder.path,
        )
    crashed = folder.mark > saved or (saved > 0 and not clean)
    start = max(saved, folder.mark) + (GAP if crashed else 0)
    try:
        _keep_key(service, folder)
        _replay(service, folder, start if crashed else history)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"holds an object that cannot be read: {error}"
        fix = "restore a copy, or choose another folder"
        raise ConfigError(str(folder.file), why, fix) from error
    storage = service.storage
    storage.revision = max(storage.revision, start)
    folder.note(begun=str(storage.revision).encode(), clean=b"")
    storage.journal = Journal(folder)


def _keep_key(service: ApiService, folder: DataFolder) -> None:
    """Keep the key of ServiceAccount tokens, so that they stay valid."""
    pem = folder.fact("signing")
    if pem is None:
        folder.note(signing=service.tokens.pem)
    else:
        service.tokens.adopt(pem)


def _replay(service: ApiService, folder: DataFolder, history: int) -> None:
    """Fills the storage.

    Args:
        service: that has it.
        folder: the states.
        history: up to it changes are not shown.
    """
    storage = service.storage
    storage.floor = history
    latest = {(row.namespace, row.name): row for row in folder.rows() if row.kind == CRD_TABLE}
    for row in latest.values():
        if not row.removed:
            service.definitions.restore(orjson.loads(row.raw), row.revision)
    kinds = {kind.table: kind for kind in service.registry}
    present: dict[tuple[str, str, str], StoredState] = {}
    for row in folder.rows():
        kind = kinds.get(row.kind)
        if kind is None:
            continue  # its definition is gone, so no client can ask for it
        entry = _entry(row, kind)
        place = (row.kind, row.namespace, row.name)
        change = StorageEvent(row.revision, present.get(place), entry, row.removed)
        storage.table(row.kind).restore(change, logged=row.revision > history)
        if row.removed:
            present.pop(place, None)
        else:
            present[place] = entry


def _entry(row: StoredRow, kind: Kind) -> StoredState:
    obj = orjson.loads(row.raw)
    meta = obj["metadata"]
    return StoredState(
        key=ObjectKey(row.namespace, row.name),
        revision=row.revision,
        version=row.version,
        raw=row.raw,
        labels=meta.get("labels") or NOTHING,
        fields=kind.fields(obj) or NOTHING,
    )


# ---- all rules and plug-ins of the built-in kinds ------------------------------------------------

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def builtin_rules() -> Mapping[tuple[str, str], KindRules]:
    """The strategies by group and kind."""
    return {
        PODS.group_kind: PodRules(),
        JOBS.group_kind: JobRules(),
        NAMESPACES.group_kind: NamespaceRules(),
        NODES.group_kind: NodeRules(),
        PRIORITY_CLASSES.group_kind: PriorityClassRules(),
        SERVICES.group_kind: ServiceRules(),
        **stored_rules(),
    }


def builtin_plugins() -> tuple[AdmissionPlugin, ...]:
    """The plug-ins in the order in which they are asked."""
    return (LimitRangePlugin(), ServiceAccountPlugin(), TolerationPlugin(), PriorityPlugin())


def system_objects() -> list[Obj]:
    """The initial objects of every cluster: namespaces and PriorityClasses."""
    namespaces: list[Obj] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in SYSTEM_NAMESPACES
    ]
    return namespaces + system_priority_classes()


# ---- assembles a service: kinds, their rules, plug-ins, and objects ------------------------------

MANAGER = "kube-apiserver"
"""Manages the fields of what the server makes for itself."""


async def new_service(
    hooks: HookCaller,
    folder: DataFolder | None = None,
    *,
    now: Callable[[], float] = time.time,
    plugins: Sequence[AdmissionPlugin] = (),
    objects: Sequence[Obj] = (),
) -> ApiService:
    """A service with the initial objects of every cluster.

    Args:
        hooks: calls webhooks for it.
        folder: with its state, which is saved there; the service closes it.
        now: its time, seconds since the epoch.
        plugins: further admission plug-ins.
        objects: initial objects besides namespaces and system PriorityClasses.

    Raises:
        ConfigError: the state in the folder is damaged.
    """
    service = ApiService(builtin_rules(), (*builtin_plugins(), *plugins), hooks, now)
    if folder is not None:
        restore(service, folder)
    for obj in (*system_objects(), *objects):
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = service.registry.by_kind(group, obj["kind"])
        assert kind is not None
        with contextlib.suppress(AlreadyExists):
            options = WriteOptions(field_manager=MANAGER)
            await service.create(kind.resource(version), obj, options=options)
    if folder is not None:
        folder.merge(service.storage.revision)  # what every cluster has does not hang on a log
    return service


# ---- removes events an hour after they were last written, as Kubernetes does ---------------------

LIFETIME: Final = 3600.0
PAUSE: Final = 300.0
_BATCH: Final = 200
"""The number of events that are checked before other tasks run."""


def last_written(event: Mapping[str, Any]) -> float:
    """When an event last occurred, in seconds since the epoch; 0 if it does not say."""
    texts = (
        event["metadata"].get("creationTimestamp"),
        event.get("eventTime"),
        event.get("lastTimestamp"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max((parse_time(text) for text in texts if text), default=0.0)


async def expire_events(service: ApiService) -> int:
    """Removes expired events without calling webhooks; returns their number."""
    kind, _ = service.registry.require(EVENTS)
    oldest = service.now() - LIFETIME
    removed = 0
    for number, entry in enumerate(list(service.storage.table(kind.table).entries()), 1):
        if number % _BATCH == 0:
            await asyncio.sleep(0)
        obj = entry.obj()
        if last_written(obj) > oldest:
            continue
        try:
            service.commits.remove(kind, obj, entry)
        except StaleWrite:
            continue
        removed += 1
    return removed


async def keep_expiring(service: ApiService) -> None:
    """Removes expired events every few minutes until cancelled."""
    while True:
        await asyncio.sleep(PAUSE)
        await expire_events(service)


# ---- the server ----------------------------------------------------------------------------------

ADMIN = "kubernetes-admin"
ADMIN_GROUP = "system:masters"
CLUSTER = "kueuelib"
RBAC = "rbac"
AUTHORIZATIONS = ("always", RBAC)
STOP_SECONDS = 2.0
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Middleware = Callable[[ApiService, Handler], Handler]


class ApiServer:
    """An API server as an async context manager.

    Args:
        port: to listen on; 0 takes a free one.
        simulate: also run the simulated cluster: Jobs, pods, nodes, garbage collection, namespaces.
        host: the address to listen on.
        authorization: `always`: every client with credentials may do everything; `rbac`: roles and
            bindings decide, and the group `system:masters` may do everything.
        clock: of the server and of its cluster; None: that of this machine.
        services: addresses of webhooks that are named by a Service: `host:port` by
            `namespace/name`. There is no cluster network; other Services can only be reached if
            they have the type ExternalName.
        data_dir: the folder for the state, with the certificates, the administrator's token, and
            the port if it is 0; None: everything is in memory and ends with the server.
        nodes: those of the simulated cluster, raw; by default two with room for everything.
        middleware: makes the handler of HTTP requests from the verbs and the server's own handler.

    Raises:
        ConfigError: on entering, if the address or the folder cannot be used.
    """

    def __init__(
        self,
        port: int = 0,
        simulate: bool = False,
        host: str = "127.0.0.1",
        *,
        authorization: str = "always",
        clock: WakeableClock | None = None,
        data_dir: Path | None = None,
        services: Mapping[str, str] | None = None,
        nodes: Sequence[Obj] = (),
        middleware: Middleware | None = None,
    ) -> None:
        if authorization not in AUTHORIZATIONS:
            raise ConfigError(
                f"authorization {authorization!r}",
                "is not a mode of authorization",
                f"choose one of {', '.join(AUTHORIZATIONS)}",
            )
        self._authorization = authorization
        self._clock = clock
        self._authenticator: Authenticator | None = None
        self._cluster: SimulatedCluster | None = None
        self._data_dir = data_dir
        self._addresses = read_addresses(services or {})
        self._folder: DataFolder | None = None
        self.host = host
        self.port = port
        self.token = secrets.token_urlsafe(32)
        self._simulate = simulate
        self._nodes = nodes
        self._middleware = middleware
        self._service: ApiService | None = None
        self._credentials: credentials.Credentials | None = None
        self._stack = AsyncExitStack()

    @property
    def service(self) -> ApiService:
        """The verbs, without HTTP."""
        assert self._service is not None, "the server is not started"
        return self._service

    @property
    def simulated(self) -> bool:
        """Whether there is a simulated cluster."""
        return self._simulate

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

    @property
    def cluster(self) -> SimulatedCluster:
        """The simulated cluster."""
        assert self._cluster is not None, "the server has no simulated cluster, or is not started"
        return self._cluster

    def add_user(self, name: str, *groups: str, token: str = "") -> str:
        """Adds a user; returns the bearer token, which is valid until the server ends.

        Args:
            name: of the user.
            groups: in addition to `system:authenticated`.
            token: one of its choice; empty for a new one.
        """
        assert self._authenticator is not None, "the server is not started"
        token = token or secrets.token_urlsafe(32)
        self._authenticator.add(token, UserInfo(name, groups=(*groups, AUTHENTICATED)))
        return token

    def kubeconfig(self, token: str = "") -> dict[str, Any]:
        """A kubeconfig.

        Args:
            token: of a user or a ServiceAccount; empty: the administrator, who also gets a client
                certificate.
        """
        assert self._credentials is not None, "the server is not started"
        given = self._credentials

        def text(data: bytes) -> str:
            return base64.b64encode(data).decode()

        cluster = {"server": self.url, "certificate-authority-data": text(given.ca)}
        name = "user" if token else ADMIN
        user = {"token": token or self.token}
        if not token:
            user["client-certificate-data"] = text(given.client_certificate)
            user["client-key-data"] = text(given.client_key)
        context = {"cluster": CLUSTER, "user": name, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CLUSTER, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": CLUSTER, "context": context}],
            "current-context": CLUSTER,
        }

    def client(self, token: str = "", *, field_manager: str = "kueuelib") -> Client:
        """A client of this server; the caller closes it.

        Args:
            token: of a user or a ServiceAccount; empty: the administrator.
            field_manager: the owner of fields that the client writes.
        """
        from kueuelib.runtime.client import Client
        from kueuelib.runtime.endpoint import Endpoint
        from kueuelib.runtime.transport import Transport

        endpoint = Endpoint(
            url=self.url,
            tls=ssl.create_default_context(cadata=self.ca.decode()),
            authorization=f"Bearer {token or self.token}",
            source="the embedded API server",
            namespace="default",
        )
        return Client(Transport(endpoint), field_manager=field_manager)

    async def __aenter__(self) -> Self:
        listener: socket.socket | None = None
        try:
            if self._data_dir is not None:
                self._open_folder(self._data_dir)
            listener = self._listen()
            self.port = listener.getsockname()[1]
            await self._start(listener)
        except BaseException:
            if listener is not None:
                listener.close()
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stop()

    def _open_folder(self, path: Path) -> None:
        self._folder = DataFolder(path)
        self._stack.callback(self._folder.close)

    def _listen(self) -> socket.socket:
        """Opens a listener; for port 0, the port of the last time is preferred."""
        if self.port or self._folder is None:
            return self._listen_on(self.port)
        from kueuelib.embedded.credentials import persist_port, persisted_port

        try:
            listener = self._listen_on(persisted_port(self._folder))
        except ConfigError:
            listener = self._listen_on(0)
        persist_port(self._folder, listener.getsockname()[1])
        return listener

    def _listen_on(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            why, advice = error.strerror or str(error), "choose an address of this machine"
            if error.errno == errno.EADDRINUSE:
                why = "another program listens there"
                advice = "choose another port, or 0 for any free one"
            raise ConfigError(f"{self.host}:{port}", why, advice) from error
        listener.setblocking(False)
        return listener

    async def _start(self, listener: socket.socket) -> None:
        hosts = tuple(dict.fromkeys((self.host, "127.0.0.1", "localhost")))
        if self._folder is None:
            self._credentials = credentials.credentials(time.time(), hosts, ADMIN, ADMIN_GROUP)
        else:
            from kueuelib.embedded.credentials import persisted_credentials

            kept = persisted_credentials(self._folder, time.time(), hosts, ADMIN, ADMIN_GROUP)
            self._credentials, self.token = kept.credentials, kept.token
        hooks = HookClient()
        self._stack.push_async_callback(hooks.close)
        service, authorizer = await self._assemble(hooks)
        self._service = service
        hooks.services = Services(service.reader, self._addresses)
        admin = UserInfo(ADMIN, groups=(ADMIN_GROUP, AUTHENTICATED))
        self._authenticator = Authenticator(
            {self.token: admin}, lambda token: service.tokens.verify(token, service.now())
        )
        address = f"{self.host}:{self.port}"
        proxy = FrontProxyCertificate(time.time())
        await _announce(service, proxy.config_map(self._credentials.ca))
        aggregation = Aggregation(service.reader, hooks.services, proxy)
        self._stack.push_async_callback(aggregation.close)
        service.commits.listen(aggregation.follow)
        own = self._credentials
        backends = Backends(own.kubelet_key + own.kubelet_certificate)
        face = RequestHandler(
            service, self._authenticator, authorizer, address, aggregation, backends
        )
        handler = (
            face.handle if self._middleware is None else self._middleware(service, face.handle)
        )
        server = web.Server(
            handler,
            request_factory=_request,
            handler_cancellation=True,
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        self._stack.push_async_callback(close_connections, runner)
        connection = partial(StatusConnection, auto_decompress=False)
        site = Site(server, listener, self._credentials.server_context(), connection)
        self._stack.callback(site.stop)
        await site.start()
        self._stack.push_async_callback(backends.close)
        self._stack.push_async_callback(self._service.close)
        self._stack.push_async_callback(_end, asyncio.create_task(keep_expiring(service)))
        if self._simulate:
            from kueuelib.embedded.cluster.simulation import SimulatedCluster

            self._cluster = SimulatedCluster(service, nodes=self._nodes, clock=self._clock)
            await self._cluster.start()
            self._stack.push_async_callback(self._cluster.close)

    async def _assemble(self, hooks: HookClient) -> tuple[ApiService, Authorizer]:
        now = time.time if self._clock is None else self._clock.now
        own = own_service(self.port)
        if self._authorization != RBAC:
            service = await new_service(hooks, self._folder, now=now, objects=[own])
            return service, AlwaysAllow()
        from kueuelib.embedded.access.rbac import Escalation, Rbac, default_roles

        escalation = Escalation()
        service = await new_service(
            hooks, self._folder, now=now, plugins=(escalation,), objects=[*default_roles(), own]
        )
        escalation.rbac = Rbac(service.reader, service.commits)
        service.webhooks.authorizer = escalation.rbac
        return service, escalation.rbac

    async def _stop(self) -> None:
        await self._stack.aclose()
        self._cluster = None


async def _announce(service: ApiService, config_map: Obj) -> None:
    """Writes what other servers need to recognize this one, which differs after every start."""
    options = WriteOptions(field_manager=MANAGER)
    try:
        await service.create(CONFIG_MAPS, config_map, options=options)
    except AlreadyExists:
        await service.update(CONFIG_MAPS, config_map, options=options)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    path, asked, query = message.path.partition("?")
    if asked and query != (kept := readable(query)):
        message = message._replace(url=URL(f"{path}?{kept}", encoded=True))
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=bodies.LIMIT,
    )
