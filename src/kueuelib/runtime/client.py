"""The verbs of the Kubernetes API on raw JSON objects, or on values of a class."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import attrs

from kueuelib.api.forms import Typed, raw_of, resource_of, typed_of
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.errors import ApiError, ConfigError, NotFound, TransportError
from kueuelib.machinery.options import PAGE_SIZE
from kueuelib.machinery.ownership import taken_over
from kueuelib.runtime import queries
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.queries import ObjectList, Params, PatchType, object_path, params_of
from kueuelib.runtime.sessions import decode_json, encode_json
from kueuelib.runtime.transport import Requester, Transport
from kueuelib.runtime.watch import WatchStream

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient


# One object from the server, whose fields it is, and the error for a kind that cannot be read.


async def read(client: Client, resource: Resource, key: ObjectKey) -> Obj | None:
    """Read one object; return None if it does not exist.

    Raises:
        ApiError: it could not be read; `NotFound` if the kind is not served.
        TransportError: the same.
    """
    try:
        return await client.get(resource, key)
    except NotFound as error:
        if error.details.get("name") != key.name:
            raise  # the kind is missing, not the object
        return None


async def take_over(
    client: Client, resource: Resource, obj: Obj, managers: Collection[str]
) -> None:
    """Make what others wrote in an object what this client has applied; see `taken_over`.

    Nothing is sent if they own nothing. If the process ends before it applies the object, the
    fields stay as they are until the next apply.

    Args:
        client: writes; its field manager takes over.
        resource: the kind.
        obj: the object as the server returned it.
        managers: those whose fields are taken over.

    Raises:
        Conflict: the object was changed meanwhile.
    """
    entries = taken_over(obj, managers, client.field_manager)
    if entries is not None:
        version = obj["metadata"]["resourceVersion"]
        patch = [
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ]
        await client.patch(resource, key_of(obj), patch, PatchType.JSON)


async def take_over_named(
    client: Client, resource: Resource, key: ObjectKey, adopt: bool | Collection[str]
) -> None:
    """The same for an object on the server, if it exists; a read if managers are named.

    Raises:
        ConfigError: see `managers_of`.
        Conflict: the object was changed meanwhile.
    """
    managers = managers_of(adopt)
    actual = await read(client, resource, key) if managers else None
    if actual is not None:
        await take_over(client, resource, actual, managers)


def managers_of(adopt: bool | Collection[str]) -> Collection[str]:
    """The field managers that are named.

    Raises:
        ConfigError: it is a text, which would be read letter by letter.
    """
    if isinstance(adopt, str):
        raise ConfigError("adopt", f"is {adopt!r}", f"write adopt=[{adopt!r}]")
    return () if isinstance(adopt, bool) else adopt


def unlisted(resource: Resource, error: Exception | None) -> ConfigError:
    """The error for a kind that could not be read in time, with what prevented it."""
    return ConfigError(
        resource.plural,
        f"could not be listed in time ({str(error or '') or 'no answer'})",
        "check that the kind is installed and may be listed and watched",
    )


# ---- typed views of a client, for kinds that have a class ----------------------------------------

A = TypeVar("A")
K = TypeVar("K", bound=Typed)


class TypedClient(Generic[K]):
    """The verbs for one kind, with values of its class; made by `Client.of`.

    Every method raises what the method of `Client` raises, and `InvalidObject` if an answer does
    not fit the class. A `NotFound` about a kind that is not served names the nearest one that is.
    Fields that the class does not know are written again as they were read.
    """

    def __init__(self, cls: type[K], client: Client) -> None:
        self.cls = cls
        self.resource = resource_of(cls)
        self._client = client

    async def get(self, key: ObjectKey) -> K:
        """One object."""
        return self._read(await self._asked(self._client.get(self.resource, key)))

    async def list(
        self, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> tuple[K, ...]:
        """All objects that match, read page by page; a tuple, unlike the page of `Client.list`."""
        pages = self._client.list_all(
            self.resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        return await self._asked(self._all(pages))

    async def _all(self, pages: AsyncIterator[Obj]) -> tuple[K, ...]:
        return tuple([self._read(obj) async for obj in pages])

    async def create(self, value: K) -> K:
        """Create an object."""
        return self._read(await self._asked(self._client.create(self.resource, raw_of(value))))

    async def replace(self, value: K, *, subresource: str = "") -> K:
        """Replace an object; its `resource_version` guards against lost updates."""
        asked = self._client.replace(self.resource, raw_of(value), subresource=subresource)
        return self._read(await self._asked(asked))

    async def apply(
        self,
        value: K,
        *,
        subresource: str = "",
        force: bool = True,
        adopt: Collection[str] = (),
    ) -> K:
        """Apply an object server-side: own the fields that are not at their defaults.

        Args:
            value: the desired fields.
            subresource: for example `status`.
            force: take over fields that others own.
            adopt: field managers whose writes by `create`, `replace` and `patch` become ours
                before, so that fields which `value` does not name are removed. Costs a `get`.

        Raises:
            Conflict: the object changed while fields were taken over, or, unless `force`, others
                own the fields.
        """
        raw = raw_of(value)
        await take_over_named(self._client, self.resource, key_of(raw), adopt)
        asked = self._client.patch(
            self.resource,
            key_of(raw),
            _without_version(raw),
            PatchType.APPLY,
            subresource=subresource,
            force=force,
        )
        return self._read(await self._asked(asked))

    async def patch(
        self,
        key: ObjectKey,
        body: Mapping[str, Any] | Sequence[Any] | Typed,
        patch_type: PatchType,
        *,
        subresource: str = "",
    ) -> K:
        """Change an object; see `Client.patch`."""
        asked = self._client.patch(self.resource, key, body, patch_type, subresource=subresource)
        return self._read(await self._asked(asked))

    async def delete(
        self,
        key: ObjectKey,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_period: int | None = None,
    ) -> Obj:
        """Delete an object; see `Client.delete`."""
        return await self._asked(
            self._client.delete(
                self.resource,
                key,
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_period=grace_period,
            )
        )

    async def _asked(self, call: Awaitable[A]) -> A:
        try:
            return await call
        except NotFound as error:
            if error.details.get("name") or not (why := await self._unserved()):
                raise
            raise NotFound(f"{error}: {why}") from error

    async def _unserved(self) -> str:
        """Why the kind itself is not found, with the nearest one; empty if it is served."""
        ask = self._client.request
        try:
            served = await queries.served_plurals(ask, self.resource.api_version)
            others = () if served else await queries.api_versions(ask)
        except (ApiError, TransportError):
            return ""
        wrong = queries.unserved(self.resource, served, others, own=False)
        return str(wrong.error) if wrong else ""

    def _read(self, obj: Obj) -> K:
        return typed_of(self.cls, obj)


def _without_version(obj: Obj) -> Obj:
    """The part of an object that may be applied: without the fields of the server."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
    meta = {name: value for name, value in obj["metadata"].items() if name in kept}
    return {**obj, "metadata": meta}


# --------------------------------------------------------------------------------------------------


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
        self._calls = Requester(transport, throttle=throttle, guard=guard, clock=clock)
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

    def hurried(self, seconds: float) -> Client:
        """A client for a command, which must not wait long for a server that answers 429.

        Args:
            seconds: that all repetitions of all its calls may wait together.
        """
        made = copy.copy(self)
        made._calls = attrs.evolve(self._calls, pauses=seconds)  # noqa: SLF001 - one of this class
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
        return await queries.served_versions(self.request, group)

    async def served_kinds(self, group: str, version: str) -> tuple[str, ...]:
        """The kinds of a group and version, without subresources; () when it is not served."""
        return await queries.served_kinds(self.request, group, version)

    async def find_resource(self, api_version: str, kind: str) -> Resource | None:
        """The kind of that name; None when the server does not serve it."""
        return await queries.find_resource(self.request, api_version, kind)

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
