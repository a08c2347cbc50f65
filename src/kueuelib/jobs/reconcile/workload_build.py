"""The Workload that stands for a job (KEP-369)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import PODS, PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from kueuelib.api.meta import Obj, annotations_of, controller_of
from kueuelib.api.missing_features import of_jobs
from kueuelib.api.names import (
    ADMISSION_GATED_BY,
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
    MADE_FROM,
    admission_gates,
    is_label_value,
    workload_name,
)
from kueuelib.api.workload_state import has_quota
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.capabilities import ComposableJob, JobWithPriorityClass
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.settings import NOTHING_ELSE, TakenOver
from kueuelib.jobs.reconcile.matching import made_from
from kueuelib.jobs.reconcile.priority import (
    Priority,
    PriorityClasses,
    class_ref,
    pod_priority_class,
    resolve,
)

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
    }
    labels = taken_over.labels_of([job.raw])
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
    workload = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
    return adopt(job, {**workload, "metadata": meta, "spec": spec})


def as_own(job: GenericJob, composed: Obj) -> Obj:
    """A composed Workload with what shows that it stands for the job; the same object for a group
    of pods, because a group is not an object.

    Raises:
        InvalidJob: it has another controller.
    """
    if job.resource == PODS:
        return composed
    ref = controller_of(composed)
    if ref is not None and ref.get("uid") != job.uid:
        where = f"{type(job).__name__}.compose_workload()"
        problem = f"makes the {ref['kind']} {ref['name']} the controller of the Workload"
        raise InvalidJob(where, f"{problem}: its controller must be the job")
    return adopt(job, composed)


def adopt(job: GenericJob, workload: Obj) -> Obj:
    """A Workload with the job as its controller, whose label finds it, and which stays until its
    quota is free.
    """
    meta = dict(workload["metadata"])
    refs = meta.get("ownerReferences") or ()
    if not _controls(job, refs):
        others = [ref for ref in refs if ref.get("uid") != job.uid]
        meta["ownerReferences"] = [*others, owner_reference(job)]
    if is_label_value(job.uid):
        meta["labels"] = {**(meta.get("labels") or {}), JOB_UID_LABEL: job.uid}
    if IN_USE_FINALIZER not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), IN_USE_FINALIZER]
    return {**workload, "metadata": meta}


def rebuilt(
    job: GenericJob,
    pod_sets: Sequence[PodSet],
    workload: Obj,
    classes: PriorityClasses,
    taken_over: TakenOver = NOTHING_ELSE,
) -> Obj:
    """An unreserved Workload with the present pod sets, queue, priority, labels and gates of its
    job.

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
    kept = with_gates(job, with_taken_over(job, workload, taken_over))
    notes = {**annotations_of(kept), MADE_FROM: made_from(pod_sets, workload)}
    return {**kept, "metadata": {**kept["metadata"], "annotations": notes}, "spec": spec}


def with_taken_over(job: GenericJob, workload: Obj, taken_over: TakenOver) -> Obj:
    """The Workload with the present labels and annotations that it takes over from its job; the
    same object if it has them, or is not made from them.
    """
    if isinstance(job, ComposableJob) or job.prebuilt_workload is not None:
        return workload
    before = workload["metadata"]
    meta = dict(before)
    for field, chosen in (
        ("labels", taken_over.labels_of),
        ("annotations", taken_over.annotations_of),
    ):
        present, wanted = chosen([workload]), chosen([job.raw])
        if present != wanted:
            entries = before.get(field) or {}
            others = {key: text for key, text in entries.items() if key not in present}
            meta[field] = {**others, **wanted}
    return workload if meta == before else {**workload, "metadata": meta}


def with_requests(job: GenericJob, workload: Obj) -> Obj:
    """The Workload with its job's requests for missing features; the same object if it has them.

    A prebuilt Workload has templates of its own, so it gets those of the job's templates as well.
    """
    if isinstance(job, ComposableJob):
        return workload
    asked: dict[str, str] = {}
    for pod_set in job.pod_sets() if job.prebuilt_workload is not None else ():
        asked |= of_jobs(pod_set.template)
    asked |= of_jobs(job.raw)
    notes = annotations_of(workload)
    if asked.items() <= notes.items():
        return workload
    return {**workload, "metadata": {**workload["metadata"], "annotations": {**notes, **asked}}}


def with_gates(job: GenericJob, workload: Obj) -> Obj:
    """The Workload with the admission gates of its job; the same object if it has them, or if it is
    prebuilt and has its own.
    """
    annotations, wanted = annotations_of(workload), job.admission_gates
    if wanted == admission_gates(annotations) or job.prebuilt_workload is not None:
        return workload
    kept = {key: text for key, text in annotations.items() if key != ADMISSION_GATED_BY}
    if wanted:
        kept[ADMISSION_GATED_BY] = ",".join(wanted)
    return {**workload, "metadata": {**workload["metadata"], "annotations": kept}}


def with_limit(job: GenericJob, workload: Obj) -> Obj:
    """The Workload with the job's time limit; the same object if it has it, or if it is prebuilt
    and the job names none.
    """
    wanted = job.maximum_execution_seconds
    if wanted == workload["spec"].get(_LIMIT) or (wanted is None and job.prebuilt_workload):
        return workload
    spec = _without(workload["spec"], _LIMIT)
    if wanted is not None:
        spec[_LIMIT] = wanted
    return {**workload, "spec": spec}


def with_queue(job: GenericJob, workload: Obj) -> Obj:
    """The Workload in the job's queue; the same object if it is there, or if it is prebuilt and the
    job names none.
    """
    present, prebuilt = workload["spec"].get("queueName", ""), job.prebuilt_workload
    if job.queue_name == present or (prebuilt and not job.queue_name):
        return workload
    spec = _without(workload["spec"], "queueName")
    if job.queue_name:
        spec["queueName"] = job.queue_name
    return {**workload, "spec": spec}


def with_priority(
    job: GenericJob, pod_sets: Sequence[PodSet], workload: Obj, classes: PriorityClasses
) -> Obj:
    """The Workload with the priority class that the job names; the same object if it has it.

    A priority that was changed in the Workload itself stays as long as the class is the same. That
    of a waiting job whose kind no longer names a class becomes the default. That of a prebuilt
    Workload stays as long as no label of the job names another class. While quota is held only the
    name of a WorkloadPriorityClass can change.

    Raises:
        PriorityClassNotFound: the class that the job names does not exist.
    """
    current = workload["spec"].get("priorityClassRef")
    wanted = job.workload_priority_class
    if wanted:
        if current == class_ref(WORKLOAD_PRIORITY_CLASSES, wanted):
            return workload
    elif job.prebuilt_workload:
        return workload
    elif not current or current.get("kind") != WORKLOAD_PRIORITY_CLASSES.kind:
        named = pod_priority_class(job, pod_sets)
        if not named and (not isinstance(job, JobWithPriorityClass) or has_quota(workload)):
            return workload  # without a class, it has the default of the time when it was made
        if named and current == class_ref(PRIORITY_CLASSES, named):
            return workload
    chosen = resolve(job, pod_sets, classes).spec()
    if current == chosen.get("priorityClassRef"):
        return workload
    kinds = {(ref or {}).get("kind") for ref in (current, chosen.get("priorityClassRef"))}
    if kinds != {WORKLOAD_PRIORITY_CLASSES.kind} and has_quota(workload):
        return workload
    return {**workload, "spec": {**_without(workload["spec"], "priorityClassRef"), **chosen}}


def _without(spec: Obj, *fields: str) -> Obj:
    return {name: value for name, value in spec.items() if name not in fields}


def _controls(job: GenericJob, refs: Iterable[Mapping[str, Any]]) -> bool:
    return any(ref.get("controller") and ref.get("uid") == job.uid for ref in refs)
