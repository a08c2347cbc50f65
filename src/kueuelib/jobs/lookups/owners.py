"""Finds the ancestor that is queued on behalf of a job created by another object (KEP-369)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import anyio
import attrs

from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    annotations_of,
    controller_of,
    group_kind_of,
    labels_of,
    with_label,
)
from kueuelib.api.names import DEFAULT_PRIORITY_CLASS, DEFAULT_QUEUE, PARENT_WORKLOAD, QUEUE_LABEL
from kueuelib.errors import InvalidObject, Unavailable
from kueuelib.jobs.contract.capabilities import is_skipped
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.stores import JobStores, owner_uids
from kueuelib.machinery.store import Delta
from kueuelib.runtime.informer import Informer
from kueuelib.workload import states

# Gives jobs without a queue name the LocalQueue `default` of their namespace, if there is one.
# A change of these LocalQueues also changes what the API server has to send us: see `manifests` of
# `kueuelib.jobs.webhooks` for the entries, and `entries` for the writes.


def names_no_queue(obj: Mapping[str, Any]) -> bool:
    """Whether an object has no queue name; an empty one is none."""
    return not (labels_of(obj).get(QUEUE_LABEL) or annotations_of(obj).get(QUEUE_LABEL))


def with_default_queue(obj: Obj) -> Obj:
    """The object with the name of the default queue."""
    return with_label(obj, QUEUE_LABEL, DEFAULT_QUEUE)


class DefaultQueues:
    """Knows the namespaces that have a LocalQueue `default`.

    Args:
        queues: all LocalQueues.
    """

    def __init__(self, queues: Informer) -> None:
        self._queues = queues

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Those with such a LocalQueue; None while they are not known yet."""
        if not self._queues.synced:
            return None
        return frozenset(key.namespace for key in self._queues.store if key.name == DEFAULT_QUEUE)

    def given(self, obj: Obj, namespace: str) -> Obj:
        """An object with the queue name that it is to have; the same object if it keeps its own or
        is to have none.

        Args:
            obj: the raw object, for which no ancestor is queued.
            namespace: where it is.

        Raises:
            Unavailable: LocalQueues are not known yet.
        """
        if not names_no_queue(obj):
            return obj
        if not self._queues.synced:
            raise Unavailable(
                f'it is not known yet whether the namespace "{namespace}" has a LocalQueue '
                f'"{DEFAULT_QUEUE}"; try again'
            )
        return with_default_queue(obj) if self.has(namespace) else obj

    def has(self, namespace: str) -> bool:
        """Whether a namespace is known to have such a LocalQueue."""
        return self._queues.store.get(ObjectKey(namespace, DEFAULT_QUEUE)) is not None

    async def follow(self, changed: Callable[[], None]) -> None:
        """Calls `changed` once they are known, and when one comes or goes, until cancelled."""

        def look(delta: Delta[Obj]) -> None:
            if delta.key.name == DEFAULT_QUEUE and (delta.old is None or delta.new is None):
                changed()

        await self._queues.wait_synced()
        remove = self._queues.add_handler(look)
        try:
            changed()
            await anyio.sleep_forever()
        finally:
            remove()


# --------------------------------------------------------------------------------------------------

DEPTH = 16
"""The maximum number of owners that are followed upwards."""


class Foreign(Protocol):
    """Owners of kinds without a store; see `kueuelib.jobs.lookups.remembered`."""

    def get(self, ref: Mapping[str, Any]) -> Obj | None:
        """The owner that a reference names, as far as it is known."""
        ...

    async def learn(self, ref: Mapping[str, Any], namespace: str) -> Obj | None:
        """Read it, unless it was read a moment ago."""
        ...


@attrs.frozen
class Ancestor:
    """The object further up that is queued on behalf of a child.

    Attributes:
        name: for people.
        admitted: whether its Workload is admitted, so that the child may run.
        doubt: why the child's claim about it is not trusted; empty if it is.
    """

    name: str
    admitted: bool
    doubt: str = ""


@attrs.frozen
class _Owner:
    """One step up.

    Attributes:
        object: raw, at least its metadata.
        kind: for people.
        queueable: whether objects of its kind are queued, here or by another process, and the kind
            does not skip this one.
    """

    object: Mapping[str, Any]
    kind: str
    queueable: bool

    @property
    def queue_name(self) -> str:
        return labels_of(self.object).get(QUEUE_LABEL) or annotations_of(self.object).get(
            QUEUE_LABEL, ""
        )


class Owners:
    """Follows controller references upwards, by UID, through objects of any kind.

    The highest queued object counts: one of an enabled kind, or of a kind that another process
    manages. Owners of kinds without a store are known only after `learn`: kinds that are not
    enabled, and those whose objects are not known at the moment. A job may also name its parent's
    Workload in the annotation `kueue.x-k8s.io/parent-workload`. That is trusted only if the two
    share an owner. A missing Workload admits nothing: the webhook does not treat such a job as a
    child, and an event says why it waits.

    Args:
        integrations: the enabled kinds.
        stores: the caches.
        settings: the configuration.
        foreign: knows owners of other kinds; None: the search ends at them.
        default_queues: what an object without a queue name is given; None: nothing.
    """

    def __init__(
        self,
        integrations: Sequence[Integration],
        stores: JobStores,
        settings: JobSettings,
        foreign: Foreign | None = None,
        default_queues: DefaultQueues | None = None,
    ) -> None:
        self._enabled = tuple(integrations)
        self._integrations = tuple(each for each in self._enabled if each.makes_pods)
        self._stores = stores
        self._settings = settings
        self._foreign = foreign
        self._default_queues = default_queues

    async def learn(self, obj: Mapping[str, Any], namespace: str) -> None:
        """Read those owners of an object that have no store, at any distance.

        Args:
            obj: the raw object.
            namespace: where it is.
        """
        current: Mapping[str, Any] | None = obj
        for _ in range(DEPTH):
            ref = None if current is None else controller_of(current)
            if ref is None or self._foreign is None:
                return
            integration = self._integration(ref)
            if integration is None:
                current = await self._foreign.learn(ref, namespace)
            else:
                current = self._stored(integration, ref, namespace)

    def has_to_learn(self, obj: Mapping[str, Any], namespace: str) -> bool:
        """Whether `learn` may have to read an owner."""
        current: Mapping[str, Any] | None = obj
        for _ in range(DEPTH):
            ref = None if current is None else controller_of(current)
            if ref is None or self._foreign is None:
                return False
            integration = self._integration(ref)
            if integration is None:
                return True
            current = self._stored(integration, ref, namespace)
        return False

    def ancestor_of(self, obj: Mapping[str, Any], namespace: str) -> Ancestor | None:
        """The ancestor that is queued on behalf of a raw object; None if it stands for itself.

        Args:
            obj: the object; one that is being created may lack a namespace.
            namespace: where it is.
        """
        highest: _Owner | None = None
        for _, above in self._upwards(obj, namespace):
            if above is not None and (
                above.queueable
                and self._settings.manages(
                    above.queue_name, self._stores.namespace_labels(namespace)
                )
            ):
                highest = above
        if highest is not None:
            meta = highest.object["metadata"]
            name = f"{highest.kind} {ObjectKey(namespace, meta['name'])}"
            return Ancestor(name, self._admits(self._stores.workloads_of(meta["uid"])))
        return self._declared(obj, namespace)

    def above(self, obj: Mapping[str, Any], namespace: str) -> tuple[str, ...]:
        """The UIDs of the owners that `ancestor_of` looks at, with one that it does not find.

        Its answer changes only with these objects and their Workloads.

        Args:
            obj: the raw object.
            namespace: where it is.
        """
        named = owner_uids(dict(obj)) if PARENT_WORKLOAD in annotations_of(obj) else ()
        return (*named, *(ref["uid"] for ref, _ in self._upwards(obj, namespace)))

    def is_child(self, obj: Mapping[str, Any], namespace: str) -> bool:
        """Whether an ancestor is queued on behalf of a raw object, without doubt."""
        ancestor = self.ancestor_of(obj, namespace)
        return ancestor is not None and not ancestor.doubt

    def queued_by_default(self, obj: Obj, namespace: str) -> Obj:
        """An object with its queue name; see `DefaultQueues.given`.

        Objects with a controller of a queued kind keep theirs, even if the controller itself is not
        queued.

        Args:
            obj: the raw object, for which no ancestor is queued.
            namespace: where it is.

        Raises:
            Unavailable: LocalQueues are not known yet.
        """
        if self._default_queues is None or self._is_owned(obj):
            return obj
        return self._default_queues.given(obj, namespace)

    def has_default_queue(self, namespace: str) -> bool:
        """Whether a namespace is known to have a default queue."""
        return self._default_queues is not None and self._default_queues.has(namespace)

    def default_class_for(self, obj: Mapping[str, Any]) -> bool:
        """Whether a raw object without a priority class gets the class `default`.

        The class must exist, and objects with a controller of a queued kind never get it, even if
        the controller itself is not queued.
        """
        if not self._settings.defaults_priority_class or self._is_owned(obj):
            return False
        return self._stores.workload_classes.get(ObjectKey("", DEFAULT_PRIORITY_CLASS)) is not None

    def _is_owned(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object's controller has a kind whose objects are queued, with or without a
        queue name.
        """
        ref = controller_of(obj)
        return ref is not None and (
            group_kind_of(ref) in self._settings.external_kinds
            or any(each.is_owner(ref) for each in self._enabled)
        )

    def _upwards(
        self, obj: Mapping[str, Any], namespace: str
    ) -> Iterator[tuple[Mapping[str, Any], _Owner | None]]:
        """The controllers above an object, each after the reference to it; None at the end for one
        that is not found.
        """
        current = obj
        for _ in range(DEPTH):
            ref = controller_of(current)
            if ref is None:
                return
            above = self._controller(ref, namespace)
            yield ref, above
            if above is None:
                return
            current = above.object

    def _controller(self, ref: Mapping[str, Any], namespace: str) -> _Owner | None:
        integration = self._integration(ref)
        if integration is not None:
            stored = self._stored(integration, ref, namespace)
            if stored is None:
                return None
            return _Owner(stored, ref["kind"], queueable=not _is_skipped(integration, stored))
        owner = None if self._foreign is None else self._foreign.get(ref)
        if owner is None:
            return None
        enabled = any(integration.is_owner(ref) for integration in self._integrations)
        external = group_kind_of(ref) in self._settings.external_kinds
        return _Owner(owner, ref["kind"], queueable=external or enabled)

    def _integration(self, ref: Mapping[str, Any]) -> Integration | None:
        """The enabled kind that a reference names, if its objects are in a store."""
        for integration in self._integrations:
            if integration.is_owner(ref):
                return integration if integration.name in self._stores.jobs else None
        return None

    def _stored(
        self, integration: Integration, ref: Mapping[str, Any], namespace: str
    ) -> Obj | None:
        owner = self._stores.jobs[integration.name].get(ObjectKey(namespace, ref["name"]))
        if owner is None or owner["metadata"]["uid"] != ref["uid"]:
            return None
        return owner

    def _declared(self, obj: Mapping[str, Any], namespace: str) -> Ancestor | None:
        name = annotations_of(obj).get(PARENT_WORKLOAD)
        if not name:
            return None
        workload = self._stores.workload(ObjectKey(namespace, name))
        subject = f"Workload {namespace}/{name}"
        if workload is None:
            return Ancestor(subject, admitted=False, doubt="which does not exist")
        if not {*owner_uids(workload)} & {*owner_uids(dict(obj))}:
            return Ancestor(subject, admitted=False, doubt="which has another owner")
        return Ancestor(subject, self._admits([workload]))

    @staticmethod
    def _admits(workloads: Sequence[Obj | None]) -> bool:
        return any(states.is_admitted(workload) for workload in workloads if workload is not None)


def _is_skipped(integration: Integration, owner: Obj) -> bool:
    job = integration.job_type(owner)
    try:
        return is_skipped(job)
    except InvalidObject:  # the object does not fit its class
        from kueuelib.jobs.contract.loose_objects import read_loosely

        return is_skipped(read_loosely(job))
