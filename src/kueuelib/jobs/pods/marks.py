"""Marks pods as ours, and releases them, as changes of raw pods (KEP-976)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, annotations_of, labels_of, raw_condition, with_label
from kueuelib.api.names import (
    ADMISSION_GATE,
    GROUP_INDEX,
    GROUP_INDEX_LABEL,
    GROUP_LABEL,
    GROUP_TOTAL_COUNT,
    MANAGED,
    POD_FINALIZER,
    POD_MANAGER,
    REASON_STOPPED_BY_KUEUE,
    ROLE_HASH,
    SUSPENDING_PARENT,
    TERMINATION_TARGET,
    TOPOLOGY_GATE,
)
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.commands import Command, Delete, DropFinalizer, Emit, PatchStatus
from kueuelib.jobs.contract.generic_job import PodSet
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.topology import (
    Ranks,
    asking_annotations,
    topology_request,
)
from kueuelib.jobs.pods.parents import (
    REPLICA_SIZE,
    STATEFUL_SET,
    is_of_leader_worker_set,
    replica_group_name,
    replica_of,
)
from kueuelib.jobs.pods.reading import (
    PodStage,
    declaration_of,
    gates_of,
    group_of,
    has_finalizer,
    is_deleted,
    role_label_of,
    stage_of,
    was_stopped,
)
from kueuelib.jobs.pods.shapes import labelled_template, role_hash

STOPPED = "Stopped"

_NO_TEMPLATE = ("schedulingGates", "nodeName", "ephemeralContainers")


def gated(pod: Obj, *, places: bool = False) -> Obj:
    """A new pod with all our marks; other gates, labels and finalizers stay.

    Args:
        pod: the raw pod.
        places: whether its Workload may get domains, for which it then waits at another gate.
    """
    marked = _indexed(marked_as_ours(pod))
    wanted = (ADMISSION_GATE, TOPOLOGY_GATE) if places else (ADMISSION_GATE,)
    missing = [{"name": name} for name in wanted if name not in gates_of(pod)]
    if not missing:
        return marked
    spec = dict(marked["spec"])
    spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), *missing]
    return {**marked, "spec": spec}


def _indexed(pod: Obj) -> Obj:
    """The pod of a group with its index, if an annotation says which label has it."""
    index = labels_of(pod).get(annotations_of(pod).get(GROUP_INDEX_LABEL, ""))
    return pod if index is None or not group_of(pod) else with_label(pod, GROUP_INDEX, index)


def marked_as_ours(pod: Obj) -> Obj:
    """The pod with our label and finalizer, and the name of its shape if it belongs to a group.

    The name of the shape is always computed, because quota depends on it. If a declaration or a
    LeaderWorkerSet defines the roles, shapes have no names.
    """
    made = with_finalizer(labelled(_in_replica(pod)))
    return with_shape(made) if _has_shape(made) else made


def completed(pod: Obj) -> Obj:
    """A pod with our label and the other marks, if it lacks some; the name of its shape stays."""
    made = with_finalizer(pod)
    lacks_shape = _has_shape(made) and ROLE_HASH not in annotations_of(made)
    return with_shape(made) if lacks_shape else made


def _has_shape(pod: Obj) -> bool:
    """Whether the shape of a pod is its role."""
    named = role_label_of(pod) or is_of_leader_worker_set(pod)
    return bool(group_of(pod)) and declaration_of(pod) is None and not named


def with_shape(pod: Obj) -> Obj:
    """The pod with the name of its shape."""
    return named(pod, role_hash(pod["spec"]))


def named(pod: Obj, shape: str) -> Obj:
    """The pod with this name of its shape."""
    notes = {**annotations_of(pod), ROLE_HASH: shape}
    return {**pod, "metadata": {**pod["metadata"], "annotations": notes}}


def _in_replica(pod: Obj) -> Obj:
    """The pod with its group, if it belongs to a LeaderWorkerSet, whose template cannot name it."""
    replica = replica_of(pod) if is_of_leader_worker_set(pod) else None
    if replica is None:
        return pod
    notes = annotations_of(pod)
    labels = {**labels_of(pod), GROUP_LABEL: replica_group_name(*replica)}
    size = {GROUP_TOTAL_COUNT: notes[REPLICA_SIZE]} if REPLICA_SIZE in notes else {}
    meta = {**pod["metadata"], "labels": labels, "annotations": {**notes, **size}}
    return {**pod, "metadata": meta}


def labelled(pod: Obj) -> Obj:
    """The pod with the label that makes it visible to us."""
    return with_label(pod, MANAGED, "true")


def with_finalizer(pod: Obj) -> Obj:
    """The pod with our finalizer; the same object if it has it."""
    if has_finalizer(pod):
        return pod
    meta = dict(pod["metadata"])
    meta["finalizers"] = [*(meta.get("finalizers") or ()), POD_FINALIZER]
    return {**pod, "metadata": meta}


def ungated(pod: Obj, info: PodSetInfo) -> Obj:
    """The pod without our gate and with what admission adds.

    The gate for its domain goes, too, unless it has got one. No gate can be added to a pod.

    Raises:
        InvalidPodSetUpdate: the info contradicts the pod.
    """
    spec = dict(pod["spec"])
    changed = {**pod, "metadata": dict(pod["metadata"]), "spec": spec}
    podset_info.merge(changed, info)  # replaces fields of both, and nothing deeper
    gone = {ADMISSION_GATE, TOPOLOGY_GATE} - {*info.scheduling_gates}
    left = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] not in gone]
    if left:
        spec["schedulingGates"] = left
    else:
        del spec["schedulingGates"]
    return changed


def template_of(pod: Obj, peers: Sequence[Obj] = ()) -> Obj:
    """The raw template of a pod set.

    Args:
        pod: has the spec.
        peers: the other pods of the role; the template has only labels that all of them share.
    """
    spec = {key: value for key, value in pod["spec"].items() if key not in _NO_TEMPLATE}
    return labelled_template([pod, *peers], copy.deepcopy(spec))


def pod_set_of(name: str, count: int, pod: Obj, peers: Sequence[Obj] = ()) -> PodSet:
    """A pod set whose pods are like a raw pod.

    Args:
        name: of the pod set.
        count: how many pods it has.
        pod: has spec and annotations.
        peers: as for `template_of`.
    """
    return PodSet(name, count, template_of(pod, peers), None, topology_of(pod))


def topology_of(pod: Mapping[str, Any]) -> Obj | None:
    """The raw `topologyRequest` of a raw pod, or of a template of pods of a group."""
    ordinal = annotations_of(pod).get(SUSPENDING_PARENT) == STATEFUL_SET
    ranks = Ranks("apps.kubernetes.io/pod-index" if ordinal else GROUP_INDEX)
    return topology_request(asking_annotations(pod), ranks)


def released(pods: Sequence[Obj]) -> tuple[Command, ...]:
    """Removes our finalizer; nothing for pods without it."""
    return tuple(DropFinalizer(PODS, pod, POD_FINALIZER) for pod in pods if has_finalizer(pod))


def deleted(pod: Obj) -> tuple[Command, ...]:
    """Deletes a pod for good; its finalizer is removed last, so that after a crash the pod is
    still being deleted.
    """
    commands: list[Command] = [] if is_deleted(pod) else [Delete(PODS, pod)]
    return (*commands, *released([pod]))


def stopped(pod: Obj, reason: str, message: str, now: float) -> tuple[Command, ...]:
    """Deletes a pod that may run, after adding a condition that says why.

    Args:
        pod: the raw pod.
        reason: a word for programs.
        message: a sentence for people.
        now: seconds since the epoch.
    """
    if stage_of(pod) is not PodStage.STARTED:
        return ()
    commands: list[Command] = []
    if not was_stopped(pod):
        why = reason or REASON_STOPPED_BY_KUEUE
        condition = raw_condition({}, TERMINATION_TARGET, True, why, message, now=now)
        status = {"conditions": [condition]}
        commands.append(PatchStatus(PODS, pod, "apply", status, POD_MANAGER, force=True))
    return (*commands, Delete(PODS, pod), Emit(pod, STOPPED, message))


def removed(pod: Obj) -> tuple[Command, ...]:
    """The remaining commands, after `stopped`, until a pod is gone for good."""
    if is_deleted(pod) or stage_of(pod) is PodStage.STARTED:
        return released([pod])
    return (Delete(PODS, pod), Emit(pod, STOPPED, "The workload is deleted"), *released([pod]))
