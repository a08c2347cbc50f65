"""Feature gates of today's Kueue: which values match the behaviour of kueuelib.

A gate that cannot be honoured is refused by name, so that no user relies on a feature that is
missing, or on the absence of one that exists.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kueuelib.app.decoding import ConfigurationRefusal

if TYPE_CHECKING:
    from kueuelib.app.configuration import Configuration

PARTIAL_ADMISSION: Final = "PartialAdmission"
FLAVOR_FUNGIBILITY: Final = "FlavorFungibility"
MIXED_PROFILE: Final = "TASProfileMixed"
PRIORITY_SORTING: Final = "PrioritySortingWithinCohort"
PRIORITY_DEFAULTING: Final = "WorkloadPriorityClassDefaulting"
QUEUE_LABELS: Final = "AssignQueueLabelsForPods"
TOPOLOGY: Final = "TopologyAwareScheduling"
"""Without it, the Go manager does not name the Workload on its pods, either."""
NODE_REPLACEMENT: Final = "TASFailedNodeReplacement"
NODE_FAIL_FAST: Final = "TASFailedNodeReplacementFailFast"
NODE_TAINTS: Final = "TASReplaceNodeOnNodeTaints"
NODE_PODS: Final = "TASReplaceNodeOnPodTermination"
NODE_NOT_READY: Final = "TASReplaceNodeDueToNotReadyOverFixedTime"
FAST_GROUP_RELEASE: Final = "FastQuotaReleaseInPodIntegration"
SPARK_FRAMEWORK: Final = "sparkoperator.k8s.io/sparkapplication"

REJECT_CLAIMS: Final = "KueueDRARejectWorkloadsWhenDRADisabled"

FREE: Final = frozenset(
    {
        FAST_GROUP_RELEASE,
        PARTIAL_ADMISSION,
        FLAVOR_FUNGIBILITY,
        MIXED_PROFILE,
        PRIORITY_SORTING,
        PRIORITY_DEFAULTING,
        REJECT_CLAIMS,
        QUEUE_LABELS,
        TOPOLOGY,
        NODE_REPLACEMENT,
        NODE_FAIL_FAST,
        NODE_TAINTS,
        NODE_PODS,
        NODE_NOT_READY,
    }
)
"""Gates that may be true or false; there is a setting for each."""

ON: Final = frozenset(
    {
        "AdmissionGatedBy",
        "FairSharingPreemptWithinNominal",
        "FairSharingPrioritizeNonBorrowing",
        "FinishOrphanedWorkloads",
        "FlavorFungibilityPreserveScanProgress",
        "LendingLimit",
        "ManagedJobsNamespaceSelectorAlwaysRespected",
        "MetricsForCohorts",
        "ReclaimablePods",
        "RecomputeAssignmentUponPreemptionTargetsOverlap",
        "SchedulingEquivalenceHashing",
        "TASAssignmentsEncodingByHostnamePrefix",
        "TASHandleOverlappingFlavors",
        "TASMultiLayerTopology",
        "TASRecomputeAssignmentWithinSchedulingCycle",
        "TASValidateWorkloadSliceSize",
        "TLSOptions",
        "WorkloadIdentifierAnnotations",
    }
)
"""Features that kueuelib always has: only true is accepted."""

_DRA: Final = "quota for devices of resource claims is missing"
_MULTI: Final = "dispatch to other clusters is missing"
_SLICES: Final = "elastic jobs by workload slices are missing"

OFF: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "KueueDRAIntegration",
            "KueueDRAIntegrationConsumableCapacity",
            "KueueDRAIntegrationExtendedResource",
            "KueueDRAIntegrationPartitionableDevices",
        ),
        _DRA,
    ),
    **dict.fromkeys(
        (
            "MultiKueue",
            "MultiKueueAdaptersForCustomJobs",
            "MultiKueueClusterProfile",
            "MultiKueueIncrementalDispatcherConfig",
            "MultiKueueIncrementalDispatcherRespectConfigOrder",
            "MultiKueueKubeConfigPathValidation",
            "MultiKueueManagerQuotaAutomation",
            "MultiKueueOrchestratedPreemption",
            "MultiKueueRemoteSpecSync",
        ),
        _MULTI,
    ),
    "ElasticJobsViaWorkloadSlices": _SLICES,
    "ElasticJobsViaWorkloadSlicesWithTAS": _SLICES,
    "ConcurrentAdmission": "admission in several flavors at once is missing",
    "DisableWaitForPodsReady": "leave out waitForPodsReady instead",
    "FailureRecoveryPolicy": "recovery of pods that do not terminate is missing",
    "PriorityBoost": "the annotation priority-boost is not read",
    "QueueVisibility": "the visibility API lists what waits: write visibilityServer: {}",
    "SchedulerLibraryIntegration": "kueuelib has a scheduler of its own",
    "TASBalancedPlacement": "pods are not spread evenly over domains",
    "TASRespectNodeAffinityPreferred": "preferred affinity does not affect the choice of domains",
}
"""Features that kueuelib does not have: only false is accepted; true is refused with the reason."""

EITHER: Final = frozenset(
    {
        "TASCacheNodeMatchResults",
        "TASCacheTopologyTree",
        "TASCachingRemainingResources",
        "VectorizedResourceRequests",
        "WorkloadRequestUseMergePatch",
    }
)
"""Gates about the internals of the Go manager, without an effect outside it."""

CONFIGURED: Final[Mapping[str, tuple[Callable[[Configuration], bool], str]]] = {
    "AdmissionFairSharing": (
        lambda configuration: configuration.admission_fair_sharing is not None,
        "admissionFairSharing",
    ),
    "CustomMetricLabels": (
        lambda configuration: bool(configuration.metrics.custom_labels),
        "metrics.customLabels",
    ),
    "LocalQueueMetrics": (
        lambda configuration: configuration.metrics.local_queue_metrics.enable,
        "metrics.localQueueMetrics.enable",
    ),
    "QuotaCheckStrategy": (
        lambda configuration: configuration.resources.rules.ignores_undeclared,
        "resources.quotaCheckStrategy",
    ),
    "SparkApplicationIntegration": (
        lambda configuration: SPARK_FRAMEWORK in configuration.integrations.frameworks,
        "integrations.frameworks",
    ),
    "VisibilityOnDemand": (
        lambda configuration: configuration.visibility_server is not None,
        "visibilityServer",
    ),
}
"""Gates that permit a feature of a configuration block: whether the block turns it on, and its key.
"""

_PERMITS: Final = frozenset(
    {
        "AdmissionFairSharing",
        "CustomMetricLabels",
        "QuotaCheckStrategy",
        "SparkApplicationIntegration",
    }
)
"""Those of them that have no effect by themselves, so that true is always accepted."""

NO_SWITCH: Final = frozenset(
    {
        "AllAlpha",
        "AllBeta",
        "CleanupProvisioningRequestsOnEviction",
        "DeferRayServiceFinalizationForRedisCleanup",
        "LWSImmutableGroupSize",
        "MetricForWorkloadCreationLatency",
        "PodIntegrationValidateGroupOwner",
        "PrioritizePreemptorWorkloads",
        "RejectUpdatesToCQWithInvalidOnFlavors",
        "RemoveFinalizersWithStrictPatch",
        "ShortWorkloadNames",
        "SkipAncestorCheckForDeletedWorkloads",
        "SkipReassignmentForPodOwnedWorkloads",
        "UnadmittedWorkloadsExplicitStatus",
        "UnadmittedWorkloadsObservability",
        "ValidateRayAndSparkJobUpdates",
        "WorkloadValidateResourcesAreNonNegative",
        "WorkloadValidationForPodSetMetadata",
    }
)
"""Gates for which neither value describes exactly what kueuelib does."""

KNOWN: Final = frozenset({*FREE, *ON, *OFF, *EITHER, *CONFIGURED, *NO_SWITCH})


def check_feature_gates(gates: Mapping[str, bool]) -> Iterator[ConfigurationRefusal]:
    """Refuses gates that contradict the behaviour of kueuelib, whatever else is configured."""
    for name, value in gates.items():
        problem, fix = _refusal(name, value=value)
        if problem:
            yield ConfigurationRefusal(f"featureGates.{name}: {problem}", fix)


def check_configured_gates(configuration: Configuration) -> Iterator[ConfigurationRefusal]:
    """Refuses gates that contradict the block of the configuration that decides."""
    for name in configuration.feature_gates.keys() & CONFIGURED.keys():
        value, (is_on, key) = configuration.feature_gates[name], CONFIGURED[name]
        if value == is_on(configuration) or (value and name in _PERMITS):
            continue
        state = "turned on" if is_on(configuration) else "off"
        problem = f"{str(value).lower()}, but {key} says that it is {state}"
        yield ConfigurationRefusal(f"featureGates.{name}: {problem}", f"change {key}")


def _refusal(name: str, *, value: bool) -> tuple[str, str]:
    """Why a value is refused, and the fix; two empty texts if it is accepted."""
    if name in ON and not value:
        return "the feature cannot be turned off", "remove the gate"
    if name in OFF and value:
        return OFF[name], "remove the gate (see docs/missing.md)"
    if name in NO_SWITCH:
        return "kueuelib has no such switch", "remove the gate (see docs/missing.md)"
    if name not in KNOWN:
        near = difflib.get_close_matches(name, KNOWN, 1)
        return "unknown feature gate", f"did you mean {near[0]}?" if near else "remove it"
    return "", ""
