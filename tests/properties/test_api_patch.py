"""Merge patches: what the difference says, the patch does."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from kueuelib.api.patch import diff_merge_patch, merge_patch

keys = st.sampled_from("abc")
leaves = st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
# a merge patch can put a null into a list, but never into an object
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner | st.none(), max_size=2) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=3)


@given(objects, objects)
def test_the_difference_makes_the_new_object_out_of_the_old_one(old, new):
    before = copy.deepcopy((old, new))
    patched = merge_patch(old, diff_merge_patch(old, new))
    assert repr_sorted(patched) == repr_sorted(new)  # repr tells 1 from True
    assert (old, new) == before


@given(objects)
def test_equal_objects_differ_by_nothing(old):
    assert diff_merge_patch(old, copy.deepcopy(old)) == {}


@given(objects, objects, objects)
def test_a_patch_applied_twice_is_applied_once(target, old, new):
    patch = diff_merge_patch(old, new)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def repr_sorted(value):
    if isinstance(value, dict):
        return {key: repr_sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [repr_sorted(one) for one in value]
    return repr(value)
