from __future__ import annotations

import pytest

from kueuelib.api.affinity import pod_matches_node, requirement_matches
from kueuelib.api.codec import decode
from kueuelib.api.core import NodeSelectorRequirement, PodSpec


def spec(*terms, **fields):
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return decode(PodSpec, {"containers": [], "affinity": affinity, **fields})


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("operator", "values", "labels", "wanted"),
    [
        ("In", ("a", "b"), {"k": "a"}, True),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"k": "b"}, True),
        ("NotIn", ("a",), {}, True),
        ("NotIn", ("a",), {"k": "a"}, False),
        ("Exists", (), {"k": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"k": "a"}, False),
        ("Gt", ("3",), {"k": "4"}, True),
        ("Gt", ("3",), {"k": "3"}, False),
        ("Gt", ("3",), {"k": "many"}, False),
        ("Gt", ("3", "4"), {"k": "9"}, False),
        ("Gt", ("3",), {}, False),
        ("Lt", ("-3",), {"k": "-4"}, True),
        ("Lt", ("x",), {"k": "1"}, False),
        ("Near", ("a",), {"k": "a"}, False),
    ],
)
def test_operators_of_node_expressions(operator, values, labels, wanted):
    assert requirement_matches(NodeSelectorRequirement("k", operator, values), labels) is wanted


def test_one_term_must_hold_and_all_of_its_expressions():
    pod = spec(
        {"matchExpressions": [expression("a", "In", "1"), expression("b", "Exists")]},
        {"matchExpressions": [expression("c", "Exists")]},
    )
    assert pod_matches_node(pod, {"a": "1", "b": ""})
    assert pod_matches_node(pod, {"c": ""})
    assert not pod_matches_node(pod, {"a": "1"})


def test_fields_of_the_node_are_matched_too():
    pod = spec({"matchFields": [expression("metadata.name", "In", "n1")]})
    assert pod_matches_node(pod, {}, {"metadata.name": "n1"})
    assert not pod_matches_node(pod, {"metadata.name": "n1"})


def test_an_empty_term_and_no_terms_match_nothing():
    assert not pod_matches_node(spec({}), {"a": "1"})
    assert not pod_matches_node(spec(), {"a": "1"})


def test_node_selector_and_affinity_must_both_hold():
    pod = spec({"matchExpressions": [expression("a", "Exists")]}, nodeSelector={"b": "1"})
    assert pod_matches_node(pod, {"a": "", "b": "1"})
    assert not pod_matches_node(pod, {"a": ""})
    assert not pod_matches_node(pod, {"b": "1"})
    assert pod_matches_node(decode(PodSpec, {"containers": []}), {})
