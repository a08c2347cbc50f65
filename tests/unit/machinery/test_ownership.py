"""What is applied, and when that is skipped."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import CONFIG_MAPS, NAMESPACES, SECRETS
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.errors import ConfigError
from kueuelib.machinery.ownership import (
    MANAGED_BY,
    Applied,
    claim_problem,
    fingerprint,
    has_finalizer,
    hold,
    holder_of,
    holders,
    is_absent,
    is_left_over,
    owned_child,
)

WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=True)
TEAMS = Resource("example.com", "v1", "teams", "Team", namespaced=False)


def owner(namespace: str = "ns") -> dict:
    found = WIDGETS.new("w", namespace)
    found["metadata"]["uid"] = "u1"
    return found


def test_a_child_gets_namespace_controller_and_label_and_the_original_stays() -> None:
    child = CONFIG_MAPS.new("c", labels={"a": "b"}, data={"x": "y"})
    made = owned_child(child, CONFIG_MAPS, owner(), WIDGETS, "op")
    assert made["metadata"]["namespace"] == "ns"
    assert made["metadata"]["labels"] == {"a": "b", MANAGED_BY: "op"}
    (reference,) = made["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("u1", True)
    assert child == CONFIG_MAPS.new("c", labels={"a": "b"}, data={"x": "y"})


def test_what_cannot_be_owned_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="Namespace n: is cluster-scoped, so Widget ns/w cannot"):
        owned_child(NAMESPACES.new("n"), NAMESPACES, owner(), WIDGETS, "op")
    with pytest.raises(ConfigError, match="Secret s: is in namespace 'other', so Widget ns/w"):
        owned_child(SECRETS.new("s", "other"), SECRETS, owner(), WIDGETS, "op")
    with pytest.raises(ConfigError, match=r"Secret: has no metadata.name; name every child"):
        owned_child({"metadata": {}}, SECRETS, owner(), WIDGETS, "op")
    team = {**TEAMS.new("t"), "metadata": {"name": "t", "uid": "u"}}
    with pytest.raises(ConfigError, match="has no metadata.namespace, and its owner is cluster"):
        owned_child(SECRETS.new("s"), SECRETS, team, TEAMS, "op")
    assert owned_child(NAMESPACES.new("n"), NAMESPACES, team, TEAMS, "op")


def test_an_equal_apply_is_skipped_until_the_object_changes_outside_its_status() -> None:
    applied = Applied()
    wanted = CONFIG_MAPS.new("c", "ns", data={"x": "y"})
    answer = CONFIG_MAPS.new("c", "ns", data={"x": "y"})
    answer["metadata"] |= {"resourceVersion": "5", "uid": "1", "managedFields": []}
    assert not applied.holds(CONFIG_MAPS, wanted, answer)
    applied.note(CONFIG_MAPS, wanted, answer)
    later = {**answer, "status": {"a": 1}, "metadata": {**answer["metadata"]}}
    later["metadata"]["resourceVersion"] = "6"
    assert applied.holds(CONFIG_MAPS, wanted, later)
    assert not applied.holds(CONFIG_MAPS, {**wanted, "data": {}}, later)
    assert not applied.holds(CONFIG_MAPS, wanted, {**later, "data": {"x": "z"}})
    assert not applied.holds(SECRETS, wanted, later)
    applied.forget(CONFIG_MAPS, ObjectKey("ns", "c"))
    assert len(applied) == 0


def test_a_copy_that_kubectl_keeps_does_not_count() -> None:
    plain = CONFIG_MAPS.new("c", "ns")
    noted = CONFIG_MAPS.new(
        "c", "ns", annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    )
    assert fingerprint(plain) == fingerprint(noted)
    other = CONFIG_MAPS.new("c", "ns", annotations={"a": "b"})
    assert fingerprint(plain) != fingerprint(other)


def test_only_teardowns_that_were_applied_hold_an_object() -> None:
    def entry(manager: str, operation: str, name: str) -> dict:
        fields = {"f:metadata": {"f:finalizers": {f'v:"{name}"': {}}}}
        return {"manager": manager, "operation": operation, "fieldsV1": fields}

    entries = [
        entry(holder_of("one"), "Apply", "example.com/a"),
        entry(holder_of("two"), "Apply", "example.com/b"),
        entry(holder_of("three"), "Update", "example.com/a"),
        entry("kubectl", "Apply", "example.com/a"),
        {"manager": holder_of("four"), "operation": "Apply", "fieldsV1": {"f:data": {}}},
    ]
    obj = {"metadata": {"finalizers": ["example.com/a"], "managedFields": entries}}
    assert holders(obj, "example.com/a") == ["one"]
    assert has_finalizer(obj, "example.com/a")
    assert not has_finalizer({"metadata": {}}, "example.com/a")


def test_a_hold_names_the_object_and_its_state_so_that_nothing_else_is_written() -> None:
    meta = {"name": "w", "namespace": "ns", "uid": "u1"}
    obj = {"metadata": {**meta, "resourceVersion": "7", "labels": {"a": "b"}}}
    taken = {**meta, "resourceVersion": "7", "finalizers": ["example.com/a"]}
    assert hold(WIDGETS, obj, "example.com/a")["metadata"] == taken
    assert hold(WIDGETS, obj)["metadata"] == meta


def test_an_object_of_nobody_is_claimed_only_with_adopt() -> None:
    mine = owner()
    assert claim_problem({"metadata": {}}, mine, "boxes", adopt=False)
    assert claim_problem({"metadata": {}}, mine, "boxes", adopt=True) is None


def test_what_is_left_of_an_earlier_object_is_absent_and_others_are_if_they_do_not_count() -> None:
    earlier, other = owner(), owner()
    earlier["metadata"]["uid"], other["metadata"]["uid"] = "u0", "u2"
    other["metadata"]["name"] = "v"

    def child(by: dict) -> dict:
        return owned_child(SECRETS.new("s"), SECRETS, by, WIDGETS, "op")

    cases = {"own": child(owner()), "earlier": child(earlier), "other": child(other)}
    cases["nobody"] = SECRETS.new("s", "ns")
    absent = {
        others: [name for name, each in cases.items() if is_absent(each, owner(), others=others)]
        for others in (False, True)
    }
    assert absent == {False: ["earlier", "other", "nobody"], True: ["earlier"]}
    assert [name for name, each in cases.items() if is_left_over(each, owner())] == ["earlier"]
