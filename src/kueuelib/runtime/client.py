"""The verbs of the Kubernetes API on raw JSON objects."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs

from kueuelib.api.forms import Typed, raw_of
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.machinery.reflector_options import PAGE_SIZE
from kueuelib.runtime import discovery, queries
from kueuelib.runtime.bodies import decode_json, encode_json
from kueuelib.runtime.calls import Calls
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.queries import ObjectList, Params, PatchType, object_path, params_of
from kueuelib.runtime.transport import Transport
from kueuelib.runtime.typed import K, TypedClient
from kueuelib.runtime.watch import WatchStream

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient


class Client:
    """Reads and writes objects of any kind, as raw JSON.

    Writes also take values of classes with `@crd`, and models of kubernetes_asyncio.

    Every method raises `ApiError` subclasses for failures the server reports, `TransportError`
    when there was no answer, and `ConfigError` when there are no credentials. A call is repeated
    with back-off only where that is safe: the server said 429, or a read could not connect.

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
        self._calls = Calls(transport, throttle=throttle, guard=guard, clock=clock)
        self.reads = True  # whether answers to writes are decoded; otherwise they are empty

    def guarded(self, guard: Callable[[], None]) -> Client:
        """A client on the same connections that asks before it writes.

        Args:
            guard: called right before every attempt to write, after all waiting; what it raises
                goes to the caller, and nothing is sent. `Manager.require_leadership` is one.
        """
        made = copy.copy(self)
        made._calls = attrs.evolve(self._calls, guard=guard)  # noqa: SLF001 - one of this class
        return made

    def apart(self) -> Client:
        """A client whose calls delay no others, and whose answers to writes are not decoded."""
        made = copy.copy(self)
        made._calls, made.reads = self._calls.apart(), False  # noqa: SLF001 - one of this class
        return made

    def of(self, cls: type[K]) -> TypedClient[K]:
        """The verbs for the kind of a class, with values of the class.

        Args:
            cls: a class with `@crd`, or a model such as `kubernetes_asyncio.client.V1Pod`.

        Raises:
            ConfigError: the class stands for no kind.
        """
        return TypedClient(cls, self)

    def api_client(self, learn: Callable[[Obj], None] | None = None) -> ApiClient:
        """An `ApiClient` of kubernetes_asyncio over the connections of this client.

        Its calls have the limits, retries, guards and field manager of this client.

        Args:
            learn: receives what writes return, see `Informer.learn`; for example `Cache.learn`.
        """
        from kueuelib.runtime.generated_client import ConnectedApiClient

        return ConnectedApiClient(self._calls, learn, self.field_manager)

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
        return await self._object("GET", object_path(resource, key, subresource), verb="get")

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
        timeout: float | None = None,  # noqa: ASYNC109 - handed to aiohttp
        metadata_only: bool = False,
    ) -> ObjectList:
        """One page of objects, or of their metadata, in `items`; everything when `limit` is 0.

        Raises:
            Gone: the resource version or the continue token is too old.
        """
        params = params_of(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=str(limit) if limit else "",
            resourceVersion=resource_version,
            resourceVersionMatch=resource_version_match,
            **{"continue": continue_token},
        )
        path = queries.collection_path(resource, namespace)
        accept = queries.METADATA_LIST if metadata_only else queries.JSON
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
            sendInitialEvents="true" if send_initial_events else "",
            resourceVersionMatch="NotOlderThan" if send_initial_events else "",
        )
        return await self.transport.watch(
            queries.collection_path(resource, namespace),
            params=params,
            timeout=timeout,
            accept=queries.METADATA if metadata_only else queries.JSON,
        )

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any] | Typed,
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
        raw = raw_of(obj)
        path = queries.creation_path(resource, raw, name, subresource)
        params = self._write_params(dry_run, field_manager)
        return await self._object("POST", path, params=params, body=raw, verb="create")

    async def replace(
        self,
        resource: Resource,
        obj: Mapping[str, Any] | Typed,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> Obj:
        """Replace an object; its `resourceVersion` guards against lost updates.

        Raises:
            Conflict: it was changed meanwhile.
        """
        raw = raw_of(obj)
        path = object_path(resource, key_of(raw), subresource)
        params = self._write_params(dry_run, field_manager)
        return await self._object("PUT", path, params=params, body=raw, verb="update")

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        body: Mapping[str, Any] | Sequence[Any] | Typed,
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
            body: the patch; for `APPLY` the owned fields, with `apiVersion` and `kind`. An
                object that the server returned may be applied again: its `managedFields`, which
                the server writes, are not sent.
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
        if patch_type is PatchType.APPLY and not isinstance(body, Sequence):
            body = queries.without_managed_fields(raw_of(body))
        verb = "apply" if patch_type is PatchType.APPLY else "patch"
        sent = {"body": body, "content_type": queries.content_type_of(patch_type)}
        path = object_path(resource, key, subresource)
        return await self._object("PATCH", path, params=params, verb=verb, **sent)

    async def apply(self, resource: Resource, obj: Obj | Typed, *, force: bool = True) -> Obj:
        """Apply an object server-side; `force` takes over fields that others own. See `patch`."""
        raw = raw_of(obj)
        return await self.patch(resource, key_of(raw), raw, PatchType.APPLY, force=force)

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
            uid: refuse if another object has the name now.
            resource_version: refuse when it was changed.
            propagation: `Foreground`, `Background` or `Orphan`.
            grace_period: seconds for pods.
            dry_run: check only.

        Raises:
            NotFound: there is none.
            Conflict: a precondition does not hold.
        """
        preconditions = queries.present_only(uid=uid, resourceVersion=resource_version)
        body = queries.delete_options(preconditions, propagation, grace_period, dry_run=dry_run)
        return await self._object("DELETE", object_path(resource, key), body=body, verb="delete")

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
            queries.collection_path(resource, namespace),
            params=params_of(labelSelector=label_selector, fieldSelector=field_selector),
            body=queries.delete_options({}, propagation, grace_period),
            verb="deletecollection",
        )

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group that the server serves, the preferred one first; () when none."""
        return await discovery.served_versions(self.request, group)

    async def served_kinds(self, group: str, version: str) -> tuple[str, ...]:
        """The kinds of a group and version, without subresources; () when it is not served."""
        return await discovery.served_kinds(self.request, group, version)

    async def find_resource(self, api_version: str, kind: str) -> Resource | None:
        """The kind of that name; None when the server does not serve it."""
        return await discovery.find_resource(self.request, api_version, kind)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        body: Any = None,
        content_type: str = "application/json",
        timeout: float | None = None,  # noqa: ASYNC109 - handed to aiohttp
        verb: str = "",
        accept: str = queries.JSON,
    ) -> Any:
        """Any call: JSON in, decoded JSON out, None for an empty answer.

        Args:
            method: the HTTP method.
            path: the path from the server's root.
            params: query parameters.
            body: what to encode and send.
            content_type: its type.
            timeout: seconds for one attempt; those of the transport when None.
            verb: the Kubernetes verb, for metrics.
            accept: the forms in which an answer can be read.
        """
        response = await self._calls.send(
            method,
            path,
            params=params,
            body=None if body is None else encode_json(body),
            content_type=content_type,
            timeout=timeout,
            verb=verb,
            accept=accept,
        )
        wanted = response.body and (self.reads or method == "GET")
        return await decode_json(response.body, path) if wanted else None

    async def _object(self, method: str, path: str, **rest: Any) -> Obj:
        return await self.request(method, path, **rest) or {}

    def _write_params(self, dry_run: bool, field_manager: str | None) -> Params:
        return params_of(
            fieldManager=field_manager or self.field_manager, dryRun="All" if dry_run else ""
        )
