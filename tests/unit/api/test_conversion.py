from __future__ import annotations

import pytest

from kueuelib.api.conversion import convert
from kueuelib.errors import InvalidObject

OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


def cluster_queue(version=OLD, **spec):
    return {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


def workload(version=OLD, **spec):
    return {"apiVersion": version, "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}


def test_a_cohort_is_renamed():
    assert convert(cluster_queue(cohort="c"), "v1beta2") == cluster_queue(NEW, cohortName="c")


def test_a_list_of_checks_becomes_a_strategy_and_comes_back():
    old = cluster_queue(admissionChecks=["a", "b"])
    new = cluster_queue(
        NEW, admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "b"}]}
    )
    assert convert(old, "v1beta2") == new
    assert convert(new, "v1beta1") == old


def test_a_check_named_twice_is_needed_once():
    new = convert(cluster_queue(admissionChecks=["a", "b", "a"]), "v1beta2")
    assert new["spec"]["admissionChecksStrategy"] == {
        "admissionChecks": [{"name": "a"}, {"name": "b"}]
    }


def test_a_strategy_for_some_flavors_stays_a_strategy():
    strategy = {"admissionChecks": [{"name": "a", "onFlavors": ["spot"]}, {"name": "b"}]}
    new = cluster_queue(NEW, admissionChecksStrategy=strategy)
    assert convert(new, "v1beta1") == cluster_queue(admissionChecksStrategy=strategy)


def test_a_strategy_whose_entries_name_no_flavors_becomes_a_list():
    strategy = {"admissionChecks": [{"name": "a", "onFlavors": []}]}
    new = cluster_queue(NEW, admissionChecksStrategy=strategy)
    assert convert(new, "v1beta1") == cluster_queue(admissionChecks=["a"])


def test_the_strategy_wins_over_the_list():
    strategy = {"admissionChecks": [{"name": "a"}]}
    old = cluster_queue(admissionChecks=["b"], admissionChecksStrategy=strategy)
    assert convert(old, "v1beta2") == cluster_queue(NEW, admissionChecksStrategy=strategy)


def test_an_empty_list_of_checks_is_no_strategy():
    assert convert(cluster_queue(admissionChecks=[]), "v1beta2") == cluster_queue(NEW)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"whenCanBorrow": "Borrow"}, {"whenCanBorrow": "MayStopSearch"}),
        ({"whenCanPreempt": "Preempt"}, {"whenCanPreempt": "MayStopSearch"}),
        ({"whenCanBorrow": "TryNextFlavor"}, {"whenCanBorrow": "TryNextFlavor"}),
    ],
)
def test_the_words_of_fungibility_change(old, new):
    given, wanted = cluster_queue(flavorFungibility=old), cluster_queue(NEW, flavorFungibility=new)
    assert convert(given, "v1beta2") == wanted
    assert convert(wanted, "v1beta1") == given


def test_the_new_word_is_understood_in_the_old_version():
    given = cluster_queue(flavorFungibility={"whenCanBorrow": "MayStopSearch"})
    new = convert(given, "v1beta2")
    assert new["spec"]["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch"}


@pytest.mark.parametrize(
    ("source", "group", "kind"),
    [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ],
)
def test_the_priority_class_becomes_a_reference(source, group, kind):
    old = workload(priorityClassName="high", priorityClassSource=source, priority=1)
    new = workload(NEW, priorityClassRef={"group": group, "kind": kind, "name": "high"}, priority=1)
    assert convert(old, "v1beta2") == new
    assert convert(new, "v1beta1") == old


def test_no_priority_class_is_no_reference():
    assert convert(workload(priorityClassSource=""), "v1beta2") == workload(NEW)


def test_a_priority_class_without_a_source_keeps_its_name():
    old = workload(priorityClassName="high")
    new = convert(old, "v1beta2")
    assert new == workload(NEW, priorityClassRef={"name": "high"})
    assert convert(new, "v1beta1") == old


@pytest.mark.parametrize("wrong", [{"kind": 5}, {"kind": ["a"]}, {"group": 5}])
def test_what_is_not_a_text_in_a_reference_stays(wrong):
    found = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high", **wrong}
    given = workload(NEW, priorityClassRef=found)
    old = convert(given, "v1beta1")
    assert old["spec"]["priorityClassName"] == "high"
    assert old["spec"]["priorityClassRef"] == wrong
    assert convert(old, "v1beta2") == given


def test_usage_of_a_local_queue_is_renamed():
    status = [{"name": "f", "resources": []}]
    old = {"apiVersion": OLD, "kind": "LocalQueue", "status": {"flavorUsage": status}}
    new = {"apiVersion": NEW, "kind": "LocalQueue", "status": {"flavorsUsage": status}}
    assert convert(old, "v1beta2") == new
    assert convert(new, "v1beta1") == old


def test_the_retry_delay_of_a_check_stays():
    spec = {"controllerName": "c", "retryDelayMinutes": 3}
    old = {"apiVersion": OLD, "kind": "AdmissionCheck", "spec": spec}
    assert convert(old, "v1beta2") == {**old, "apiVersion": NEW}


def test_an_object_of_the_wanted_version_is_given_back_as_it_is():
    given = cluster_queue(NEW, cohort="unknown here")
    assert convert(given, "v1beta2") is given


def test_what_is_the_same_in_both_versions_is_shared():
    given = workload(podSets=[{"name": "main"}], priorityClassName="high")
    assert convert(given, "v1beta2")["spec"]["podSets"] is given["spec"]["podSets"]


@pytest.mark.parametrize("spec", [None, [], "text"])
def test_a_broken_spec_is_left_to_the_schema(spec):
    given = {"apiVersion": OLD, "kind": "ClusterQueue", "spec": spec}
    assert convert(given, "v1beta2") == {**given, "apiVersion": NEW}


@pytest.mark.parametrize(
    ("api_version", "version"),
    [
        ("batch/v1", "v1beta1"),
        ("kueue.x-k8s.io/v1alpha1", "v1beta2"),
        (OLD, "v1"),
        (None, "v1beta1"),
    ],
)
def test_other_groups_and_versions_are_refused(api_version, version):
    with pytest.raises(InvalidObject, match="apiVersion: Unsupported value"):
        convert({"apiVersion": api_version, "kind": "Job"}, version)
