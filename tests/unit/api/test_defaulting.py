from __future__ import annotations

import copy

import pytest

from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.api.validation import RULES


def obj(kind, version="v1beta1", metadata=None, **spec):
    head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind}
    return {**head, "metadata": metadata or {"name": "n"}, "spec": spec}


def default(given):
    before = copy.deepcopy(given)
    found = RULES[given["kind"]].default(given)
    assert given == before, "the given object was changed"
    return found


@pytest.mark.parametrize(("version", "word"), [("v1beta1", "Borrow"), ("v1beta2", "MayStopSearch")])
def test_a_cluster_queue_gets_its_policies_and_finalizer(version, word):
    found = default(obj("ClusterQueue", version))
    assert found["spec"] == {
        "preemption": {
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "flavorFungibility": {"whenCanBorrow": word, "whenCanPreempt": "TryNextFlavor"},
    }
    assert found["metadata"]["finalizers"] == [IN_USE_FINALIZER]


def test_what_the_user_set_stays():
    spec = {
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "Preempt"},
    }
    metadata = {"name": "n", "finalizers": ["mine"]}
    found = default(obj("ClusterQueue", metadata=metadata, **spec))
    wanted = {**spec["preemption"], "borrowWithinCohort": {"policy": "Never"}}
    assert found["spec"]["preemption"] == wanted
    assert found["spec"]["flavorFungibility"] == spec["flavorFungibility"]
    assert found["metadata"]["finalizers"] == ["mine", IN_USE_FINALIZER]


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor", "Workload"])
def test_defaulting_twice_is_defaulting_once(kind):
    once = default(obj(kind, podSets=[{"count": 1}]))
    assert default(once) == once


def test_a_flavor_without_a_spec_gets_a_finalizer():
    given = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {}}
    assert default(given)["metadata"]["finalizers"] == [IN_USE_FINALIZER]


@pytest.mark.parametrize("name", [{}, {"name": ""}])
def test_a_single_pod_set_without_a_name_is_main(name):
    found = default(obj("Workload", podSets=[{"count": 1, **name}]))
    assert found["spec"]["podSets"] == [{"count": 1, "name": "main"}]


def test_several_pod_sets_must_be_named_by_their_author():
    given = obj("Workload", podSets=[{"count": 1}, {"count": 2}])
    assert default(given) == given


@pytest.mark.parametrize("kind", sorted(RULES))
@pytest.mark.parametrize("spec", ["text", [], 3])
def test_a_spec_of_the_wrong_type_is_left_to_the_schema(kind, spec):
    given = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {}, "spec": spec}
    assert default(given)["spec"] == spec


def test_fields_of_the_wrong_type_are_left_to_the_schema():
    found = default(obj("ClusterQueue", metadata={"finalizers": "f"}, preemption=1))
    assert found["spec"]["preemption"] == 1
    assert found["metadata"]["finalizers"] == "f"
    for pod_sets in ("text", [1], None):
        given = obj("Workload", podSets=pod_sets)
        assert default(given) == given
