"""Label and field selectors as kubectl and the API server write them."""

from __future__ import annotations

import pytest

from kueuelib.errors import InvalidSelector
from kueuelib.machinery.selectors import (
    EVERYTHING,
    NOTHING,
    field_of,
    from_expressions,
    from_label_selector,
    from_labels,
    parse_field_selector,
    parse_label_selector,
)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a=", {"a": ""}, True),
        ("a=,b", {"a": "", "b": "x"}, True),
        ("a!=b", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": ""}, False),
        (" a in ( b , c ) ", {"a": "c"}, True),
        ("a in (b,c)", {"a": "d"}, False),
        ("a in (,c)", {"a": ""}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("a notin (b,c)", {}, True),
        ("a>1", {"a": "2"}, True),
        ("a>1", {"a": "x"}, False),
        ("a<1", {"a": "1"}, False),
        ("a<1", {}, False),
        ("a=b,!c,example.com/d in (e)", {"a": "b", "example.com/d": "e"}, True),
        ("a=b,!c", {"a": "b", "c": ""}, False),
        ("in in (in)", {"in": "in"}, True),
    ],
)
def test_label_selector_texts(text, labels, matches):
    assert parse_label_selector(text).matches(labels) is matches


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "a,",
        ",a",
        "a in b",
        "a in (b",
        "a in b)",
        "=b",
        "a=b=c",
        "!",
        "a>x",
        "a===b",
        "-a",
        "a=b c",
        "a=-b",
        "UPPER.com/x",
        "a/b/c",
        "x" * 64,
        "a=" + "x" * 64,
        "(a)",
    ],
)
def test_malformed_label_selectors_are_refused(text):
    with pytest.raises(InvalidSelector):
        parse_label_selector(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("b=2, a == 1", "a=1,b=2"),
        ("x in (b, a, b)", "x in (a,b)"),
        ("x notin (a)", "x!=a"),
        ("!b,a", "a,!b"),
    ],
)
def test_texts_are_canonical(text, canonical):
    assert str(parse_label_selector(text)) == canonical


def test_no_label_selector_selects_nothing_and_an_empty_one_everything():
    assert from_label_selector(None) is NOTHING
    assert not NOTHING.matches({})
    assert from_label_selector({}) == EVERYTHING
    assert from_label_selector({}).everything
    with pytest.raises(ValueError, match="no text"):
        str(NOTHING)


def test_labels_and_expressions_of_a_label_selector_must_all_hold():
    selector = from_label_selector(
        {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["x", "y"]},
                {"key": "c", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "a=1,b in (x,y),!c"
    assert selector.matches({"a": "1", "b": "x"})
    assert not selector.matches({"a": "1", "b": "x", "c": ""})
    assert selector.exact("a") == "1"
    assert selector.exact("b") is None


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ({"key": "a", "operator": "Gt", "values": ["1"]}, "'Gt' is not a valid label selector"),
        ({"key": "a"}, "None is not a valid label selector operator"),
        ({"key": "a", "operator": "In"}, "needs at least one value"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "takes no values"),
        ({"operator": "Exists"}, "not a valid label key"),
        ({"key": "a", "operator": "In", "values": ["é"]}, "not a valid label value"),
    ],
)
def test_malformed_expressions_are_refused(expression, problem):
    with pytest.raises(InvalidSelector, match=problem):
        from_label_selector({"matchExpressions": [expression]})


def test_node_affinity_may_compare_numbers():
    selector = from_expressions([{"key": "cores", "operator": "Gt", "values": ["4"]}])
    assert selector.matches({"cores": "8"})
    assert not selector.matches({"cores": "4"})
    with pytest.raises(InvalidSelector, match="exactly one integer"):
        from_expressions([{"key": "cores", "operator": "Lt", "values": ["1", "2"]}])


def test_a_plain_map_selects_by_equality():
    assert str(from_labels({"b": "2", "a": "1"})) == "a=1,b=2"


# ---- fields -------------------------------------------------------------------------------------

POD = {"metadata": {"name": "a"}, "status": {"phase": "Running"}, "spec": {"x": True, "n": 3}}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==a", True),
        ("metadata.name!=a", False),
        ("status.phase!=Failed,metadata.name=a", True),
        ("status.phase=Failed,metadata.name=a", False),
        ("spec.nodeName=", True),
        ("spec.nodeName!=", False),
        ("spec.x=true", True),
        ("spec.n=3", True),
        (r"metadata.name=a\,b", False),
    ],
)
def test_field_selector_texts(text, matches):
    selector = parse_field_selector(text)
    assert selector.matches_object(POD) is matches
    assert selector.matches({path: field_of(POD, path) for path in selector.paths}) is matches


@pytest.mark.parametrize("text", ["metadata.name", "=a", "a=b=c", r"a=\b", "a=b\\"])
def test_malformed_field_selectors_are_refused(text):
    with pytest.raises(InvalidSelector, match="invalid selector"):
        parse_field_selector(text)


def test_an_exact_field_can_narrow_a_request():
    selector = parse_field_selector(r"metadata.name=a\=b,status.phase!=x")
    assert selector.exact("metadata.name") == "a=b"
    assert selector.exact("status.phase") is None
    assert selector.paths == ("metadata.name", "status.phase")
