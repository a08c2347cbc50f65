"""The entry point of every request."""

from __future__ import annotations

import asyncio
import logging
import platform
from typing import Any

from aiohttp import web

from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import Caller
from kueuelib.embedded.http import bodies, reviews
from kueuelib.embedded.http.answers import answer, failure
from kueuelib.embedded.http.authentication import ANONYMOUS, Authenticator, is_open
from kueuelib.embedded.http.discovery import REVIEWS, Discovery
from kueuelib.embedded.http.negotiation import DISCOVERY_VIEWS, negotiate
from kueuelib.embedded.http.openapi import OpenApi
from kueuelib.embedded.http.resources import Resources
from kueuelib.embedded.http.routes import parse
from kueuelib.embedded.service import ApiService
from kueuelib.errors import ApiError, BadRequest, Forbidden, ServerError, TooLarge, Unauthorized

log = logging.getLogger("kueuelib.embedded")

VERSION: dict[str, str] = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+kueuelib",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": f"python{platform.python_version()}",
    "compiler": platform.python_implementation(),
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}
HEALTH = ("/readyz", "/livez", "/healthz")


class Face:
    """Answers HTTP requests with the help of a service.

    Args:
        service: what is served.
        authenticator: who may come in.
        address: `host:port`, told in discovery.
    """

    def __init__(self, service: ApiService, authenticator: Authenticator, address: str) -> None:
        self._service = service
        self._authenticator = authenticator
        self._address = address
        self._resources = Resources(service)
        self._discovery = Discovery(service.registry)
        self._openapi = OpenApi(service.registry)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Never fails: every mistake is a Status."""
        try:
            return await self._dispatch(request)
        except ApiError as error:
            return failure(error)
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {bodies.LIMIT}"
            return failure(TooLarge(text))
        except RecursionError:
            return failure(BadRequest("the body of the request is nested too deeply"))
        except asyncio.CancelledError:
            raise
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            text = f"Internal error occurred: {type(error).__name__}: {error}"
            return failure(ServerError(text))

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        caller = self._authenticator.caller(request)
        if caller is None:
            if not is_open(path):
                raise Unauthorized("Unauthorized")
            caller = ANONYMOUS
        route = parse(path)
        if route is None or not route.plural:
            return await self._document(request, path)
        if route.group in REVIEWS and route.plural in reviews.KINDS:
            return await self._review(request, route.plural, caller)
        return await self._resources.serve(request, route, caller)

    async def _document(self, request: web.BaseRequest, path: str) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise failures.wrong_method()
        accept = request.headers.get("Accept", "")
        path = path.rstrip("/") or "/"
        if path in HEALTH or path.startswith(tuple(f"{each}/" for each in HEALTH)):
            return web.Response(text="ok")
        if path.startswith("/openapi/"):
            return self._openapi.answer(path, accept, request.query.get("hash", ""))
        parts = path.strip("/").split("/")
        if path in ("/api", "/apis"):
            wanted = negotiate(accept, DISCOVERY_VIEWS)
            if wanted.view:
                body = self._discovery.aggregated(core=path == "/api", version=wanted.version)
                return answer(body, wanted=wanted, media_type=wanted.media_type)
        wanted = negotiate(accept)
        found: Any = None
        if path == "/":
            found = {"paths": self._paths()}
        elif path == "/version":
            found = VERSION
        elif path == "/api":
            found = self._discovery.core(self._address)
        elif path == "/apis":
            found = self._discovery.group_list()
        elif parts[0] == "apis" and len(parts) == 2:
            found = self._discovery.group(parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            found = self._discovery.resource_list(parts[1], parts[2])
        elif parts[0] == "api" and len(parts) == 2:
            found = self._discovery.resource_list("", parts[1])
        if found is None:
            raise failures.unknown_resource()
        return answer(found, wanted=wanted)

    def _paths(self) -> list[str]:
        found = ["/api", "/api/v1", "/apis"]
        for group in self._discovery.groups():
            found.append(f"/apis/{group}")
            found += [f"/apis/{group}/{version}" for version in self._discovery.versions(group)]
        return [*found, *HEALTH, "/openapi/v2", "/openapi/v3", "/version"]

    @staticmethod
    async def _review(request: web.BaseRequest, plural: str, caller: Caller) -> web.Response:
        if request.method != "POST":
            raise failures.wrong_method()
        if caller is ANONYMOUS:
            raise Forbidden("anonymous callers may not ask")
        content_type = request.headers.get("Content-Type", "")
        given, _ = bodies.parse(await request.read(), content_type, notice_duplicates=False)
        wanted = negotiate(request.headers.get("Accept", ""))
        return answer(reviews.review(plural, given, caller), status=201, wanted=wanted)
