"""Server-side apply: who owns what, who may change it, and what goes when it is not applied."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from applying import run

from kueuelib.embedded.patching.apply import (
    Convert,
    FieldWrite,
    apply_steps,
    track_steps,
)
from kueuelib.embedded.schema.messages import builtin_node, custom_node
from kueuelib.embedded.schema.node import from_openapi
from kueuelib.errors import BadRequest, Conflict

T1, T2, T3 = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "2024-01-03T00:00:00Z"


def nodes(_version):
    return builtin_node("apps", "Deployment")


def deployment(labels=None, annotations=None, status=None, **spec):
    meta = {"name": "d", "namespace": "n"}
    if labels is not None:
        meta["labels"] = labels
    if annotations is not None:
        meta["annotations"] = annotations
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta}
    if spec:
        obj["spec"] = spec
    if status is not None:
        obj["status"] = status
    return obj


def apply(live, config, manager="one", time=T1, force=False, **write):
    return run(apply_steps(nodes, live, config, FieldWrite(manager, time, **write), force=force))


def update(old, new, manager="editor", time=T2, **write):
    new = {**new, "metadata": dict(new["metadata"])}
    kept = (old or {"metadata": {}})["metadata"].get("managedFields")
    if kept is not None:
        new["metadata"].setdefault("managedFields", kept)
    entries = run(track_steps(nodes, old, new, FieldWrite(manager, time, **write)))
    new["metadata"]["managedFields"] = entries
    return new


def content(obj):
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}


def owners(obj):
    return {
        (each["manager"], each["operation"], each.get("subresource", "")): each["fieldsV1"]
        for each in obj["metadata"]["managedFields"]
    }


# ---- one manager --------------------------------------------------------------------------------


def test_the_first_apply_creates_the_object_and_owns_what_it_set():
    found = apply(None, deployment(labels={"a": "1"}, replicas=2))
    assert content(found) == deployment(labels={"a": "1"}, replicas=2)
    assert found["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "apps/v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:replicas": {}},
            },
        }
    ]


def test_the_same_apply_again_changes_nothing():
    found = apply(None, deployment(labels={"a": "1"}, replicas=2))
    assert apply(found, deployment(labels={"a": "1"}, replicas=2), time=T2) is found


def test_what_is_not_applied_any_more_goes():
    found = apply(None, deployment(labels={"a": "1", "b": "2"}, replicas=2, paused=True))
    found = apply(found, deployment(labels={"b": "2"}, paused=True), time=T2)
    assert content(found) == deployment(labels={"b": "2"}, paused=True)
    assert found["metadata"]["managedFields"][0]["time"] == T2


def test_what_nobody_applied_stays():
    found = apply(None, deployment(replicas=2))
    found["spec"]["progressDeadlineSeconds"] = 600  # a default
    found = apply(found, deployment(paused=True), time=T2)
    assert found["spec"] == {"paused": True, "progressDeadlineSeconds": 600}


def test_identity_survives_when_no_metadata_are_applied_any_more():
    found = apply(None, deployment(labels={"a": "1"}))
    found["metadata"].update(uid="u", resourceVersion="7")
    found = apply(found, deployment(replicas=1), time=T2)
    assert content(found)["metadata"] == {
        "name": "d",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
    }


def test_an_item_of_a_map_list_goes_with_its_owner():
    first = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    found = apply(None, deployment(template=first))
    found["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    second = {"spec": {"containers": [{"name": "b", "image": "1"}]}}
    found = apply(found, deployment(template=second), time=T2)
    assert found["spec"]["template"] == second


def test_a_list_that_is_applied_empty_stays_empty():
    found = apply(None, deployment(labels={"a": "1"}))
    found = apply(found, deployment(labels={}), time=T2)
    assert found["metadata"]["labels"] == {}
    assert apply(found, deployment(labels={}), time=T3) is found


# ---- several managers ---------------------------------------------------------------------------


def test_two_managers_may_own_the_same_value():
    found = apply(None, deployment(replicas=2))
    found = apply(found, deployment(replicas=2), manager="two", time=T2)
    found = apply(found, deployment(paused=True), manager="one", time=T3)
    assert found["spec"] == {"replicas": 2, "paused": True}
    assert owners(found)["two", "Apply", ""] == {"f:spec": {"f:replicas": {}}}
    found = apply(found, deployment(paused=True), manager="two", time=T3)
    assert found["spec"] == {"paused": True}


def test_a_value_of_another_manager_is_a_conflict():
    found = apply(None, deployment(replicas=2))
    with pytest.raises(Conflict) as caught:
        apply(found, deployment(replicas=3), manager="two")
    error = caught.value
    assert error.message == 'Apply failed with 1 conflict: conflict with "one": .spec.replicas'
    assert error.status()["reason"] == "Conflict"
    assert error.details["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "one"',
            "field": ".spec.replicas",
        }
    ]


def test_several_conflicts_are_listed_by_manager():
    template = {"spec": {"containers": [{"name": "a", "image": "1"}]}}
    found = apply(None, deployment(replicas=2, template=template))
    found = update(found, {**found, "metadata": {**found["metadata"], "labels": {"x": "1"}}})
    template = {"spec": {"containers": [{"name": "a", "image": "2"}]}}
    with pytest.raises(Conflict) as caught:
        apply(found, deployment({"x": "2"}, replicas=3, template=template), manager="two")
    assert caught.value.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "editor" using apps/v1:\n'
        "- .metadata.labels.x\n"
        'conflicts with "one":\n'
        "- .spec.replicas\n"
        '- .spec.template.spec.containers[name="a"].image'
    )


def test_force_takes_the_field_over():
    found = apply(None, deployment(replicas=2, paused=True))
    found = apply(found, deployment(replicas=3), manager="two", time=T2, force=True)
    assert found["spec"] == {"replicas": 3, "paused": True}
    assert owners(found) == {
        ("one", "Apply", ""): {"f:spec": {"f:paused": {}}},
        ("two", "Apply", ""): {"f:spec": {"f:replicas": {}}},
    }


def test_items_of_a_map_list_may_have_several_owners():
    one = {"spec": {"containers": [{"name": "a", "image": "1"}]}}
    two = {"spec": {"containers": [{"name": "a", "args": ["x"]}, {"name": "s", "image": "s"}]}}
    found = apply(None, deployment(template=one))
    found = apply(found, deployment(template=two), manager="two", time=T2)
    assert found["spec"]["template"]["spec"]["containers"] == [
        {"name": "a", "image": "1", "args": ["x"]},
        {"name": "s", "image": "s"},
    ]
    found = apply(found, deployment(replicas=1), manager="two", time=T3)
    assert found["spec"]["template"] == one


# ---- other writes -------------------------------------------------------------------------------


def test_a_create_owns_everything_it_set():
    found = update(None, deployment(labels={"a": "1"}, replicas=2), manager="creator", time=T1)
    assert owners(found) == {
        ("creator", "Update", ""): {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {".": {}, "f:replicas": {}},
        }
    }


def test_an_update_takes_what_it_changes_and_loses_what_it_removes():
    found = apply(None, deployment(replicas=2, paused=True))
    found = update(found, deployment(replicas=5))
    assert owners(found) == {("editor", "Update", ""): {"f:spec": {"f:replicas": {}}}}


def test_an_update_without_a_change_leaves_the_entries_alone():
    found = update(None, deployment(replicas=2), time=T1)
    again = update(found, deployment(replicas=2), time=T3)
    assert again["metadata"]["managedFields"] == found["metadata"]["managedFields"]
    other = update(found, deployment(replicas=2), manager="other", time=T3)
    assert other["metadata"]["managedFields"] == found["metadata"]["managedFields"]


def test_an_apply_conflicts_with_an_update_until_forced():
    found = update(None, deployment(replicas=2), time=T1)
    with pytest.raises(Conflict, match='with "editor" using apps/v1: .spec.replicas'):
        apply(found, deployment(replicas=3))
    found = apply(found, deployment(replicas=3), force=True, time=T2)
    assert owners(found) == {
        ("editor", "Update", ""): {"f:spec": {}},
        ("one", "Apply", ""): {"f:spec": {"f:replicas": {}}},
    }


def test_an_object_without_owners_belongs_to_nobody_in_particular_before_the_first_apply():
    live = deployment(replicas=2, paused=True)
    with pytest.raises(Conflict, match='"before-first-apply" using apps/v1: .spec.replicas'):
        apply(live, deployment(replicas=3))
    found = apply(live, deployment(replicas=2))
    assert owners(found)["before-first-apply", "Update", ""] == {
        "f:spec": {".": {}, "f:paused": {}, "f:replicas": {}}
    }


def test_owners_are_forgotten_on_request():
    found = apply(None, deployment(replicas=2))
    new = deployment(replicas=3)
    new["metadata"]["managedFields"] = [{}]
    assert update(found, new)["metadata"]["managedFields"] == []


def test_old_update_managers_are_merged_when_there_are_many():
    found = update(None, deployment(labels={"l0": "x"}), manager="m0", time="2024-01-01T00:00:00Z")
    labels = {"l0": "x"}
    for number in range(1, 13):
        labels = {**labels, f"l{number}": "x"}
        found = update(
            found, deployment(labels=labels), manager=f"m{number}", time=f"2024-02-{number:02}"
        )
    entries = found["metadata"]["managedFields"]
    assert len(entries) == 10
    merged = owners(found)["ancient-changes", "Update", ""]["f:metadata"]["f:labels"]
    assert merged == {".": {}, "f:l0": {}, "f:l1": {}, "f:l2": {}, "f:l3": {}}


# ---- status -------------------------------------------------------------------------------------


def test_status_is_owned_through_its_subresource_only():
    found = apply(None, deployment(replicas=2, status={"replicas": 9}), has_status=True)
    assert owners(found) == {("one", "Apply", ""): {"f:spec": {"f:replicas": {}}}}
    found = apply(
        found,
        deployment(labels={"x": "1"}, replicas=7, status={"replicas": 1}),
        manager="one",
        time=T2,
        subresource="status",
        has_status=True,
    )
    assert content(found) == deployment(replicas=2, status={"replicas": 1})
    assert owners(found) == {
        ("one", "Apply", ""): {"f:spec": {"f:replicas": {}}},
        ("one", "Apply", "status"): {"f:status": {"f:replicas": {}}},
    }


def test_a_status_conflict_names_the_subresource():
    found = apply(None, deployment(replicas=2))
    found = update(
        found,
        deployment(replicas=2, status={"replicas": 1}),
        manager="controller",
        subresource="status",
        has_status=True,
    )
    with pytest.raises(Conflict) as caught:
        apply(
            found,
            deployment(status={"replicas": 2}),
            manager="two",
            subresource="status",
            has_status=True,
        )
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "controller" with subresource "status" '
        "using apps/v1: .status.replicas"
    )


def test_conditions_of_several_owners_live_side_by_side():
    write = {"subresource": "status", "has_status": True}
    ready = {"type": "Ready", "status": "True"}
    done = {"type": "Done", "status": "False"}
    found = apply(None, deployment(replicas=1))
    found = apply(found, deployment(status={"conditions": [ready]}), "one", T1, **write)
    found = apply(found, deployment(status={"conditions": [done]}), "two", T1, **write)
    assert found["status"]["conditions"] == [ready, done]
    found = apply(found, deployment(status={}), "one", T2, **write)
    assert found["status"]["conditions"] == [done]


# ---- versions -----------------------------------------------------------------------------------


OLD = custom_node(
    from_openapi(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"cohort": {"type": "string"}, "stop": {"type": "string"}},
                }
            },
        }
    )
)
NEW = custom_node(
    from_openapi(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"cohortName": {"type": "string"}, "stop": {"type": "string"}},
                }
            },
        }
    )
)


def versioned(version):
    return {"g/v1": OLD, "g/v2": NEW}[version]


def converted(obj, version):
    if version == "g/v0":
        return None
    names = {"cohort": "cohortName"} if version == "g/v2" else {"cohortName": "cohort"}
    spec = {names.get(name, name): value for name, value in obj.get("spec", {}).items()}
    return {**obj, "apiVersion": version, "spec": spec}


def queue(version, **spec):
    return {"apiVersion": version, "kind": "Q", "metadata": {"name": "q"}, "spec": spec}


def applied(live, config, manager, force=False):
    steps = apply_steps(versioned, live, config, FieldWrite(manager, T1), force=force)
    return run(steps, converted)


def test_ownership_holds_across_versions():
    found = applied(None, queue("g/v1", cohort="a"), "one")
    found = {**converted(found, "g/v2"), "metadata": found["metadata"]}
    with pytest.raises(Conflict, match=r'conflict with "one": \.spec\.cohort$'):
        applied(found, queue("g/v2", cohortName="b"), "two")
    found = applied(found, queue("g/v2", stop="None"), "two")
    assert found["spec"] == {"cohortName": "a", "stop": "None"}


def test_a_manager_that_moves_to_another_version_keeps_and_drops_its_fields():
    found = applied(None, queue("g/v1", cohort="a", stop="Hold"), "one")
    found = {**converted(found, "g/v2"), "metadata": found["metadata"]}
    found = applied(found, queue("g/v2", cohortName="a"), "one")
    assert found["spec"] == {"cohortName": "a"}
    (entry,) = found["metadata"]["managedFields"]
    assert entry["apiVersion"] == "g/v2"
    assert entry["fieldsV1"] == {"f:spec": {"f:cohortName": {}}}


def test_owners_in_a_version_that_is_gone_are_forgotten():
    live = queue("g/v2", cohortName="a")
    live["metadata"]["managedFields"] = [
        {
            "manager": "ghost",
            "operation": "Apply",
            "apiVersion": "g/v0",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:cohortName": {}}},
        }
    ]
    found = applied(live, queue("g/v2", cohortName="b"), "one")
    assert [each["manager"] for each in found["metadata"]["managedFields"]] == ["one"]


def test_conversions_are_asked_from_the_driver():
    found = applied(None, queue("g/v1", cohort="a"), "one")
    found = {**converted(found, "g/v2"), "metadata": found["metadata"]}
    steps = apply_steps(versioned, found, queue("g/v2", stop="x"), FieldWrite("two", T1))
    asked = next(steps)
    assert isinstance(asked, Convert)
    assert asked.api_version == "g/v1"
    with pytest.raises(ValueError, match="no way to convert to g/v1"):
        run(apply_steps(versioned, found, queue("g/v2", stop="x"), FieldWrite("two", T1)))


# ---- bad input ----------------------------------------------------------------------------------


def test_an_applied_configuration_has_no_managed_fields():
    config = deployment(replicas=1)
    config["metadata"]["managedFields"] = []
    with pytest.raises(BadRequest, match="metadata.managedFields must be nil"):
        apply(None, config)


def test_one_unreadable_entry_makes_all_owners_unknown():
    live = deployment(replicas=1)
    good = {
        "manager": "y",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    bad = {**good, "manager": "x", "fieldsV1": {"bad": {}}}
    live["metadata"]["managedFields"] = [bad, good]
    found = apply(live, deployment(paused=True))
    assert set(owners(found)) == {("one", "Apply", ""), ("before-first-apply", "Update", "")}
