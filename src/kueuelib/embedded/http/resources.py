"""Maps requests for objects to verbs, and their results to answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import attrs
import orjson
from aiohttp import web

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures, subresources
from kueuelib.embedded.access.attributes import Attributes, Authorizer, refusal
from kueuelib.embedded.access.tokens import token_request
from kueuelib.embedded.admission.plugin import Operation, UserInfo
from kueuelib.embedded.builtins.fields import forbidden
from kueuelib.embedded.builtins.rule_table import check
from kueuelib.embedded.http import bodies, views
from kueuelib.embedded.http.answers import (
    PIECE,
    VIEWS,
    MediaForm,
    answer,
    negotiate,
    success,
)
from kueuelib.embedded.http.requests import (
    Query,
    Route,
    check_list,
    delete_options,
    flag,
    list_options,
    number,
    write_options,
)
from kueuelib.embedded.http.watching import watch
from kueuelib.embedded.http.yaml_bodies import UnreadableBody
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.schema.formats import problem
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import FieldValidation, PatchType, WriteOptions
from kueuelib.embedded.write_checks import STATUS, Target
from kueuelib.errors import BadRequest
from kueuelib.runtime.server_limits import body_of

# ---- the subresources of pods that a kubelet would answer; containers are only simulated here ----

LOG = "log"
METHODS = {
    LOG: ("GET",),
    "attach": ("GET", "POST"),
    "exec": ("GET", "POST"),
    "portforward": ("GET", "POST"),
    "proxy": ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"),
}

_OPTIONS = {
    "attach": ("PodAttachOptions", "stdin stdout stderr tty container"),
    "exec": ("PodExecOptions", "stdin stdout stderr tty container command"),
    "portforward": ("PodPortForwardOptions", "ports"),
    "proxy": ("PodProxyOptions", "path"),
}
_LOG_NUMBERS = ("tailLines", "limitBytes", "sinceSeconds")


def check_log(query: Query, pod: str) -> None:
    """Checks the parameters of a request for a log, before the pod is read.

    Raises:
        BadRequest: one is not a number or a time.
        Invalid: one is out of range, or two contradict each other.
    """
    numbers = {name: number(query, name) for name in _LOG_NUMBERS}
    since = query.get("sinceTime")
    if since not in (None, "", "null") and (why := problem(since)):
        raise BadRequest(why)
    both = since is not None and numbers.pop("sinceSeconds") is not None
    errors = check("PodLogOptions", numbers, "")
    if both:
        text = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        errors.append(forbidden("[]", text))
    if "stream" in query:
        errors.append(forbidden("stream", "may not be specified"))
    if errors:
        raise failures.invalid_named("PodLogOptions", "", pod, errors)


def options_of(subresource: str, query: Any, path: str) -> Obj:
    """The options of a connection, which admission sees; `path` is that of a proxy."""
    kind, names = _OPTIONS[subresource]
    read: Obj = {"container": query.get("container"), "path": path}
    read["command"] = query.getall("command", [])
    read["ports"] = [int(each) for each in query.getall("ports", ()) if each.isdecimal()]
    options = {name: read[name] if name in read else flag(query, name) for name in names.split()}
    given = {name: value for name, value in options.items() if value}
    return {"apiVersion": "v1", "kind": kind, **given}


def connect(request: web.BaseRequest, pod: Obj, subresource: str) -> web.Response:
    """The answer for a pod, whose containers print nothing and accept no commands.

    Raises:
        ApiError: the container does not exist, does not run, or cannot be reached.
    """
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    if subresource == LOG:
        container = _container(request.query.get("container", ""), name, spec)
        if not spec.get("nodeName"):
            return web.Response(status=204)
        if (pod.get("status") or {}).get("phase") == "Pending":
            raise BadRequest(
                f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            )
        return web.Response(text="")
    if not spec.get("nodeName"):
        raise BadRequest(f"pod {name} does not have a host assigned")
    raise failures.unexplained(
        "error dialing backend: the containers of this cluster are simulated, nothing runs in them"
    )


def _container(asked: str, pod: str, spec: Obj) -> str:
    names = [
        each["name"]
        for part in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(part) or ()
    ]
    if asked:
        if asked not in names:
            raise BadRequest(f"container {asked} is not valid for pod {pod}")
        return asked
    own = [each["name"] for each in spec.get("containers") or ()]
    if len(own) > 1:
        text = f"a container name must be specified for pod {pod}, choose one of: [{' '.join(own)}]"
        raise BadRequest(text)
    return str(own[0])


# --------------------------------------------------------------------------------------------------

Answer = Awaitable[web.StreamResponse]


@attrs.frozen(eq=False)
class ResourceHandler:
    """Serves every kind of the registry."""

    _service: ApiService
    _authorizer: Authorizer

    async def serve(
        self, request: web.BaseRequest, route: Route, caller: UserInfo
    ) -> web.StreamResponse:
        """Answers one request.

        Raises:
            ApiError: the request failed.
        """
        served = self._service.registry.served(route.group, route.version, route.plural)
        if served is None or (route.rest and route.subresource != "proxy"):
            raise failures.unknown_resource()
        if route.name in (".", "..") and not route.subresource:
            raise BadRequest(f"Name parameter invalid: \"{route.name}\": may not be '{route.name}'")
        return await _Call(self._service, self._authorizer, request, route, caller, *served).serve()


@attrs.frozen
class _Call:
    service: ApiService
    authorizer: Authorizer
    request: web.BaseRequest
    route: Route
    caller: UserInfo
    kind: Kind
    version: KindVersion

    async def serve(self) -> web.StreamResponse:
        """The answer."""
        route, kind = self.route, self.kind
        if route.namespace and not kind.namespaced:
            raise failures.unknown_resource()
        if route.watched:
            return await self._old_watch()
        if not route.name:
            return await self._collection()
        if kind.namespaced and not route.namespace:
            raise failures.unknown_resource()
        if route.subresource:
            return await self._subresource(route.subresource)
        return await self._verb(
            GET=self._get, PUT=self._replace, PATCH=self._patch, DELETE=self._delete
        )

    async def _verb(self, **verbs: Callable[[], Answer]) -> web.StreamResponse:
        """The answer of the verb that goes with the method."""
        verb = verbs.get("GET" if self._reads else self.request.method)
        if verb is None:
            raise failures.wrong_method()
        return await verb()

    @property
    def _reads(self) -> bool:
        """Whether it is a read; built-in kinds do not support HEAD."""
        method = self.request.method
        return method == "GET" or (method == "HEAD" and not self.kind.builtin)

    @property
    def _target(self) -> Target:
        route = self.route
        key = ObjectKey(route.namespace, route.name)
        verb = "Patch" if self.request.method == "PATCH" else "Update"
        return Target(self.kind, self.version, key, route.subresource, verb)

    # ---- collections

    async def _collection(self) -> web.StreamResponse:
        kind, method = self.kind, self.request.method
        everywhere = kind.namespaced and not self.route.namespace
        if not self._reads and not kind.builtin and method in ("PUT", "PATCH"):
            raise BadRequest("name must be provided")
        if method == "POST" and everywhere:
            raise failures.wrong_method()
        if method == "DELETE" and (everywhere or "deletecollection" not in kind.verbs):
            raise failures.wrong_method()
        return await self._verb(GET=self._list, POST=self._create, DELETE=self._delete_collection)

    async def _list(self) -> web.StreamResponse:
        query, kind, version = self.request.query, self.kind, self.version
        if flag(query, "watch"):
            return await self._watch()
        wanted = self._wanted(VIEWS)
        options = list_options(query)
        check_list(query, options)
        page = await self.service.reads.list(kind, version.name, self.route.namespace, options)
        views.check_fits(wanted, kind, a_list=True)
        meta = page.meta
        if wanted.view == "Table":
            row = partial(views.row, kind, version, wanted, self._now, self._include)
            rows = await _each(page.items, row)
            body: Any = views.table(kind, version, rows, wanted, meta)
        elif wanted.view == "PartialObjectMetadataList":
            body = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{wanted.version}",
                "metadata": meta,
                "items": await _each(page.items, views.partial) or None,
            }
        else:
            body = views.raw_list(kind, version, page.items, meta)
        return self._reply(body, wanted)

    async def _create(self) -> web.Response:
        wanted = self._wanted(VIEWS)
        bodies.check_object_type(self._content_type)
        options = self._options("CreateOptions")
        given = await self._body(options, self.kind)
        if given is None and self.kind.builtin:
            given = {}
        obj = await self.service.writes.create(
            self.kind, self.version, given, self.route.namespace, options
        )
        return self._object(obj, wanted, options.warnings, 201)

    async def _delete_collection(self) -> web.Response:
        wanted, query = self._wanted(), self.request.query
        options = delete_options(query, await self._optional_body(), self.caller)
        selection = list_options(query)
        check_list(query, selection)
        page = await self.service.delete_collection(
            self.kind.resource(self.version.name), self.route.namespace, selection, options
        )
        body = views.raw_list(self.kind, self.version, page.items, page.meta)
        return self._reply(body, wanted)

    # ---- objects

    async def _get(self) -> web.Response:
        wanted = self._wanted(VIEWS)
        raw = await self._raw()
        views.check_fits(wanted, self.kind, a_list=False)
        if not wanted.view:
            return self._reply(raw, wanted)
        return self._object(orjson.loads(raw), wanted)

    async def _raw(self) -> bytes:
        return await self.service.reads.get(self.kind, self.version.name, self._target.key)

    async def _replace(self) -> web.Response:
        wanted, options = self._wanted(VIEWS), self._options("UpdateOptions")
        given = await self._body(options, self.kind)
        if self.kind.upserts:
            self._check_creation()
        obj, created = await self.service.replace(self._target, given, options)
        return self._object(obj, wanted, options.warnings, 201 if created else 200)

    async def _patch(self) -> web.Response:
        wanted, type_, target = self._wanted(VIEWS), self._patch_type(), self._target
        options = self._options("PatchOptions", type_)
        try:
            body = await self._body(options)
        except UnreadableBody as error:
            absent = self.service.commits.present(self.kind, target.key) is None
            if absent and type_ is not PatchType.APPLY:
                raise failures.not_found(self.kind, target.key.name) from error
            checked = options.field_validation is not FieldValidation.IGNORE
            raise error.of_patch(type_, checked=checked) from error
        if type_ is PatchType.APPLY:
            self._check_creation()
        obj, created = await self.service.patch_target(target, body, type_, options)
        return self._object(obj, wanted, options.warnings, 201 if created else 200)

    def _patch_type(self) -> PatchType:
        media = bodies.media_type(self._content_type)
        known = self.service.patch_types(self.kind)
        if media == PatchType.STRATEGIC and not self.kind.builtin:
            raise failures.unsupported_media_type(known)
        if media not in known:
            raise failures.unsupported_patch()
        return PatchType(media)

    def _check_creation(self) -> None:
        """Check the permission to create, for a write that would create an object."""
        kind, key = self.kind, self._target.key
        if self.route.subresource or self.service.commits.present(kind, key) is not None:
            return
        wish = Attributes("create", kind.group, kind.plural, "", key.namespace, key.name)
        decision = self.authorizer.authorize(self.caller, wish)
        if not decision.allowed:
            raise refusal(self.caller, wish, decision.reason)

    async def _delete(self) -> web.Response:
        kind, key, wanted = self.kind, self._target.key, self._wanted(VIEWS)
        options = delete_options(self.request.query, await self._optional_body(), self.caller)
        warnings = self.service.deletion_warnings(kind, options)
        obj, gone = await self.service.deletes.delete(kind, self.version, key, options)
        if gone and not kind.returned:
            about = failures.details(kind, key.name, uid=obj["metadata"]["uid"])
            return answer(success(about), wanted=MediaForm(wanted.format), warnings=warnings)
        status = 202 if options.accepted and not gone else 200
        return self._object(obj, wanted, warnings, status)

    # ---- subresources

    async def _subresource(self, name: str) -> web.StreamResponse:
        kind, version, method = self.kind, self.version, self.request.method
        pod = kind.builtin and (kind.group, kind.kind) == ("", "Pod")
        if name == subresources.SCALE and version.scale:
            return await self._verb(GET=self._get_scale, PUT=self._scale, PATCH=self._scale)
        if pod and name in subresources.ACTIONS:
            return await self._verb(POST=self._pod_action)
        if pod and name in METHODS:
            if method not in METHODS[name]:
                raise failures.wrong_method()
            if name == LOG:
                check_log(self.request.query, self.route.name)
            else:
                path = "/" + "/".join(self.route.rest)
                asked = options_of(name, self.request.query, path)
                options = WriteOptions(caller=self.caller)
                await self.service.writes.admit(Operation.CONNECT, self._target, asked, options)
            return connect(self.request, orjson.loads(await self._raw()), name)
        if (kind.group, kind.plural, name) == ("", "serviceaccounts", "token"):
            return await self._verb(POST=self._token)
        if (name == STATUS and version.status) or (pod and name in kind.subresources):
            return await self._verb(GET=self._get, PUT=self._replace, PATCH=self._patch)
        if name in kind.subresources:
            return await self._verb(PUT=self._replace)
        raise failures.unknown_resource()

    async def _token(self) -> web.Response:
        options, target = self._options("CreateOptions"), self._target
        asked = token_request(target.key, await self._body(options))
        asked = await self.service.writes.admit(Operation.CREATE, target, asked, options)
        answered = self.service.tokens.request(target.key, asked, self._now)
        return answer(answered, status=201, wanted=self._wanted())

    async def _get_scale(self) -> web.Response:
        wanted, obj = self._wanted(), orjson.loads(await self._raw())
        return answer(subresources.scale_of(self.version, obj), wanted=wanted)

    async def _scale(self) -> web.Response:
        wanted = self._wanted()
        type_ = self._patch_type() if self.request.method == "PATCH" else None
        options = self._options("PatchOptions" if type_ else "UpdateOptions", type_)
        body = await self._body(options)
        obj = await self.service.scale(self._target, body, type_, options)
        return answer(subresources.scale_of(self.version, obj), wanted=wanted)

    async def _pod_action(self) -> web.Response:
        wanted, target = self._wanted(), self._target
        options = self._options("CreateOptions")
        body = await self._body(options)
        body = subresources.action_of(target.key, target.subresource, body)
        if target.subresource == "binding":
            await self.service.bind_pod(target.key, body, options)
        else:
            body = await self.service.writes.admit(Operation.CREATE, target, body, options)
            inner = delete_options(self.request.query, body.get("deleteOptions"), self.caller)
            inner = attrs.evolve(inner, way="eviction")
            await self.service.deletes.delete(self.kind, self.version, target.key, inner)
        return answer(success(code=201), status=201, wanted=wanted)

    # ---- watch

    async def _watch(self) -> web.StreamResponse:
        return await watch(self.request, self.service, self.route, self.kind, self.version)

    async def _old_watch(self) -> web.StreamResponse:
        """A path of the form `/api/v1/watch/...`, which is deprecated but still served."""
        route = self.route
        if route.subresource:
            raise failures.unknown_resource()
        if self._reads and route.name and self.kind.namespaced and not route.namespace:
            raise failures.unknown_resource()
        return await self._verb(GET=self._watch)

    # ---- bodies and answers

    @property
    def _now(self) -> float:
        return self.service.now()

    @property
    def _include(self) -> str:
        return self.request.query.get("includeObject", "Metadata")

    @property
    def _content_type(self) -> str:
        return self.request.headers.get("Content-Type", "")

    def _wanted(self, offered: frozenset[tuple[str, str, str]] = frozenset()) -> MediaForm:
        return negotiate(self.request.headers.get("Accept", ""), offered)

    def _options(self, kind: str, type_: PatchType | None = None) -> WriteOptions:
        return write_options(self.request.query, self.caller, kind, type_)

    async def _body(self, options: WriteOptions, whole: Kind | None = None) -> Any:
        """The decoded body; `whole` is the kind that it must have."""
        if self.request.method != "PATCH":
            bodies.check_object_type(self._content_type)
        raw = await body_of(self.request)
        notice = options.field_validation is not FieldValidation.IGNORE
        try:
            data, duplicates = bodies.parse(raw, self._content_type, notice_duplicates=notice)
        except UnreadableBody as error:
            if whole is None:
                raise
            raise error.of_object(raw, whole.kind) from error
        if whole is not None:
            bodies.check_head(raw, data, whole, validated=notice)
        options.received = tuple(duplicates)
        return data

    async def _optional_body(self) -> Any:
        raw = await body_of(self.request)
        if not raw:
            return None
        bodies.check_object_type(self._content_type)
        return bodies.parse(raw, self._content_type, notice_duplicates=False)[0]

    def _object(
        self, obj: Obj, wanted: MediaForm, warnings: Sequence[str] = (), status: int = 200
    ) -> web.Response:
        if wanted.view:
            obj = views.viewed(obj, self.kind, self.version, wanted, self._now, self._include)
        return self._reply(obj, wanted, warnings, status)

    def _reply(
        self, body: Any, wanted: MediaForm, warnings: Sequence[str] = (), status: int = 200
    ) -> web.Response:
        if self.version.deprecation:
            warnings = [self.version.deprecation, *warnings]
        return answer(body, status=status, wanted=wanted, warnings=warnings)


async def _each(items: Iterable[bytes], view: Callable[[Obj], Obj]) -> list[orjson.Fragment]:
    """The items of a list in another form, between some of which others are answered."""
    made, size = [], 0
    for raw in items:
        made.append(orjson.Fragment(orjson.dumps(view(orjson.loads(raw)))))
        size += len(raw)
        if size > PIECE:
            await asyncio.sleep(0)
            size = 0
    return made
