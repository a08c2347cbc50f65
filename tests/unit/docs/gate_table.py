"""The table of docs/feature-gates.md: `python tests/unit/docs/gate_table.py > FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from kueuelib.app.feature_gates import (
    CONFIGURED,
    EITHER,
    FAST_GROUP_RELEASE,
    FREE,
    KNOWN,
    NO_SWITCH,
    NODE_NOT_READY,
    OFF,
    ON,
)

PAGE = Path(__file__).parents[3] / "docs" / "feature-gates.md"
GATE_TESTS = "unit/app/test_keys_take_effect.py"
_ENGINE = "unit/scheduler/engine"
ALWAYS = {
    "AdmissionGatedBy": f"{_ENGINE}/test_queues.py::test_who_is_gated_stays_out_of_its_queue",
    "FairSharingPreemptWithinNominal": (
        "scenarios/fair.yaml::who stays within its own quota reclaims it without a look at shares"
    ),
    "FairSharingPrioritizeNonBorrowing": (
        "scenarios/fair.yaml::who borrows nothing of what it asks for comes before who does, also "
        "with a larger share"
    ),
    "FinishOrphanedWorkloads": (
        "unit/workload/test_next_step.py::test_a_workload_whose_job_was_deleted_without_it_is_finished_and_let_go"
    ),
    "FlavorFungibilityPreserveScanProgress": (
        "unit/scheduler/test_flavors.py::test_search_goes_on_behind_the_flavor_that_was_tried"
    ),
    "LendingLimit": "scenarios/cohorts.yaml::what a lender keeps can not be borrowed",
    "ManagedJobsNamespaceSelectorAlwaysRespected": (
        "unit/jobs/webhooks/test_webhook.py::test_jobs_are_managed_only_in_selected_namespaces"
    ),
    "MetricsForCohorts": (
        "unit/controllers/test_queue_metrics.py"
        "::test_the_series_of_a_cohort_follow_its_tree_and_go_with_it"
    ),
    "ReclaimablePods": f"{_ENGINE}/test_admission.py::test_reclaimed_pods_wake_others",
    "RecomputeAssignmentUponPreemptionTargetsOverlap": (
        "scenarios/preemption.yaml::the second preemptor looks for others when its victim is taken"
    ),
    "SchedulingEquivalenceHashing": (
        f"{_ENGINE}/test_queues.py::test_equal_shapes_are_parked_together_and_told_once"
    ),
    "TASAssignmentsEncodingByHostnamePrefix": (
        "unit/api/test_topology_encoding.py::test_slices_are_those_that_kueue_was_seen_to_make"
    ),
    "TASHandleOverlappingFlavors": (
        "unit/scheduler/topology/test_decisions.py"
        "::test_flavors_that_share_nodes_do_not_give_them_twice_in_one_cycle"
    ),
    "TASMultiLayerTopology": (
        "unit/scheduler/topology/test_placement.py"
        "::test_pods_are_placed_where_kueue_was_seen_to_place_them"
    ),
    "TASRecomputeAssignmentWithinSchedulingCycle": (
        "scenarios/test_topologies.py::test_worlds_with_nodes_are_decided_as_recorded"
    ),
    "TASValidateWorkloadSliceSize": (
        "unit/api/test_validation_workload.py::test_a_level_for_slices_and_their_size_need_each_other"
    ),
    "TLSOptions": f"{GATE_TESTS}::test_a_key_reaches_its_part",
    "WorkloadIdentifierAnnotations": (
        "e2e/test_origin.py::test_an_annotation_names_the_workload_of_a_job"
    ),
}
"""A test of each feature that is always on."""
HEAD = """# Feature gates

`featureGates` of the [configuration](configuration.md) takes the gates of today's Kueue. A value is
accepted if it says what happens anyway. Any other value is an error at the start that names the
gate. This page is generated. For each gate that is honoured or always on there is a test that fails
without it.

| Gate | Accepted | |
| --- | --- | --- |
"""


def row(name: str) -> tuple[str, str]:
    """The values of a gate that are accepted, and why."""
    if name in FREE:
        default = "false" if name in (FAST_GROUP_RELEASE, NODE_NOT_READY) else "true"
        return "`true`, `false`", f"honoured; `{default}` unless it is set"
    if name in ON:
        return "`true`", "always on"
    if name in OFF:
        return "`false`", OFF[name]
    if name in EITHER:
        return "`true`, `false`", "no difference"
    if name in CONFIGURED:
        return "as configured", f"`{CONFIGURED[name][1]}` decides"
    assert name in NO_SWITCH
    return "neither", "no switch"


def page() -> str:
    """The whole page."""
    rows = ((name, *row(name)) for name in sorted(KNOWN))
    return HEAD + "".join(f"| `{name}` | {values} | {why} |\n" for name, values, why in rows)


if __name__ == "__main__":
    sys.stdout.write(page())
