"""The mirrors of all kinds, including those of CRDs that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from kueuelib.api.kinds import CRDS, EVENTS, JOBS, PODS
from kueuelib.api.meta import Obj, Resource
from kueuelib.embedded.cluster.job_facts import is_finished
from kueuelib.embedded.cluster.mirror import Mirror
from kueuelib.embedded.cluster.pod_status import is_terminal
from kueuelib.embedded.service import ApiService

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
