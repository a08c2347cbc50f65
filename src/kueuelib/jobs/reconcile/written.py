"""The templates of a job as its user wrote them, without what a start added (KEP-369).

The job itself remembers what its start added (`kueuelib.jobs.contract.additions`). So does its
Workload, if the kind permits its users to replace a running job: one without the annotation and
without a part of the additions was replaced, and is as its user wrote it.

For a job that the Go manager started, it is what the admission of its Workload adds to the
templates there; if the job's own templates lack a part of it, because a flavor was changed
meanwhile, those of the Workload count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import JOBS, PODS
from kueuelib.api.meta import Obj, copied
from kueuelib.api.names import ADMITTED
from kueuelib.errors import InvalidJob, PodSetError
from kueuelib.jobs.contract.additions import (
    Additions,
    between,
    remembered,
    states_of,
    with_memory,
    with_memory_of,
    with_nothing_added,
    without,
    without_memory,
)
from kueuelib.jobs.contract.capabilities import ComposableJob
from kueuelib.jobs.contract.commands import Change, Command
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.origin import WHOLE_ORIGIN, Origin
from kueuelib.jobs.contract.podset_info import (
    FlavorNotFound,
    PodSetInfo,
    from_pod_set,
    infos_for_restore,
    infos_for_start,
    merge,
)
from kueuelib.workload import states

Flavors = Mapping[str, Mapping[str, Any]]


def as_written(job: GenericJob, workload: Mapping[str, Any] | None = None) -> GenericJob:
    """A job with the templates that its user wrote; itself if it remembers no start.

    Args:
        job: the job.
        workload: the raw Workload that a running job was started for.

    Raises:
        InvalidJob: the templates cannot be read or restored.
    """
    added = _added(job, workload)
    if added is None:
        return job
    written = job.copy()
    before_start = without(written.pod_sets(), added)
    try:
        written.restore_podsets_info(before_start)
    except InvalidJob:
        raise
    except Exception as error:
        where = f"{type(job).__name__}.restore_podsets_info()"
        raise InvalidJob(where, f"raised {error!r}") from error
    return written


def started(job: GenericJob, workload: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Obj:
    """The raw job after its start; unless it is a pod, which runs once, it remembers the additions.

    Raises:
        PodSetError: the infos do not fit the job.
    """
    written = as_written(job)
    changed = written.copy()
    changed.run_with_podsets_info(infos)
    if job.resource == PODS:
        return changed.raw
    return with_memory(changed, written, _admitted_at(workload))


def noted(workload: Obj, job: GenericJob, changed: Obj) -> Obj:
    """The raw Workload as it is written before the start of its job.

    Kubernetes keeps the templates of running Jobs and of Pods: nobody can replace them.

    Args:
        workload: the Workload.
        job: the job.
        changed: the raw job after its start.
    """
    return workload if job.resource in (JOBS, PODS) else with_memory_of(changed, workload)


def infos_left(job: GenericJob, workload: Obj | None, flavors: Flavors) -> tuple[PodSetInfo, ...]:
    """The states to which the templates have to be restored; empty if they are as written.

    Anyone may suspend a job. Its templates still contain the additions of the start then, which
    would contradict the next flavor. A job that remembers none is as its user wants it if it is
    suspended, or if its Workload is not admitted: nobody has started it. Members of a composable
    job remember nothing; what the Workload remembers of them counts.

    Args:
        job: the job.
        workload: the raw Workload that it was started for, if it is known.
        flavors: the raw ResourceFlavors by name.
    """
    suspended = job.is_suspended()
    added = remembered(job) if suspended else _added(job, workload)
    if workload is not None and not states.is_admitted(workload):
        workload = workload if isinstance(job, ComposableJob) else None
    if added is None and (suspended or workload is None):
        return ()
    try:
        pod_sets = job.pod_sets()
    except InvalidJob:
        return () if suspended else infos_for_restore(workload)
    if added is None and workload is not None:
        present = states_of(pod_sets)
        added = _of_admission(workload, flavors, present)
        if added is None:
            return infos_for_restore(workload, {info.name: info.count for info in present})
    return without(pod_sets, added or ())


def forgetting(
    job: GenericJob,
    infos: Sequence[PodSetInfo],
    commands: Sequence[Command],
    workload: Mapping[str, Any] | None,
) -> tuple[Command, ...]:
    """The commands of a stop; the write that restores the job also ends its memory of the start.

    That write restores what can be restored: a count may depend on a field that the user has
    changed meanwhile. Writes that change nothing are left out, so every stop comes to an end.

    If its Workload is not admitted, nobody has started the job. If its stop takes several writes,
    the first one says so: an admission that is decided in between restores nothing.
    """
    left = tuple(each for each in commands if not isinstance(each, Change) or each.patch)
    if remembered(job) is None:
        never_started = workload is not None and not states.is_admitted(workload)
        if infos or job.resource == PODS or not never_started:
            return left
        return tuple(_noting_that_it_never_started(job, command) for command in left)
    if not infos:
        return left
    if not left and job.is_suspended() and not job.is_active():
        return (Change(job.resource, job.raw, without_memory(job.raw)),)
    return tuple(_forgetting(job, infos, command) for command in left)


def _forgetting(job: GenericJob, infos: Sequence[PodSetInfo], command: Command) -> Command:
    if not isinstance(command, Change) or command.resource != job.resource or command.subresource:
        return command
    changed = type(job)(copied(command.new))
    if not changed.is_suspended() or changed.restore_podsets_info(infos):
        return command
    return attrs.evolve(command, new=without_memory(command.new))


def _noting_that_it_never_started(job: GenericJob, command: Command) -> Command:
    if not isinstance(command, Change) or command.resource != job.resource or command.subresource:
        return command
    if type(job)(command.new).is_suspended():
        return command
    return attrs.evolve(command, new=with_nothing_added(job, command.new))


def as_admitted(
    workload: Mapping[str, Any], flavors: Flavors, origin: Origin | None = None
) -> list[Mapping[str, Any]] | None:
    """The raw pod sets of a started job; None without a usable admission.

    Args:
        workload: the raw Workload.
        flavors: the raw ResourceFlavors by name.
        origin: what its pods say about their origin; None: nothing.
    """
    if not states.status_of(workload).get("admission"):
        return None
    try:
        start = infos_for_start if origin is None else origin.infos_for_start
        infos = start(workload, flavors)
        return [
            _with_info(entry, info)
            for entry, info in zip(workload["spec"]["podSets"], infos, strict=True)
        ]
    except (PodSetError, FlavorNotFound):
        return None


def _added(job: GenericJob, workload: Mapping[str, Any] | None) -> tuple[Additions, ...] | None:
    """What the last start added and the templates still have; None if nobody remembers it."""
    admitted = _admitted_at(workload)
    added = remembered(job, admitted)
    if added is not None or workload is None or not admitted:
        return added
    added = remembered(job, admitted, workload)
    if added is None:
        return None
    present = {info.name: info for info in states_of(job.pod_sets())}
    pairs = [(each, present.get(each.info.name)) for each in added]
    replaced = not all(info and each.are_untouched_in(info) for each, info in pairs)
    return () if replaced else added


def _of_admission(
    workload: Mapping[str, Any], flavors: Flavors, present: Sequence[PodSetInfo]
) -> tuple[Additions, ...] | None:
    """What an admission adds; None if nothing, or if the job does not have all of it.

    Versions and gates differ in what they write about the origin of pods: any part of that counts.
    """
    added = _additions(workload, as_admitted(workload, flavors))
    pairs = [(added[info.name], info) for info in present if info.name in added]
    if all(each.is_empty for each in added.values()) or len(pairs) != len(added):
        return None
    if not all(each.are_all_in(info) for each, info in pairs):
        return None
    return (*_additions(workload, as_admitted(workload, flavors, WHOLE_ORIGIN)).values(),)


def _additions(
    workload: Mapping[str, Any], admitted: Sequence[Mapping[str, Any]] | None
) -> dict[str, Additions]:
    pod_sets = zip(workload["spec"]["podSets"], admitted or (), strict=False)
    return {
        after["name"]: between(from_pod_set(before), from_pod_set(after))
        for before, after in pod_sets
    }


def _with_info(pod_set: Mapping[str, Any], info: PodSetInfo) -> Mapping[str, Any]:
    template = {
        "metadata": dict(pod_set["template"].get("metadata") or {}),
        "spec": dict(pod_set["template"].get("spec") or {}),
    }
    merge(template, info)
    changed = {**pod_set, "template": template}
    if pod_set.get("minCount") is not None:
        changed["count"] = info.count
    return changed


def _admitted_at(workload: Mapping[str, Any] | None) -> str:
    if workload is None or not states.is_admitted(workload):
        return ""
    return str(states.condition(workload, ADMITTED).get("lastTransitionTime", ""))
