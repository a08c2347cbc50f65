from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.errors import InvalidJob, InvalidPodSetInfo, InvalidPodSetUpdate
from kueuelib.jobs.contract import podset_info
from kueuelib.jobs.contract.podset_info import FlavorNotFound, PodSetInfo

SPOT = {"key": "spot", "operator": "Exists"}
GPU = {"key": "gpu", "operator": "Exists"}
FLAVORS = {
    "spot": {"spec": {"nodeLabels": {"pool": "spot", "zone": "a"}, "tolerations": [SPOT]}},
    "gpu": {"spec": {"nodeLabels": {"zone": "b", "gpu": "yes"}, "tolerations": [GPU, SPOT]}},
    "plain": {},
}


def assignment(**flavors):
    return {"name": "main", "flavors": flavors}


def test_each_flavor_counts_once_in_the_order_of_its_resources():
    found = podset_info.from_assignment(
        assignment(memory="gpu", cpu="spot", disk="spot"), 4, FLAVORS
    )
    assert found.node_selector == {"pool": "spot", "zone": "a", "gpu": "yes"}
    assert found.tolerations == (SPOT, GPU)
    assert found.count == 4


def test_a_toleration_of_a_flavor_comes_as_a_whole():
    until = {**SPOT, "effect": "NoExecute", "tolerationSeconds": 300}
    flavors = {"spot": {"spec": {"tolerations": [until]}}}
    assert podset_info.from_assignment(assignment(cpu="spot"), 1, flavors).tolerations == (until,)


def test_the_order_of_the_assignment_does_not_matter():
    one = podset_info.from_assignment(assignment(cpu="spot", memory="gpu"), 1, FLAVORS)
    other = podset_info.from_assignment(assignment(memory="gpu", cpu="spot"), 1, FLAVORS)
    assert one == other


def test_an_assignment_may_have_its_own_count():
    assert podset_info.from_assignment({"name": "main", "count": 0}, 4, {}).count == 0


def test_a_flavor_without_a_spec_adds_nothing():
    found = podset_info.from_assignment(assignment(cpu="plain"), 1, FLAVORS)
    assert (found.node_selector, found.tolerations) == ({}, ())


def test_a_missing_flavor_is_named():
    with pytest.raises(FlavorNotFound, match='"gone"'):
        podset_info.from_assignment(assignment(cpu="gone"), 1, FLAVORS)


def workload(assignments, checks=()):
    return {
        "spec": {"podSets": [{"name": "main", "count": 2, "template": {"spec": {}}}]},
        "status": {
            "admission": {"podSetAssignments": assignments},
            "admissionChecks": list(checks),
        },
    }


def test_updates_of_checks_are_added_to_the_pod_set_they_name():
    checks = [
        {"podSetUpdates": [{"name": "main", "labels": {"a": "1"}, "tolerations": [GPU]}]},
        {"podSetUpdates": [{"name": "main", "annotations": {"b": "2"}}]},
        {"podSetUpdates": [{"name": "other", "labels": {"c": "3"}}]},
    ]
    (found,) = podset_info.infos_for_start(workload([assignment(cpu="spot")], checks), FLAVORS)
    assert (found.labels, found.annotations) == ({"a": "1"}, {"b": "2"})
    assert found.tolerations == (SPOT, GPU)
    assert found.count == 2


@pytest.mark.parametrize("assignments", [[], [{"name": "other"}]])
def test_an_admission_of_other_pod_sets_is_refused(assignments):
    with pytest.raises(InvalidPodSetInfo, match="main"):
        podset_info.infos_for_start(workload(assignments), FLAVORS)


@pytest.mark.parametrize(
    ("info", "named"),
    [
        (PodSetInfo("main", labels={"a": "2"}), r"labels\[a\]"),
        (PodSetInfo("main", annotations={"a": "2"}), r"annotations\[a\]"),
        (PodSetInfo("main", node_selector={"a": "2"}), r"nodeSelector\[a\]"),
    ],
)
def test_a_contradiction_names_the_map_and_the_key_and_changes_nothing(info, named):
    template = {
        "metadata": {"labels": {"a": "1"}, "annotations": {"a": "1"}},
        "spec": {"nodeSelector": {"a": "1"}},
    }
    before = repr(template)
    with pytest.raises(InvalidPodSetUpdate, match=named):
        podset_info.merge(template, info)
    assert repr(template) == before


def says(name, **fields):
    return {"name": name, "podSetUpdates": [{"name": "main", **fields}]}


@pytest.mark.parametrize(
    ("checks", "pod", "told"),
    [
        (
            [says("one", nodeSelector={"a": "1"}), says("two", nodeSelector={"a": "2"})],
            {},
            'pod set "main": nodeSelector[a] is "1" by check "one" and "2" by check "two"',
        ),
        (
            [
                says("one", labels={"a": "1"}),
                says("two", labels={"a": "1"}),
                says("three"),
                says("four", labels={"a": "2"}),
            ],
            {},
            'pod set "main": labels[a] is "1" by check "one" and "2" by check "four"',
        ),
        (
            [says("one", nodeSelector={"it": "2"})],
            {},
            'pod set "main": nodeSelector[it] is "s" by flavor "spot" and "2" by check "one"',
        ),
        (
            [says("one", annotations={"a": "1"})],
            {"metadata": {"annotations": {"a": "0"}}},
            'pod set "main": annotations[a] is "0" by the pod template and "1" by check "one"',
        ),
        (
            [],
            {"spec": {"nodeSelector": {"it": "o"}}},
            'pod set "main": nodeSelector[it] is "o" by the pod template and "s" by flavor "spot"',
        ),
    ],
)
def test_a_contradiction_names_both_values_and_who_wants_them(checks, pod, told):
    flavors = {**FLAVORS, "spot": {"spec": {"nodeLabels": {"it": "s"}}}}
    wl = workload([assignment(cpu="spot")], checks)

    def start():
        podset_info.merge(pod, *podset_info.infos_for_start(wl, flavors))

    with pytest.raises(InvalidPodSetUpdate) as caught:
        start()
    assert str(caught.value) == told


def test_the_same_value_is_no_contradiction():
    template = {"spec": {"nodeSelector": {"a": "1"}, "tolerations": [SPOT]}}
    podset_info.merge(template, PodSetInfo("main", node_selector={"a": "1"}, tolerations=(SPOT,)))
    assert template == {"spec": {"nodeSelector": {"a": "1"}, "tolerations": [SPOT]}}


@pytest.mark.parametrize("labels", [{}, {"a": "b"}])
def test_merging_keeps_the_dicts_of_the_template_and_changes_none_that_others_hold(labels):
    meta = {"labels": labels} if labels else {}
    template = {"metadata": meta, "spec": {}}
    podset_info.merge(template, PodSetInfo("main", labels={"c": "d"}))
    assert template["metadata"] is meta
    assert meta == {"labels": {**labels, "c": "d"}}
    assert "c" not in labels


def test_restoring_what_is_there_changes_nothing():
    template = {"metadata": {"labels": {}}, "spec": {"containers": []}}
    assert podset_info.restore(template, PodSetInfo("main")) is False
    assert template == {"metadata": {"labels": {}}, "spec": {"containers": []}}


def test_the_number_of_infos_must_be_that_of_the_pod_sets():
    with pytest.raises(InvalidPodSetInfo, match="expected 1 pod sets, got 0"):
        podset_info.check_count("Job", (), 1)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"spec": {"tolerations": "x"}}, "template.spec.tolerations: must be a list"),
        ({"spec": {"tolerations": ["x"]}}, "template.spec.tolerations[0]: must be a mapping"),
        ({"spec": {"nodeSelector": ["a"]}}, "template.spec.nodeSelector: must be a mapping"),
        ({"spec": "x"}, "template.spec: must be a mapping"),
        ({"metadata": {"labels": "x"}, "spec": {}}, "template.metadata.labels: must be a mapping"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused_and_stays(template, said):
    before = copy.deepcopy(template)
    for change in (podset_info.restore, podset_info.merge):
        with pytest.raises(InvalidJob) as caught:
            change(template, PodSetInfo("main", node_selector={"a": "b"}))
        assert str(caught.value) == said
    assert template == before


def placed(request: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Workload whose only pod set has a place."""
    assignment = {"name": "main", "topologyAssignment": {"levels": ["rack"], "slices": []}}
    asked = {} if request is None else {"topologyRequest": request}
    return {
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {}}, **asked}]},
        "status": {"admission": {"podSetAssignments": [assignment]}},
    }


def test_pods_with_a_place_wait_for_its_selector() -> None:
    (info,) = podset_info.infos_for_start(placed({"required": "rack", "podIndexLabel": "i"}), {})
    template: dict[str, Any] = {"spec": {"schedulingGates": [{"name": "own"}]}}
    podset_info.merge(template, info)
    gates = [{"name": "own"}, {"name": "kueue.x-k8s.io/topology"}]
    assert template == {"spec": {"schedulingGates": gates}}
    podset_info.restore(template, PodSetInfo("main", scheduling_gates=("own",)))
    assert template == {"spec": {"schedulingGates": [{"name": "own"}]}}


@pytest.mark.parametrize("request_", [None, {"podIndexLabel": "i", "subGroupCount": 2}])
def test_pods_that_did_not_ask_for_their_place_say_that_they_have_one(request_: Any) -> None:
    (info,) = podset_info.infos_for_start(placed(request_), {})
    assert info.annotations == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    assert info.scheduling_gates == ("kueue.x-k8s.io/topology",)
