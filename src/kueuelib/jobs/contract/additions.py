"""What a start added to the templates of a job, as the job itself remembers it.

The write that starts a job puts it into an annotation, and the write that restores the templates
removes it. So no crash can separate the two, and a stop needs neither the Workload nor its flavors:
it takes away what the start added, and everything else stays as the user wrote it.

A job that is replaced as a whole loses the annotation together with the additions. That it was
started, and not by a client without annotations, is known from a copy on its Workload.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import ORIGIN_KEYS
from kueuelib.jobs.contract.generic_job import GenericJob, PodSet
from kueuelib.jobs.contract.podset_info import PodSetInfo, from_pod_set

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
        )

    def are_all_in(self, present: PodSetInfo) -> bool:
        """Whether a pod set has every one of the additions, whatever it says about its origin.

        Versions and gates differ in what they write about the origin of pods.
        """
        added = self.info
        pairs = [(getattr(present, name), getattr(added, name)) for name in _MAPS.values()]
        kept = [(has, {k: wanted[k] for k in wanted.keys() - ORIGIN_KEYS}) for has, wanted in pairs]
        return all(has.items() >= wanted.items() for has, wanted in kept) and all(
            entry in present.tolerations for entry in added.tolerations
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
    return Additions(
        PodSetInfo(after.name, before.count, **maps, tolerations=tolerations), after.count
    )


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


def _raw(added: Additions) -> Obj:
    info = added.info
    entry: Obj = {"name": info.name}
    entry |= {field: getattr(info, name) for field, name in _MAPS.items() if getattr(info, name)}
    if info.tolerations:
        entry["tolerations"] = [*info.tolerations]
    if info.count != added.started:
        entry["count"] = {"asked": info.count, "started": added.started}
    return entry


def _read(entry: Mapping[str, Any]) -> Additions:
    count = entry.get("count") or {"asked": _AS_ASKED, "started": _AS_ASKED}
    maps = {name: dict(entry.get(field) or {}) for field, name in _MAPS.items()}
    tolerations = tuple(map(dict, entry.get("tolerations") or ()))
    info = PodSetInfo(entry["name"], int(count["asked"]), **maps, tolerations=tolerations)
    return Additions(info, int(count["started"]))
