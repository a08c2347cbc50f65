"""The verbs of the Kubernetes API on raw JSON objects (spec/framework 5)."""

from __future__ import annotations

import enum
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import orjson

from kueuelib.api.meta import KubeObject, Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, NotConnected, NotFound, TooManyRequests
from kueuelib.runtime.bodies import decode_json
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import (
    JSON,
    METADATA,
    METADATA_LIST,
    ObjectList,
    Params,
    delete_options,
    params_of,
    present_only,
)
from kueuelib.runtime.transport import REQUEST_TIMEOUT, Transport
from kueuelib.runtime.typed import TypedClient
from kueuelib.runtime.watch import WatchStream

K = TypeVar("K", bound=KubeObject)

RETRIES = 8
"""How often a call is sent again that the server refused with 429."""
CONNECT_RETRIES = 3
"""How often a read that found no connection is repeated; callers that need more wait themselves."""
FIRST_DELAY = 0.25
"""Seconds before the first repetition; doubles each time, up to `MAX_DELAY`."""
MAX_DELAY = 30.0
PAGE_SIZE = 500
"""Objects per page when a whole list is read."""


class PatchType(enum.StrEnum):
    """The four kinds of patches, by content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"
    STRATEGIC = "application/strategic-merge-patch+json"


class Client:
    """Reads and writes objects of any kind, as raw JSON.

    Every method raises `ApiError` subclasses for failures the server reports, `TransportError`
    when there was no answer, and `ConfigError` when there are no credentials. A call is repeated
    with back-off only where that is safe: the server said 429, or a read found no connection.

    Args:
        transport: carries the calls; closed by `close`.
        field_manager: the name under which writes are recorded, unless a call gives another.
        throttle: awaited before every call, for a client-side rate limit; none by default.
        guard: called before every attempt to write; what it raises prevents the write.
        clock: waits between repetitions.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = "kueuelib",
        throttle: Callable[[], Awaitable[None]] | None = None,
        guard: Callable[[], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.transport = transport
        self.field_manager = field_manager
        self._throttle = throttle
        self._guard = guard
        self._clock = clock
        self._log = get_logger("client")
        self._warned: set[str] = set()

    def guarded(self, guard: Callable[[], None]) -> Client:
        """A client on the same connections that asks before it writes.

        Args:
            guard: called right before every attempt to write, after all waiting; what it raises
                goes to the caller, and nothing is sent. `Manager.require_leadership` is one.
        """
        return Client(
            self.transport,
            field_manager=self.field_manager,
            throttle=self._throttle,
            guard=guard,
            clock=self._clock,
        )

    def of(self, cls: type[K]) -> TypedClient[K]:
        """The verbs for the kind of a class, with values of the class."""
        return TypedClient(cls, self)

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, resource: Resource, key: ObjectKey, *, subresource: str = "") -> Obj:
        """One object.

        Raises:
            NotFound: there is none of that name.
        """
        path = resource.path(key.namespace, key.name, subresource)
        return await self._object("GET", path, verb="get")

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        timeout: float = REQUEST_TIMEOUT,  # noqa: ASYNC109 - handed to aiohttp
        metadata_only: bool = False,
    ) -> ObjectList:
        """One page of objects, or of their metadata; everything when `limit` is 0.

        Raises:
            Gone: the resource version or the continue token is too old.
        """
        params = params_of(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=str(limit) if limit else "",
            resourceVersion=resource_version,
            resourceVersionMatch=resource_version_match,
        )
        if continue_token:
            params.append(("continue", continue_token))
        path = resource.path(namespace)
        accept = METADATA_LIST if metadata_only else JSON
        body = await self.request(
            "GET", path, params=params, timeout=timeout, verb="list", accept=accept
        )
        return ObjectList.read(body, resource)

    async def list_all(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[Obj]:
        """Every object, read page by page.

        Raises:
            Gone: reading took longer than the server keeps the list.
        """
        token = ""
        while True:
            page = await self.list(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=page_size,
                continue_token=token,
            )
            for item in page.items:
                yield item
            token = page.continue_token
            if not token:
                return

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout: float = 300.0,  # noqa: ASYNC109 - the server's
        bookmarks: bool = True,
        send_initial_events: bool = False,
        metadata_only: bool = False,
    ) -> WatchStream:
        """Open a watch; nothing is repeated or resumed here, `Informer` does that.

        With `metadata_only`, events carry objects of kind `PartialObjectMetadata`.

        Raises:
            Gone: the resource version is too old.
        """
        params = params_of(
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            allowWatchBookmarks="true" if bookmarks else "",
        )
        if send_initial_events:
            params += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        return await self.transport.watch(
            resource.path(namespace),
            params=params,
            timeout=timeout,
            what=resource.plural,
            accept=METADATA if metadata_only else JSON,
        )

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        name: str = "",
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> Obj:
        """Create an object in the namespace its metadata names; `name` is for subresources.

        Raises:
            AlreadyExists: there is one of that name.
            Invalid: it breaks rules.
        """
        namespace = (obj.get("metadata") or {}).get("namespace") or ""
        return await self._object(
            "POST",
            resource.path(namespace, name, subresource),
            params=self._write_params(dry_run, field_manager),
            body=obj,
            verb="create",
        )

    async def replace(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> Obj:
        """Replace an object; its `resourceVersion` guards against lost updates.

        Raises:
            Conflict: it was changed meanwhile.
        """
        meta = obj["metadata"]
        return await self._object(
            "PUT",
            resource.path(meta.get("namespace") or "", meta["name"], subresource),
            params=self._write_params(dry_run, field_manager),
            body=obj,
            verb="update",
        )

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        body: Mapping[str, Any] | Sequence[Any],
        patch_type: PatchType,
        *,
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Change an object.

        Args:
            resource: the kind.
            key: the object.
            body: the patch; for `APPLY` the owned fields, with `apiVersion` and `kind`.
            patch_type: how the body is to be understood.
            subresource: for example `status`.
            field_manager: who owns the fields that are applied.
            force: take over fields that others own; `APPLY` only.
            dry_run: check only.

        Raises:
            Conflict: the `resourceVersion` in the patch is old, or others own the fields.
        """
        params = self._write_params(dry_run, field_manager)
        if force:
            params.append(("force", "true"))
        verb = "apply" if patch_type is PatchType.APPLY else "patch"
        return await self._object(
            "PATCH",
            resource.path(key.namespace, key.name, subresource),
            params=params,
            body=body,
            content_type=patch_type.value,
            verb=verb,
        )

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_period: int | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Delete an object; the answer is the object, or a `Status`.

        Args:
            resource: the kind.
            key: the object.
            uid: refuse when the object is another one of the same name.
            resource_version: refuse when it was changed.
            propagation: `Foreground`, `Background` or `Orphan`.
            grace_period: seconds for pods.
            dry_run: check only.

        Raises:
            NotFound: there is none.
            Conflict: a precondition does not hold.
        """
        preconditions = present_only(uid=uid, resourceVersion=resource_version)
        return await self._object(
            "DELETE",
            resource.path(key.namespace, key.name),
            params=params_of(dryRun="All" if dry_run else ""),
            body=delete_options(preconditions, propagation, grace_period),
            verb="delete",
        )

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: str | None = None,
        grace_period: int | None = None,
    ) -> Obj:
        """Delete all objects that match."""
        return await self._object(
            "DELETE",
            resource.path(namespace),
            params=params_of(labelSelector=label_selector, fieldSelector=field_selector),
            body=delete_options({}, propagation, grace_period),
            verb="deletecollection",
        )

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group that the server serves, its favourite first; () when none."""
        if not group:
            body = await self.request("GET", "/api", verb="get")
            return tuple(body.get("versions") or ())
        try:
            body = await self.request("GET", f"/apis/{group}", verb="get")
        except NotFound:
            return ()
        return tuple(found["version"] for found in body.get("versions") or ())

    async def served_kinds(self, group: str, version: str) -> tuple[str, ...]:
        """The kinds of a group and version, without subresources; () when it is not served."""
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            body = await self.request("GET", prefix, verb="get")
        except NotFound:
            return ()
        found = body.get("resources") or ()
        return tuple(entry["kind"] for entry in found if "/" not in entry["name"])

    async def find_resource(self, api_version: str, kind: str) -> Resource | None:
        """The kind of that name; None when the server does not serve it."""
        group, _, version = api_version.rpartition("/")
        try:
            body = await self.request(
                "GET", f"/apis/{api_version}" if group else f"/api/{api_version}", verb="get"
            )
        except NotFound:
            return None
        for entry in body.get("resources") or ():
            if entry["kind"] == kind and "/" not in entry["name"]:
                return Resource(group, version, entry["name"], kind, bool(entry["namespaced"]))
        return None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = REQUEST_TIMEOUT,  # noqa: ASYNC109 - handed to aiohttp
        verb: str = "",
        accept: str = JSON,
    ) -> Any:
        """Any call: JSON in, decoded JSON out, None for an empty answer.

        Args:
            method: the HTTP method.
            path: the path from the server's root.
            params: query parameters.
            body: what to encode and send.
            content_type: its type.
            timeout: seconds for one attempt.
            verb: the Kubernetes verb, for metrics.
            accept: the forms in which an answer can be read.
        """
        data = None if body is None else orjson.dumps(body)
        delay = FIRST_DELAY
        for attempt in range(RETRIES + 1):
            if self._throttle is not None:
                await self._wait_for_turn(self._throttle, verb or method)
            if self._guard is not None and method != "GET":
                self._guard()
            try:
                response = await self.transport.request(
                    method,
                    path,
                    params=params,
                    body=data,
                    content_type=content_type,
                    timeout=timeout,
                    verb=verb,
                    accept=accept,
                )
            except (TooManyRequests, NotConnected) as error:
                if attempt >= _repetitions(method, error):
                    raise
                self._note_retry(verb or method, error)
                asked = error.retry_after if isinstance(error, ApiError) else None
                await self._clock.sleep(
                    min(asked or 0.0, MAX_DELAY) if asked else delay * random.uniform(0.5, 1.5)
                )
                delay = min(delay * 2, MAX_DELAY)
                continue
            if "warning" in response.headers:
                self._warn(response.headers["warning"])
            return await decode_json(response.body, path) if response.body else None
        raise AssertionError("the loop returns or raises")

    async def _object(self, method: str, path: str, **rest: Any) -> Obj:
        return await self.request(method, path, **rest) or {}

    def _write_params(self, dry_run: bool, field_manager: str | None) -> Params:
        return params_of(
            fieldManager=field_manager or self.field_manager, dryRun="All" if dry_run else ""
        )

    async def _wait_for_turn(self, throttle: Callable[[], Awaitable[None]], verb: str) -> None:
        began = self._clock.monotonic()
        await throttle()
        if self.transport.observer is not None:
            self.transport.observer.throttled(verb, "", self._clock.monotonic() - began)

    def _note_retry(self, verb: str, error: Exception) -> None:
        if self.transport.observer is not None:
            code = str(error.code) if isinstance(error, ApiError) else "<error>"
            self.transport.observer.retried(verb, code, "")

    def _warn(self, header: str) -> None:
        """Log what the server warns of, each text once."""
        for line in header.split("\n"):
            text = line.split('"')[1] if line.count('"') > 1 else line
            if text not in self._warned and len(self._warned) < 1000:
                self._warned.add(text)
                self._log.warning("the API server warns", warning=text)


def _repetitions(method: str, error: Exception) -> int:
    if isinstance(error, TooManyRequests):
        return RETRIES
    return CONNECT_RETRIES if method == "GET" else 0
