"""Selectors survive the way through their text, and match as set algebra says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kueuelib.machinery.selectors import (
    FieldRequirement,
    FieldSelector,
    Op,
    Requirement,
    Selector,
    parse_field_selector,
    parse_label_selector,
)

names = st.sampled_from(["a", "b", "example.com/c", "d-e_f.g"])
label_values = st.sampled_from(["", "x", "Y-z", "1", "42", "-7"])
plain = st.builds(
    Requirement,
    names,
    st.sampled_from([Op.IN, Op.NOT_IN]),
    st.lists(label_values.filter(lambda v: v != "-7"), min_size=1, max_size=3),
)
existence = st.builds(Requirement, names, st.sampled_from([Op.EXISTS, Op.DOES_NOT_EXIST]))
numeric = st.builds(
    Requirement, names, st.sampled_from([Op.GT, Op.LT]), st.sampled_from([("0",), ("12",)])
)
selectors = st.builds(Selector, st.lists(st.one_of(plain, existence, numeric), max_size=4))
labels = st.dictionaries(names, label_values)


@given(selectors)
def test_the_text_of_a_selector_parses_to_the_same_selector(selector):
    assert parse_label_selector(str(selector)) == selector


@given(st.lists(st.one_of(plain, existence, numeric), max_size=4), labels)
def test_a_selector_matches_when_each_requirement_does(requirements, found):
    assert Selector(requirements).matches(found) == all(r.matches(found) for r in requirements)


@given(names, st.lists(label_values.filter(lambda v: v != "-7"), min_size=1), labels)
def test_negations_are_complements(key, values, found):
    assert Requirement(key, Op.IN, values).matches(found) != Requirement(
        key, Op.NOT_IN, values
    ).matches(found)
    assert Requirement(key, Op.EXISTS).matches(found) != Requirement(
        key, Op.DOES_NOT_EXIST
    ).matches(found)


fields = st.builds(
    FieldRequirement,
    st.sampled_from(["metadata.name", "status.phase"]),
    st.text(st.sampled_from("ab\\,=! "), max_size=6).map(str.strip),
    st.booleans(),
)


@given(st.lists(fields, max_size=3))
def test_the_text_of_a_field_selector_parses_to_the_same_selector(requirements):
    selector = FieldSelector(tuple(requirements))
    assert parse_field_selector(str(selector)) == selector
