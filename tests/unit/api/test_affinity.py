from __future__ import annotations

import pytest

from kueuelib.api.core import NodeSelectorRequirement
from kueuelib.api.nodes import requirement_matches


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
