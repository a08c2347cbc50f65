"""Reads a raw pod: its stage of life, its group, whether it is queued, what the cache keeps."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    annotations_of,
    find_condition,
    is_true,
    labels_of,
    parse_time,
)
from kueuelib.api.names import (
    ADMISSION_GATE,
    DISRUPTION_TARGET,
    GROUP_FAST,
    GROUP_LABEL,
    GROUP_ROLE_LABEL,
    GROUP_SERVING,
    GROUP_SETS,
    GROUP_TOTAL_COUNT,
    MANAGED,
    NAMESPACE_NAME_LABEL,
    POD_FINALIZER,
    QUEUE_LABEL,
    RETRIABLE_IN_GROUP,
    TERMINATION_TARGET,
)
from kueuelib.errors import Unavailable
from kueuelib.jobs.contract.field_rules import identifier
from kueuelib.jobs.contract.settings import JobSettings, PodSettings
from kueuelib.machinery.store import shared, strip

SUCCEEDED = "Succeeded"
FAILED = "Failed"
_BY_KUBELET = "TerminationByKubelet"


class PodStage(enum.Enum):
    """The stage of a pod's life."""

    GATED = "gated"
    """It has our gate."""
    STARTED = "started"
    """It may run, or is running."""
    LEAVING = "leaving"
    """It is being deleted and may still run."""
    DROPPED = "dropped"
    """Somebody has deleted it before it ran, so there is nothing to wait for."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether it ran and has stopped."""
        return self in (PodStage.SUCCEEDED, PodStage.FAILED)


def stage_of(pod: Mapping[str, Any]) -> PodStage:
    """The stage of a pod's life.

    A pod that was deleted without a grace period is over, whatever its phase: only finalizers keep
    it visible. So is one that we have stopped before it had a node: its group waits for another.
    """
    phase = phase_of(pod)
    if phase == SUCCEEDED:
        return PodStage.SUCCEEDED
    if phase == FAILED:
        return PodStage.FAILED
    if not is_deleted(pod):
        return PodStage.GATED if is_gated(pod) else PodStage.STARTED
    if (pod["spec"].get("schedulingGates")) or not pod["spec"].get("nodeName"):
        return PodStage.FAILED if was_stopped(pod) else PodStage.DROPPED
    return (
        PodStage.FAILED
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0
        else PodStage.LEAVING
    )


def is_on_node(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is on a node, has not ended, and is not being deleted."""
    return stage_of(pod) is PodStage.STARTED and bool(pod["spec"].get("nodeName"))


def phase_of(pod: Mapping[str, Any]) -> str:
    """The phase, `Pending` when there is none yet."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def gates_of(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of all scheduling gates."""
    return tuple([gate["name"] for gate in pod["spec"].get("schedulingGates") or ()])


def is_gated(pod: Mapping[str, Any]) -> bool:
    """Whether our gate is there."""
    return ADMISSION_GATE in gates_of(pod)


def is_deleted(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the condition Ready is True."""
    return is_true(pod, "Ready")


def is_managed(pod: Mapping[str, Any]) -> bool:
    """Whether the label says that it is ours."""
    return labels_of(pod).get(MANAGED) == "true"


def has_finalizer(pod: Mapping[str, Any]) -> bool:
    """Whether our finalizer is there."""
    return POD_FINALIZER in (pod["metadata"].get("finalizers") or ())


def was_stopped(pod: Mapping[str, Any]) -> bool:
    """Whether we have deleted it, or begun to."""
    return is_true(pod, TERMINATION_TARGET)


def was_disrupted(pod: Mapping[str, Any]) -> bool:
    """Whether an eviction, a taint, a preemption by the scheduler or a lost node has deleted it.

    A kubelet ends pods and deletes none of them: that is left to a user, whose choice it is.
    """
    condition = find_condition((pod.get("status") or {}).get("conditions"), DISRUPTION_TARGET)
    by = condition.get("reason")
    return is_deleted(pod) and condition.get("status") == "True" and by != _BY_KUBELET


def queue_of(pod: Mapping[str, Any]) -> str:
    """The LocalQueue that the label names, or the deprecated annotation; empty for none."""
    return labels_of(pod).get(QUEUE_LABEL) or annotations_of(pod).get(QUEUE_LABEL, "")


def group_of(pod: Mapping[str, Any]) -> str:
    """The name of the group, by annotation or label; empty for none."""
    return identifier(pod, GROUP_LABEL)


def role_label_of(pod: Mapping[str, Any]) -> str:
    """The role that the label names, empty for none."""
    return labels_of(pod).get(GROUP_ROLE_LABEL, "")


def declaration_of(pod: Mapping[str, Any]) -> str | None:
    """The text that declares the pod sets of the group; None when the pod declares none."""
    return annotations_of(pod).get(GROUP_SETS)


def total_count_of(pod: Mapping[str, Any]) -> int | None:
    """How many pods the group has; None if the annotation is missing or not a positive number."""
    text = annotations_of(pod).get(GROUP_TOTAL_COUNT, "")
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number and int(text) > 0 else None


def is_fast(pod: Mapping[str, Any]) -> bool:
    """Whether its group may be admitted before all of its pods exist."""
    return annotations_of(pod).get(GROUP_FAST) == "true"


def is_serving(pod: Mapping[str, Any]) -> bool:
    """Whether its group never ends by itself, because finished pods are replaced."""
    return annotations_of(pod).get(GROUP_SERVING) == "true"


def is_unretriable(pod: Mapping[str, Any]) -> bool:
    """Whether the annotation says that the group must not be retried."""
    return annotations_of(pod).get(RETRIABLE_IN_GROUP) == "false"


def created_at(pod: Mapping[str, Any]) -> float:
    """When the pod was created, in seconds since the epoch."""
    text = pod["metadata"].get("creationTimestamp")
    return parse_time(text) if text else 0.0


def failed_at(pod: Mapping[str, Any]) -> float:
    """When its containers ended, or it was deleted, whichever came first.

    Containers that were never ready have not been so since they began, so their own ends count as
    well. Kubelets write the reason `PodFailed`, others `PodCompleted` or nothing: any time at which
    the containers stopped being ready counts.

    A pod that its kubelet rejected has no containers. It failed when the kubelet saw it, which is
    its start time, or when it was disrupted. Without any of these, its creation counts.
    """
    status = pod.get("status") or {}
    condition = find_condition(status.get("conditions"), "ContainersReady")
    ends = ends_of(status)
    if condition.get("status") == "False" and condition.get("lastTransitionTime"):
        ends.append(condition["lastTransitionTime"])
    deleted = pod["metadata"].get("deletionTimestamp")
    times = [max(map(parse_time, ends))] if ends else []
    times += [parse_time(deleted)] if deleted else []
    if times:
        return min(times)
    disrupted = find_condition(status.get("conditions"), DISRUPTION_TARGET)
    since = disrupted.get("lastTransitionTime") or status.get("startTime")
    return parse_time(since) if since else created_at(pod)


def ends_of(status: Mapping[str, Any]) -> list[str]:
    """When the containers of a pod ended, in the order of its raw status."""
    times = (
        ((each.get("state") or {}).get("terminated") or {}).get("finishedAt")
        for kind in ("initContainerStatuses", "containerStatuses")
        for each in status.get(kind) or ()
    )
    return [text for text in times if text]


def by_age(pods: Iterable[Obj]) -> list[Obj]:
    """The sort key: oldest first, then by name."""
    return sorted(pods, key=lambda pod: (created_at(pod), pod["metadata"]["name"]))


# ---- keys of the work queue

_GROUP_PREFIX = "group/"


def group_key(namespace: str, group: str) -> ObjectKey:
    """The key of a group; no namespace has a slash in its name."""
    return ObjectKey(_GROUP_PREFIX + namespace, group)


def group_of_key(key: ObjectKey) -> ObjectKey | None:
    """Namespace and name of a group, given its key; None when it is the key of a pod."""
    if not key.namespace.startswith(_GROUP_PREFIX):
        return None
    return ObjectKey(key.namespace.removeprefix(_GROUP_PREFIX), key.name)


def work_key(pod: Mapping[str, Any]) -> ObjectKey:
    """The key under which a pod is reconciled: that of its group, or its own."""
    meta = pod["metadata"]
    namespace, group = meta.get("namespace") or "", group_of(pod)
    return group_key(namespace, group) if group else ObjectKey(namespace, meta["name"])


# ---- decides which pods are queued (KEP-976) -----------------------------------------------------


def is_selected(
    pod: Mapping[str, Any],
    settings: JobSettings,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
) -> bool:
    """Whether a pod without a managed owner is to be queued.

    Args:
        pod: the raw pod.
        settings: the configuration.
        namespace: where it is.
        namespace_labels: the labels of its namespace; None when it is not known yet.

    Raises:
        Unavailable: the namespace is not known yet, and it matters.
    """
    if not queue_of(pod) and not settings.manage_jobs_without_queue_name:
        return False
    if is_excluded(pod, settings.pods, namespace, namespace_labels):
        return False
    return settings.manages(queue_of(pod), namespace_labels or {NAMESPACE_NAME_LABEL: namespace})


def is_excluded(
    pod: Mapping[str, Any],
    options: PodSettings,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
) -> bool:
    """Whether a selector of `podOptions` excludes a pod; see `is_selected`."""
    if not options.selected.matches(labels_of(pod)):
        return True
    if namespace_labels is None and not _asks_only_for_names(options.namespace_selector):
        text = f'the labels of the namespace "{namespace}" are not known yet; try again'
        raise Unavailable(text)
    labels = {NAMESPACE_NAME_LABEL: namespace} if namespace_labels is None else namespace_labels
    return not options.namespaces.matches(labels)


def _asks_only_for_names(selector: Mapping[str, Any]) -> bool:
    keys = {*(selector.get("matchLabels") or {})}
    keys |= {each["key"] for each in selector.get("matchExpressions") or ()}
    return keys <= {NAMESPACE_NAME_LABEL}


# Reduces pods for the cache: to what decisions need, or for a waiting pod, to its whole spec.
# Workloads and patches are made from waiting pods. For a running one, only its shape and marks
# matter, so a thousand running pods cost little.

_CONDITIONS = frozenset({"Ready", "ContainersReady", "TerminationTarget", "DisruptionTarget"})
_SPEC = (
    *("nodeName", "nodeSelector", "tolerations", "schedulingGates", "priority"),
    *("priorityClassName", "runtimeClassName", "overhead", "resources"),
)
_CONTAINER = ("name", "resources", "ports", "restartPolicy")
_ALIKE = ("tolerations", "initContainers", "containers")
"""The largest parts, which the pods of a group have in common."""


def trim(obj: Obj) -> Obj:
    """The parts of a pod that are stored; changes its argument."""
    status = obj.get("status") or {}
    kept: Obj = {"phase": status["phase"]} if status.get("phase") else {}
    conditions = [each for each in status.get("conditions") or () if each["type"] in _CONDITIONS]
    if conditions:
        kept["conditions"] = conditions
    ends = ends_of(status) if kept.get("phase") == FAILED else ()
    if ends:
        last = max(ends, key=parse_time)
        kept["containerStatuses"] = [{"state": {"terminated": {"finishedAt": last}}}]
    elif kept.get("phase") == FAILED and status.get("startTime"):
        kept["startTime"] = status["startTime"]
    obj["status"] = kept
    strip(obj)
    obj["status"] = shared(kept)
    spec = obj["spec"]
    if not is_gated(obj):
        small: dict[str, Any] = {field: spec[field] for field in _SPEC if field in spec}
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                small[kind] = [
                    {field: each[field] for field in _CONTAINER if field in each}
                    for each in spec[kind]
                ]
        spec = obj["spec"] = small
    for part in _ALIKE:
        if part in spec:
            spec[part] = shared(spec[part])
    return obj


def trim_missed(obj: Obj) -> Obj:
    """The same for pods that are only checked for missing marks."""
    trim(obj)
    if not is_gated(obj):
        obj["spec"] = {"schedulingGates": obj["spec"].get("schedulingGates") or []}
    return obj
