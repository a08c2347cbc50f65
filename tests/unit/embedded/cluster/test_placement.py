"""Where pods may go: node labels, affinity, taints, room."""

from __future__ import annotations

import pytest

from kueuelib.embedded.cluster.nodes import CAPACITY
from kueuelib.embedded.cluster.placement import matches_selector, place, room_of, untolerated_taint


def node(name="n", labels=None, taints=(), allocatable=None, *, ready=True, simulated=False):
    found = dict(labels or {})
    if simulated:
        found["kueuelib.dev/simulated"] = "true"
    return {
        "metadata": {"name": name, "labels": found},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": allocatable or {},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(requests=None, **spec):
    containers = [{"name": "c", "resources": {"requests": requests or {}}}]
    return {"spec": {"containers": containers, **spec}}


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("one", "fits"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("none", "NotIn", "b"), True),
        (expression("zone", "Exists"), True),
        (expression("none", "Exists"), False),
        (expression("none", "DoesNotExist"), True),
        (expression("cores", "Gt", "7"), True),
        (expression("cores", "Gt", "8"), False),
        (expression("cores", "Lt", "9"), True),
        (expression("zone", "Lt", "9"), False),
        (expression("zone", "Like", "a"), False),
    ],
)
def test_expressions_of_node_affinity(one, fits) -> None:
    wanted = affinity({"matchExpressions": [one]})
    found = matches_selector(pod(affinity=wanted), node(labels={"zone": "a", "cores": "8"}))
    assert found is fits


def test_terms_are_alternatives_and_expressions_are_not() -> None:
    a, b = expression("zone", "In", "a"), expression("pool", "In", "b")
    there = node(labels={"zone": "a"})
    either = affinity({"matchExpressions": [a]}, {"matchExpressions": [b]})
    both = affinity({"matchExpressions": [a, b]})
    assert matches_selector(pod(affinity=either), there)
    assert not matches_selector(pod(affinity=both), there)
    assert not matches_selector(pod(affinity=affinity({})), there)


def test_a_node_can_be_asked_for_by_name() -> None:
    wanted = affinity({"matchFields": [expression("metadata.name", "In", "n")]})
    assert matches_selector(pod(affinity=wanted), node("n"))
    assert not matches_selector(pod(affinity=wanted), node("m"))


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "x", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration, fits) -> None:
    found = untolerated_taint(pod(tolerations=[toleration]), node(taints=[TAINT]))
    assert (found is None) is fits


def test_taints_that_only_prefer_keep_nobody_off() -> None:
    soft = {**TAINT, "effect": "PreferNoSchedule"}
    assert untolerated_taint(pod(), node(taints=[soft])) is None


def rooms_of(*nodes):
    return {each["metadata"]["name"]: room_of(each) for each in nodes}


def test_the_node_with_the_fewest_pods_is_chosen() -> None:
    nodes = (node("a"), node("b"))
    rooms = rooms_of(*nodes)
    assert place(pod(), nodes, rooms).node == "a"
    rooms["a"].take({})
    assert place(pod(), nodes, rooms).node == "b"


def test_why_there_is_no_node_is_counted() -> None:
    nodes = (
        node("a", allocatable={"cpu": "1"}),
        node("b", ready=False),
        node("c", taints=[TAINT]),
        node("d", allocatable={"cpu": "1"}),
    )
    found = place(pod({"cpu": "2"}), nodes, rooms_of(*nodes))
    assert found.node == ""
    assert found.cramped
    assert found.message == (
        "0/4 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint(s) {k: v}, "
        "1 node(s) had untolerated taint(s) {node.kubernetes.io/not-ready: }."
    )
    assert place(pod(), (), {}).message == "no nodes available to schedule pods"


def test_what_a_node_does_not_list_is_endless_only_if_it_has_no_capacity_of_its_own() -> None:
    real, limited = node("a"), node("b", simulated=True)
    simulated = {**limited, "status": {**limited["status"], "capacity": dict(CAPACITY)}}
    wanted = pod({"example.com/gpu": "8"})
    assert place(wanted, (real,), rooms_of(real)).node == ""
    assert place(wanted, (limited,), rooms_of(limited)).node == ""
    assert place(wanted, (simulated,), rooms_of(simulated)).node == "b"


def test_room_that_is_given_back_is_there_again() -> None:
    there = node("a", allocatable={"cpu": "1", "pods": "1"})
    rooms = rooms_of(there)
    wanted = pod({"cpu": "1"})
    requests = {"cpu": room_of(there).allocatable["cpu"]}
    rooms["a"].take(requests)
    assert place(wanted, (there,), rooms).message == "0/1 nodes are available: 1 Too many pods."
    rooms["a"].give_back(requests)
    assert place(wanted, (there,), rooms).node == "a"
