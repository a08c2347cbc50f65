"""Maps requests for objects to verbs, and their results to answers.

A watch is answered with a stream of events: shared bytes, small buffers, bounded patience. Lines of
a watch are built around JSON that all watches share. The next batch is sent only after the client
has read most of the previous one, so a client that does not read costs one batch of references and
the buffers of its connection. After a while without reads its connection is closed, as by
kube-apiserver (`kueuelib.runtime.server_limits`); a client that returns lists and watches again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import chain
from typing import Any

import attrs
import orjson
from aiohttp import web

from kueuelib.api.kinds import NODES, PODS, SERVICES
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures, subresources
from kueuelib.embedded.access.attributes import Attributes, Authorizer, refusal
from kueuelib.embedded.access.tokens import token_request
from kueuelib.embedded.admission.plugin import Operation, UserInfo
from kueuelib.embedded.http import bodies, kubelets, views
from kueuelib.embedded.http.answers import (
    JSON,
    PIECE,
    VIEWS,
    MediaForm,
    answer,
    negotiate,
    pieces,
    success,
    warning_headers,
)
from kueuelib.embedded.http.backends import Backends
from kueuelib.embedded.http.requests import (
    Route,
    check_list,
    delete_options,
    flag,
    list_options,
    watch_options,
    write_options,
)
from kueuelib.embedded.http.yaml_bodies import UnreadableBody
from kueuelib.embedded.reading import Frame
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import FieldValidation, WriteOptions
from kueuelib.embedded.write_checks import STATUS, Target
from kueuelib.errors import BadRequest
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.server_limits import Connection, body_of

# ---- the lines of a watch ------------------------------------------------------------------------

Line = tuple[bytes, bytes, bytes]
"""The prefix, the JSON, and the suffix."""

_HEADS = {
    type_: b'{"type":"%b","object":' % type_.encode()
    for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


@attrs.define(eq=False)
class Framer:
    """One watch event as a line."""

    _kind: Kind
    _version: KindVersion
    _wanted: MediaForm
    _include: str
    _now: Callable[[], float]
    _headings: bool = attrs.field(init=False, default=True)

    def __call__(self, event: Frame) -> Line:
        """The parts of the line of an event."""
        type_, raw = event
        if self._wanted.view and type_ not in ("ERROR", "BOOKMARK"):
            raw = orjson.dumps(self._view(orjson.loads(raw)))
        elif self._wanted.view and type_ == "BOOKMARK":
            raw = orjson.dumps(self._view_bookmark(orjson.loads(raw)))
        return _HEADS[type_], raw, b"}\n"

    def _view(self, obj: Obj) -> Obj:
        if self._wanted.view != "Table":
            return views.partial(obj, self._wanted.version)
        headings, self._headings = self._headings, False
        kind, version, wanted = self._kind, self._version, self._wanted
        rows = [views.row(kind, version, wanted, self._now(), self._include, obj)]
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return views.table(kind, version, rows, wanted, meta, headings=headings)

    def _view_bookmark(self, obj: Obj) -> Obj:
        if self._wanted.view != "Table":
            return views.partial(obj, self._wanted.version)
        row = {"cells": [], "object": views.partial(obj, self._wanted.version)}
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._wanted.version}",
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "columnDefinitions": None,
            "rows": [row],
        }


# --------------------------------------------------------------------------------------------------

Batches = AsyncIterator[list[Frame]]
FILTER: ContextVar[Callable[[Batches], Batches] | None] = ContextVar("filter", default=None)
"""What a middleware makes of the frames of a watch."""


async def watch(
    request: web.BaseRequest, service: ApiService, route: Route, kind: Kind, version: KindVersion
) -> web.StreamResponse:
    """Send changes as a stream until it ends or the client leaves.

    Raises:
        ApiError: the options of the watch are wrong.
    """
    accept = request.headers.get("Accept", "")
    wanted = negotiate(accept, VIEWS)
    options = watch_options(request.query, route.name)
    stream = service.stream(kind, version, route.namespace, options)
    include = request.query.get("includeObject", "Metadata")
    frame = Framer(kind, version, wanted, include, service.now)
    headers = [
        ("Content-Type", MediaForm(JSON, wanted.view, wanted.group, wanted.version).media_type)
    ]
    if version.deprecation:
        headers += warning_headers([version.deprecation])
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        connection = request.protocol
        assert isinstance(connection, Connection), "a Site makes them"
        batches = stream.batches()
        if (filtered := FILTER.get()) is not None:
            batches = filtered(batches)
        async for batch in batches:
            for piece in pieces(chain.from_iterable(map(frame, batch))):
                await response.write(piece)
                if not connection.flows:
                    await connection.drained()
                await asyncio.sleep(0)
        await response.write_eof()
    except ConnectionError:
        pass  # the client has left
    return response


Answer = Awaitable[web.StreamResponse]


@attrs.frozen(eq=False)
class ResourceHandler:
    """Serves every kind of the registry."""

    _service: ApiService
    _authorizer: Authorizer
    _backends: Backends

    async def serve(
        self, request: web.BaseRequest, route: Route, caller: UserInfo
    ) -> web.StreamResponse:
        """Answers one request.

        Raises:
            ApiError: the request failed.
        """
        served = self._service.registry.served(route.group, route.version, route.plural)
        if served is None or (route.rest and route.subresource != kubelets.PROXY):
            raise failures.unknown_resource()
        if route.name in (".", "..") and not route.subresource:
            raise BadRequest(f"Name parameter invalid: \"{route.name}\": may not be '{route.name}'")
        shell = self._service, self._authorizer, self._backends
        return await _Call(*shell, request, route, caller, *served).serve()


@attrs.frozen
class _Call:
    service: ApiService
    authorizer: Authorizer
    backends: Backends
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
        proxied = kind.builtin and not kind.group and kind.kind in ("Node", "Service")
        if (pod and name in kubelets.METHODS) or (proxied and name == kubelets.PROXY):
            if method not in kubelets.METHODS[name]:
                raise failures.wrong_method()
            return await (self._log() if name == kubelets.LOG else self._connect(name))
        if (kind.group, kind.plural, name) == ("", "serviceaccounts", "token"):
            return await self._verb(POST=self._token)
        if (name == STATUS and version.status) or (pod and name in kind.subresources):
            return await self._verb(GET=self._get, PUT=self._replace, PATCH=self._patch)
        if name in kind.subresources:
            return await self._verb(PUT=self._replace)
        raise failures.unknown_resource()

    # ---- what a kubelet answers, or a server in a pod

    async def _log(self) -> web.StreamResponse:
        query, name = self.request.query, self.route.name
        kubelets.check_log(query, name)
        pod = orjson.loads(await self._raw())
        container = kubelets.container_of(query.get("container", ""), pod)
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        kubelet = self._kubelet(pod)
        if kubelet is not None:
            target = kubelets.log_target(pod, container, query)
            return await self.backends.log(self.request, kubelet, target)
        if (pod.get("status") or {}).get("phase") == "Pending":
            raise BadRequest(
                f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            )
        return web.Response(text="")

    def _kubelet(self, pod: Obj) -> kubelets.Backend | None:
        node = self.service.reader.get(NODES, ObjectKey("", pod["spec"]["nodeName"]))
        return kubelets.kubelet_of(node)

    async def _connect(self, name: str) -> web.StreamResponse:
        path = "/" + "/".join(self.route.rest)
        asked = kubelets.options_of(name, self.request.query, path, self.kind.kind)
        options = WriteOptions(caller=self.caller)
        asked = await self.service.writes.admit(Operation.CONNECT, self._target, asked, options)
        if name == kubelets.PROXY:
            return await self._proxy()
        pod = orjson.loads(await self._raw())
        if name != "portforward":
            asked["container"] = kubelets.container_of(asked.get("container") or "", pod)
        kubelet = self._bound(pod)
        target = kubelets.stream_target(pod, name, asked)
        return await self.backends.connect(self.request, kubelet, target)

    def _bound(self, pod: Obj) -> kubelets.Backend:
        """The kubelet of a pod.

        Raises:
            ApiError: there is none.
        """
        if not pod["spec"].get("nodeName"):
            raise BadRequest(f"pod {pod['metadata']['name']} does not have a host assigned")
        return kubelets.reachable(self._kubelet(pod))

    async def _proxy(self) -> web.StreamResponse:
        """The same request to a server in a pod, also by its Service, or to a kubelet."""
        scheme, name, port = kubelets.split_name(self.route.name, self.kind.kind)
        key = ObjectKey(self.route.namespace, name)
        obj = orjson.loads(await self.service.reads.get(self.kind, self.version.name, key))
        if self.kind.kind == SERVICES.kind:
            pods = self.service.reader.items(PODS, key.namespace)
            obj, port = kubelets.pod_behind(obj, port, pods)
        if self.kind.namespaced:
            self._bound(obj)
            backend = kubelets.server_in(obj, scheme, port)
        else:
            backend = kubelets.reachable(kubelets.kubelet_of(obj), port)
        prefix, target = kubelets.proxied(self.request.raw_path, namespaced=self.kind.namespaced)
        if not target and self.request.method in ("GET", "HEAD"):  # relative links need it
            location = f"{prefix}/?{self.request.query_string}".removesuffix("?")
            return web.Response(status=301, headers={"Location": location})
        return await self.backends.forward(self.request, backend, target or "/", prefix)

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
