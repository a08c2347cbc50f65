"""Chooses the Workload that stands for a job: whether one still matches it (KEP-369)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, annotations_of, controller_of, labels_of
from kueuelib.api.names import (
    IN_USE_FINALIZER,
    JOB_UID_LABEL,
    MADE_FROM,
    ORIGIN_KEYS,
    PARAMETER_PREFIX,
    QUOTA_RESERVED,
    digest_of,
)
from kueuelib.api.quantity import Quantity
from kueuelib.api.workload_state import has_quota
from kueuelib.errors import InvalidJob, InvalidQuantity
from kueuelib.jobs.batch import CONTROLLER_LABELS
from kueuelib.jobs.contract.capabilities import (
    ComposableJob,
    JobWithCustomStop,
    JobWithEquivalence,
    Matching,
    Stop,
    StopReason,
)
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.written import as_written
from kueuelib.workload import states
from kueuelib.workload.states import condition, status_of

# ---- decides whether a Workload still matches its job --------------------------------------------
# What a user writes into a waiting job is what counts: the Workload of a *suspended* job has to
# have its counts, its templates as a whole, and its annotations for ProvisioningRequests, because
# any of these may influence where or whether pods run, or what an admission check asks for. Only
# names of pod sets are not compared, and while quota is held the priority is not, which can change
# on its own.
#
# For a *running* job, and for a prebuilt Workload, only counts, tolerations, init containers and
# containers count. The smallest counts concern no pod that runs: only waiting jobs have to agree
# with their Workloads about them. A job that the Go manager started does not say which of its
# tolerations the start added, and its flavor may have changed since: it may have any besides those
# of its Workload.
#
# Templates are compared by meaning: quantities by their value, absent equals empty. In containers,
# absent also equals the default of the API server, which adds it to a Job but not to a Workload.

_COMPARED = ("tolerations", "initContainers", "containers")
_PRIORITY = ("priority", "priorityClassName")
_QUANTITIES = ("requests", "limits", "overhead")
_NOT_COMPARED = ORIGIN_KEYS | CONTROLLER_LABELS
"""What a start and the Job controller write; the Go manager keeps the label with the Job's name."""
_OPEN = ("labelSelector", "namespaceSelector")
"""Selectors that select everything if they are empty, and nothing if they are absent."""


_DEFAULTS = frozenset(
    {
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("protocol", "TCP"),
        ("scheme", "HTTP"),
        ("apiVersion", "v1"),
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    }
)
"""What the API server adds to containers, their ports, probes and variables."""


def as_started(pod_sets: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether the pod sets of a running job may be those of its Workload after a start."""
    stored = workload["spec"]["podSets"]
    admission = status_of(workload).get("admission") or {}
    counts = {each["name"]: each.get("count") for each in admission.get("podSetAssignments") or ()}
    return len(pod_sets) == len(stored) and all(
        _same(_as_stored(entry.raw(), other), _as_counted(other, counts.get(other["name"])))
        for entry, other in zip(pod_sets, stored, strict=True)
    )


def _as_counted(pod_set: Mapping[str, Any], count: int | None) -> Mapping[str, Any]:
    """A pod set with the count that was admitted; only a lower bound permits another one."""
    if count is None or pod_set.get("minCount") is None:
        return pod_set
    return {**pod_set, "count": count}


def _as_stored(pod_set: Mapping[str, Any], stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod set without tolerations that its Workload lacks."""
    own, spec = _canonical(_pod_spec(stored).get("tolerations")) or (), _pod_spec(pod_set)
    shared = [each for each in spec.get("tolerations") or () if _canonical(each) in own]
    template = {**pod_set["template"], "spec": {**spec, "tolerations": shared}}
    return {**pod_set, "template": template}


def same_templates(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether a Workload has the counts and templates of the given pod sets."""
    stored, ignored = workload["spec"]["podSets"], _PRIORITY if has_quota(workload) else ()
    if is_made_from(wanted, workload):
        return True
    return same_requests(wanted, workload) and all(
        _whole(first.raw(), ignored) == _whole(second, ignored)
        for first, second in zip(wanted, stored, strict=True)
    )


def same_requests(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether a Workload asks for the same pods, and permits a start with as few of them."""
    stored = workload["spec"]["podSets"]
    return same_pod_sets(wanted, stored) and all(
        first.min_count == second.get("minCount")
        for first, second in zip(wanted, stored, strict=True)
    )


def same_parameters(job: GenericJob, workload: Obj) -> bool:
    """Whether a Workload has the job's annotations for ProvisioningRequests, and no other."""
    return _parameters(job.raw) == _parameters(workload)


def _parameters(obj: Obj) -> Mapping[str, str]:
    notes = annotations_of(obj)
    return {key: notes[key] for key in notes if key.startswith(PARAMETER_PREFIX)}


def is_made_from(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether a Workload holds what the server has kept of these pod sets, and nothing else."""
    return annotations_of(workload).get(MADE_FROM) == made_from(wanted, workload)


def made_from(wanted: Sequence[PodSet], workload: Mapping[str, Any]) -> str:
    """A digest of the pod sets that an update writes into a Workload, and of its generation.

    It matches afterwards only if the update has not changed what was stored, nor has anybody since:
    the Workload has what the API server keeps of these pod sets. Quota fixes the pod sets, so the
    generation of its reservation counts, whatever else of the Workload changes later.
    """
    written = [entry.raw() for entry in wanted]
    generation = workload["metadata"].get("generation")
    if has_quota(workload):
        generation = condition(workload, QUOTA_RESERVED).get("observedGeneration", generation)
    return digest_of([generation, [(_counts(each), _whole(each, ())) for each in written]])


def with_least_of(
    wanted: Sequence[PodSet], stored: Sequence[Mapping[str, Any]]
) -> Sequence[PodSet]:
    """The pod sets of a running job with the smallest counts that were admitted."""
    if len(wanted) != len(stored):
        return wanted
    return [
        attrs.evolve(entry, min_count=other.get("minCount"))
        for entry, other in zip(wanted, stored, strict=True)
    ]


def same_pod_sets(wanted: Sequence[PodSet], stored: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the raw pod sets of a Workload ask for the same pods as the given ones."""
    return len(wanted) == len(stored) and all(
        _same(first.raw(), second) for first, second in zip(wanted, stored, strict=True)
    )


def _whole(pod_set: Mapping[str, Any], ignored: Sequence[str]) -> Any:
    """The parts of a template that count."""
    meta = (pod_set.get("template") or {}).get("metadata") or {}
    spec = {name: part for name, part in _pod_spec(pod_set).items() if name not in ignored}
    kept: Obj = {"spec": spec}
    for field in ("labels", "annotations"):
        written = meta.get(field) or {}
        kept[field] = {key: text for key, text in written.items() if key not in _NOT_COMPARED}
    return _canonical(kept)


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if _counts(first)[0] != _counts(second)[0]:
        return False
    one, other = _pod_spec(first), _pod_spec(second)
    return all(
        one.get(field) == other.get(field)
        or _canonical(_written(one.get(field))) == _canonical(_written(other.get(field)))
        for field in _COMPARED
    )


def _written(value: Any) -> Any:
    """Containers, or tolerations, without what the API server adds by itself."""
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    default = _pull_policy(value.get("image"))
    return {
        key: _written(item)
        for key, item in value.items()
        if not (isinstance(item, str | int) and (key, item) in _DEFAULTS)
        and not (key == "imagePullPolicy" and item == default)
    }


def _pull_policy(image: Any) -> str:
    """When an image is pulled by default: always if its tag is `latest`, given or implied."""
    name, digest, _ = str(image).rpartition("/")[2].partition("@")
    tag = name.partition(":")[2] or ("" if digest else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _counts(pod_set: Mapping[str, Any]) -> tuple[int, int | None]:
    return pod_set.get("count", 1), pod_set.get("minCount")


def _pod_spec(pod_set: Mapping[str, Any]) -> Mapping[str, Any]:
    return (pod_set.get("template") or {}).get("spec") or {}


def _canonical(value: Any, *, quantities: bool = False) -> Any:
    """The value without meaningless parts; None if it is empty."""
    if isinstance(value, Mapping):
        fields = {}
        for key, item in value.items():
            kept = _canonical(item, quantities=key in _QUANTITIES)
            if quantities and item is not None:
                kept = _quantity(item)
            if kept is None and key in _OPEN:
                kept = item
            if kept is not None:
                fields[key] = kept
        return fields or None
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value] or None
    return None if value == "" else value


def _quantity(value: Any) -> Any:
    try:
        return Quantity.parse(value)
    except InvalidQuantity:
        return value


# ---- what is missing until one job is stopped, by its own way to stop or by one patch ------------


def is_left_to_end(job: GenericJob) -> bool:
    """Whether a job is about to end and therefore not stopped. A stop that was begun is completed:
    a Job of Kubernetes cannot end without it.
    """
    return job.is_ending() and not is_stop_begun(job)


def is_stop_begun(job: GenericJob) -> bool:
    """Whether a job is suspended, by whomever, or its stop is incomplete."""
    return job.is_suspended() or (isinstance(job, JobWithCustomStop) and job.is_stopping())


def left_of_stop(
    job: GenericJob, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
) -> Stop:
    """The remaining steps; see `JobWithCustomStop.stop`."""
    if isinstance(job, JobWithCustomStop):
        return job.stop(infos, reason, message, now)
    changed, runs = job.copy(), not job.is_suspended()
    if job.is_ending():
        return Stop()
    if runs:
        changed.suspend()
    restored = changed.restore_podsets_info(infos) if infos else False
    if not runs and not restored:
        return Stop()
    return Stop((Change(job.resource, job.raw, changed.raw),), stops_now=runs)


# --------------------------------------------------------------------------------------------------


def controlled_by(workload: Mapping[str, Any], uid: str) -> bool:
    """Whether the controller reference of a Workload holds the UID."""
    ref = controller_of(workload)
    return ref is not None and ref.get("uid") == uid


def by_age(workloads: Iterable[Obj]) -> tuple[Obj, ...]:
    """The sort key: oldest first, then by name."""
    return tuple(
        sorted(
            workloads,
            key=lambda wl: (wl["metadata"].get("creationTimestamp", ""), wl["metadata"]["name"]),
        )
    )


def is_equivalent(situation: JobSnapshot, job: GenericJob) -> Callable[[Obj], bool]:
    """Whether a Workload matches the job, by its pod sets and by what the kind adds.

    A pod compares itself: it runs once, with what admission and a resize in place have added.
    """
    if not isinstance(job, JobWithEquivalence):
        return _has_its_pod_sets(situation, job)
    if job.resource == PODS:
        return job.is_equivalent
    compared = _has_its_pod_sets(situation, job)
    return lambda workload: compared(workload) and job.is_equivalent(workload)


def _has_its_pod_sets(situation: JobSnapshot, job: GenericJob) -> Callable[[Obj], bool]:
    if job.is_suspended():
        pod_sets = situation.pod_sets(as_written(job))
        if job.prebuilt_workload is None:
            return lambda workload: (
                same_parameters(job, workload) and same_templates(pod_sets, workload)
            )
        return lambda workload: same_requests(pod_sets, workload)

    def stands_for(workload: Obj) -> bool:
        written = as_written(job, workload)
        if written is job:
            return as_started(situation.pod_sets(job), workload)
        pod_sets, stored = situation.pod_sets(written), workload["spec"]["podSets"]
        least = with_least_of(pod_sets, stored)
        return same_pod_sets(pod_sets, stored) or is_made_from(least, workload)

    return stands_for


def match(situation: JobSnapshot, job: GenericJob) -> Matching:
    """The Workload that stands for the job, and those to be deleted.

    The equivalent one that holds quota and has not finished is chosen, or else the oldest. A job
    that has finished or is left to end keeps one whatever it asks for: its pod sets are not read. A
    Workload that is being deleted is chosen if it is the only one, so that the job waits for its
    end.

    Raises:
        InvalidJob: the job does not describe its pods.
    """
    if not isinstance(job, ComposableJob):
        return matching_of(situation, job)
    try:
        return job.match_workloads(situation.workloads, situation.flavors)
    except (LookupError, TypeError, AttributeError) as error:  # a field that is not there
        where = f"{type(job).__name__}.match_workloads()"
        raise InvalidJob(where, f"raised {error!r}") from error


def matching_of(situation: JobSnapshot, job: GenericJob) -> Matching:
    """The same for a job that consists of one object."""
    workloads = by_age(situation.workloads)
    live = [wl for wl in workloads if not states.is_deleted(wl)]
    live.sort(key=lambda wl: states.is_finished(wl) or not states.has_quota(wl))
    ends = job.finished() or is_left_to_end(job)
    chosen = next(iter(live) if ends else filter(is_equivalent(situation, job), live), None)
    if chosen is None and not live:
        chosen = next(iter(workloads), None)
    return Matching(chosen, tuple(wl for wl in workloads if wl is not chosen))


def accepted(job: GenericJob, workload: Obj) -> Obj:
    """A Workload that was made for a job, if its kind takes it for one.

    Raises:
        InvalidJob: it does not, so it would want another one again and again.
    """
    if (
        isinstance(job, JobWithEquivalence)
        and job.resource != PODS
        and not job.is_equivalent(workload)
    ):
        problem = "is False for the Workload that is made for the job"
        raise InvalidJob(f"{type(job).__name__}.is_equivalent()", problem)
    return workload


def refuse_repetition(job: GenericJob, workload: Obj, changed: Obj) -> None:
    """Refuses to write the same Workload again, because its kind rejects what was stored.

    Raises:
        InvalidJob: nothing would change.
    """
    spec = {**changed["spec"], "podSets": workload["spec"]["podSets"]}
    if job.resource == PODS or {**changed, "spec": spec} != workload:
        return
    method = "match_workloads" if isinstance(job, ComposableJob) else "is_equivalent"
    name = workload["metadata"]["name"]
    problem = f"rejects the Workload {name}, which is what the job asks for"
    raise InvalidJob(f"{type(job).__name__}.{method}()", problem)


def match_prebuilt(situation: JobSnapshot, job: GenericJob) -> Matching:
    """The prebuilt Workload of a job, if the job owns it, and others of the job to be deleted."""
    named = situation.prebuilt
    chosen = named if named is not None and is_controlled_by(named, job) else None
    name = job.prebuilt_workload
    others = [wl for wl in own_workloads(situation, job) if wl["metadata"]["name"] != name]
    return Matching(chosen, tuple(others))


def own_workloads(situation: JobSnapshot, job: GenericJob) -> tuple[Obj, ...]:
    """The Workloads that were made for a job, and the prebuilt one that it has adopted.

    The job may be the controller of others, too: for example those of a program that queues it.
    One that only others keep, with their finalizers, is no longer ours.
    """
    return tuple(wl for wl in situation.workloads if _is_own(job, wl) and not _is_let_go(wl))


def _is_let_go(workload: Mapping[str, Any]) -> bool:
    kept = IN_USE_FINALIZER in (workload["metadata"].get("finalizers") or ())
    return states.is_deleted(workload) and not kept


def _is_own(job: GenericJob, workload: Obj) -> bool:
    if labels_of(workload).get(JOB_UID_LABEL) == job.uid:
        return True
    named = job.prebuilt_workload == workload["metadata"]["name"]
    return is_controlled_by(workload, job) and (named or isinstance(job, ComposableJob))


def is_controlled_by(workload: Mapping[str, Any], job: GenericJob) -> bool:
    """Whether the job is the controller of a Workload."""
    return controlled_by(workload, job.uid)
