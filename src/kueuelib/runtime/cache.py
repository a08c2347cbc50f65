"""Informers that all callers with the same kind and selectors share, raw, typed or optional."""

from __future__ import annotations

import abc
import asyncio
import random
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import anyio
from anyio.abc import TaskGroup

from kueuelib.api.forms import Typed, raw_of, resource_of, typed_of
from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import KubeObject, Obj, ObjectKey, Resource, group_kind_of, key_of
from kueuelib.errors import ApiError, ConfigError, NotFound, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.machinery.replica import version_number
from kueuelib.machinery.store import NAMESPACE_INDEX, Delta, Store, Transform, strip
from kueuelib.runtime.client import Client, K, read, unlisted
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.dispatch import Handler, call, check_handler
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


# ---- typed views of an informer, for kinds that have a class -------------------------------------
# The store keeps raw objects: a typed view is not a second copy.


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


# --------------------------------------------------------------------------------------------------

SYNC_TIMEOUT = 120.0
"""Seconds that the first lists may take."""


class _Scope(NamedTuple):
    group: str
    plural: str
    namespace: str
    label_selector: str
    field_selector: str
    metadata_only: bool


class Cache:
    """One informer per kind, namespace and selectors.

    Pass the answer of each write to `learn`: then no reader of a store acts on a state older than
    that write.

    A server that was restored from an older copy ends `run` with `HistoryLost`: the copies of two
    kinds must not be of different histories.

    Args:
        client: lists and watches.
        options: how to list and watch.
        sync_timeout: seconds that the first lists may take.
        cluster: the name of a cluster that the program can do without; `run` does not wait for its
            first lists.
        clock: monotonic time.
        telemetry: where informers report.
    """

    def __init__(
        self,
        client: Client,
        *,
        options: ReflectorOptions | None = None,
        sync_timeout: float = SYNC_TIMEOUT,
        cluster: str = "",
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._options = options
        self._sync_timeout = sync_timeout
        self._clock = clock
        self._telemetry = telemetry
        self._informers: dict[_Scope, tuple[Informer, Transform]] = {}
        self._views: dict[tuple[Informer, type], TypedInformer[Any]] = {}
        self._apart: list[Informer] = []
        self._of_kind: dict[str, tuple[Informer, ...]] = {}
        self._group: TaskGroup | None = None

    @overload
    def informer(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
        metadata_only: bool = False,
    ) -> Informer: ...

    @overload
    def informer(
        self,
        resource: type[K],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
    ) -> TypedInformer[K]: ...

    def informer(
        self,
        resource: Resource | type[Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
        metadata_only: bool = False,
    ) -> Informer | TypedInformer[Any]:
        """The shared informer; it starts with the cache, or at once when the cache runs already.

        Args:
            resource: the kind, or the class of its objects for a typed view of the same informer.
            namespace: only this one; all when empty.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
            transform: applied to each object before it is stored.
            metadata_only: read and store the metadata of objects only, as `PartialObjectMetadata`
                of the API. It costs a fraction of the memory. The same objects may also be read
                whole; then they are watched twice.

        Raises:
            ValueError: there is one with another version or another transform, or a class is to be
                filled with metadata only.
        """
        if not isinstance(resource, Resource):
            if metadata_only:
                raise ValueError(f"metadata alone is not a {resource.__name__}: give its resource")
            raw = self.informer(
                resource_of(resource),
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                transform=transform,
            )
            view = self._views.get((raw, resource))
            if view is None:
                view = self._views[raw, resource] = TypedInformer(resource, raw)
            return view
        scope = _Scope(
            resource.group,
            resource.plural,
            namespace,
            label_selector,
            field_selector,
            metadata_only,
        )
        shared = self._informers.get(scope)
        if shared is not None:
            informer, used = shared
            if informer.resource.version != resource.version or used is not transform:
                raise ValueError(
                    f"{resource.plural} are cached with another version or transform already"
                )
            return informer
        informer = self._made(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            transform=transform,
            metadata_only=metadata_only,
        )
        self._informers[scope] = (informer, transform)
        if self._group is not None:
            self._start(self._group, informer)
        return informer

    def apart(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform = strip,
    ) -> Informer:
        """A new informer that is not shared, for a kind that may come and go.

        The caller runs it. The cache neither starts it nor waits until it is synced, but passes
        answers to it until `run` has ended.
        """
        informer = self._made(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            transform=transform,
        )
        self._apart = [*(other for other in self._apart if not other.ended), informer]
        return informer

    def _made(self, resource: Resource, **asked: Any) -> Informer:
        made = Informer(
            self._client,
            resource,
            cluster=self._cluster,
            options=self._options,
            clock=self._clock,
            telemetry=self._telemetry,
            one_history=True,
            **asked,
        )
        alike = self._of_kind.get(resource.kind, ())
        self._of_kind[resource.kind] = (*(each for each in alike if not each.ended), made)
        return made

    def learn(self, answer: Obj | Typed, *, shared: bool = False) -> None:
        """Pass an answer of the server to all informers of its kind and API version.

        See `Informer.learn`. An answer of a kind that is not cached has no effect.
        """
        answer = raw_of(answer)
        ended = answer.get("kind") == "Status"  # of a deletion, which does not say the kind
        learners = self._learners(None if ended else answer)
        for informer in reversed(learners):  # the first one may keep and change the answer
            informer.learn(answer, shared=shared and informer is learners[0])

    def learn_gone(self, obj: Obj) -> None:
        """Drop an object that the server reports as not found; see `Informer.learn_gone`."""
        for informer in self._learners(obj):
            informer.learn_gone(obj)

    def learn_deleted(self, obj: Obj, answer: Obj) -> None:
        """Store the result of a `delete`; see `Informer.learn_deleted`."""
        for informer in self._learners():
            informer.learn_deleted(obj, answer)

    def is_overtaken(self, obj: Obj) -> bool:
        """Whether a newer state of an object is known, so that what was made of this one is stale.

        Resource versions that are not decimal cannot be compared: then nothing is newer.
        """
        kind, key = group_kind_of(obj), key_of(obj)
        return any(
            informer.resource.group_kind == kind
            and (newest := informer.store.get(key)) is not None
            and version_number(newest) > version_number(obj) > 0
            for informer in self._learners(obj)
        )

    async def refresh(self, resource: Resource, key: ObjectKey) -> Obj | None:
        """Read one object from the server and learn the answer; see `Informer.refresh`.

        Raises:
            ApiError: it could not be read; `NotFound` if the kind is not served.
            TransportError: the same.
        """
        held = [
            (informer, obj)
            for informer in self._learners()
            if informer.resource == resource and (obj := informer.store.get(key)) is not None
        ]
        answer = await read(self._client, resource, key)
        for informer, obj in held:
            if answer is None:
                self.learn_gone(obj)
            else:
                informer.learn_again(answer, obj)
        if answer is not None:
            self.learn(answer)
        return answer

    async def catch_up(self) -> None:
        """Make every store as new as the server is now; a `Manager` that takes over calls it.

        A kind that is not shared, and may come and go, is left out while it is not served. What
        fails is tried again.

        Raises:
            ConfigError: a kind could not be read within the seconds that the first lists may take.
        """
        try:
            async with anyio.create_task_group() as group:
                for informer, _ in self._informers.values():
                    group.start_soon(self._catch_up, informer, True)
                for informer in self._apart:
                    group.start_soon(self._catch_up, informer, False)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _catch_up(self, informer: Informer, lasting: bool) -> None:
        deadline = self._clock.monotonic() + self._sync_timeout
        backoff = Backoff()
        while not informer.ended:
            try:
                with anyio.fail_after(deadline - self._clock.monotonic()):
                    await informer.catch_up()
            except (ApiError, TransportError, ConfigError, TimeoutError) as error:
                if isinstance(error, NotFound) and not lasting:
                    return
                now = self._clock.monotonic()
                pause = backoff.next(now, random.random())
                if now + pause >= deadline:
                    raise unlisted(informer.resource, error) from error
                await self._clock.sleep(pause)
            else:
                return

    def _learners(self, obj: Obj | None = None) -> Sequence[Informer]:
        """All informers, or those of objects whose kind has the name of this one's."""
        if obj is not None:
            return self._of_kind.get(obj.get("kind", ""), ())
        return [informer for informer, _ in self._informers.values()] + self._apart

    def exists(self, uid: str, namespace: str) -> bool:
        """Whether an informer knows an object in a namespace that is not being deleted, by UID."""
        return any(
            each["metadata"].get("uid") == uid and not each["metadata"].get("deletionTimestamp")
            for informer in self._learners()
            for each in informer.store.by_index(NAMESPACE_INDEX, namespace)
        )

    @property
    def unsynced(self) -> tuple[Informer, ...]:
        """The informers without a first list."""
        return tuple(each for each, _ in self._informers.values() if not each.synced)

    def unserved(self) -> str:
        """The kinds that the API server no longer serves, for a probe.

        Kinds that may be missing, with an informer of their own, do not count.
        """
        gone = [
            f"{one.resource.plural}.{one.resource.group}"
            for one, _ in self._informers.values()
            if isinstance(one.failing, NotFound)
        ]
        return f"not served: {', '.join(sorted(gone))}; install what defines them" if gone else ""

    @property
    def synced(self) -> bool:
        """Whether every informer is synced."""
        return not self.unsynced

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """Wait until every informer is synced.

        Raises:
            ConfigError: one was not within `timeout` seconds; it is named.
            Exception: what ended one, for example the error of a handler.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        for informer, _ in list(self._informers.values()):
            left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.001)
            await informer.wait_synced(left)

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Run all informers until cancelled; `ready` is called once all are synced.

        Raises:
            ConfigError: the first lists took too long.
            Exception: what a handler raised; it ends all informers.
        """
        try:
            async with lasting_tasks("caches") as group:
                self._group = group
                for informer, _ in self._informers.values():
                    self._start(group, informer)
                if not self._cluster:
                    await self.wait_synced(self._sync_timeout)
                if ready is not None:
                    ready()
                await anyio.sleep_forever()  # informers may still be added
        finally:
            self._group = None

    @staticmethod
    def _start(group: TaskGroup, informer: Informer) -> None:
        group.start_soon(informer.run, name=f"informer-{informer.resource.plural}")


# ---- informers that do not always run: for a kind that is needed, or that a cluster has ----------


class PartTimeInformer(abc.ABC):
    """Follows the objects of a kind at some times only; a part of a `Manager`.

    At other times there are no objects. Handlers receive the deltas of an `Informer`, and a
    deletion of each remaining object when such a time is over.

    Args:
        cache: makes the informers, which learn from answers and catch up like others.
        resource: the kind, at the version that is read.
        sync_timeout: seconds until it must be known whether there are objects, and which.
        clock: monotonic time.
    """

    def __init__(self, cache: Cache, resource: Resource, sync_timeout: float, clock: Clock) -> None:
        self.resource = resource
        self.cluster = ""
        self.store: Store[Obj] = Store()
        self.started = False  # `run` was called; a `Manager` calls it
        self._cache = cache
        self._sync_timeout = sync_timeout
        self._clock = clock
        self._handlers: list[Handler] = []
        self._known = asyncio.Event()
        self._informer: Informer | None = None
        self._failure: Exception | None = None

    def add_handler(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` with what there is, then with every delta; see `Informer.add_handler`."""
        check_handler(handler)
        for delta in self.store.as_initial():
            call(handler, delta)
        self._handlers.append(handler)

        def remove() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return remove

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """Wait until it is known which objects there are, or that there are none.

        Raises:
            ConfigError: it was not known within `timeout` seconds.
        """
        try:
            with anyio.fail_after(timeout):
                await self._known.wait()
        except TimeoutError as error:
            failure = self._failure if self._informer is None else self._informer.failing
            raise unlisted(self.resource, failure) from error

    def learn(self, answer: Obj) -> None:
        """Store the answer to a write; see `Informer.learn`."""
        self._cache.learn(answer)

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the kind until cancelled; `ready` is called once `wait_synced` would return.

        Raises:
            ConfigError: that took too long.
        """
        self.started = True
        async with lasting_tasks(f"informer of {self.resource.plural}") as tasks:
            tasks.start_soon(self._follow, name=f"informer-{self.resource.plural}")
            await self.wait_synced(self._sync_timeout)
            ready()

    @abc.abstractmethod
    async def _follow(self) -> None:
        """Read at the right times, until cancelled."""

    def _forget(self) -> None:
        """Report that all objects are gone."""
        for delta in self.store.replace(()):
            self._pass_on(delta)

    def _pass_on(self, delta: Delta[Obj]) -> None:
        for handler in tuple(self._handlers):
            call(handler, delta)


PAUSE = 10.0
"""Seconds between two looks at a kind; the first pauses are shorter."""


class OptionalInformer(PartTimeInformer):
    """Follows the objects of a kind for as long as its CRD exists.

    Without a CRD that serves the version there are no objects.

    Args:
        client: reads the CRD.
        cache: see `PartTimeInformer`.
        resource: the kind, at the version that is read.
        sync_timeout: seconds until it must be known whether there are objects, and which.
        pause: seconds between two looks at the kind; the first pauses are shorter.
        clock: monotonic time.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        resource: Resource,
        *,
        sync_timeout: float = SYNC_TIMEOUT,
        pause: float = PAUSE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(cache, resource, sync_timeout, clock)
        self._client = client
        self._pause = pause
        self._log = get_logger("informer", resource=resource.plural)

    async def _follow(self) -> None:
        """Read while there is a definition, and look for one while there is none."""
        pauses = Backoff(base=min(0.25, self._pause), cap=self._pause, jitter=0.1)
        while True:
            defined = await self._is_defined()
            if defined:
                await self._read()
                pauses.reset()
            elif defined is False:
                self._known.set()
            await self._clock.sleep(pauses.next(self._clock.monotonic(), random.random()))

    async def _read(self) -> None:
        """Run an informer until the definition is gone."""
        self._informer = informer = self._cache.apart(self.resource)
        self.store = informer.store
        informer.add_handler(self._pass_on)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run, self._known.set)
            while not (
                isinstance(informer.failing, NotFound) and await self._is_defined() is False
            ):
                await self._clock.sleep(self._pause)
            tasks.cancel_scope.cancel()
        self._log.info("the kind is gone", kind=self.resource.kind)
        self._forget()

    async def _is_defined(self) -> bool | None:
        """Whether there is a CRD that serves the version; None if the server does not answer."""
        name = ObjectKey("", f"{self.resource.plural}.{self.resource.group}")
        try:
            crd = await read(self._client, CRDS, name)
        except (ApiError, TransportError) as error:
            self._log.warning("the definition cannot be read", error=with_fix(error))
            self._failure = error
            return None
        versions = () if crd is None else crd["spec"]["versions"]
        return any(each["name"] == self.resource.version and each["served"] for each in versions)
