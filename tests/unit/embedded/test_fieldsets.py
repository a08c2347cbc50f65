"""Which fields an object sets, their JSON form, and what goes when they are removed."""

from __future__ import annotations

import pytest

from kueuelib.embedded.patching.fieldsets import (
    Ambiguous,
    element,
    fields_of,
    from_fields_v1,
    interleave,
    merge,
    remove,
    show,
    to_fields_v1,
)
from kueuelib.embedded.schema.messages import builtin_node
from kueuelib.embedded.schema.node import ANYTHING

POD = builtin_node("", "Pod")
SAMPLE = {
    "metadata": {"labels": {"a": "1"}, "annotations": {}, "finalizers": ["f"]},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x"}],
        "containers": [{"name": "c", "ports": [{"containerPort": 80}], "args": ["-v"]}],
    },
}


def test_the_fields_of_a_pod_follow_its_list_types():
    assert to_fields_v1(fields_of(POD, SAMPLE)) == {
        "f:metadata": {
            "f:annotations": {},
            "f:finalizers": {'v:"f"': {}},
            "f:labels": {"f:a": {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:args": {},
                    "f:name": {},
                    "f:ports": {
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                    },
                }
            },
            "f:nodeSelector": {},
            "f:tolerations": {},
        },
    }


def test_of_an_unknown_object_every_level_is_a_field():
    assert fields_of(ANYTHING, {"a": {"b": [1]}, "c": None}) == {
        ("f:a",),
        ("f:a", "f:b"),
        ("f:c",),
    }


def test_the_json_form_is_read_whatever_its_spelling():
    fields = fields_of(POD, SAMPLE)
    assert from_fields_v1(to_fields_v1(fields)) == fields
    spelled = {"f:x": {'k:{"b": 1, "a":2}': {}}}
    assert from_fields_v1(spelled) == {("f:x", 'k:{"a":2,"b":1}')}


@pytest.mark.parametrize("raw", [{"a": {}}, {"f:a": 1}, {"k:{": {}}])
def test_what_is_no_field_set_is_refused(raw):
    with pytest.raises(ValueError, match="element|Expecting"):
        from_fields_v1(raw)


def test_paths_are_shown_as_kubernetes_does():
    assert show(("f:spec", "f:containers", 'k:{"name":"c"}', "f:image")) == (
        '.spec.containers[name="c"].image'
    )
    assert show(("f:metadata", "f:finalizers", 'v:"x"')) == '.metadata.finalizers[="x"]'
    assert show(("f:p", 'k:{"port":80,"protocol":"TCP"}')) == '.p[port=80,protocol="TCP"]'


def test_removing_fields_takes_emptied_parents_along():
    gone = {
        ("f:metadata", "f:labels", "f:a"),
        ("f:metadata", "f:finalizers", 'v:"f"'),
        ("f:spec", "f:containers", 'k:{"name":"c"}', "f:args"),
    }
    assert remove(POD, SAMPLE, frozenset(gone)) == {
        "metadata": {"annotations": {}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "x"}],
            "containers": [{"name": "c", "ports": [{"containerPort": 80}]}],
        },
    }


def test_a_key_may_be_left_to_its_default():
    ports = POD.child("spec").child("containers").item.child("ports")
    assert element(ports, {"containerPort": 1}) == element(
        ports, {"containerPort": 1, "protocol": "TCP"}
    )


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("ab", "ba", "ba"),
        ("axb", "ab", "axb"),
        ("xab", "ba", "xba"),
        ("abx", "cb", "acbx"),
        ("a", "bca", "bca"),
    ],
)
def test_two_orders_become_one(old, new, both):
    assert "".join(interleave(list(old), list(new))) == both


def test_merging_follows_the_applied_order_and_keeps_strangers():
    old = {"spec": {"containers": [{"name": "s", "image": "1"}, {"name": "a", "image": "1"}]}}
    new = {"spec": {"containers": [{"name": "b"}, {"name": "a", "image": "2"}]}}
    assert merge(POD, old, new) == {
        "spec": {
            "containers": [
                {"name": "s", "image": "1"},
                {"name": "b"},
                {"name": "a", "image": "2"},
            ]
        }
    }


@pytest.mark.parametrize(
    ("containers", "problem"),
    [
        (
            [{"name": "a"}, {"name": "a"}],
            r'\.spec\.containers: duplicate entries for key \[name="a"\]',
        ),
        (
            [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 1}]}],
            r'ports: duplicate entries for key \[containerPort=1,protocol="TCP"\]',
        ),
    ],
)
def test_ambiguous_applied_lists_are_refused(containers, problem):
    with pytest.raises(Ambiguous, match=problem):
        merge(POD, {}, {"spec": {"containers": containers}})
