"""StatefulSets: the webhook makes their pods a group, and the group outlives its pods."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import is_label_value
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.commands import Create, Delete, DropFinalizer, Emit, PatchStatus
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.stores import JobStores
from kueuelib.jobs.pods.integration import groups_of_parent
from kueuelib.jobs.pods.parents import Parent, Parents, group_name, parent_of
from kueuelib.jobs.pods.pod_plan import plan_until_pods_come
from kueuelib.jobs.pods.reading import group_key
from kueuelib.jobs.pods.statefulset import STATEFULSET, validate_stateful_set, with_group
from kueuelib.jobs.webhooks.manifests import rbac_rules, webhook_entries
from kueuelib.machinery.store import Delta, DeltaKind, Store

Obj = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
QUEUE, PRIORITY = f"{KUEUE}/queue-name", f"{KUEUE}/priority-class"
TOTAL, FAST = f"{KUEUE}/pod-group-total-count", f"{KUEUE}/pod-group-fast-admission"
SERVING, PARENT = f"{KUEUE}/pod-group-serving", f"{KUEUE}/pod-suspending-parent"
REF = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}
NOTES = {FAST: "true", SERVING: "true", PARENT: "statefulset"}


def stateful_set(
    replicas: int | None = 2, cpu: str = "1", pods: int = 0, image: str = "i", **labels: str
) -> Obj:
    keys = {"queue": QUEUE, "priority": PRIORITY}
    meta = {"name": "s", "uid": "uid-s", "namespace": "ns"}
    meta["labels"] = {keys[key]: text for key, text in labels.items()}
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"template": template} | ({} if replicas is None else {"replicas": replicas})
    return {"metadata": meta, "spec": spec, "status": {"replicas": pods}}


# ---- the webhook


@pytest.mark.parametrize(("replicas", "count"), [(3, "3"), (None, "1"), (0, "1")])
def test_the_template_makes_the_pods_a_group(replicas: int | None, count: str) -> None:
    obj = stateful_set(replicas, queue="q", priority="high")
    before = copy.deepcopy(obj)
    meta = with_group(obj)["spec"]["template"]["metadata"]
    group = {f"{KUEUE}/pod-group-name": group_name("s")}
    assert meta["labels"] == {"app": "a", QUEUE: "q", PRIORITY: "high", **group}
    assert meta["annotations"] == {**NOTES, TOTAL: count}
    assert obj == before


def test_another_number_of_replicas_leaves_the_template_as_it_is() -> None:
    first = with_group(stateful_set(2, queue="q"))
    scaled = copy.deepcopy(first)
    scaled["spec"]["replicas"] = 5
    assert with_group(scaled)["spec"]["template"] == first["spec"]["template"]


def test_a_stateful_set_that_names_no_queue_is_left_alone() -> None:
    obj = stateful_set(priority="high")
    assert with_group(obj) is obj


def test_the_name_of_a_group_fits_into_a_label() -> None:
    long = group_name("a" * 60)
    assert is_label_value(long)
    assert long != group_name("a" * 59)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (None, {"queue": "not a name"}, f"metadata.labels[{QUEUE}]"),
        ({"queue": "q"}, {}, f"metadata.labels[{QUEUE}]"),
        ({"queue": "q", "replicas": 0}, {}, f"metadata.labels[{QUEUE}]"),
        ({"queue": "q"}, {"queue": "r"}, f"metadata.labels[{QUEUE}]"),
        ({"queue": "q"}, {"queue": "q", "priority": "p"}, f"metadata.labels[{PRIORITY}]"),
        ({"queue": "q", "priority": "p"}, {"queue": "q"}, f"metadata.labels[{PRIORITY}]"),
        ({"queue": "q"}, {"queue": "q", "replicas": 3}, "spec.replicas"),
        ({"queue": "q"}, {"queue": "q", "cpu": "2"}, "spec.template.spec"),
        ({"queue": "q", "replicas": 0}, {"queue": "q", "pods": 1}, "spec.replicas"),
    ],
)
def test_what_does_not_fit_the_reserved_quota_is_refused(
    old: Obj | None, new: Obj, field: str
) -> None:
    before = None if old is None else stateful_set(**old)
    (error,) = validate_stateful_set(stateful_set(**new), before)
    assert error.path == field


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, {"queue": "q"}),
        ({}, {"queue": "q"}),
        ({"queue": "q"}, {"queue": "q", "image": "j"}),
        ({"queue": "q"}, {"queue": "q", "replicas": 0, "pods": 2}),
        ({"queue": "q", "replicas": 0}, {"queue": "r", "priority": "p", "cpu": "2", "replicas": 5}),
    ],
)
def test_what_changes_no_reservation_may_change(old: Obj | None, new: Obj) -> None:
    before = None if old is None else stateful_set(**old)
    assert validate_stateful_set(stateful_set(**new), before) == ()


def test_it_may_be_watched_and_nothing_else() -> None:
    assert STATEFULSET in builtin_registry().enabled(["statefulset"])
    (rule,) = rbac_rules([STATEFULSET])
    assert rule["resources"] == ["statefulsets"]
    assert set(rule["verbs"]) == {"list", "watch"}
    names = [each.entry["name"] for each in webhook_entries([STATEFULSET], JobSettings())]
    assert names == ["mstatefulset.kb.io", "vstatefulset.kb.io", "mstatefulset-default.kb.io"]


# ---- the group


def pod(pods: Any, ordinal: int, how: str = "waiting", **fields: Any) -> Obj:
    owners = {"ownerReferences": [{**REF, "controller": True}]}
    made = getattr(pods, how)(f"s-{ordinal}", group="group", total=2, annotations=NOTES, **fields)
    made["metadata"].update(owners)
    return made


def parent(replicas: int = 2) -> Parent:
    return Parent(dict(REF), replicas)


def workload(pods: Any) -> Obj:
    (create,) = [
        each for each in pods.plan(pod(pods, 0), parent=parent()) if isinstance(each, Create)
    ]
    found = copy.deepcopy(create.obj)
    found["metadata"].update(
        uid="wl", resourceVersion="7", creationTimestamp="2024-01-01T00:00:00Z"
    )
    return found


def test_the_first_pod_makes_the_workload_of_all_and_its_parent_owns_it(pods: Any) -> None:
    found = workload(pods)
    assert [entry["count"] for entry in found["spec"]["podSets"]] == [2]
    assert found["metadata"]["ownerReferences"] == [REF]
    assert not pods.group(pod(pods, 0), workload=found, parent=parent()).missing


def test_a_fast_group_without_a_parent_is_admitted_early_too(pods: Any) -> None:
    first = pods.waiting("a", group="group", total=3, annotations={FAST: "true"})
    found = pods.composed(first)
    assert [entry["count"] for entry in found["spec"]["podSets"]] == [3]
    assert not pods.group(first, workload=found).missing


def test_what_the_parent_does_not_want_makes_no_workload(pods: Any) -> None:
    assert pods.plan(pod(pods, 0), parent=parent(0)) == ()


def test_a_pod_that_is_over_is_let_go_at_once_and_says_nothing(pods: Any) -> None:
    admitted = pods.admitted(workload(pods))
    over = pod(pods, 0, "over", phase="Succeeded")
    group = pods.group(over, pod(pods, 1, "running"), workload=admitted, parent=parent())
    assert group.finished() is None
    assert group.reclaimable_pods() == {}
    plan = pods.plan(over, pod(pods, 1, "running"), workload=admitted, parent=parent())
    assert [each.obj["metadata"]["name"] for each in plan if isinstance(each, DropFinalizer)] == [
        "s-0"
    ]
    assert not [each for each in plan if isinstance(each, Delete)]


def test_a_group_that_serves_does_not_end_with_its_pods(pods: Any) -> None:
    notes = {SERVING: "true"}
    over = pods.over("a", "Succeeded", group="group", total=1, annotations=notes)
    assert pods.group(over).finished() is None


def test_a_pod_too_many_waits_instead_of_coming_again_and_again(pods: Any) -> None:
    admitted = pods.admitted(workload(pods))
    found = [pod(pods, 0, "running"), pod(pods, 1, "running"), pod(pods, 2, age=-5.0)]
    plan = pods.plan(*found, workload=admitted, parent=parent(3))
    assert not [each for each in plan if isinstance(each, Delete | DropFinalizer)]
    (told,) = [each for each in plan if isinstance(each, Emit) and each.obj is found[2]]
    assert told.reason == "PodRejected"


def test_a_pod_too_many_waits_before_there_is_a_workload_too(pods: Any) -> None:
    plan = pods.plan(pod(pods, 0), pod(pods, 1, age=-5.0), parent=parent(1))
    assert [type(each) for each in plan] == [Create, Emit]


def test_quota_for_another_number_of_pods_is_given_back_once_none_runs(pods: Any) -> None:
    admitted = pods.admitted(workload(pods))
    plan = pods.plan(pod(pods, 0), workload=admitted, parent=parent(5))
    assert [each.obj["kind"] for each in plan if isinstance(each, Delete)] == ["Workload"]
    found = plan_until_pods_come(pods.facts(workload=admitted, parent=parent(5)))
    assert [type(each) for each in found] == [Delete, DropFinalizer]


def test_the_workload_outlives_its_pods_and_gives_back_quota_that_was_taken(pods: Any) -> None:
    admitted = pods.admitted(workload(pods))
    facts = pods.facts(workload=admitted, parent=parent())
    assert plan_until_pods_come(facts) == ()
    evicted = pods.facts(workload=pods.evicted(admitted), parent=parent())
    (released, *_) = plan_until_pods_come(evicted)
    assert isinstance(released, PatchStatus)
    going = [pods.deleted(pod(pods, 0, "running"))]
    assert not pods.group(*going, workload=admitted, parent=parent()).is_abandoned
    assert pods.group(*going, workload=admitted, parent=parent(0)).is_abandoned


def test_the_parent_is_found_by_the_pods_or_by_the_workload(pods: Any) -> None:
    store: Store[Obj] = Store()
    store.put(ObjectKey("ns", "s"), stateful_set(4, queue="q"))
    first, found = pod(pods, 0), workload(pods)
    assert parent_of([first], None, "ns", Parents(store)) == Parent(dict(REF), 4)
    assert parent_of([], found, "ns", Parents(store)) == Parent(dict(REF), 4)
    assert parent_of([first], found, "ns", Parents(Store())) == Parent(dict(REF), 0)
    assert parent_of([first], found, "ns", Parents()) is None
    plain = pods.waiting("a", group="group", total=1)
    assert parent_of([plain], None, "ns", Parents(store)) is None


def test_groups_that_the_go_manager_named_by_uid_follow_their_stateful_set() -> None:
    owned = {"uid-s": ({"metadata": {"name": "statefulset-s-0f3a1"}},)}
    stores = cast("JobStores", SimpleNamespace(workloads_owned_by=owned.__getitem__))
    change = Delta(DeltaKind.UPDATED, ObjectKey("ns", "s"), stateful_set(), stateful_set(0))
    keys = groups_of_parent(stores, change, [group_name("s")])
    assert keys == [group_key("ns", group_name("s")), group_key("ns", "statefulset-s-0f3a1")]
