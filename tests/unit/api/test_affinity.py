from __future__ import annotations

import pytest

from kueuelib.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kueuelib.api.nodes import requirement_matches, term_matches


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


LABELS = NodeSelectorRequirement("k", "Exists")
NAMED = NodeSelectorRequirement("metadata.name", "In", ("n", "m"))
OTHER = NodeSelectorRequirement("metadata.name", "NotIn", ("n",))


@pytest.mark.parametrize(
    ("labels", "fields", "wanted"),
    [
        ((LABELS,), (), True),
        ((), (NAMED,), True),
        ((), (OTHER,), False),
        ((LABELS,), (NAMED,), True),
        ((LABELS,), (OTHER,), False),
        ((NAMED,), (), False),
        ((), (LABELS,), False),
        ((), (), False),
    ],
)
def test_a_term_selects_by_labels_and_by_the_name_of_the_node(labels, fields, wanted):
    assert term_matches(NodeSelectorTerm(labels, fields), {"k": "v"}, "n") is wanted
