"""Typed views of an informer and of a client, for kinds that have a class.

The store keeps raw objects: a typed view is not a second copy.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kueuelib.api.forms import Typed, raw_of, resource_of, typed_of
from kueuelib.api.meta import KubeObject, Obj, ObjectKey, Resource, key_of
from kueuelib.errors import ApiError, NotFound, TransportError
from kueuelib.machinery.store import NAMESPACE_INDEX, Delta
from kueuelib.runtime import discovery
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.reading import take_over_named

if TYPE_CHECKING:
    from kueuelib.runtime.client import Client
    from kueuelib.runtime.dispatch import Handler
    from kueuelib.runtime.informer import Informer

A = TypeVar("A")
K = TypeVar("K", bound=Typed)


class TypedInformer(Generic[K]):
    """The objects of an informer as values of a class; made by `Cache.informer`.

    A value is decoded when it is first read, and again after the object has changed. A model of
    kubernetes_asyncio can be changed, so that each call makes one of its own. All methods that
    return values raise `InvalidObject` if an object does not fit the class.

    Attributes:
        cls: the class of the values.
        raw: the informer, whose store holds raw objects.
    """

    def __init__(self, cls: type[K], raw: Informer) -> None:
        self.cls = cls
        self.raw = raw
        self._values: dict[ObjectKey, tuple[Obj, K]] = {}
        raw.add_handler(self._forget)

    @property
    def resource(self) -> Resource:
        """The kind."""
        return self.raw.resource

    @property
    def cluster(self) -> str:
        """See `Informer`."""
        return self.raw.cluster

    @property
    def started(self) -> bool:
        """Whether `Informer.run` was called."""
        return self.raw.started

    def get(self, key: ObjectKey) -> K | None:
        """The object under a key, or None."""
        raw = self.raw.store.get(key)
        return None if raw is None else self._value(raw)

    def items(self, namespace: str = "") -> tuple[K, ...]:
        """All objects, or those of one namespace."""
        store = self.raw.store
        objects = store.by_index(NAMESPACE_INDEX, namespace) if namespace else store.items()
        return tuple(map(self._value, objects))

    def by_index(self, name: str, value: Hashable) -> tuple[K, ...]:
        """The objects that an index of the store finds; see `Informer.add_index`."""
        return tuple(map(self._value, self.raw.store.by_index(name, value)))

    def add_handler(self, handler: Handler) -> Callable[[], None]:
        """Report every delta, with raw objects; see `Informer.add_handler`."""
        return self.raw.add_handler(handler)

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """See `Informer.wait_synced`."""
        await self.raw.wait_synced(timeout)

    def learn(self, answer: K | Obj) -> None:
        """Store the answer to a write, typed or raw; see `Informer.learn`."""
        self.raw.learn(answer)

    def _forget(self, delta: Delta[Obj]) -> None:
        self._values.pop(delta.key, None)

    def _value(self, obj: Obj) -> K:
        key = key_of(obj)
        known = self._values.get(key)
        if known is not None and known[0] is obj:
            return known[1]
        value = typed_of(self.cls, obj)
        if isinstance(value, KubeObject):
            self._values[key] = (obj, value)
        return value


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
            served = await discovery.served_plurals(ask, self.resource.api_version)
            others = () if served else await discovery.api_versions(ask)
        except (ApiError, TransportError):
            return ""
        wrong = discovery.unserved(self.resource, served, others, own=False)
        return str(wrong.error) if wrong else ""

    def _read(self, obj: Obj) -> K:
        return typed_of(self.cls, obj)


def _without_version(obj: Obj) -> Obj:
    """The part of an object that may be applied: without the fields of the server."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
    meta = {name: value for name, value in obj["metadata"].items() if name in kept}
    return {**obj, "metadata": meta}
