from __future__ import annotations

import jsonpatch
import pytest

from kueuelib.api.patch import diff_json_patch, diff_merge_patch, merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a"], ["c"], ["c"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "b"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ],
)
def test_patches_are_merged_as_the_rfc_says(target, patch, result):
    assert merge_patch(target, patch) == result


def test_only_what_changed_is_in_the_difference():
    old = {"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"n": 1}, "gone": 1}
    new = {"metadata": {"name": "a", "labels": {"x": "1", "y": "3"}}, "spec": {"n": 1}}
    assert diff_merge_patch(old, new) == {"metadata": {"labels": {"y": "3"}}, "gone": None}


def test_numbers_and_booleans_are_told_apart():
    assert diff_merge_patch({"a": 1, "b": [1]}, {"a": True, "b": [True]}) == {
        "a": True,
        "b": [True],
    }
    assert diff_merge_patch({"a": [{"b": 1}]}, {"a": [{"b": 1}]}) == {}


def test_what_both_objects_share_is_not_compared():
    shared = {"deep": {"null": None}}
    assert diff_merge_patch({"a": shared, "b": 1}, {"a": shared, "b": 2}) == {"b": 2}


def test_a_null_in_the_new_object_takes_the_field_away():
    assert diff_merge_patch({"a": 1}, {"a": None, "b": None}) == {"a": None}


def test_a_merge_patch_leaves_its_arguments_alone() -> None:
    target, patch = {"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": {"e": None, "f": 1}}}
    assert merge_patch(target, patch) == {"a": {"c": 2, "d": {"f": 1}}}
    assert target == {"a": {"b": 1, "c": 2}}
    assert patch == {"a": {"b": None, "d": {"e": None, "f": 1}}}


def test_a_json_patch_names_what_differs():
    old = {"a": 1, "b": {"x/y": 1, "same": [1]}, "list": [1], "gone": 1}
    new = {"a": True, "b": {"x/y": 2, "same": [1], "~": {}}, "list": [1, 2]}
    assert list(diff_json_patch(old, new)) == [
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/a", "value": True},
        {"op": "replace", "path": "/b/x~1y", "value": 2},
        {"op": "add", "path": "/b/~0", "value": {}},
        {"op": "replace", "path": "/list", "value": [1, 2]},
    ]
    assert jsonpatch.apply_patch(old, list(diff_json_patch(old, new))) == new
    assert not list(diff_json_patch(new, new))


def test_a_json_patch_tells_a_null_from_a_missing_field():
    assert list(diff_json_patch({}, {"a": None})) == [{"op": "add", "path": "/a", "value": None}]
    assert list(diff_json_patch({"a": None}, {})) == [{"op": "remove", "path": "/a"}]
    assert not list(diff_json_patch({"a": None}, {"a": None}))
