"""Aggregated APIs of other servers under this server's address, as APIServices configure them.

The caller is authenticated and authorized here. Then the request is forwarded, with the caller's
name in headers, and with a client certificate that identifies this server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from kueuelib.api.kinds import API_SERVICES
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import credentials
from kueuelib.embedded.admission.dialling import Contexts, Services, service_session
from kueuelib.embedded.admission.plugin import StoreReader, UserInfo
from kueuelib.embedded.builtins.fields import section
from kueuelib.embedded.conversion import HookFailed
from kueuelib.embedded.http.backends import relay
from kueuelib.embedded.registry.kinds import Kind, version_rank
from kueuelib.embedded.storage import StorageEvent
from kueuelib.errors import Unavailable
from kueuelib.runtime.certificates import show_certificate
from kueuelib.runtime.server_limits import body_of

COMMON_NAME: Final = "front-proxy-client"
TRUST: Final = ObjectKey("kube-system", "extension-apiserver-authentication")
SECONDS: Final = 60.0
"""The time limit of a request, in seconds."""
_USER, _GROUP, _UID, _EXTRA = "X-Remote-User", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-"
_IN_NAMES = "!#$&'*+-.^_`|~"
"""The characters that are allowed in names of headers besides letters and digits."""
_IN_PATHS = "/$&+,:;=@"
"""What Go leaves as it is in a path, besides letters, digits and `-_.~`."""
_HANDED_ON = ("Accept", "Content-Type", "User-Agent")
_HANDED_BACK = ("Content-Type", "Cache-Control", "Warning", "Retry-After")
_OWN: Final = [(_USER, "system:kube-aggregator"), (_GROUP, "system:masters")]
LIST_SECONDS = 5.0
"""The time limit of another server's list of resources."""
RENEW_SECONDS, RETRY_SECONDS = 30.0, 1.0
"""After so long a list is asked for again; the second, if the last attempt failed."""
_FAILURES: Final = (HookFailed, aiohttp.ClientError, OSError, ValueError)
_TEXTS: Final = ("name", "singularName", "kind", "group", "version")
_LISTS: Final = ("verbs", "shortNames", "categories")
_LOG = logging.getLogger("kueuelib.embedded")


class FrontProxyCertificate:
    """The certificate that identifies this server to others; a new one at every start.

    Args:
        now: seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        authority = credentials.Authority(now, "kueuelib-front-proxy-ca")
        self._certificate, self._key = authority.issue(COMMON_NAME)
        self._authority = authority.pem

    def load(self, context: ssl.SSLContext) -> None:
        """Makes a client's context show the certificate."""
        show_certificate(context, self._key + self._certificate)

    def config_map(self, client_ca: bytes) -> Obj:
        """What other servers need to recognize this one.

        Args:
            client_ca: the signer of clients' certificates.
        """
        data = {
            "client-ca-file": client_ca.decode(),
            "requestheader-client-ca-file": self._authority.decode(),
            "requestheader-allowed-names": json.dumps([COMMON_NAME]),
            "requestheader-username-headers": json.dumps([_USER]),
            "requestheader-group-headers": json.dumps([_GROUP]),
            "requestheader-uid-headers": json.dumps([_UID]),
            "requestheader-extra-headers-prefix": json.dumps([_EXTRA]),
        }
        meta = {"name": TRUST.name, "namespace": TRUST.namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


class Aggregation:
    """Forwards requests to the servers that APIServices name.

    Args:
        reader: reads APIServices.
        services: finds the addresses of Services.
        proxy: the certificate.
    """

    def __init__(
        self, reader: StoreReader, services: Services, proxy: FrontProxyCertificate
    ) -> None:
        self._reader = reader
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        self._contexts = Contexts(proxy.load)
        self._listed: dict[tuple[str, str], tuple[Any, list[Obj] | None, float]] = {}
        self._listing: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Closes all connections."""
        tasks = list(self._listing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def find(self, group: str, version: str) -> Mapping[str, Any] | None:
        """The spec of the APIService of a group and version; None if it is not aggregated."""
        if not group or not version:
            return None
        api_service = self._reader.get(API_SERVICES, ObjectKey("", f"{version}.{group}"))
        spec = {} if api_service is None else section(api_service, "spec")
        return spec if spec.get("service") else None

    def versions(self) -> dict[str, list[str]]:
        """The aggregated versions by group, both in the order of their priorities."""
        specs = sorted(self._specs(), key=lambda spec: version_rank(spec["version"]), reverse=True)
        specs.sort(key=_rank)
        versions: dict[str, list[str]] = {}
        for spec in specs:
            versions.setdefault(spec["group"], []).append(spec["version"])
        return versions

    def _specs(self) -> Iterator[Mapping[str, Any]]:
        for obj in self._reader.items(API_SERVICES):
            spec = section(obj, "spec")
            if spec.get("service"):
                yield spec

    async def forward(
        self, request: web.BaseRequest, caller: UserInfo, spec: Mapping[str, Any]
    ) -> web.StreamResponse:
        """Forwards a request, and streams its answer back.

        Raises:
            Unavailable: the other server does not answer.
        """
        headers, query = _headers(request, caller), request.rel_url.raw_query_string
        path = str(
            URL.build(path=quote(request.path, safe=_IN_PATHS), query_string=query, encoded=True)
        )
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self._call(request.method, path, headers, spec, request)
        except (TimeoutError, HookFailed, aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise _unavailable(error) from error
        async with answer:
            known = {name: answer.headers[name] for name in _HANDED_BACK if name in answer.headers}
            return await relay(request, answer, known)

    def follow(self, kind: Kind, change: StorageEvent) -> None:
        """Asks the server of a new or changed APIService for its resources."""
        if (kind.group, kind.plural) == (API_SERVICES.group, API_SERVICES.plural):
            version, _, group = change.after.key.name.partition(".")
            self.resources(group, version)

    def resources(self, group: str, version: str) -> list[Obj] | None:
        """The resources of a group and version as the other server has last listed them; None if
        it has not. A request for them never waits: they are renewed in the background.
        """
        spec, place = self.find(group, version), (group, version)
        if spec is None:
            self._listed.pop(place, None)
            return None
        of, listed, until = self._listed.get(place, (None, None, 0.0))
        listed = listed if of == spec else None
        now = asyncio.get_running_loop().time()
        if place not in self._listing and (of != spec or now >= until):
            self._listing[place] = asyncio.create_task(self._list(place, spec))
        return listed

    async def _list(self, place: tuple[str, str], spec: Mapping[str, Any]) -> None:
        path = "/apis/" + "/".join(place)
        listed = None
        try:
            async with (
                asyncio.timeout(LIST_SECONDS),
                await self._call("GET", path, _OWN, spec) as answer,
            ):
                listed = _resources(orjson.loads(await answer.read()))
        except _FAILURES as error:
            _LOG.info("the resources of %s are unknown: %s", path, _unavailable(error))
        finally:
            del self._listing[place]
        until = asyncio.get_running_loop().time() + (RENEW_SECONDS if listed else RETRY_SECONDS)
        self._listed[place] = spec, listed, until

    async def _call(
        self,
        method: str,
        path: str,
        headers: list[tuple[str, str]],
        spec: Mapping[str, Any],
        request: web.BaseRequest | None = None,
    ) -> aiohttp.ClientResponse:
        service = spec["service"]
        port = service.get("port") or 443
        self._services.address(service.get("namespace") or "", service.get("name") or "", port)
        if self._session is None:
            self._session = service_session(self._services)
        host = f"{service['name']}.{service['namespace']}.svc"
        bundle = None if spec.get("insecureSkipTLSVerify") else spec.get("caBundle") or ""
        body = await body_of(request) if request is not None and request.can_read_body else None
        return await self._session.request(
            method,
            URL(f"https://{host}:{port}{path}", encoded=True),
            data=body,
            headers=headers,
            ssl=self._contexts.trusting(bundle),
            timeout=aiohttp.ClientTimeout(total=None),
            allow_redirects=False,
        )


def _rank(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """Higher priorities first."""
    return (
        -int(spec.get("groupPriorityMinimum") or 0),
        spec["group"],
        -int(spec.get("versionPriority") or 0),
    )


def _identity(caller: UserInfo) -> list[tuple[str, str]]:
    headers = [(_USER, caller.user)]
    headers += [(_GROUP, group) for group in caller.groups]
    if caller.uid:
        headers.append((_UID, caller.uid))
    headers += [
        (f"{_EXTRA}{quote(key, safe=_IN_NAMES)}", value)
        for key, values in caller.extra.items()
        for value in values
    ]
    return headers


def _headers(request: web.BaseRequest, caller: UserInfo) -> list[tuple[str, str]]:
    """The headers for the other server; credentials stay here."""
    kept = [(name, request.headers[name]) for name in _HANDED_ON if name in request.headers]
    return [*kept, *_identity(caller)]


def _resources(body: Any) -> list[Obj]:
    """The checked resources of an `APIResourceList`.

    Raises:
        ValueError: it is none.
    """
    resources = body.get("resources") if isinstance(body, dict) else None
    if not isinstance(resources, list) or not all(map(_is_resource, resources)):
        raise ValueError("it answered without resources, or with others than APIResources")
    return resources


def _is_resource(one: Any) -> bool:
    if not (isinstance(one, dict) and one.get("name") and one.get("kind")):
        return False
    lists = [one.get(key) or [] for key in _LISTS]
    if not all(isinstance(each, list) for each in lists):
        return False
    texts = [one.get(key) or "" for key in _TEXTS] + [text for each in lists for text in each]
    return all(isinstance(text, str) for text in texts)


def _unavailable(error: Exception) -> Unavailable:
    why = str(error) or type(error).__name__
    return Unavailable(f"the server is currently unable to handle the request: {why}")
