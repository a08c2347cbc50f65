"""The parents that replace missing pods of a group: a StatefulSet or a LeaderWorkerSet.

The parent owns the Workload of the group instead of its pods, so the Workload outlives them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kueuelib.api.kinds import LEADER_WORKER_SETS, STATEFUL_SETS
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, controller_of, labels_of
from kueuelib.api.names import (
    COMPONENT_INDEX,
    SUSPENDING_PARENT,
    admission_gates,
    workload_name,
)
from kueuelib.api.patterns import LABEL_LIMIT
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET, PodSet
from kueuelib.jobs.contract.topology import Ranks, asking_annotations, topology_request
from kueuelib.jobs.pods.shapes import labelled_template, role_hash
from kueuelib.machinery.store import Store

STATEFUL_SET = "statefulset"
"""The name of the integration, and of the parent kind in pods."""
LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/leaderworkerset"
"""The same for a LeaderWorkerSet."""

LEADER, WORKER = "leader", "worker"
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
"""A label of its pods: the name of the LeaderWorkerSet."""
REPLICA_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
"""A label of its pods: the number of their replica."""
REPLICA_SIZE = "leaderworkerset.sigs.k8s.io/size"
"""An annotation of its pods: how many pods a replica has."""

_DIGITS = 16


def group_name(name: str) -> str:
    """The group of the pods of a StatefulSet, given its name; it fits into a label."""
    kind = STATEFUL_SETS
    return workload_name(kind.kind, kind.group, name, "", LABEL_LIMIT)


def replica_group_name(name: str, index: int | str) -> str:
    """The group of one replica of a LeaderWorkerSet, given the name of the set."""
    kind = LEADER_WORKER_SETS
    return workload_name(kind.kind, kind.group, f"{name}-{index}", "", LABEL_LIMIT)


@attrs.frozen
class Parent:
    """The parent of a group.

    Attributes:
        ref: an owner reference to it, not as the controller; empty if it is not known.
        replicas: how many pods it makes for the group.
        pod_sets: the pod sets of the group; empty if its pods define them.
        index: which of its groups this is; empty if it has one.
        gates: the admission gates of all its groups.
    """

    ref: Obj
    replicas: int
    pod_sets: tuple[PodSet, ...] = ()
    index: str = ""
    gates: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A key that differs between pod sets that need different quota or flavors."""
        sets = [(each.name, each.count, role_hash(each.template["spec"])) for each in self.pod_sets]
        return hashlib.sha256(orjson.dumps(sets)).hexdigest()[:_DIGITS]


@attrs.frozen
class Parents:
    """Finds parents; None for a kind that is not enabled.

    Attributes:
        stateful_sets: the queued StatefulSets.
        leader_worker_sets: returns the queued LeaderWorkerSets, which come and go with their CRD.
    """

    stateful_sets: Store[Obj] | None = None
    leader_worker_sets: Callable[[], Store[Obj]] | None = None


NO_PARENTS = Parents()


def replicas_of(obj: Mapping[str, Any]) -> int:
    """How many pods a raw StatefulSet makes, or how many groups a raw LeaderWorkerSet."""
    replicas = obj["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def is_of_leader_worker_set(pod: Mapping[str, Any]) -> bool:
    """Whether a raw pod was made from the template of a queued LeaderWorkerSet."""
    return annotations_of(pod).get(SUSPENDING_PARENT) == LEADER_WORKER_SET


def replica_of(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """The LeaderWorkerSet of a raw pod and the number of its replica; None if the pod does not name
    them.

    The set's own webhook labels a leader with the number, perhaps after ours. The name
    of a leader ends with it.
    """
    labels = labels_of(pod)
    name = labels.get(SET_NAME)
    if not name:
        return None
    index = labels.get(REPLICA_INDEX) or pod["metadata"].get("name", "").removeprefix(f"{name}-")
    return (name, index) if index.isascii() and index.isdigit() else None


def groups_of(obj: Mapping[str, Any]) -> range:
    """The numbers of the replicas that a raw LeaderWorkerSet has, including temporary ones."""
    return range(max(replicas_of(obj), int((obj.get("status") or {}).get("replicas") or 0)))


def pod_sets_of(obj: Mapping[str, Any]) -> tuple[PodSet, ...]:
    """The pod sets of every replica of a raw LeaderWorkerSet."""
    template = obj["spec"]["leaderWorkerTemplate"]
    size, leader = int(template.get("size") or 1), template.get("leaderTemplate")
    if leader is None:
        return (_pod_set(DEFAULT_POD_SET, size, template["workerTemplate"], _WORKERS),)
    first = _pod_set(LEADER, 1, leader)
    if size == 1:
        return (first,)
    return (first, _pod_set(WORKER, size - 1, template["workerTemplate"], _WORKERS))


_WORKERS = Ranks("leaderworkerset.sigs.k8s.io/worker-index")
_PATHS = {LEADER: "leaderTemplate"}


def _pod_set(name: str, count: int, template: Obj, ranks: Ranks | None = None) -> PodSet:
    kept = labelled_template([template], template.get("spec") or {})
    asked = topology_request(asking_annotations(template), ranks)
    path = f"spec.leaderWorkerTemplate.{_PATHS.get(name, 'workerTemplate')}"
    return PodSet(name, count, kept, None, asked, path)


def parent_of(
    pods: Sequence[Obj], workload: Obj | None, namespace: str, parents: Parents
) -> Parent | None:
    """The parent of a group, None for a group without one; a missing parent makes 0 pods.

    Args:
        pods: the raw pods of the group.
        workload: its raw Workload.
        namespace: where it is.
        parents: finds parents.
    """
    refs = () if workload is None else workload["metadata"].get("ownerReferences") or ()
    if parents.leader_worker_sets is not None:
        notes = {} if workload is None else annotations_of(workload)
        parent = _leader_worker_set(
            pods, refs, notes.get(COMPONENT_INDEX, ""), namespace, parents.leader_worker_sets()
        )
        if parent is not None:
            return parent
    if parents.stateful_sets is None:
        return None
    return _stateful_set(pods, refs, namespace, parents.stateful_sets)


def _stateful_set(
    pods: Iterable[Obj], owners: Iterable[Obj], namespace: str, store: Store[Obj]
) -> Parent | None:
    refs = [
        ref
        for pod in pods
        if annotations_of(pod).get(SUSPENDING_PARENT) == STATEFUL_SET
        and (ref := controller_of(pod)) is not None
    ]
    for ref in (*refs, *owners):
        if (ref["apiVersion"], ref["kind"]) == (STATEFUL_SETS.api_version, STATEFUL_SETS.kind):
            kept = {key: ref[key] for key in ("apiVersion", "kind", "name", "uid")}
            stateful_set = store.get(ObjectKey(namespace, ref["name"]))
            if stateful_set is None or stateful_set["metadata"]["uid"] != ref["uid"]:
                return Parent(kept, 0)
            return Parent(kept, replicas_of(stateful_set), gates=_gates_of(stateful_set))
    return None


def _leader_worker_set(
    pods: Iterable[Obj], owners: Iterable[Obj], noted: str, namespace: str, store: Store[Obj]
) -> Parent | None:
    named = next(
        (replica for pod in pods if is_of_leader_worker_set(pod) and (replica := replica_of(pod))),
        None,
    )
    owner = next((ref for ref in owners if ref["kind"] == LEADER_WORKER_SETS.kind), None)
    if named is None and owner is None:
        return None
    name, index = named or (owner["name"], noted) if owner else (named or ("", ""))
    obj = store.get(ObjectKey(namespace, name))
    if obj is None or (named is None and owner and obj["metadata"]["uid"] != owner["uid"]):
        return Parent(dict(owner or {}), 0, index=index)
    meta = obj["metadata"]
    ref = {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "name": name,
        "uid": meta["uid"],
    }
    if not index.isdigit() or int(index) not in groups_of(obj):
        return Parent(ref, 0, index=index)
    sets = pod_sets_of(obj)
    return Parent(ref, sum(each.count for each in sets), sets, index, _gates_of(obj))


def _gates_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    return admission_gates(annotations_of(obj))
