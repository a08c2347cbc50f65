"""A test of every honoured field: it fails if the field does not count."""

from __future__ import annotations

_CHECKS, _PROVISIONING = "unit/checks/test_on_a_server.py", "unit/checks/test_provisioning.py"
_FLAVORS, _CACHE = "unit/scheduler/test_flavors.py", "unit/scheduler/test_cache.py"
_ENGINE = "unit/scheduler/engine"
_STANDING = f"{_ENGINE}/test_standing.py"
_PREEMPTION, _FAIR = "scenarios/preemption.yaml", "scenarios/fair.yaml"
_SPREAD = f"{_PROVISIONING}::test_pods_are_sent_to_their_nodes_by_the_details_of_the_request"
_BACKOFF = f"{_PROVISIONING}::test_the_pause_after_a_failure_doubles_up_to_its_limit"
_TAINT = f"{_FLAVORS}::test_taints_must_be_tolerated"
_TOLERATED = f"{_FLAVORS}::test_tolerations_of_the_flavor_count_like_those_of_the_pod"
_REFERENCE = "unit/api/test_conversion.py::test_the_priority_class_becomes_a_reference"
_MOVES = f"{_STANDING}::test_local_queue_that_points_elsewhere_takes_its_workloads_along"
_TREE = "unit/scheduler/test_explain_trees.py::test_what_may_be_enough_is_computed_along_the_path"
_PLACED = (
    "unit/scheduler/topology/test_placement.py"
    "::test_pods_are_placed_where_kueue_was_seen_to_place_them"
)
_STARTED = (
    "unit/scheduler/topology/test_ungater.py::test_pods_start_where_kueue_was_seen_to_start_them"
)
_REQUEST = "podSets[].topologyRequest"
_QUOTAS = {
    "coveredResources[]": "scenarios/flavors.yaml::a resource that no group covers can not be had",
    "flavors[].name": "scenarios/flavors.yaml::every resource group chooses for itself",
    "flavors[].resources[].name": "scenarios/flavors.yaml::every resource group chooses for itself",
}
CHECK = {
    "controllerName": f"{_CHECKS}::test_the_checks_of_other_controllers_are_left_to_them",
    **dict.fromkeys(
        (f"parameters.{name}" for name in ("apiGroup", "kind")),
        f"{_CHECKS}::test_a_wrong_reference_makes_the_check_inactive",
    ),
    "parameters.name": (
        f"{_CHECKS}::test_parameters_are_handed_over_and_asked_for_again_when_they_change"
    ),
    "preemptionPolicy": (
        "unit/scheduler/test_late_preemption.py::test_reservations_wait_for_pods_that_are_not_ready"
    ),
    "retryDelayMinutes": "unit/checks/test_moves.py::test_a_check_says_how_long_a_retry_lasts",
}
CLUSTER_QUEUE = {
    **dict.fromkeys(
        (f"admissionChecksStrategy.admissionChecks[].{name}" for name in ("name", "onFlavors[]")),
        f"{_ENGINE}/test_admission.py"
        "::test_admitted_at_once_only_when_all_checks_of_the_flavors_are_ready",
    ),
    "admissionChecks[]": (
        "unit/api/test_conversion.py::test_a_strategy_whose_entries_name_no_flavors_becomes_a_list"
    ),
    "admissionScope.admissionMode": (
        "unit/scheduler/test_past_usage.py::test_a_cluster_queue_may_change_its_mind"
    ),
    "cohort": "unit/api/test_conversion.py::test_a_cohort_is_renamed",
    "cohortName": (
        "scenarios/flavors.yaml::without a borrowing limit one queue may take the whole cohort"
    ),
    "fairSharing.weight": f"{_FAIR}::twice the weight is due twice as much",
    "flavorFungibility.preference": (
        f"{_PREEMPTION}::PreemptionOverBorrowing takes victims rather than borrow"
    ),
    "flavorFungibility.whenCanBorrow": (
        "scenarios/flavors.yaml::TryNextFlavor prefers a flavor in which nothing is borrowed"
    ),
    "flavorFungibility.whenCanPreempt": (
        f"{_PREEMPTION}::whenCanPreempt may end the search at the first flavor"
    ),
    **dict.fromkeys(
        (
            f"namespaceSelector.matchExpressions[].{name}"
            for name in ("key", "operator", "values[]")
        ),
        f"{_STANDING}::test_namespaces_are_selected_by_expressions",
    ),
    "namespaceSelector.matchLabels": (
        f"{_STANDING}::test_namespace_that_does_not_match_and_then_does"
    ),
    "preemption.borrowWithinCohort.maxPriorityThreshold": (
        f"{_PREEMPTION}::a threshold protects those above it from borrowers"
    ),
    "preemption.borrowWithinCohort.policy": (
        f"{_PREEMPTION}::borrowWithinCohort lets a borrower take lower priorities of borrowers"
    ),
    "preemption.reclaimWithinCohort": (
        f"{_PREEMPTION}::reclaim Any takes lent quota back from a higher priority"
    ),
    "preemption.withinClusterQueue": f"{_PREEMPTION}::of lower priorities the lowest goes",
    "queueingStrategy": f"{_ENGINE}/test_queues.py::test_strict_fifo_waits_behind_its_head",
    **{f"resourceGroups[].{path}": test for path, test in _QUOTAS.items()},
    "resourceGroups[].flavors[].resources[].borrowingLimit": (
        "scenarios/flavors.yaml::a borrowing limit is a ceiling even when the cohort has room"
    ),
    "resourceGroups[].flavors[].resources[].lendingLimit": (
        "scenarios/cohorts.yaml::what a lender keeps can not be borrowed"
    ),
    "resourceGroups[].flavors[].resources[].nominalQuota": (
        "scenarios/flavors.yaml::without a cohort a request above nominal quota never fits"
    ),
    "stopPolicy": f"{_STANDING}::test_stopped_cluster_queue_offers_nothing",
}
COHORT = {
    "fairSharing.weight": (
        "unit/scheduler/test_explain_trees.py"
        "::test_a_weight_of_a_cohort_above_decides_whose_turn_it_is"
    ),
    "parentName": _TREE,
    **{f"resourceGroups[].{path}": _TREE for path in _QUOTAS},
    **{
        f"resourceGroups[].flavors[].resources[].{name}": _TREE
        for name in ("borrowingLimit", "lendingLimit", "nominalQuota")
    },
}
LOCAL_QUEUE = {
    "clusterQueue": _MOVES,
    "fairSharing.weight": "unit/scheduler/test_past_usage.py::test_a_weight_divides_what_was_used",
    "stopPolicy": (f"{_STANDING}::test_stopped_local_queue_holds_its_workloads_back"),
}
PROVISIONING = {
    "managedResources[]": (
        f"{_PROVISIONING}::test_pods_that_need_no_managed_resource_need_no_request"
    ),
    "parameters": (
        f"{_PROVISIONING}::test_parameters_of_the_workload_win_and_counts_are_those_of_the_admission"
    ),
    "podSetMergePolicy": (
        f"{_PROVISIONING}::test_pod_sets_are_asked_for_as_one_as_the_policy_says"
    ),
    "podSetUpdates.nodeSelector[].key": _SPREAD,
    "podSetUpdates.nodeSelector[].valueFromProvisioningClassDetail": _SPREAD,
    "provisioningClassName": (
        f"{_PROVISIONING}::test_a_workload_starts_when_its_nodes_are_there_and_its_pods_find_them"
    ),
    "retryStrategy.backoffBaseSeconds": _BACKOFF,
    "retryStrategy.backoffLimitCount": (
        f"{_PROVISIONING}"
        "::test_a_failed_request_is_followed_by_another_one_and_the_last_failure_rejects"
    ),
    "retryStrategy.backoffMaxSeconds": _BACKOFF,
}
FLAVOR = {
    "nodeLabels": f"{_FLAVORS}::test_selectors_count_in_the_labels_of_the_flavor",
    **{f"nodeTaints[].{name}": _TAINT for name in ("effect", "key", "value")},
    **{f"tolerations[].{name}": _TOLERATED for name in ("effect", "key", "operator", "value")},
    "tolerations[].tolerationSeconds": (
        "unit/jobs/contract/test_podset_info.py::test_a_toleration_of_a_flavor_comes_as_a_whole"
    ),
    "topologyName": (
        "unit/controllers/test_nodes.py::test_workloads_get_places_where_others_leave_room"
    ),
}
WORKLOAD = {
    "active": f"{_STANDING}::test_deactivated_workload_leaves_the_queue",
    "maximumExecutionTimeSeconds": (
        "unit/workload/test_life.py::test_the_time_of_all_turns_is_limited_together"
    ),
    "podSets[].count": "scenarios/partial.yaml::as many pods as fit, when fewer are allowed",
    "podSets[].minCount": "scenarios/partial.yaml::as many pods as fit, when fewer are allowed",
    "podSets[].name": (
        "unit/jobs/contract/test_podset_info.py::test_an_admission_of_other_pod_sets_is_refused"
    ),
    "podSets[].template": (
        "scenarios/flavors.yaml::taint, selector and size each exclude one flavor"
    ),
    **dict.fromkeys(
        (
            *(f"{_REQUEST}.{name}" for name in ("preferred", "required", "unconstrained")),
            *(f"{_REQUEST}.podSet{name}" for name in ("GroupName", "SliceSize")),
            f"{_REQUEST}.podSetSliceRequiredTopology",
            *(
                f"{_REQUEST}.podsetSliceRequiredTopologyConstraints[].{name}"
                for name in ("size", "topology")
            ),
        ),
        _PLACED,
    ),
    **dict.fromkeys(
        (f"{_REQUEST}.{name}" for name in ("podIndexLabel", "subGroupCount", "subGroupIndexLabel")),
        _STARTED,
    ),
    "priority": f"{_PREEMPTION}::of lower priorities the lowest goes",
    "priorityClassName": _REFERENCE,
    "priorityClassSource": _REFERENCE,
    **{
        f"priorityClassRef.{name}": (
            "unit/jobs/reconcile/test_plan.py::test_a_priority_that_was_edited_in_the_workload_stays"
        )
        for name in ("group", "kind", "name")
    },
    "queueName": _MOVES,
}
SHOWN: dict[str, dict[str, str]] = {
    "AdmissionCheck": CHECK,
    "ClusterQueue": CLUSTER_QUEUE,
    "Cohort": COHORT,
    "LocalQueue": LOCAL_QUEUE,
    "ProvisioningRequestConfig": PROVISIONING,
    "ResourceFlavor": FLAVOR,
    "Topology": {"levels[].nodeLabel": _PLACED},
    "Workload": WORKLOAD,
    "WorkloadPriorityClass": {
        "value": (
            "unit/jobs/reconcile/test_plan.py::test_the_workload_follows_the_priority_class_label"
        )
    },
}
"""The tests by kind and path, without `spec`."""
