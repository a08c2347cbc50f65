"""Views of the informers' stores for the reconcilers of jobs, in the internal version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kueuelib.api.conversion import convert
from kueuelib.api.kinds import V1BETA2, WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, Resource, controller_of, group_kind_of, labels_of
from kueuelib.api.names import JOB_UID_LABEL, PREBUILT_LABEL
from kueuelib.jobs.contract.field_rules import identifier
from kueuelib.machinery.store import Store

OWNER_UID = "jobs/owner-uid"
OWNER_NAME = "jobs/owner-name"
ABOVE_UID = "jobs/above-uid"
"""Finds jobs by the owners that `Owners.above` gives."""
PREBUILT_NAME = "jobs/prebuilt-name"

OwnerName = tuple[str, str, str, str]
"""Namespace, group, kind and name of an owner."""


class ByName(Mapping[str, Mapping[str, Any]]):
    """The cluster-scoped objects of a store by name."""

    def __init__(self, store: Store[Obj]) -> None:
        self._store = store

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        obj = self._store.get(ObjectKey("", name))
        if obj is None:
            raise KeyError(name)
        return obj

    def __iter__(self) -> Iterator[str]:
        return (key.name for key in self._store)

    def __len__(self) -> int:
        return len(self._store)


def owner_uids(obj: Obj) -> tuple[str, ...]:
    """The UIDs of all owners."""
    return tuple(ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ())


def owner_names(obj: Obj) -> tuple[OwnerName, ...]:
    """The kinds and names of all owners."""
    namespace = obj["metadata"].get("namespace") or ""
    refs = obj["metadata"].get("ownerReferences") or ()
    return tuple((namespace, *group_kind_of(ref), ref["name"]) for ref in refs)


def controller_uid(obj: Obj) -> tuple[str, ...]:
    """The UID of the controller, if there is one."""
    ref = controller_of(obj)
    return () if ref is None else (ref["uid"],)


def job_uids(workload: Obj) -> tuple[str, ...]:
    """The UIDs of all owners, and of the job that a Workload without a controller was made for."""
    owners, made_for = owner_uids(workload), labels_of(workload).get(JOB_UID_LABEL)
    if not made_for or made_for in owners or controller_of(workload) is not None:
        return owners
    return (*owners, made_for)


def prebuilt_name(obj: Obj) -> tuple[ObjectKey, ...]:
    """The key of the Workload that a job wants to use, if it names one."""
    name = identifier(obj, PREBUILT_LABEL)
    return (ObjectKey(obj["metadata"].get("namespace") or "", name),) if name else ()


@attrs.frozen
class JobStores:
    """The stores that the reconcilers of jobs read.

    Attributes:
        jobs: by the name of the integration; a kind that comes and goes has an entry only while its
            objects are known.
        workloads: all Workloads, indexed by `OWNER_UID` and `OWNER_NAME`.
        flavors: ResourceFlavors.
        workload_classes: WorkloadPriorityClasses.
        pod_classes: PriorityClasses.
        namespaces: Namespaces; None if their labels do not matter.
    """

    jobs: Mapping[str, Store[Obj]]
    workloads: Store[Obj]
    flavors: Store[Obj]
    workload_classes: Store[Obj]
    pod_classes: Store[Obj]
    namespaces: Store[Obj] | None = None

    def workloads_of(self, uid: str) -> tuple[Obj, ...]:
        """The Workloads whose controller has this UID: they were made for this job, or adopted by
        it. Those that were made for it and have lost their controller, too.
        """

        def is_of_job(workload: Obj) -> bool:
            controllers = controller_uid(workload)
            return controllers == (uid,) or not (controllers or uid in owner_uids(workload))

        return tuple(filter(is_of_job, self.workloads_owned_by(uid)))

    def workloads_owned_by(self, uid: str) -> tuple[Obj, ...]:
        """The Workloads that have, or had, an owner with this UID, whether or not they are its."""
        return tuple(map(internal, self.workloads.by_index(OWNER_UID, uid)))

    def workloads_of_name(self, resource: Resource, key: ObjectKey) -> tuple[Obj, ...]:
        """The Workloads that have an owner of this kind and name, whatever its UID."""
        name = (key.namespace, resource.group, resource.kind, key.name)
        return tuple(map(internal, self.workloads.by_index(OWNER_NAME, name)))

    def workload(self, key: ObjectKey) -> Obj | None:
        """One Workload."""
        workload = self.workloads.get(key)
        return None if workload is None else internal(workload)

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None while it is not known."""
        if self.namespaces is None:
            return {}
        obj = self.namespaces.get(ObjectKey("", namespace))
        return None if obj is None else labels_of(obj)


def internal(workload: Obj) -> Obj:
    """A Workload in the version of all plans."""
    if workload.get("apiVersion") == WORKLOADS.api_version:
        return workload
    return convert(workload, V1BETA2)
