from __future__ import annotations

import pytest

from kueuelib.api import codec
from kueuelib.api.batch import Job
from kueuelib.api.codec import decode, encode
from kueuelib.api.core import Lease, Pod
from kueuelib.api.kueue import Admission, ClusterQueue, LocalQueue, PodSetAssignment, Workload
from kueuelib.api.meta import LabelSelector, ObjectKey, parse_time
from kueuelib.api.quantity import Quantity
from kueuelib.errors import InvalidObject

V1BETA1 = "kueue.x-k8s.io/v1beta1"


def cluster_queue(**spec):
    head = {"apiVersion": V1BETA1, "kind": "ClusterQueue", "metadata": {"name": "q"}}
    return {**head, "spec": spec}


def workload(*pod_sets, **spec):
    head = {"apiVersion": V1BETA1, "kind": "Workload", "metadata": {"name": "w", "namespace": "ns"}}
    return {**head, "spec": {"podSets": list(pod_sets), **spec}}


def pod_set(**fields):
    return {"name": "main", "count": 1, "template": {"spec": {"containers": []}}, **fields}


def errors(cls, obj):
    with pytest.raises(InvalidObject) as refused:
        decode(cls, obj)
    return [str(error) for error in refused.value.errors]


def test_a_minimal_cluster_queue_has_the_documented_defaults():
    spec = decode(ClusterQueue, cluster_queue()).spec
    assert spec.queueing_strategy == "BestEffortFIFO"
    assert spec.stop_policy == "None"
    assert spec.cohort_name == ""
    assert spec.namespace_selector is None
    assert spec.preemption.within_cluster_queue == "Never"
    assert spec.preemption.reclaim_within_cohort == "Never"
    assert spec.preemption.borrow_within_cohort.policy == "Never"
    assert spec.preemption.borrow_within_cohort.max_priority_threshold is None
    assert spec.flavor_fungibility.when_can_borrow == "MayStopSearch"
    assert spec.flavor_fungibility.when_can_preempt == "TryNextFlavor"


def test_the_slow_converter_that_names_fields_is_made_for_the_first_bad_object():
    codec._explaining.cache_clear()
    decode(Workload, workload(pod_set()))
    assert codec._explaining.cache_info().currsize == 0
    assert errors(Workload, workload(pod_set(count="1")))
    assert codec._explaining.cache_info().currsize == 1


def test_an_empty_namespace_selector_is_not_the_same_as_none():
    assert decode(ClusterQueue, cluster_queue(namespaceSelector={})).spec.namespace_selector == (
        LabelSelector()
    )
    assert (
        decode(ClusterQueue, cluster_queue(namespaceSelector=None)).spec.namespace_selector is None
    )


def test_the_old_version_is_read_into_the_model_of_the_new_one():
    raw = cluster_queue(cohort="c", admissionChecks=["a", "b"])
    spec = decode(ClusterQueue, raw).spec
    assert spec.cohort_name == "c"
    assert [rule.name for rule in spec.admission_checks_strategy.admission_checks] == ["a", "b"]
    assert spec.extra == {}


def test_an_object_without_a_version_is_taken_for_the_stored_one():
    found = decode(ClusterQueue, {"metadata": {"name": "q"}, "spec": {"cohortName": "c"}})
    assert found.spec.cohort_name == "c"
    assert found.key == ObjectKey("", "q")


def test_every_bad_field_is_named_by_its_path():
    bad = workload(
        pod_set(count="three"),
        "no pod set",
        pod_set(template={"spec": {"containers": [{"resources": {"requests": {"cpu": "one"}}}]}}),
    )
    bad["metadata"]["labels"] = {"a": 1}
    bad["metadata"]["creationTimestamp"] = "yesterday"
    found = errors(Workload, bad)
    assert [error.partition(": ")[0] for error in found] == [
        "metadata.creationTimestamp",
        "metadata.labels[a]",
        "spec.podSets[0].count",
        "spec.podSets[1]",
        "spec.podSets[2].template.spec.containers[0].resources.requests[cpu]",
    ]
    assert found[2] == (
        'spec.podSets[0].count: Invalid value: "string": '
        'spec.podSets[0].count in body must be of type integer: "string"'
    )
    assert found[4].endswith('Invalid value: "one": must be a quantity')


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"resourceGroups": {}}, "spec.resourceGroups"),
        ({"resourceGroups": [{"flavors": [{}]}]}, "spec.resourceGroups[0].flavors[0].name"),
        ({"queueingStrategy": 1}, "spec.queueingStrategy"),
        ({"preemption": "Any"}, "spec.preemption"),
        (
            {"preemption": {"borrowWithinCohort": {"maxPriorityThreshold": True}}},
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold",
        ),
        ({"namespaceSelector": {"matchLabels": []}}, "spec.namespaceSelector.matchLabels"),
    ],
)
def test_wrong_types_in_a_cluster_queue_are_named(spec, path):
    (found,) = errors(ClusterQueue, cluster_queue(**spec))
    assert found.startswith(f"{path}: ")


def test_a_wrong_kind_or_version_is_refused():
    assert errors(Job, workload(pod_set())) == ['kind: Invalid value: "Workload": must be Job']
    alpha = {**workload(pod_set()), "apiVersion": "kueue.x-k8s.io/v1alpha1"}
    (found,) = errors(Workload, alpha)
    assert found.startswith('apiVersion: Unsupported value: "kueue.x-k8s.io/v1alpha1"')
    assert errors(Workload, []) == [
        ': Invalid value: "array":  in body must be of type object: "array"'
    ]


def test_the_message_of_a_refusal_names_the_object():
    with pytest.raises(InvalidObject, match=r'ClusterQueue "q" is invalid: spec\.stopPolicy'):
        decode(ClusterQueue, cluster_queue(stopPolicy=[]))


def test_unknown_fields_come_back_where_they_were():
    raw = workload(pod_set(bogusRequest={"required": "rack"}), fresh=None)
    raw["metadata"]["managedFields"] = [{"manager": "me"}]
    raw["status"] = {"clusterName": "far"}
    value = decode(Workload, raw)
    assert value.spec.pod_sets[0].extra == {"bogusRequest": {"required": "rack"}}
    assert value.spec.extra == {"fresh": None}
    again = encode(value, "v1beta1")
    assert again["spec"]["podSets"][0]["bogusRequest"] == {"required": "rack"}
    assert again["metadata"]["managedFields"] == [{"manager": "me"}]
    assert again["status"] == {"clusterName": "far"}


def test_nulls_of_known_fields_mean_absent():
    value = decode(Workload, workload(pod_set(minCount=None), priority=None, queueName=None))
    assert value.spec.priority is None
    assert value.spec.queue_name == ""
    assert value.spec.pod_sets[0].min_count is None


def test_an_admission_is_written_as_the_api_wants_it():
    assignment = PodSetAssignment("main", {"cpu": "spot"}, {"cpu": Quantity.parse("6000m")}, 3)
    assert encode(Admission("q", (assignment,))) == {
        "clusterQueue": "q",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "6"}, "count": 3}
        ],
    }


def test_times_are_seconds_and_micro_times_keep_six_digits():
    raw = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"renewTime": "2026-01-02T03:04:05.250000Z"},
    }
    lease = decode(Lease, raw)
    assert lease.metadata.creation_timestamp == 1767323045.0
    assert lease.spec.renew_time == 1767323045.25
    assert encode(lease) == raw


def test_a_pod_keeps_its_gates_and_volumes():
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }
    pod = decode(Pod, raw)
    assert [gate.name for gate in pod.spec.scheduling_gates] == ["kueue.x-k8s.io/admission"]
    assert encode(pod) == raw


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_past_usage_of_a_local_queue_is_the_same_in_both_versions(version):
    shares = {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1333333333n", "memory": "3Gi"},
            "lastUpdate": "2026-01-02T03:05:00Z",
        },
    }
    raw = {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": "ns"},
        "spec": {"clusterQueue": "q"},
        "status": {"fairSharing": shares},
    }
    value = decode(LocalQueue, raw)
    found = value.status.fair_sharing.admission_fair_sharing_status
    assert found.consumed_resources["cpu"].nanos == 1_333_333_333
    assert found.last_update == parse_time("2026-01-02T03:05:00Z")
    assert encode(value, version)["status"]["fairSharing"] == shares
