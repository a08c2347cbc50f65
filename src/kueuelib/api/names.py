"""Labels, annotations, finalizers, condition types, reasons; the syntax of names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.kinds import KUEUE, VERSIONS
from kueuelib.api.patterns import LABEL_LIMIT, SUBDOMAIN_LIMIT
from kueuelib.errors import ConfigError

# ---- labels
QUEUE_LABEL: Final = f"{KUEUE}/queue-name"
PRIORITY_CLASS_LABEL: Final = f"{KUEUE}/priority-class"
DEFAULT_PRIORITY_CLASS: Final = "default"
"""The WorkloadPriorityClass of jobs that name none."""
PREBUILT_LABEL: Final = f"{KUEUE}/prebuilt-workload-name"
JOB_UID_LABEL: Final = f"{KUEUE}/job-uid"
MANAGED_LABEL: Final = f"{KUEUE}/managed"
MAX_EXECUTION_LABEL: Final = f"{KUEUE}/max-exec-time-seconds"
GROUP_LABEL: Final = f"{KUEUE}/pod-group-name"
GROUP_ROLE_LABEL: Final = f"{KUEUE}/pod-group-role"
POD_SET_LABEL: Final = f"{KUEUE}/podset"
CLUSTER_QUEUE_LABEL: Final = f"{KUEUE}/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = f"{KUEUE}/local-queue-name"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
"""The default Lease of the election, on which the leader notes what it runs with."""
DEFAULT_NAMESPACE: Final = "default"
"""The namespace of an object when neither the object nor a kubeconfig names one."""
DEFAULT_QUEUE: Final = "default"
"""The LocalQueue for the jobs of its namespace that name none."""

# ---- annotations
ADMISSION_GATED_BY: Final = f"{KUEUE}/admission-gated-by"
PARENT_WORKLOAD: Final = f"{KUEUE}/parent-workload"
MIN_PARALLELISM: Final = f"{KUEUE}/job-min-parallelism"
SYNC_COMPLETIONS: Final = f"{KUEUE}/job-completions-equal-parallelism"
GROUP_TOTAL_COUNT: Final = f"{KUEUE}/pod-group-total-count"
GROUP_FAST: Final = f"{KUEUE}/pod-group-fast-admission"
GROUP_SERVING: Final = f"{KUEUE}/pod-group-serving"
SUSPENDING_PARENT: Final = f"{KUEUE}/pod-suspending-parent"
GROUP_SETS: Final = f"{KUEUE}/pod-group-sets"
GROUP_SETS_DIGEST: Final = f"{KUEUE}/pod-group-sets-digest"
COMPONENT_INDEX: Final = f"{KUEUE}/component-workload-index"
ROLE_HASH: Final = f"{KUEUE}/role-hash"
RETRIABLE_IN_GROUP: Final = f"{KUEUE}/retriable-in-group"
IS_GROUP_WORKLOAD: Final = f"{KUEUE}/is-group-workload"
WORKLOAD_ANNOTATION: Final = f"{KUEUE}/workload"
STOPPING_ANNOTATION: Final = f"{KUEUE}/stopping"
"""Marks a job whose stop has begun and is not complete."""
INDEX_OFFSET: Final = f"{KUEUE}/pod-index-offset"
"""How much larger the indices of pods are than their ranks (KEP-2724)."""
GROUP_INDEX: Final = f"{KUEUE}/pod-group-pod-index"
"""The label with the index of a pod in its group."""
GROUP_INDEX_LABEL: Final = f"{KUEUE}/pod-group-pod-index-label"
"""The annotation with the name of another label that has this index."""
REQUIRED_TOPOLOGY: Final = f"{KUEUE}/podset-required-topology"
PREFERRED_TOPOLOGY: Final = f"{KUEUE}/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY: Final = f"{KUEUE}/podset-unconstrained-topology"
SLICE_LEVEL: Final = f"{KUEUE}/podset-slice-required-topology"
SLICE_SIZE: Final = f"{KUEUE}/podset-slice-size"
SLICE_CONSTRAINTS: Final = f"{KUEUE}/podset-slice-required-topology-constraints"
POD_SET_GROUP: Final = f"{KUEUE}/podset-group-name"
TOPOLOGY_KEYS: Final = frozenset(
    {
        *(REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY),
        *(SLICE_LEVEL, SLICE_SIZE, SLICE_CONSTRAINTS, POD_SET_GROUP),
    }
)
"""What pods and their templates ask of a topology (KEP-2724)."""
ORIGIN_KEYS: Final = frozenset(
    {POD_SET_LABEL, CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL, WORKLOAD_ANNOTATION}
)
"""Labels and annotations that a start writes on pods."""
PARAMETER_PREFIX: Final = f"provreq.{KUEUE}/"
"""Annotations of a Workload with this prefix become parameters of its ProvisioningRequests."""

# ---- finalizers, gates, field managers
MANAGED: Final = MANAGED_LABEL
IN_USE_FINALIZER: Final = f"{KUEUE}/resource-in-use"
POD_FINALIZER: Final = MANAGED_LABEL
ADMISSION_GATE: Final = f"{KUEUE}/admission"
TOPOLOGY_GATE: Final = f"{KUEUE}/topology"
"""The gate of pods that wait for the domain in which they are placed (KEP-2724)."""
ADMISSION_MANAGER: Final = "kueue-admission"
RECLAIMABLE_PODS_MANAGER: Final = "kueue-reclaimable-pods"
POD_MANAGER: Final = "kueue"
JOB_MANAGER_PREFIX: Final = "kueue-job-controller-"

# ---- priority classes
WORKLOAD_PRIORITY_CLASS_SOURCE: Final = f"{KUEUE}/workloadpriorityclass"
POD_PRIORITY_CLASS_SOURCE: Final = "scheduling.k8s.io/priorityclass"
WORKLOAD_PRIORITY_CLASS: Final = (KUEUE, "WorkloadPriorityClass")

# ---- conditions of workloads
QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
REQUEUED: Final = "Requeued"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
TERMINATION_TARGET: Final = "TerminationTarget"
DISRUPTION_TARGET: Final = "DisruptionTarget"

# ---- conditions of everything else
ACTIVE: Final = "Active"

# ---- reasons of workload conditions, as clients of Kueue know them; what an eviction leads to is
# in workload/evictions, what a reason to wait means in scheduler/condition_reasons
REASON_PENDING: Final = "Pending"
REASON_INADMISSIBLE: Final = "Inadmissible"
REASON_NO_RESERVATION: Final = "NoReservation"
REASON_NO_RESERVATION_NO_CHECKS: Final = "NoReservationNoChecks"
REASON_PLACES_PENDING: Final = "PendingDelayedTopologyRequests"
REASON_UNSATISFIED_CHECKS: Final = "UnsatisfiedAdmissionChecks"
REASON_PREEMPTED: Final = "Preempted"
REASON_NODE_FAILURES: Final = "NodeFailures"
REASON_PODS_MISSING: Final = "WaitingForReplacementPods"
REASON_PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
REASON_ADMISSION_CHECK: Final = "AdmissionCheck"
REASON_CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
REASON_DEACTIVATED: Final = "Deactivated"
REASON_REQUEUING_LIMIT: Final = "RequeuingLimitExceeded"
REASON_MAXIMUM_EXECUTION: Final = "MaximumExecutionTimeExceeded"
REASON_IN_CLUSTER_QUEUE: Final = "InClusterQueue"
REASON_IN_COHORT_RECLAMATION: Final = "InCohortReclamation"
REASON_IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
REASON_IN_COHORT_FAIR_SHARING: Final = "InCohortFairSharing"
REASON_SUCCEEDED: Final = "Succeeded"
REASON_FAILED: Final = "Failed"
REASON_OUT_OF_SYNC: Final = "OutOfSync"
REASON_OWNER_NOT_FOUND: Final = "OwnerNotFound"
REASON_FAILED_TO_START: Final = "FailedToStart"
REASON_STOPPED_BY_KUEUE: Final = "StoppedByKueue"
REASON_PREEMPTION_REQUIRED: Final = "PreemptionRequired"

# ---- reasons of Active
REASON_READY: Final = "Ready"
REASON_TERMINATING: Final = "Terminating"
REASON_STOPPED: Final = "Stopped"
REASON_FLAVOR_NOT_FOUND: Final = "FlavorNotFound"
REASON_CHECK_NOT_FOUND: Final = "AdmissionCheckNotFound"
REASON_CHECK_INACTIVE: Final = "AdmissionCheckInactive"
REASON_TOPOLOGY_NOT_FOUND: Final = "TopologyNotFound"
REASON_NODES_UNREADABLE: Final = "NodesUnreadable"
REASON_COHORT_CYCLE: Final = "CohortCycle"
REASON_NOT_FOUND: Final = "NotFound"
REASON_NO_CLUSTER_QUEUE: Final = "ClusterQueueDoesNotExist"
REASON_CLUSTER_QUEUE_INACTIVE: Final = "ClusterQueueIsInactive"

# ---- names of integrations

POD_FRAMEWORK: Final = "pod"
COMMON_FRAMEWORKS: Final = frozenset({"batch/job", POD_FRAMEWORK})
"""The integrations that need not import the modules of all kinds."""

# ---- the syntax of names

_LABEL_TEXT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL_TEXT}(\.{_LABEL_TEXT})*", re.ASCII)
_LABEL: Final = re.compile(_LABEL_TEXT, re.ASCII)
_LABEL_1035: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_QUALIFIED: Final = re.compile("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_HTTP_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)


def is_dns1123_subdomain(text: str) -> bool:
    """Whether it is lower-case words and dots, as in most names; at most 253 characters."""
    return len(text) <= SUBDOMAIN_LIMIT and _SUBDOMAIN.fullmatch(text) is not None


def is_dns1123_label(text: str) -> bool:
    """Whether it is a lower-case word without dots; at most 63 characters."""
    return len(text) <= LABEL_LIMIT and _LABEL.fullmatch(text) is not None


def is_dns1035_label(text: str) -> bool:
    """Whether it is a lower-case word without dots that starts with a letter; at most 63
    characters.
    """
    return len(text) <= LABEL_LIMIT and _LABEL_1035.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether it is a word with an optional domain and slash in front, as in label keys."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns1123_subdomain(prefix):
        return False
    return len(name) <= LABEL_LIMIT and _QUALIFIED.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether it is empty, or a word of at most 63 characters."""
    return text == "" or (len(text) <= LABEL_LIMIT and _QUALIFIED.fullmatch(text) is not None)


def is_domain_prefixed_path(text: str) -> bool:
    """Whether it is a domain, a slash and a path, as in `example.com/gate`."""
    domain, _, path = text.partition("/")
    return is_dns1123_subdomain(domain) and _HTTP_PATH.fullmatch(path) is not None


def admission_gates(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The gates that keep a job and its Workload from being queued (KEP-6915)."""
    names = annotations.get(ADMISSION_GATED_BY, "").split(",")
    return tuple(filter(None, map(str.strip, names)))


# ---- names of Workloads

_NAME_LIMIT: Final = 253
"""The longest name that an object may have."""
_HASH_DIGITS: Final = 5
"""A contract: Kueue computes the same names, and labels of stored objects have them."""


def workload_name(
    kind: str, group: str, owner_name: str, owner_uid: str, limit: int = _NAME_LIMIT
) -> str:
    """The name of the Workload of an owner (with the UID as today's Kueue).

    Args:
        kind: the owner's kind, for example `Job`.
        group: its API group, empty for the core group.
        owner_name: its name.
        owner_uid: its UID, so that a recreated owner gets another Workload; empty leaves it out.
        limit: the maximum length of the name.
    """
    words = [kind, group, owner_name, *([owner_uid] if owner_uid else [])]
    digest = hashlib.sha1("\n".join(words).encode(), usedforsecurity=False).hexdigest()
    prefix = f"{kind.lower()}-{owner_name}"
    longest = limit - len("-") - _HASH_DIGITS
    if len(prefix) > longest:
        prefix = prefix[:longest].rstrip(".-")
    return f"{prefix}-{digest[:_HASH_DIGITS]}"


def is_go_bool(text: str) -> bool | None:
    """The result of Go's ParseBool for an annotation: True, False, or None if it is neither."""
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    return None


def known_version(version: str) -> str:
    """A version of the queueing group.

    Raises:
        ConfigError: there is no such version.
    """
    if version not in VERSIONS:
        problem = f"{KUEUE} has no version {version!r}"
        raise ConfigError("version", problem, f"use {' or '.join(VERSIONS)}")
    return version


# ---- from which pod templates an object was made -------------------------------------------------

MADE_FROM: Final = "kueuelib.dev/made-from"
"""The annotation that holds the digest.

On an updated Workload: of the pod sets that the update wrote, and of the generation before it. If
the CRD of Workloads is older than the cluster, the API server drops fields of the templates, so the
Workload never equals its job. An update that leaves the generation as it is has shown what the
server keeps, and the Workload counts as equal until its generation changes. Otherwise it would be
updated, and the job stopped, again and again.

On a ProvisioningRequest: of the templates and flavors of its pods. A request outlives its
reservation until it is deleted. If the next one is about other pods or other flavors, its name and
counts may still be the same.
"""


def digest_of(pods: Any) -> str:
    """A short text that is the same for equal values of JSON; others count as their text."""
    text = json.dumps(pods, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
