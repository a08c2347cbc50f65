"""The Workload that stands for a job (spec/jobs 1.7)."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.kinds import PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import (
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
    is_label_value,
    workload_name,
)
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.taken_over import NOTHING_ELSE, TakenOver
from kueuelib.jobs.reconcile.equivalence import MADE_FROM, digest
from kueuelib.jobs.reconcile.priority import (
    Priority,
    PriorityClasses,
    class_ref,
    pod_priority_class,
    resolve,
)
from kueuelib.workload.states import has_quota

_LIMIT = "maximumExecutionTimeSeconds"


def name_for(job: GenericJob) -> str:
    """The name of the Workload for a job; a recreated job gets another one."""
    kind = job.resource
    return workload_name(kind.kind, kind.group, job.key.name, job.uid)


def owner_reference(job: GenericJob) -> Obj:
    """The controller reference to a job."""
    return {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.kind,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def build_workload(
    job: GenericJob,
    pod_sets: Sequence[PodSet],
    priority: Priority,
    taken_over: TakenOver = NOTHING_ELSE,
) -> Obj:
    """A new Workload for a job, with some of its labels and annotations."""
    meta: Obj = {
        "name": name_for(job),
        "namespace": job.key.namespace,
        "finalizers": [IN_USE_FINALIZER],
        "ownerReferences": [owner_reference(job)],
    }
    labels = taken_over.labels_of([job.raw])
    if is_label_value(job.uid):
        labels[JOB_UID_LABEL] = job.uid
    if labels:
        meta["labels"] = labels
    annotations = taken_over.annotations_of([job.raw])
    if annotations:
        meta["annotations"] = annotations
    spec: Obj = {"podSets": [entry.raw() for entry in pod_sets], **priority.spec()}
    if job.queue_name:
        spec["queueName"] = job.queue_name
    if job.maximum_execution_seconds is not None:
        spec[_LIMIT] = job.maximum_execution_seconds
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": meta,
        "spec": spec,
    }


def adopt(job: GenericJob, workload: Obj) -> Obj:
    """A prebuilt Workload with the job as its controller."""
    meta = dict(workload["metadata"])
    meta["ownerReferences"] = [*(meta.get("ownerReferences") or ()), owner_reference(job)]
    if is_label_value(job.uid):
        meta["labels"] = {**(meta.get("labels") or {}), JOB_UID_LABEL: job.uid}
    if IN_USE_FINALIZER not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), IN_USE_FINALIZER]
    return {**workload, "metadata": meta}


def rebuilt(
    job: GenericJob, pod_sets: Sequence[PodSet], workload: Obj, classes: PriorityClasses
) -> Obj:
    """An unreserved Workload with the present pod sets, queue and priority of the job.

    Raises:
        PriorityClassNotFound: the class that the job names does not exist.
    """
    spec = {
        **_without(workload["spec"], "queueName", "priorityClassRef", _LIMIT),
        "podSets": [entry.raw() for entry in pod_sets],
        **resolve(job, pod_sets, classes).spec(),
    }
    if job.queue_name:
        spec["queueName"] = job.queue_name
    if job.maximum_execution_seconds is not None:
        spec[_LIMIT] = job.maximum_execution_seconds
    notes = {**annotations_of(workload), MADE_FROM: digest(pod_sets)}
    return {**workload, "metadata": {**workload["metadata"], "annotations": notes}, "spec": spec}


def with_limit(job: GenericJob, workload: Obj) -> Obj:
    """The Workload with the job's time limit; the same object if it has it."""
    wanted = job.maximum_execution_seconds
    if wanted == workload["spec"].get(_LIMIT):
        return workload
    spec = _without(workload["spec"], _LIMIT)
    if wanted is not None:
        spec[_LIMIT] = wanted
    return {**workload, "spec": spec}


def with_queue(job: GenericJob, workload: Obj) -> Obj:
    """The Workload in the job's queue."""
    spec = _without(workload["spec"], "queueName")
    if job.queue_name:
        spec["queueName"] = job.queue_name
    return {**workload, "spec": spec}


def with_priority(
    job: GenericJob, pod_sets: Sequence[PodSet], workload: Obj, classes: PriorityClasses
) -> Obj:
    """The Workload with the priority class that the job names; the same object if it has it.

    A priority that was changed in the Workload itself stays as long as the class is the same
    (spec/jobs 7.6, 108). While quota is held only the name of the class can change, not its kind.

    Raises:
        PriorityClassNotFound: the class that the job names does not exist.
    """
    current = workload["spec"].get("priorityClassRef")
    wanted = job.workload_priority_class
    if wanted:
        if current == class_ref(WORKLOAD_PRIORITY_CLASSES, wanted):
            return workload
    elif not current or current.get("kind") != WORKLOAD_PRIORITY_CLASSES.kind:
        named = pod_priority_class(job, pod_sets)
        if not named or current == class_ref(PRIORITY_CLASSES, named):
            return workload
    chosen = resolve(job, pod_sets, classes).spec()
    kinds = [(ref or {}).get("kind") for ref in (current, chosen.get("priorityClassRef"))]
    if kinds[0] != kinds[1] and has_quota(workload):
        return workload
    return {**workload, "spec": {**_without(workload["spec"], "priorityClassRef"), **chosen}}


def _without(spec: Obj, *fields: str) -> Obj:
    return {name: value for name, value in spec.items() if name not in fields}
