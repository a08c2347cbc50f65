"""Serves the visibility API over HTTPS, to callers that the API server knows."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

import attrs
import orjson
from aiohttp import web

from kueuelib import __version__
from kueuelib.api.kinds import CONFIG_MAPS, OWN_VISIBILITY
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.controllers.visibility.summary import (
    KINDS,
    SUBRESOURCE,
    VERSIONS,
    PendingPage,
    PredictedStarts,
    api_group,
    api_groups,
    api_resources,
    items,
    listed,
    page_of,
    summary,
)
from kueuelib.errors import (
    ApiError,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ServerError,
    TransportError,
    Unavailable,
)
from kueuelib.runtime.access_reviews import (
    AccessAnswer,
    Caller,
    bearer_token,
    caller_by_token,
    review,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.http import serving
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.pending.workload_info import WorkloadInfo

# ---- authenticates and authorizes callers by the API server, as every aggregated API does --------
# The API server passes the user of a request in headers, and proves its identity with a client
# certificate. A client that connects directly sends a bearer token.

TRUST = ObjectKey("kube-system", "extension-apiserver-authentication")
"""The ConfigMap that says how to recognize the API server."""


@attrs.frozen
class ResourceAttributes:
    """The object that the caller wants to read.

    Attributes:
        version: of the visibility API.
        resource: the plural.
        subresource: of the object.
        name: the object.
        namespace: empty for cluster-scoped kinds.
        group: the API group.
    """

    version: str
    resource: str
    subresource: str
    name: str
    namespace: str
    group: str

    def refusal(self, caller: Caller, reason: str) -> Forbidden:
        """The error in Kubernetes' words."""
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return Forbidden(
            f'{self.resource}.{self.group} "{self.name}" is forbidden: User "{caller.user}" cannot '
            f'get resource "{self.resource}/{self.subresource}" in API group "{self.group}" {where}'
            + (f": {reason}" if reason else ""),
            details={"name": self.name, "group": self.group, "kind": self.resource},
        )


@attrs.frozen
class FrontProxy:
    """How to recognize the API server.

    Attributes:
        authority: the signer of its client certificate, PEM; empty if none is trusted.
        names: the trusted common names; any when empty.
        users: the headers with the user's name.
        groups: the headers with groups.
        uids: the headers with the user's UID.
        extras: the prefixes of headers with anything else.
    """

    authority: str = ""
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


def front_proxy(config_map: Obj) -> FrontProxy:
    """The content of the ConfigMap; an unreadable one trusts no certificate."""
    data = config_map.get("data") or {}

    def listed(key: str) -> tuple[str, ...]:
        names = json.loads(data.get(f"requestheader-{key}") or "[]")
        return tuple(str(each) for each in names)

    try:
        return FrontProxy(
            authority=data.get("requestheader-client-ca-file") or "",
            names=listed("allowed-names"),
            users=listed("username-headers"),
            groups=listed("group-headers"),
            uids=listed("uid-headers"),
            extras=listed("extra-headers-prefix"),
        )
    except (ValueError, TypeError):
        return FrontProxy()


def proxied(
    proxy: FrontProxy,
    certificate: Mapping[str, Any] | None,
    headers: Mapping[str, str],
    all_of: Any,
) -> Caller | None:
    """The user of a request that the API server forwards; None if the caller is not the API server.

    Args:
        proxy: how to recognize the API server.
        certificate: the verified certificate of the peer, as `ssl` decodes it; None for none.
        headers: of the request, without regard to case.
        all_of: returns all values of a header.
    """
    if not certificate or not proxy.authority:
        return None
    if proxy.names and _common_name(certificate) not in proxy.names:
        return None
    user = next((headers[name] for name in proxy.users if headers.get(name)), "")
    if not user:
        return None
    extra: dict[str, list[str]] = {}
    for name in headers:
        for prefix in proxy.extras:
            if name.lower().startswith(prefix.lower()):
                extra[unquote(name[len(prefix) :]).lower()] = list(all_of(name))
    groups = [group for name in proxy.groups for group in all_of(name)]
    uid = next((headers[name] for name in proxy.uids if headers.get(name)), "")
    return Caller(user, tuple(groups), uid, extra)


def _common_name(certificate: Mapping[str, Any]) -> str:
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


class Delegation:
    """Asks the API server who a caller is and what they may do.

    Args:
        client: asks, with the manager's rights.
        tls: the context of the server, into which the trusted authority is loaded.
        clock: monotonic time.
    """

    def __init__(self, client: Client, tls: ssl.SSLContext, clock: Clock = SYSTEM_CLOCK) -> None:
        self.proxy = FrontProxy()
        self._client = client
        self._tls = tls
        self._problem = ""
        self._clock = clock
        self._answers: OrderedDict[tuple[str, ResourceAttributes], tuple[float, AccessAnswer]]
        self._answers = OrderedDict()
        self._log = get_logger("visibility")

    @property
    def knows(self) -> bool:
        """Whether the API server can be known."""
        return bool(self.proxy.authority)

    async def learn(self) -> None:
        """Reads how to recognize the API server; without the right to do so, only tokens are
        accepted.
        """
        try:
            proxy = front_proxy(await self._client.get(CONFIG_MAPS, TRUST))
            if proxy == self.proxy or not proxy.authority:
                return
            self._tls.load_verify_locations(cadata=proxy.authority)
        except (ApiError, TransportError, ssl.SSLError, ValueError) as error:
            if str(error) != self._problem:  # it is looked at again and again
                self._problem = str(error)
                self._log.warning("the API server cannot be identified", error=self._problem)
            return
        self._problem = ""
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self.proxy = proxy

    async def authorize(self, caller: Caller, wish: ResourceAttributes) -> None:
        """Checks that a caller may read an object; the answer is remembered for a few seconds.

        Raises:
            Forbidden: they may not.
            ApiError: the API server cannot say.
        """
        question, now = (repr(caller), wish), self._clock.monotonic()
        until, answer = self._answers.get(question, (0.0, AccessAnswer(allowed=False)))
        if until <= now:
            attributes = {key: value for key, value in attrs.asdict(wish).items() if value}
            wanted = {**attributes, "verb": "get"}
            answer = await review(self._client, caller, resourceAttributes=wanted)
            until = now + (ALLOWED_FOR if answer.allowed else REFUSED_FOR)
            self._answers[question] = until, answer
            if len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        if not answer.allowed:
            raise wish.refusal(caller, answer.reason)


# --------------------------------------------------------------------------------------------------

ALLOWED_FOR, REFUSED_FOR = 30.0, 2.0
"""Seconds for which an answer about a caller is remembered."""
REMEMBERED = 4096
"""The maximum number of such answers."""
FRESH, SOONEST = 5.0, 1.0
"""Seconds for which the places of a queue are served again, and for a Workload without one."""
PERIOD = 60.0
"""Seconds between two reads of how to recognize the API server."""
UNKNOWN_PERIOD = 2.0
"""The same as long as it cannot be recognized."""
DRAIN = 5.0
HEALTH = ("/healthz", "/livez", "/readyz")


class PendingSource(Protocol):
    """Knows the queues; the engine."""

    def pending(self, name: str) -> Sequence[WorkloadInfo]:
        """The Workloads that wait in a ClusterQueue, in its order."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a ClusterQueue of that name."""
        ...

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """The ClusterQueue that a LocalQueue names; None when there is no such LocalQueue."""
        ...


class StartSource(Protocol):
    """Predicts starts."""

    async def of(self, cluster_queue: str) -> PredictedStarts:
        """The last prediction for a ClusterQueue; must come at once, or nearly so."""
        ...


@attrs.define(eq=False)
class _Places:
    """The rows of a ClusterQueue, with the last prediction, and when they were made."""

    made: float = -math.inf
    rows: Mapping[ObjectKey, Obj] = attrs.field(factory=dict)
    predicted: PredictedStarts = attrs.field(factory=lambda: PredictedStarts(0.0, {}, ""))
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)


class VisibilityServer:
    """Lists the Workloads that wait in a queue, for callers who may read it.

    Args:
        host: the address to bind; all when empty.
        port: 0 for any free one; see `port`.
        tls: the context; its certificate may be replaced while the server runs.
        client: asks the API server about callers.
        waiting: knows the queues.
        starts: predicts for our own group when Workloads start.
        subject: what to name in errors, for example the configuration's key.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        client: Client,
        waiting: PendingSource,
        starts: StartSource,
        *,
        subject: str = "",
    ) -> None:
        self.port = port
        self._host = host
        self._waiting = waiting
        self._subject = subject
        self._tls = tls
        self._client = client
        self._starts = starts
        self._places: dict[str, _Places] = {}
        self._delegation = Delegation(client, tls)
        self._log = get_logger("visibility")

    async def run(self, ready: Callable[[], None]) -> None:
        """Serves until cancelled."""
        await self._delegation.learn()
        server = web.Server(self._handle)
        async with serving(
            server, self._host, self.port, tls=self._tls, drain=DRAIN, subject=self._subject
        ) as self.port:
            ready()
            while True:
                await SYSTEM_CLOCK.sleep(PERIOD if self._delegation.knows else UNKNOWN_PERIOD)
                await self._delegation.learn()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        """Answers a request; every error becomes a Status."""
        try:
            if request.path in HEALTH:
                return web.Response(text="ok")
            return _json(await self._answer(request))
        except ApiError as error:
            return _json(error.status(), error.code)
        except TransportError as error:
            self._log.warning("the API server cannot be asked", error=with_fix(error))
            unavailable = Unavailable(f"the API server cannot be asked: {error}")
            return _json(unavailable.status(), unavailable.code)
        except Exception as error:  # noqa: BLE001 - the top of a request
            self._log.exception("a request failed", path=request.path)
            failed = ServerError(f"Internal error occurred: {type(error).__name__}")
            return _json(failed.status(), failed.code)

    async def _answer(self, request: web.BaseRequest) -> Obj:
        caller = await self._caller(request)
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(
                "the server does not allow this method on the requested resource"
            )
        parts = [part for part in request.path.split("/") if part]
        document = _document(parts)
        if document is not None:
            return document
        wish = _wish(parts)
        if wish is None:
            raise NotFound("the server could not find the requested resource")
        await self._delegation.authorize(caller, wish)
        page = page_of(request.query)
        key, name = None, wish.name
        if wish.namespace:
            key = ObjectKey(wish.namespace, wish.name)
            name = self._waiting.cluster_queue_of(key) or ""
            if not name:
                raise _unknown("localqueue", wish)
        elif not self._waiting.exists(name):
            raise _unknown("clusterqueue", wish)
        if wish.group == OWN_VISIBILITY:
            return await self._expected(wish, name, page, request.query.get("workload", ""))
        return summary(wish.version, self._waiting.pending(name), page, key)

    async def _expected(
        self, wish: ResourceAttributes, cluster_queue: str, page: PendingPage, workload: str
    ) -> Obj:
        """A page of a queue with expected starts, or the row of one Workload of a LocalQueue."""
        places = self._places.setdefault(cluster_queue, _Places())
        only = ObjectKey(wish.namespace, workload)
        async with places.lock:
            age = SYSTEM_CLOCK.monotonic() - places.made
            if age > FRESH or (workload and age > SOONEST and only not in places.rows):
                places.predicted = await self._starts.of(cluster_queue)
                places.made = SYSTEM_CLOCK.monotonic()
                rows = items(self._waiting.pending(cluster_queue), None)
                places.rows = {key_of(row): row for row in rows}
        chosen = filter(None, [places.rows.get(only)]) if workload else places.rows.values()
        rows = (
            {**row, "expectedStart": places.predicted.row(key_of(row))}
            for row in chosen
            if not wish.namespace
            or (row["metadata"]["namespace"], row["localQueueName"]) == (wish.namespace, wish.name)
        )
        return listed(wish.group, wish.version, page, rows)

    async def _caller(self, request: web.BaseRequest) -> Caller:
        transport = request.transport
        certificate: dict[str, object] | None = (
            None if transport is None else transport.get_extra_info("peercert")
        )
        headers = request.headers
        caller = proxied(
            self._delegation.proxy, certificate, headers, lambda name: headers.getall(name, [])
        )
        if caller is not None:
            return caller
        token = bearer_token(headers.get("Authorization", ""))
        return await caller_by_token(self._client, token)


def _document(parts: list[str]) -> Obj | None:
    """Discovery and OpenAPI, which the API server merges into its own; None for other paths."""
    match parts:
        case ["version"]:
            return {"gitVersion": f"v{__version__}"}
        case ["apis"]:
            return api_groups()
        case ["apis", name] if name in VERSIONS:
            return api_group(name)
        case ["apis", name, version] if version in VERSIONS.get(name, ()):
            return api_resources(name, version)
        case ["openapi", "v2"]:
            info = {"title": "kueuelib visibility", "version": __version__}
            return {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}
        case ["openapi", "v3"]:
            return {"paths": {}}
    return None


def _wish(parts: list[str]) -> ResourceAttributes | None:
    """The queue of a path; None if the path does not name one."""
    match parts:
        case ["apis", group, version, plural, name, sub]:
            namespace = ""
        case ["apis", group, version, "namespaces", namespace, plural, name, sub]:
            pass
        case _:
            return None
    if version not in VERSIONS.get(group, ()) or plural not in KINDS or sub != SUBRESOURCE:
        return None
    if KINDS[plural][1] is not bool(namespace):
        return None
    return ResourceAttributes(version, plural, sub, name, namespace, group)


def _unknown(kind: str, wish: ResourceAttributes) -> NotFound:
    details = {"name": wish.name, "group": wish.group, "kind": kind}
    return NotFound(f'{kind}.{wish.group} "{wish.name}" not found', details=details)


def _json(body: Obj, code: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=code, content_type="application/json")
