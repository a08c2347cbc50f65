"""Strategic merge patches on built-in kinds, one directive at a time."""

from __future__ import annotations

import copy

import pytest

from kueuelib.embedded.patches import strategic_merge
from kueuelib.embedded.schema.messages import builtin_node
from kueuelib.errors import ApiError

POD = builtin_node("", "Pod")
JOB = builtin_node("batch", "Job")
SERVICE = builtin_node("", "Service")


def patched(node, target, patch):
    before = copy.deepcopy(target)
    found = strategic_merge(node, target, copy.deepcopy(patch))
    assert target == before, "the object was changed"
    return found


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}, id="scalars"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null drops"),
        pytest.param({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}, id="nested maps"),
        pytest.param({"a": 1}, {"a": {"y": 2, "z": None}}, {"a": {"y": 2}}, id="scalar to map"),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}, {"a": {"y": 2}}),
        pytest.param({"a": {"x": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        pytest.param({}, {"a": {"$patch": "x"}, "l": [{"$patch": "x"}]}, {"l": []}, id="new maps"),
        pytest.param(
            {"a": {"x": 1, "y": 2, "z": 3}},
            {"a": {"$retainKeys": ["y", "n"], "n": 4}},
            {"a": {"y": 2, "n": 4}},
            id="retainKeys",
        ),
        pytest.param({"l": [1, 2]}, {"l": [3]}, {"l": [3]}, id="unknown lists are replaced"),
        pytest.param({}, {"l": [{"a": 1, "b": None}]}, {"l": [{"a": 1}]}, id="nulls in new items"),
    ],
)
def test_maps_and_scalars(old, patch, new):
    assert patched(POD, {"spec": old}, {"spec": patch}) == {"spec": new}


def test_containers_merge_by_name_and_keep_their_order():
    old = pod(containers=[{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}])
    patch = pod(containers=[{"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}])
    assert patched(POD, old, patch)["spec"]["containers"] == [
        {"name": "a", "image": "a:1"},
        {"name": "b", "image": "b:2"},
        {"name": "c", "image": "c:1"},
    ]


def test_lists_inside_of_merged_items_merge_as_well():
    old = pod(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}], "args": ["x"]}])
    patch = pod(containers=[{"name": "a", "env": [{"name": "Y", "value": "2"}], "args": ["y"]}])
    assert patched(POD, old, patch)["spec"]["containers"] == [
        {
            "name": "a",
            "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
            "args": ["y"],
        }
    ]


def test_an_item_is_deleted_by_its_key():
    old = pod(containers=[{"name": "a", "image": "i", "tty": True}, {"name": "b"}, {"name": "c"}])
    patch = pod(
        containers=[
            {"$patch": "delete", "name": "b"},
            {"$patch": "delete", "name": "unknown"},
        ]
    )
    assert patched(POD, old, patch)["spec"]["containers"] == [
        {"name": "a", "image": "i", "tty": True},
        {"name": "c"},
    ]


def test_a_whole_list_is_replaced_on_request():
    old = pod(schedulingGates=[{"name": "a"}, {"name": "b"}])
    patch = pod(schedulingGates=[{"$patch": "replace"}, {"name": "c"}])
    assert patched(POD, old, patch)["spec"]["schedulingGates"] == [{"name": "c"}]
    emptied = patched(POD, old, pod(schedulingGates=[{"$patch": "replace"}]))
    assert emptied["spec"]["schedulingGates"] == []


def test_tolerations_are_replaced():
    old = pod(tolerations=[{"key": "a"}])
    assert patched(POD, old, pod(tolerations=[{"key": "b"}]))["spec"]["tolerations"] == [
        {"key": "b"}
    ]


def test_ports_are_found_by_their_number_alone():
    old = pod(containers=[{"name": "a", "ports": [{"containerPort": 1, "protocol": "TCP"}]}])
    patch = pod(containers=[{"name": "a", "ports": [{"containerPort": 1, "protocol": "UDP"}]}])
    (container,) = patched(POD, old, patch)["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 1, "protocol": "UDP"}]
    service = {"spec": {"ports": [{"port": 80, "name": "x"}]}}
    found = patched(SERVICE, service, {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}})
    assert found["spec"]["ports"] == [{"port": 80, "name": "x", "targetPort": 8080}]


def test_finalizers_are_a_set():
    old = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(POD, old, {"metadata": {"finalizers": ["b", "c"]}}) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    patch = {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "$setElementOrder/finalizers": ["c", "b"],
            "finalizers": ["c"],
        }
    }
    assert patched(POD, old, patch) == {"metadata": {"finalizers": ["c", "b"]}}


def test_owner_references_merge_by_uid():
    old = {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}
    patch = {"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}]}}
    assert [ref["uid"] for ref in patched(POD, old, patch)["metadata"]["ownerReferences"]] == [
        "2",
        "1",
    ]


def test_conditions_of_a_job_merge_by_type():
    old = {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "Suspended", "status": "False"}]}}
    assert patched(JOB, old, patch) == patch


def test_items_take_the_given_order_and_strangers_stay_before_later_ones():
    old = pod(containers=[{"name": name} for name in "axbc"])
    patch = pod(
        **{
            "$setElementOrder/containers": [{"name": name} for name in ("c", "n", "b", "a", "zz")],
            "containers": [{"name": "n"}],
        }
    )
    assert [each["name"] for each in patched(POD, old, patch)["spec"]["containers"]] == [
        "x",
        *"cnba",
    ]


def test_pod_templates_of_jobs_merge_like_pods():
    old = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}}
    assert patched(JOB, old, patch) == patch


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (pod(containers=[{"image": "x"}]), "does not contain declared merge key: name"),
        (pod(containers=["x"]), "list element types are not identical"),
        (pod(containers=[[]]), "list element types are not identical"),
        (pod(containers=[{"name": "a", "$patch": "merge"}]), "merging lists cannot yet"),
        (pod(containers=[{"name": "a", "$patch": "x"}]), "unknown patch type: x"),
        ({"spec": {"$patch": "explode"}}, "unknown patch type: explode"),
        ({"spec": {"$patch": "merge", "a": 1}}, r"unknown patch type: merge in map: map\["),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": "a"}}, "invalid patch format of retainKeys"),
        (
            {"spec": {"$setElementOrder/containers": 1}},
            r"expected a \[]interface {}, but received a int64",
        ),
        ([], "json: cannot unmarshal array into Go value of type map"),
    ],
)
def test_malformed_patches_are_refused(patch, problem):
    with pytest.raises(ApiError, match=problem):
        strategic_merge(POD, pod(containers=[{"name": "a"}]), patch)
