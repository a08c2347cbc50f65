"""Who is queued on behalf of a job that somebody else made (spec/jobs 1.5, 8.13, 8.14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj, ObjectKey, annotations_of, controller_of
from kueuelib.api.names import PARENT_WORKLOAD
from kueuelib.controllers import workload_state as states
from kueuelib.jobs.generic_job import GenericJob
from kueuelib.jobs.registry import Integration
from kueuelib.jobs.settings import JobSettings
from kueuelib.jobs.situation import Ancestor
from kueuelib.jobs.stores import JobStores, owner_uids

DEPTH = 16
"""Owners further up than this are not looked for."""


class Owners:
    """Follows controller references upwards, by UID, through the kinds that are enabled.

    The highest object that is queued counts. A job may also name its parent's Workload in the
    annotation `kueue.x-k8s.io/parent-workload`; that is believed only when the two share an owner,
    and a Workload that is not there admits nothing.

    Args:
        integrations: the enabled kinds.
        stores: the caches.
        settings: the configuration.
    """

    def __init__(
        self, integrations: Sequence[Integration], stores: JobStores, settings: JobSettings
    ) -> None:
        self._integrations = tuple(integrations)
        self._stores = stores
        self._settings = settings

    def ancestor_of(self, obj: Mapping[str, Any], namespace: str) -> Ancestor | None:
        """Who is queued on behalf of a raw object; None when it stands for itself.

        Args:
            obj: the object; one that is being created may lack a namespace.
            namespace: where it is.
        """
        highest: GenericJob | None = None
        current: Mapping[str, Any] = obj
        for _ in range(DEPTH):
            above = self._controller(current, namespace)
            if above is None:
                break
            if self._settings.manages(above.queue_name, self._stores.namespace_labels(namespace)):
                highest = above
            current = above.object
        if highest is not None:
            name = f"{highest.resource.kind} {highest.key}"
            return Ancestor(name, self._admits(self._stores.workloads_of(highest.uid)))
        return self._declared(obj, namespace)

    def _controller(self, obj: Mapping[str, Any], namespace: str) -> GenericJob | None:
        ref = controller_of(obj)
        if ref is None:
            return None
        for integration in self._integrations:
            if integration.is_owner(ref):
                found = self._stores.jobs[integration.name].get(ObjectKey(namespace, ref["name"]))
                if found is not None and found["metadata"]["uid"] == ref["uid"]:
                    return integration.job_type(found)
        return None

    def _declared(self, obj: Mapping[str, Any], namespace: str) -> Ancestor | None:
        name = annotations_of(obj).get(PARENT_WORKLOAD)
        if not name:
            return None
        found = self._stores.workload(ObjectKey(namespace, name))
        related = found is not None and {*owner_uids(found)} & {*owner_uids(dict(obj))}
        return Ancestor(f"Workload {namespace}/{name}", bool(related) and self._admits([found]))

    @staticmethod
    def _admits(workloads: Sequence[Obj | None]) -> bool:
        return any(states.is_admitted(found) for found in workloads if found is not None)
