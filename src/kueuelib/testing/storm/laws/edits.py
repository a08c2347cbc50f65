"""Laws about what users write into the templates of their Jobs."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.memory import Memory, is_manager, placement
from kueuelib.testing.storm.laws.reading import WORKLOADS, notes, spec, suspended, uid

NOTE = "kueuelib.dev/added-at-start"
STOPPING = "kueue.x-k8s.io/stopping"


def edits_are_kept(memory: Memory, commit: Commit) -> Iterator[str]:
    """A manager keeps what users wrote into a Job, and a complete stop leaves nothing else."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return
    wanted, present = memory.written.get(uid(new)), placement(new)
    if wanted is None:
        return
    for place in sorted(place for place in wanted if present.get(place) != wanted[place]):
        yield f"{place} is {present.get(place)!r}, but its user wrote {wanted[place]!r}"
    if suspended(new) and not {NOTE, STOPPING} & notes(new).keys():
        for place in sorted(present.keys() - wanted.keys()):
            yield f"{place} stays, but its user did not write it"


def starts_are_of_present_templates(memory: Memory, commit: Commit) -> Iterator[str]:
    """A manager starts a Job only if its Workload has the template that the user wrote last."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return
    if suspended(new) or not suspended(old):
        return
    wanted = memory.written.get(uid(new))
    for _, name in sorted(memory.by_owner[uid(new)]):
        workload = memory.get(WORKLOADS, commit.namespace, name)
        if workload is not None and _asked(workload) != wanted:
            yield f"it was started, but Workload {name} has {_asked(workload)!r}, not {wanted!r}"


def _asked(workload: Obj) -> dict[str, object]:
    (pod_set,) = spec(workload)["podSets"]
    return placement({"spec": pod_set})
