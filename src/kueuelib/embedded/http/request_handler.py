"""The entry point of every request."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable
from typing import Any

import attrs
from aiohttp import web

from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import Authorizer, refusal
from kueuelib.embedded.access.reviews import GROUPS, KINDS, Reviews
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.embedded.http import bodies
from kueuelib.embedded.http.aggregation import Aggregation
from kueuelib.embedded.http.answers import (
    DISCOVERY_VIEWS,
    PLAIN,
    VIEWS,
    MediaForm,
    answer,
    failure,
    negotiate,
)
from kueuelib.embedded.http.authentication import ANONYMOUS, OPEN_PATHS, Authenticator, impersonated
from kueuelib.embedded.http.backends import Backends
from kueuelib.embedded.http.discovery import Discovery
from kueuelib.embedded.http.openapi import OpenApi
from kueuelib.embedded.http.requests import Route, is_odd, parse, request_attributes
from kueuelib.embedded.http.resources import ResourceHandler
from kueuelib.embedded.registry import builtin_kinds
from kueuelib.embedded.service import ApiService
from kueuelib.errors import ApiError, BadRequest, ServerError, TooLarge, Unauthorized
from kueuelib.runtime.server_limits import body_of

log = logging.getLogger("kueuelib.embedded")

VERSION: dict[str, str] = {
    "major": builtin_kinds.MAJOR,
    "minor": builtin_kinds.MINOR,
    "gitVersion": builtin_kinds.VERSION,
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": f"python{platform.python_version()}",
    "compiler": platform.python_implementation(),
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}
_HEADS = (("apis", 1), ("apis", 2))
"""First part and length of the paths that answer HEAD."""
HEALTH = ("/readyz", "/livez", "/healthz")
CHECKS = ("ping", "log", "shutdown")
"""The parts of health; all are healthy as long as there is an answer."""


@attrs.define(eq=False, slots=False)
class RequestHandler:
    """Answers HTTP requests with the help of a service.

    Args:
        service: the service.
        authenticator: authenticates callers.
        authorizer: authorizes requests.
        address: `host:port`, shown in discovery.
        aggregation: the APIs of other servers.
        backends: connects to kubelets.
    """

    _service: ApiService
    _authenticator: Authenticator
    _authorizer: Authorizer
    _address: str
    _aggregation: Aggregation
    _backends: Backends

    def __attrs_post_init__(self) -> None:
        self._reviews = Reviews(self._authorizer, self._authenticator.verify)
        self._resources = ResourceHandler(self._service, self._authorizer, self._backends)
        self._discovery = Discovery(self._service.registry, self._aggregation)
        self._openapi = OpenApi(self._service.registry)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request; every error becomes a Status."""
        try:
            return await self._dispatch(request)
        except failures.PlainText as error:
            return web.Response(status=error.code, text=error.message)
        except ApiError as error:
            return failure(error, _form_of_failures(request))
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {bodies.LIMIT}"
            return failure(TooLarge(text))
        except RecursionError:
            return failure(BadRequest("the body of the request is nested too deeply"))
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("%s %s", request.method, request.path)
            text = f"Internal error occurred: {type(error).__name__}: {error}"
            return failure(ServerError(text))

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if is_odd(request.raw_path.partition("?")[0]):
            raise failures.no_url()
        caller = self._authenticator.caller(request)
        if caller is None:
            if path not in OPEN_PATHS:
                raise Unauthorized("Unauthorized")
            caller = ANONYMOUS
        else:
            caller = impersonated(caller, request.headers, self._authorizer)
        if "//" in path:
            raise failures.no_page() if path.startswith("//") else failures.unknown_resource()
        route = parse(path)
        if path not in OPEN_PATHS:
            wish = request_attributes(request, route)
            decision = self._authorizer.authorize(caller, wish)
            if not decision.allowed:
                raise refusal(caller, wish, decision.reason)
        elsewhere = route and self._aggregation.find(route.group, route.version)
        if route and elsewhere and route.version not in self._discovery.versions(route.group):
            return await self._aggregation.forward(request, caller, elsewhere)
        if route is None or not route.plural:
            return self._document(request, path)
        if route.group in GROUPS and route.plural in KINDS:
            return await self._review(request, route, caller)
        if self._service.registry.served(route.group, route.version, route.plural) is None:
            raise self._unrouted(route)
        return await self._resources.serve(request, route, caller)

    def _unrouted(self, route: Route | None) -> ApiError:
        """The answer for an unknown path; the server's own groups answer like an API."""
        if route is not None and (
            not route.group or route.group in GROUPS or self._service.registry.brings(route.group)
        ):
            return failures.unknown_resource()
        return failures.no_page()

    def _document(self, request: web.BaseRequest, path: str) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise failures.wrong_method()
        accept = request.headers.get("Accept", "")
        if path in HEALTH or path.startswith(tuple(f"{each}/" for each in HEALTH)):
            return _health(path, verbose="verbose" in request.query)
        if path.startswith("/openapi/"):
            return self._openapi.answer(path, accept)
        path = path.rstrip("/") or "/"
        parts = path.strip("/").split("/")
        if path in ("/api", "/apis"):
            wanted = negotiate(accept, DISCOVERY_VIEWS)
            if wanted.view:
                body = self._discovery.aggregated(core=path == "/api", version=wanted.version)
                if path == "/apis":
                    body = self._discovery.with_others(body)
                return answer(body, wanted=wanted, media_type=wanted.media_type)
        wanted = negotiate(accept)
        fixed: dict[str, Callable[[], Any]] = {
            "/": lambda: {"paths": self._paths()},
            "/version": lambda: VERSION,
            "/.well-known/openid-configuration": self._service.tokens.configuration,
            "/openid/v1/jwks": self._service.tokens.keys,
            "/api": lambda: self._discovery.core(self._address),
            "/apis": self._discovery.group_list,
        }
        document: Any = None
        if path in fixed:
            document = fixed[path]()
        elif parts[0] == "apis" and len(parts) == 2:
            document = self._discovery.group(parts[1])
        elif parts[0] == "apis" and len(parts) == 3 and parts[1]:
            document = self._discovery.resource_list(parts[1], parts[2])
        elif parts[0] == "api" and len(parts) == 2:
            document = self._discovery.resource_list("", parts[1])
        if document is None:
            raise self._unrouted(parse(path))
        if request.method == "HEAD" and path != "/" and (parts[0], len(parts)) not in _HEADS:
            raise failures.wrong_method()
        return answer(document, wanted=wanted)

    def _paths(self) -> list[str]:
        paths = ["/api", "/api/v1", "/apis"]
        for group in self._discovery.groups():
            paths.append(f"/apis/{group}")
            paths += [f"/apis/{group}/{version}" for version in self._discovery.versions(group)]
        return [*paths, *HEALTH, "/openapi/v2", "/openapi/v3", "/version"]

    async def _review(
        self, request: web.BaseRequest, route: Route, caller: UserInfo
    ) -> web.Response:
        if KINDS[route.plural][0] != route.group or route.name:
            raise failures.unknown_resource()
        if request.method != "POST":
            raise failures.wrong_method()
        content_type = request.headers.get("Content-Type", "")
        bodies.check_object_type(content_type)
        raw = await body_of(request)
        given, _ = bodies.parse(raw, content_type, notice_duplicates=False)
        wanted = negotiate(request.headers.get("Accept", ""))
        body = self._reviews.answer(route.plural, route.namespace, given, caller)
        return answer(body, status=201, wanted=wanted)


def _health(path: str, *, verbose: bool) -> web.Response:
    """The health of the server, or of one part of it.

    Raises:
        NotFound: there is no such part.
    """
    name, slash, part = path.removeprefix("/").partition("/")
    if slash and part not in CHECKS:
        raise failures.no_page()
    if part or not verbose:
        return web.Response(text="ok")
    lines = [f"[+]{check} ok\n" for check in CHECKS]
    return web.Response(text="".join([*lines, f"{name} check passed\n"]))


def _form_of_failures(request: web.BaseRequest) -> MediaForm:
    """The form of failures: that of other answers, if there is one."""
    try:
        return negotiate(request.headers.get("Accept", ""), VIEWS)
    except ApiError:
        return PLAIN
