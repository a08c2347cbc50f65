"""The mirrors of all kinds, including those of CRDs that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kueuelib.api.kinds import CRDS, EVENTS, JOBS, PODS
from kueuelib.api.meta import Obj, ObjectKey, Resource, controller_of, key_of
from kueuelib.embedded import verbs
from kueuelib.embedded.cluster.contract import CONTROLLERS
from kueuelib.embedded.cluster.job_decision import is_finished
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.service import ApiService
from kueuelib.errors import ApiError
from kueuelib.machinery.reflector_protocol import WatchEvent
from kueuelib.machinery.store import (
    NAMESPACE_INDEX,
    Delta,
    Store,
    namespace_of,
    same_version,
)

# ---- local copies of the API server's objects, fed by watches and by the cluster's own writes ----

Handler = Callable[[Delta[Obj]], None]
OWNER_INDEX = "controller uid"
NODE_INDEX = "node"
ORPHAN_INDEX = "without a controller"
_PAUSE = 0.1
_LOG = logging.getLogger(__name__)


def _revision(obj: Obj) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def _slim(obj: Obj) -> Obj:
    obj["metadata"].pop("managedFields", None)
    return obj


def is_leaving(obj: Obj) -> bool:
    """Whether the result of `delete` means that the object is gone for good."""
    meta = obj["metadata"]
    held = meta.get("finalizers") or (obj.get("spec") or {}).get("finalizers")
    return bool(meta.get("deletionTimestamp")) and not (
        meta.get("deletionGracePeriodSeconds") or held
    )


def gone(delta: Delta[Obj]) -> str | None:
    """The UID of the object that a change ends: it is deleted or replaced."""
    old, new = delta.old, delta.new
    if old is None or (new is not None and new["metadata"]["uid"] == old["metadata"]["uid"]):
        return None
    return old["metadata"]["uid"]  # type: ignore[no-any-return]


class Mirror:
    """All objects of one kind, and writes that are seen in it at once.

    Attributes:
        resource: the kind.
        store: the objects, indexed by the UID of their controller and, for pods, by their node.
        synced: set once the store contains the objects that existed at the start.
    """

    def __init__(
        self, service: ApiService, resource: Resource, keep: Callable[[Obj], Obj] = _slim
    ) -> None:
        self.resource = resource
        self.store: Store[Obj] = Store({OWNER_INDEX: _controller_uid, NODE_INDEX: _node_name})
        self.synced = asyncio.Event()
        self._service = service
        self._keep = keep
        self._handlers: list[Handler] = []
        self._seen = 0

    def add_handler(self, handler: Handler) -> None:
        """Calls the handler for present objects, and for every change from now on."""
        self._handlers.append(handler)
        for delta in self.store.as_initial():
            handler(delta)

    def get(self, key: ObjectKey) -> Obj | None:
        """The object; do not change it."""
        return self.store.get(key)

    def owned_by(self, uid: str) -> tuple[Obj, ...]:
        """The objects whose controller has the UID."""
        return self.store.by_index(OWNER_INDEX, uid)

    def in_namespace(self, namespace: str) -> tuple[Obj, ...]:
        """The objects of a namespace. The first call makes the index."""
        self.store.add_index(NAMESPACE_INDEX, namespace_of)
        return self.store.by_index(NAMESPACE_INDEX, namespace)

    def orphans(self, namespace: str) -> tuple[Obj, ...]:
        """The objects of a namespace that no controller owns. The first call makes the index."""
        self.store.add_index(ORPHAN_INDEX, _orphan_namespace)
        return self.store.by_index(ORPHAN_INDEX, namespace)

    def count_owned_by(self, uid: str) -> int:
        """How many objects there are whose controller has the UID."""
        return len(self.store.keys_by_index(OWNER_INDEX, uid))

    def on_node(self, name: str) -> tuple[ObjectKey, ...]:
        """The pods that are bound to a node."""
        return tuple(self.store.keys_by_index(NODE_INDEX, name))

    async def create(self, obj: Obj) -> Obj:
        """Stores a new object at the server."""
        options = verbs.WriteOptions(field_manager=CONTROLLERS)
        return self.written(await self._service.create(self.resource, obj, options=options))

    async def update(self, obj: Obj) -> Obj:
        """Replaces an object."""
        options = verbs.WriteOptions(field_manager=CONTROLLERS)
        return self.written(await self._service.update(self.resource, obj, options=options))

    async def update_status(
        self, obj: Mapping[str, Any], status: Obj, by: str = CONTROLLERS
    ) -> Obj:
        """Replaces the status of an object, in the name of a program."""
        changed, options = {**obj, "status": status}, verbs.WriteOptions(field_manager=by)
        written = await self._service.update_status(self.resource, changed, options=options)
        return self.written(written)

    async def patch(self, key: ObjectKey, patch: Obj) -> Obj:
        """Changes an object by a merge patch."""
        options = verbs.WriteOptions(field_manager=CONTROLLERS)
        return self.written(await self._service.patch(self.resource, key, patch, options=options))

    async def delete(
        self,
        obj: Mapping[str, Any],
        *,
        grace_period: int | None = None,
        propagation: verbs.Propagation | None = None,
    ) -> None:
        """Deletes an object, but not a new one with the same name."""
        uid = obj["metadata"]["uid"]
        options = verbs.DeleteOptions(grace_period=grace_period, propagation=propagation, uid=uid)
        self.written(await self._service.delete(self.resource, key_of(obj), options))

    def written(self, obj: Obj) -> Obj:
        """Takes over and returns the result of an own write, unless the watch was faster."""
        if _revision(obj) > self._seen:
            if is_leaving(obj):
                self._drop(key_of(obj), _revision(obj))
            else:
                self._put(obj)
        return obj

    async def run(self) -> None:
        """Follows the server until it is cancelled."""
        while True:
            try:
                await self._follow()
            except ApiError as error:
                _LOG.debug("%s cannot be followed: %s", self.resource.plural, error)
                self.synced.clear()
            await asyncio.sleep(_PAUSE)

    async def _follow(self) -> None:
        listing = await self._service.list(self.resource)
        items = [(key_of(obj), self._keep(obj)) for obj in listing.items]
        initial = not self.synced.is_set()
        self._seen = int(listing.resource_version)
        self._notify(self.store.replace(items, initial=initial, same=same_version))
        self.synced.set()
        options = verbs.WatchOptions(resource_version=listing.resource_version, bookmarks=True)
        async with self._service.watch(self.resource, options=options) as stream:
            async for event in stream:
                if event.type == "ERROR":
                    return
                self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        obj = event.object
        self._seen = max(self._seen, _revision(obj))
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self._drop(key_of(obj), _revision(obj))
        else:
            self._put(obj)

    def clear(self) -> None:
        """Reports all objects as gone, as they are when their kind is."""
        self._notify(self.store.replace([], initial=False, same=same_version))

    def _put(self, obj: Obj) -> None:
        key = key_of(obj)
        held = self.store.get(key)
        if held is None or _revision(held) < _revision(obj):
            self._notify((self.store.put(key, self._keep(obj)),))

    def _drop(self, key: ObjectKey, revision: int) -> None:
        held = self.store.get(key)
        if held is not None and _revision(held) <= revision:
            delta = self.store.remove(key)
            if delta is not None:
                self._notify((delta,))

    def _notify(self, deltas: tuple[Delta[Obj], ...]) -> None:
        for delta in deltas:
            for handler in self._handlers:
                handler(delta)


def _controller_uid(obj: Obj) -> tuple[str, ...]:
    ref = controller_of(obj)
    return (ref.get("uid", ""),) if ref is not None else ()


def _orphan_namespace(obj: Obj) -> tuple[str, ...]:
    return namespace_of(obj) if controller_of(obj) is None else ()


def _node_name(obj: Obj) -> tuple[str, ...]:
    name = (obj.get("spec") or {}).get("nodeName")
    return (name,) if name else ()


# --------------------------------------------------------------------------------------------------

GroupKind = tuple[str, str]


def identity_only(obj: Obj) -> Obj:
    """The parts of an object that garbage collection needs."""
    meta = obj["metadata"]
    kept = (
        *("name", "namespace", "uid", "resourceVersion", "ownerReferences", "finalizers"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    )
    return {"metadata": {key: meta[key] for key in kept if key in meta}}


def without_ended_specs(obj: Obj) -> Obj:
    """A pod; what it ran is forgotten once it has ended."""
    obj["metadata"].pop("managedFields", None)
    if is_terminal(obj):
        spec = obj["spec"]
        obj["spec"] = {key: spec[key] for key in ("nodeName",) if key in spec}
        status = obj["status"]
        obj["status"] = {
            key: status[key] for key in ("phase", "reason", "startTime") if key in status
        }
    return obj


def without_ended_templates(obj: Obj) -> Obj:
    """A Job; one that is over makes no more pods."""
    obj["metadata"].pop("managedFields", None)
    if is_finished(obj):
        obj["spec"].pop("template", None)
    return obj


_KEPT = {PODS.group_kind: without_ended_specs, JOBS.group_kind: without_ended_templates}


class Kinds:
    """One mirror per kind. Events are left out, because they own nothing and are numerous.

    Attributes:
        mirrors: by group and kind.
    """

    def __init__(self, service: ApiService, full: frozenset[GroupKind]) -> None:
        """Args:
        service: the API.
        full: the kinds with whole objects; of others, only the identity is mirrored.
        """
        self.mirrors: dict[GroupKind, Mirror] = {}
        self._service = service
        self._full = full
        self._tasks: dict[GroupKind, asyncio.Task[None]] = {}
        self._followers: list[Callable[[Mirror], None]] = []
        self._group: asyncio.TaskGroup | None = None
        self._refresh()
        self.of(CRDS).add_handler(lambda _: self._refresh())

    def of(self, resource: Resource) -> Mirror:
        """The mirror of a kind that always exists."""
        return self.mirrors[resource.group_kind]

    def follow(self, follower: Callable[[Mirror], None]) -> None:
        """Calls back for every present and future mirror."""
        self._followers.append(follower)
        for mirror in tuple(self.mirrors.values()):
            follower(mirror)

    def resources(self) -> Iterator[Resource]:
        """Every kind, Events included, at the version in which it is stored."""
        for kind in self._service.registry:
            yield kind.resource(kind.storage)

    def find(self, group: str, kind: str) -> Resource | None:
        """The kind that an owner reference names."""
        mirror = self.mirrors.get((group, kind))
        return mirror.resource if mirror is not None else None

    async def run(self) -> None:
        """Runs the mirrors until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for name, mirror in self.mirrors.items():
                self._tasks[name] = group.create_task(mirror.run())
            await asyncio.get_running_loop().create_future()

    async def synced(self) -> None:
        """Returns once all mirrors contain the objects that existed at the start."""
        for mirror in tuple(self.mirrors.values()):
            await mirror.synced.wait()

    def _refresh(self) -> None:
        """Starts mirrors of new kinds, and stops those of deleted ones."""
        present: dict[GroupKind, Resource] = {}
        for resource in self.resources():
            if resource.group_kind != EVENTS.group_kind:
                present[resource.group_kind] = resource
        for name, mirror in tuple(self.mirrors.items()):
            if present.get(name) != mirror.resource:
                del self.mirrors[name]
                task = self._tasks.pop(name, None)
                if task is not None:
                    task.cancel()
                if name not in present:
                    mirror.clear()
        for name, resource in present.items():
            if name in self.mirrors:
                continue
            kept = [] if name in self._full else [identity_only]
            kept = [_KEPT[name]] if name in _KEPT else kept
            mirror = Mirror(self._service, resource, *kept)
            self.mirrors[name] = mirror
            for follower in self._followers:
                follower(mirror)
            if self._group is not None:
                self._tasks[name] = self._group.create_task(mirror.run())
