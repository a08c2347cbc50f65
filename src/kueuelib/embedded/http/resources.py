"""Requests for objects: from method and path to a verb, from its result to an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures, subresources
from kueuelib.embedded.access.attributes import Attributes, Authorizer, refusal
from kueuelib.embedded.admission.plugin import Caller
from kueuelib.embedded.http import bodies, views
from kueuelib.embedded.http.answers import answer, success
from kueuelib.embedded.http.connect import METHODS, connect
from kueuelib.embedded.http.malformed import body_of
from kueuelib.embedded.http.negotiation import VIEWS, Wanted, negotiate
from kueuelib.embedded.http.parameters import (
    check_list,
    delete_options,
    flag,
    list_options,
    write_options,
)
from kueuelib.embedded.http.routes import Route
from kueuelib.embedded.http.unreadable import Unreadable
from kueuelib.embedded.http.watching import watch
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import FieldValidation, PatchType, WriteOptions
from kueuelib.embedded.write_checks import STATUS, Target

SCALE = "scale"


class Resources:
    """Serves every kind of the registry."""

    def __init__(self, service: ApiService, authorizer: Authorizer) -> None:
        self._service = service
        self._authorizer = authorizer

    async def serve(
        self, request: web.BaseRequest, route: Route, caller: Caller
    ) -> web.StreamResponse:
        """Answers one request.

        Raises:
            ApiError: whatever is wrong with it.
        """
        found = self._service.registry.served(route.group, route.version, route.plural)
        if found is None or (route.rest and route.subresource != "proxy"):
            raise failures.unknown_resource()
        kind, version = found
        if route.watched:
            return await self._old_watch(request, route, kind, version)
        if route.namespace and not kind.namespaced:
            raise failures.unknown_resource()
        method = request.method
        if not route.name:
            return await self._collection(request, route, kind, version, caller)
        if kind.namespaced and not route.namespace:
            raise failures.unknown_resource()
        key = ObjectKey(route.namespace, route.name)
        if route.subresource:
            target = Target(kind, version, key, route.subresource)
            return await self._subresource(request, target, caller)
        if _is_read(request, kind):
            return await self._get(request, kind, version, key)
        if method == "PUT":
            return await self._replace(request, Target(kind, version, key), caller)
        if method == "PATCH":
            return await self._patch(request, Target(kind, version, key), caller)
        if method == "DELETE":
            return await self._delete(request, kind, version, key, caller)
        raise failures.wrong_method()

    # ---- collections

    async def _collection(
        self, request: web.BaseRequest, route: Route, kind: Kind, version: Version, caller: Caller
    ) -> web.StreamResponse:
        method = request.method
        if _is_read(request, kind):
            if flag(request.query, "watch"):
                return await watch(request, self._service, route, kind, version)
            return await self._list(request, route, kind, version)
        if method == "POST":
            if kind.namespaced and not route.namespace:
                raise failures.wrong_method()
            return await self._create(request, route, kind, version, caller)
        if method == "DELETE":
            if (kind.namespaced and not route.namespace) or "deletecollection" not in kind.verbs:
                raise failures.wrong_method()
            return await self._delete_collection(request, route, kind, version, caller)
        raise failures.wrong_method()

    async def _list(
        self, request: web.BaseRequest, route: Route, kind: Kind, version: Version
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""), VIEWS)
        options = list_options(request.query)
        check_list(request.query, options)
        page = await self._service.reads.list(kind, version.name, route.namespace, options)
        views.check_fits(wanted, kind, a_list=True)
        meta: Obj = {"resourceVersion": str(page.revision)}
        if page.continue_token:
            meta["continue"] = page.continue_token
        if page.remaining:
            meta["remainingItemCount"] = page.remaining
        warnings = [version.deprecation] if version.deprecation else []
        if wanted.view == "Table":
            body: Any = views.table(
                kind,
                version,
                (orjson.loads(raw) for raw in page.items),
                wanted,
                now=self._service.now(),
                meta=meta,
                include=request.query.get("includeObject", "Metadata"),
            )
        elif wanted.view == "PartialObjectMetadataList":
            body = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{wanted.version}",
                "metadata": meta,
                "items": [views.partial(orjson.loads(raw)) for raw in page.items] or None,
            }
        else:
            body = views.raw_list(kind, version, page.items, meta)
        return answer(body, wanted=wanted, warnings=warnings)

    async def _create(
        self, request: web.BaseRequest, route: Route, kind: Kind, version: Version, caller: Caller
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""), VIEWS)
        options = write_options(request.query, caller, "CreateOptions")
        given = await self._body(request, options, kind)
        if given is None and kind.builtin:
            given = {}
        obj = await self._service.writes.create(kind, version, given, route.namespace, options)
        return self._object(obj, kind, version, wanted, request, options.warnings, status=201)

    async def _delete_collection(
        self, request: web.BaseRequest, route: Route, kind: Kind, version: Version, caller: Caller
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""))
        options = delete_options(request.query, await self._optional_body(request), caller)
        found = await self._service.delete_collection(
            kind.resource(version.name), route.namespace, list_options(request.query), options
        )
        meta = {"resourceVersion": str(self._service.storage.revision)}
        items = [orjson.dumps(obj) for obj in found]
        return answer(views.raw_list(kind, version, items, meta), wanted=wanted)

    # ---- objects

    async def _get(
        self, request: web.BaseRequest, kind: Kind, version: Version, key: ObjectKey
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""), VIEWS)
        raw = await self._service.reads.get(kind, version.name, key)
        views.check_fits(wanted, kind, a_list=False)
        warnings = [version.deprecation] if version.deprecation else []
        if not wanted.view:
            return answer(raw, wanted=wanted, warnings=warnings)
        return self._object(orjson.loads(raw), kind, version, wanted, request, warnings)

    async def _replace(
        self, request: web.BaseRequest, target: Target, caller: Caller
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""), VIEWS)
        options = write_options(request.query, caller, "UpdateOptions")
        given = await self._body(request, options, target.kind)
        if target.kind.upserts:
            self._check_creation(target, caller)
        written = await self._service.replace(target, given, options)
        return self._written(written, target, wanted, request, options)

    async def _patch(
        self, request: web.BaseRequest, target: Target, caller: Caller
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""), VIEWS)
        type_ = self._patch_type(request, target.kind)
        options = write_options(request.query, caller, "PatchOptions", type_)
        try:
            body = await self._body(request, options)
        except Unreadable as error:
            absent = self._service.commits.present(target.kind, target.key) is None
            if absent and type_ is not PatchType.APPLY:
                raise failures.not_found(target.kind, target.key.name) from error
            raise error.of_patch(type_) from error
        if type_ is PatchType.APPLY:
            self._check_creation(target, caller)
        patch = Target(target.kind, target.version, target.key, target.subresource, "Patch")
        written = await self._service.patch_target(patch, body, type_, options)
        return self._written(written, target, wanted, request, options)

    def _patch_type(self, request: web.BaseRequest, kind: Kind) -> PatchType:
        media = bodies.media_type(request.headers.get("Content-Type", ""))
        if media == PatchType.STRATEGIC and not kind.builtin:
            raise failures.unsupported_media_type(self._service.patch_types(kind))
        if media not in self._service.patch_types(kind):
            raise failures.unsupported_patch()
        return PatchType(media)

    def _check_creation(self, target: Target, caller: Caller) -> None:
        """A write that would create an object needs the permission to create it."""
        kind, key = target.kind, target.key
        if target.subresource or self._service.commits.present(kind, key) is not None:
            return
        wish = Attributes("create", kind.group, kind.plural, "", key.namespace, key.name)
        decision = self._authorizer.authorize(caller, wish)
        if not decision.allowed:
            raise refusal(caller, wish, decision.reason)

    async def _delete(
        self,
        request: web.BaseRequest,
        kind: Kind,
        version: Version,
        key: ObjectKey,
        caller: Caller,
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""), VIEWS)
        body = await self._optional_body(request)
        options = delete_options(request.query, body, caller)
        warnings = self._service.deletion_warnings(kind, options)
        obj, gone = await self._service.deletes.delete(kind, version, key, options)
        if gone and not kind.returned:
            about = failures.details(kind, key.name, uid=obj["metadata"]["uid"])
            return answer(success(about), wanted=Wanted(wanted.format), warnings=warnings)
        begun = 202 if options.accepted and not gone else 200
        return self._object(obj, kind, version, wanted, request, warnings, begun)

    # ---- subresources

    async def _subresource(
        self, request: web.BaseRequest, target: Target, caller: Caller
    ) -> web.Response:
        kind, version, name = target.kind, target.version, target.subresource
        method = request.method
        if name == SCALE and version.scale:
            return await self._scale(request, target, caller)
        if not kind.group and kind.plural == "pods" and name in ("binding", "eviction"):
            if method != "POST":
                raise failures.wrong_method()
            return await self._pod_action(request, target, caller)
        if not kind.group and kind.plural == "pods" and name in METHODS:
            if method not in METHODS[name]:
                raise failures.wrong_method()
            pod = orjson.loads(await self._service.reads.get(kind, version.name, target.key))
            return connect(request, pod, name)
        if not kind.group and kind.plural == "serviceaccounts" and name == "token":
            if method != "POST":
                raise failures.wrong_method()
            options = write_options(request.query, caller, "CreateOptions")
            given = await self._body(request, options)
            answered = self._service.tokens.request(target.key, given, self._service.now())
            wanted = negotiate(request.headers.get("Accept", ""))
            return answer(answered, status=201, wanted=wanted)
        if name == STATUS and version.status:
            if _is_read(request, kind):
                return await self._get(request, kind, version, target.key)
            if method == "PUT":
                return await self._replace(request, target, caller)
            if method == "PATCH":
                return await self._patch(request, target, caller)
            raise failures.wrong_method()
        if name in kind.subresources:
            if method == "PUT":
                return await self._replace(request, target, caller)
            if kind.kind == "Pod" and method == "GET":
                return await self._get(request, kind, version, target.key)
            if kind.kind == "Pod" and method == "PATCH":
                return await self._patch(request, target, caller)
            raise failures.wrong_method()
        raise failures.unknown_resource()

    async def _scale(
        self, request: web.BaseRequest, target: Target, caller: Caller
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""))
        kind, version, key = target.kind, target.version, target.key
        if _is_read(request, kind):
            obj = orjson.loads(await self._service.reads.get(kind, version.name, key))
            return answer(subresources.scale_of(version, obj), wanted=wanted)
        if request.method not in ("PUT", "PATCH"):
            raise failures.wrong_method()
        type_ = self._patch_type(request, kind) if request.method == "PATCH" else None
        kind_of = "UpdateOptions" if type_ is None else "PatchOptions"
        options = write_options(request.query, caller, kind_of, type_)
        body = await self._body(request, options)
        obj = await self._service.scale(target, body, type_, options)
        return answer(subresources.scale_of(version, obj), wanted=wanted)

    async def _pod_action(
        self, request: web.BaseRequest, target: Target, caller: Caller
    ) -> web.Response:
        wanted = negotiate(request.headers.get("Accept", ""))
        options = write_options(request.query, caller, "CreateOptions")
        body = await self._body(request, options)
        body = subresources.action_of(target.key, target.subresource, body)
        if target.subresource == "binding":
            await self._service.bind_pod(target.key, body, options)
        else:
            inner = body.get("deleteOptions")
            await self._service.deletes.delete(
                target.kind,
                target.version,
                target.key,
                delete_options(request.query, inner, caller),
            )
        return answer(success(code=201), status=201, wanted=wanted)

    # ---- watch

    async def _old_watch(
        self, request: web.BaseRequest, route: Route, kind: Kind, version: Version
    ) -> web.StreamResponse:
        """A path of the form `/api/v1/watch/...`, which is deprecated and still there."""
        if route.subresource or (route.namespace and not kind.namespaced):
            raise failures.unknown_resource()
        if not _is_read(request, kind):
            raise failures.wrong_method()
        if route.name and kind.namespaced and not route.namespace:
            raise failures.unknown_resource()
        return await watch(request, self._service, route, kind, version)

    # ---- bodies and answers

    async def _body(
        self, request: web.BaseRequest, options: WriteOptions, whole: Kind | None = None
    ) -> Any:
        """The decoded body; `whole`: the kind of the object that it must be."""
        content_type = request.headers.get("Content-Type", "")
        if whole is not None:
            bodies.check_object_type(content_type)
        raw = await body_of(request)
        notice = options.field_validation is not FieldValidation.IGNORE
        try:
            data, duplicates = await self._parsed(raw, content_type, notice=notice)
        except Unreadable as error:
            if whole is None:
                raise
            raise error.of_object(raw, whole.kind) from error
        if whole is not None:
            bodies.check_head(raw, data, whole, validated=notice)
        options.received, options.size = tuple(duplicates), len(raw)
        return data

    async def _optional_body(self, request: web.BaseRequest) -> Any:
        raw = await body_of(request)
        if not raw:
            return None
        content_type = request.headers.get("Content-Type", "")
        return (await self._parsed(raw, content_type, notice=False))[0]

    async def _parsed(
        self, raw: bytes, content_type: str, *, notice: bool
    ) -> tuple[Any, list[str]]:
        work = self._service.large.work
        return await work(len(raw), bodies.parse, raw, content_type, notice_duplicates=notice)

    def _written(
        self,
        written: tuple[Obj, bool],
        target: Target,
        wanted: Wanted,
        request: web.BaseRequest,
        options: WriteOptions,
    ) -> web.Response:
        """The answer to a write: the object, and whether it was created."""
        obj, created = written
        status = 201 if created else 200
        kind, version = target.kind, target.version
        return self._object(obj, kind, version, wanted, request, options.warnings, status)

    def _object(
        self,
        obj: Obj,
        kind: Kind,
        version: Version,
        wanted: Wanted,
        request: web.BaseRequest,
        warnings: Sequence[str],
        status: int = 200,
    ) -> web.Response:
        if wanted.view:
            include = request.query.get("includeObject", "Metadata")
            obj = views.viewed(obj, kind, version, wanted, self._service.now(), include)
        if version.deprecation:
            warnings = [version.deprecation, *warnings]
        return answer(obj, status=status, wanted=wanted, warnings=warnings)


def _is_read(request: web.BaseRequest, kind: Kind) -> bool:
    """Whether a request reads; of the kinds that a server brings, no head is given."""
    return request.method == "GET" or (request.method == "HEAD" and not kind.builtin)
