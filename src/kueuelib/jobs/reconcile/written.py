"""The templates of a job as its user wrote them, and what a start added to them (KEP-369).

The job itself remembers what its start added (`kueuelib.jobs.reconcile.written`). So does its
Workload, if the kind permits its users to replace a running job: one without the annotation and
without a part of the additions was replaced, and is as its user wrote it.

For a job that the Go manager started, it is what the admission of its Workload adds to the
templates there; if the job's own templates lack a part of it, because a flavor was changed
meanwhile, those of the Workload count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import JOBS, PODS
from kueuelib.api.meta import Obj, annotations_of, copied
from kueuelib.api.names import ADMITTED, ORIGIN_KEYS
from kueuelib.errors import InvalidJob, PodSetError
from kueuelib.jobs.contract.capabilities import ComposableJob
from kueuelib.jobs.contract.commands import Change, Command
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.podset_info import (
    FlavorNotFound,
    PodSetInfo,
    from_pod_set,
    infos_for_restore,
    infos_for_start,
    merge,
)
from kueuelib.jobs.contract.settings import WHOLE_ORIGIN, Origin
from kueuelib.workload import states

# ---- what a start added to the templates of a job, as the job itself remembers it ----------------
# The write that starts a job puts it into an annotation, and the write that restores the templates
# removes it. So no crash can separate the two, and a stop needs neither the Workload nor its
# flavors: it takes away what the start added, and everything else stays as the user wrote it.
#
# A job that is replaced as a whole loses the annotation together with the additions. That it was
# started, and not by a client without annotations, is known from a copy on its Workload.

ADDED_AT_START = "kueuelib.dev/added-at-start"
"""The annotation: JSON with the UID of the job, the time of the admission, and the additions."""

_AS_ASKED = -1
"""Instead of a count that the start did not change: no pod set has it."""
_MAPS = {"annotations": "annotations", "labels": "labels", "nodeSelector": "node_selector"}


@attrs.frozen
class Additions:
    """What a start added to the pods of one pod set.

    Attributes:
        info: the additions; its count is that before the start.
        started: how many pods were started.
    """

    info: PodSetInfo
    started: int

    def taken_from(self, present: PodSetInfo) -> PodSetInfo:
        """The state of a pod set without the additions.

        A value or count that differs from that of the start was changed by the user, and stays.
        """
        added = self.info
        return attrs.evolve(
            present,
            count=added.count if present.count == self.started else present.count,
            annotations=_less(present.annotations, added.annotations),
            labels=_less(present.labels, added.labels),
            node_selector=_less(present.node_selector, added.node_selector),
            tolerations=tuple(e for e in present.tolerations if e not in added.tolerations),
            scheduling_gates=_rest(present.scheduling_gates, added.scheduling_gates),
        )

    def are_all_in(self, present: PodSetInfo) -> bool:
        """Whether a pod set has every one of the additions, whatever it says about its origin.

        Versions and gates differ in what they write about the origin of pods.
        """
        added = self.info
        pairs = [(getattr(present, name), getattr(added, name)) for name in _MAPS.values()]
        kept = [(has, {k: wanted[k] for k in wanted.keys() - ORIGIN_KEYS}) for has, wanted in pairs]
        return (
            all(has.items() >= wanted.items() for has, wanted in kept)
            and all(entry in present.tolerations for entry in added.tolerations)
            and {*added.scheduling_gates} <= {*present.scheduling_gates}
        )

    def are_untouched_in(self, present: PodSetInfo) -> bool:
        """Whether a pod set has every one of these, and a count that the start changed."""
        return self.are_all_in(present) and self.started in (self.info.count, present.count)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added and no count changed."""
        return self.info == PodSetInfo(self.info.name, self.started)


def between(before: PodSetInfo, after: PodSetInfo) -> Additions:
    """What a start added, given a pod set before and after it."""
    maps = {name: _less(getattr(after, name), getattr(before, name)) for name in _MAPS.values()}
    tolerations = tuple(entry for entry in after.tolerations if entry not in before.tolerations)
    gates = _rest(after.scheduling_gates, before.scheduling_gates)
    info = PodSetInfo(
        after.name, before.count, **maps, tolerations=tolerations, scheduling_gates=gates
    )
    return Additions(info, after.count)


def with_memory(job: GenericJob, before: GenericJob, admitted: str) -> Obj:
    """A raw started job that remembers what its start added.

    Args:
        job: the started job.
        before: the job before the start.
        admitted: when its Workload was admitted, by which two starts differ.
    """
    pairs = zip(states_of(before.pod_sets()), states_of(job.pod_sets()), strict=True)
    return _with_note(job.raw, job.uid, admitted, [_raw(between(*pair)) for pair in pairs])


def with_nothing_added(job: GenericJob, obj: Obj) -> Obj:
    """A raw job that remembers that no admission has started it."""
    return _with_note(obj, job.uid, "", [])


def with_memory_of(started: Mapping[str, Any], workload: Obj) -> Obj:
    """A raw Workload that remembers the same start as a raw job; itself if it does already."""
    note, notes = annotations_of(started).get(ADDED_AT_START), annotations_of(workload)
    if note is None or notes.get(ADDED_AT_START) == note:
        return workload
    return _with_annotations(workload, {**notes, ADDED_AT_START: note})


def remembered(
    job: GenericJob, admitted: str = "", noted_on: Mapping[str, Any] | None = None
) -> tuple[Additions, ...] | None:
    """What the last start added, as the job or its Workload remembers it; None if it does not.

    An annotation in a copied manifest is about another job. One about an earlier admission is about
    a start that another client, for example Kueue, has undone since.

    Args:
        job: the job.
        admitted: when its Workload was admitted; empty: any start is meant.
        noted_on: the raw object with the annotation; None: the job itself.
    """
    text = annotations_of(job.raw if noted_on is None else noted_on).get(ADDED_AT_START)
    if text is None:
        return None
    try:
        value = json.loads(text)
        if value["job"] != job.uid or (admitted and value["admitted"] not in ("", admitted)):
            return None
        return tuple(map(_read, value["podSets"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None  # edited by hand


def without_memory(obj: Obj) -> Obj:
    """A raw job that remembers no start."""
    notes = {key: text for key, text in annotations_of(obj).items() if key != ADDED_AT_START}
    return _with_annotations(obj, notes)


def without(pod_sets: Iterable[PodSet], added: Sequence[Additions]) -> tuple[PodSetInfo, ...]:
    """The states of pod sets, in their order, without what a start added to them.

    Pod sets may have been renamed since: the additions of names that no longer exist belong to the
    new names, in their order. If some were added or removed, too, it is not known whose they are,
    and each is taken from all new names.
    """
    present, by_name = states_of(pod_sets), {each.info.name: [each] for each in added}
    new = [info.name for info in present if info.name not in by_name]
    names = {info.name for info in present}
    lost = [each for each in added if each.info.name not in names]
    theirs = [[each] for each in lost] if len(lost) == len(new) else [lost] * len(new)
    by_name |= zip(new, theirs, strict=True)
    return tuple(_without(info, by_name[info.name]) for info in present)


def _without(state: PodSetInfo, added: Iterable[Additions]) -> PodSetInfo:
    for each in added:
        state = each.taken_from(state)
    return state


def states_of(pod_sets: Iterable[PodSet]) -> list[PodSetInfo]:
    """What a start may change in pod sets, and a stop restores."""
    return [from_pod_set(each.raw()) for each in pod_sets]


def _with_note(obj: Obj, uid: str, admitted: str, added: Sequence[Obj]) -> Obj:
    value = {"job": uid, "admitted": admitted, "podSets": added}
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return _with_annotations(obj, {**annotations_of(obj), ADDED_AT_START: text})


def _with_annotations(obj: Obj, annotations: Mapping[str, str]) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "annotations": dict(annotations)}}


def _less(present: Mapping[str, str], gone: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in present.items() if gone.get(key) != value}


def _rest(present: Sequence[str], gone: Sequence[str]) -> tuple[str, ...]:
    return tuple([name for name in present if name not in gone])


def _raw(added: Additions) -> Obj:
    info = added.info
    entry: Obj = {"name": info.name}
    entry |= {field: getattr(info, name) for field, name in _MAPS.items() if getattr(info, name)}
    if info.tolerations:
        entry["tolerations"] = [*info.tolerations]
    if info.scheduling_gates:
        entry["schedulingGates"] = [*info.scheduling_gates]
    if info.count != added.started:
        entry["count"] = {"asked": info.count, "started": added.started}
    return entry


def _read(entry: Mapping[str, Any]) -> Additions:
    count = entry.get("count") or {"asked": _AS_ASKED, "started": _AS_ASKED}
    maps = {name: dict(entry.get(field) or {}) for field, name in _MAPS.items()}
    tolerations = tuple(map(dict, entry.get("tolerations") or ()))
    gates = tuple(map(str, entry.get("schedulingGates") or ()))
    info = PodSetInfo(
        entry["name"],
        int(count["asked"]),
        **maps,
        tolerations=tolerations,
        scheduling_gates=gates,
    )
    return Additions(info, int(count["started"]))


# --------------------------------------------------------------------------------------------------

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
