"""LeaderWorkerSets: each replica is a group, and its Workload is what the set says."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.commands import Change, Create, Delete, Emit
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.leaderworkerset import (
    LEADERWORKERSET,
    validate_leader_worker_set,
    with_roles,
)
from kueuelib.jobs.pods.marks import gated
from kueuelib.jobs.pods.parents import Parent, Parents, parent_of, pod_sets_of, replica_group_name
from kueuelib.jobs.pods.pod_plan import plan_until_pods_come
from kueuelib.jobs.pods.statefulset import validate_stateful_set, with_group
from kueuelib.jobs.webhooks.manifests import rbac_rules, webhook_entries
from kueuelib.machinery.store import Store

Obj = dict[str, Any]
KUEUE, LWS = "kueue.x-k8s.io", "leaderworkerset.sigs.k8s.io"
NAME = "leaderworkerset.x-k8s.io/leaderworkerset"
QUEUE, PRIORITY, GROUP = f"{KUEUE}/queue-name", f"{KUEUE}/priority-class", f"{KUEUE}/pod-group-name"
TOTAL, ROLE = f"{KUEUE}/pod-group-total-count", f"{KUEUE}/role-hash"
NOTES = {f"{KUEUE}/pod-suspending-parent": NAME, f"{KUEUE}/pod-group-serving": "true"}
OFFSET = f"{KUEUE}/pod-index-offset"
TEMPLATE = "spec.leaderWorkerTemplate"


def template(cpu: str, image: str = "i") -> Obj:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container]}}


def leader_worker_set(
    leader: str | None = "2",
    worker: str = "1",
    size: int = 3,
    replicas: int | None = 2,
    image: str = "i",
    status: Obj | None = None,
    **labels: str,
) -> Obj:
    keys = {"queue": QUEUE, "priority": PRIORITY}
    meta = {"name": "l", "uid": "uid-l", "namespace": "ns"}
    meta["labels"] = {keys[key]: text for key, text in labels.items()}
    parts: Obj = {"workerTemplate": template(worker, image), "size": size}
    if leader is not None:
        parts["leaderTemplate"] = template(leader, image)
    spec = {"leaderWorkerTemplate": parts} | ({} if replicas is None else {"replicas": replicas})
    return {"metadata": meta, "spec": spec, "status": status or {}}


# ---- the webhooks


def test_the_templates_say_roles_and_queue() -> None:
    obj = leader_worker_set(queue="q", priority="high")
    before = copy.deepcopy(obj)
    parts = with_roles(obj)["spec"]["leaderWorkerTemplate"]
    for role, field in (("leader", "leaderTemplate"), ("worker", "workerTemplate")):
        meta = parts[field]["metadata"]
        assert meta["labels"] == {QUEUE: "q", PRIORITY: "high"}
        offset = {OFFSET: "1"} if role == "worker" else {}
        assert meta["annotations"] == {**NOTES, ROLE: role, **offset}
    assert obj == before


def test_templates_of_running_workers_do_not_change_for_their_indices() -> None:
    obj = leader_worker_set(queue="q")
    changed = with_roles(obj, obj)
    notes = changed["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
    assert OFFSET not in notes
    assert with_roles(with_roles(obj), with_roles(obj)) == with_roles(obj)


def test_a_group_of_leader_and_workers_needs_no_offset() -> None:
    obj = leader_worker_set(queue="q")
    worker = obj["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    worker.setdefault("metadata", {})["annotations"] = {"kueue.x-k8s.io/podset-group-name": "g"}
    notes = with_roles(obj)["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]
    assert OFFSET not in notes["annotations"]


def test_without_a_leader_template_all_pods_are_of_one_role() -> None:
    parts = with_roles(leader_worker_set(None, queue="q"))["spec"]["leaderWorkerTemplate"]
    assert parts["workerTemplate"]["metadata"]["annotations"][ROLE] == "main"
    assert "leaderTemplate" not in parts


def test_a_set_that_names_no_queue_is_left_alone() -> None:
    obj = leader_worker_set(priority="high")
    assert with_roles(obj) is obj


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (None, {"queue": "not a name"}, f"metadata.labels[{QUEUE}]"),
        ({"queue": "q"}, {}, f"metadata.labels[{QUEUE}]"),
        ({"queue": "q", "status": {"readyReplicas": 1}}, {"queue": "r"}, "metadata.labels"),
        ({"queue": "q"}, {"queue": "q", "size": 4}, f"{TEMPLATE}.size"),
        ({"queue": "q"}, {"queue": "q", "leader": None}, f"{TEMPLATE}.leaderTemplate"),
        ({"queue": "q"}, {"queue": "q", "leader": "3"}, f"{TEMPLATE}.leaderTemplate.spec"),
        ({"queue": "q"}, {"queue": "q", "worker": "3"}, f"{TEMPLATE}.workerTemplate.spec"),
        (
            {"queue": "q", "replicas": 0, "status": {"replicas": 1}},
            {"queue": "q", "worker": "3"},
            f"{TEMPLATE}.workerTemplate.spec",
        ),
    ],
)
def test_what_does_not_fit_the_reserved_quota_is_refused(
    old: Obj | None, new: Obj, field: str
) -> None:
    before = None if old is None else leader_worker_set(**old)
    (error,) = validate_leader_worker_set(leader_worker_set(**new), before)
    assert error.path.startswith(field)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, {"queue": "q"}),
        ({}, {"queue": "q", "size": 5}),
        ({"queue": "q"}, {"queue": "r", "replicas": 7, "image": "j"}),
        ({"queue": "q", "replicas": 0}, {"queue": "q", "worker": "2", "size": 2, "leader": None}),
    ],
)
def test_replicas_images_and_sets_without_pods_may_change(old: Obj | None, new: Obj) -> None:
    before = None if old is None else leader_worker_set(**old)
    assert validate_leader_worker_set(leader_worker_set(**new), before) == ()


def test_it_may_be_read_and_nothing_else() -> None:
    assert LEADERWORKERSET in builtin_registry().enabled([NAME])
    assert {verb for rule in rbac_rules([LEADERWORKERSET]) for verb in rule["verbs"]} == {
        *("get", "list", "watch")
    }
    names = [each.entry["name"] for each in webhook_entries([LEADERWORKERSET], JobSettings())]
    plain = ["mleaderworkerset.kb.io", "vleaderworkerset.kb.io"]
    assert names == [*plain, "mleaderworkerset-default.kb.io"]


def test_its_stateful_sets_are_not_queued_once_more() -> None:
    """The set's controller copies all labels to them."""
    meta = {"annotations": NOTES}
    made = {"metadata": {"name": "l", "labels": {QUEUE: "q"}}, "spec": {"replicas": 2}}
    made["spec"]["template"] = {"metadata": meta, **template("1")}
    assert with_group(made) is made
    grown = copy.deepcopy(made)
    grown["spec"]["replicas"] = 3
    assert validate_stateful_set(grown, made) == ()


# ---- the pods


def pod(pods: Any, role: str, name: str, how: str = "waiting", **fields: Any) -> Obj:
    notes = {**NOTES, ROLE: role, f"{LWS}/size": "3"}
    index = {} if role == "leader" else {f"{LWS}/group-index": "0"}
    labels = {f"{LWS}/name": "l", **index}
    cpu = fields.pop("cpu", "2" if role == "leader" else "1")
    found: Obj = getattr(pods, how)(name, cpu=cpu, labels=labels, annotations=notes, **fields)
    return found


def test_the_webhook_of_pods_names_the_group_of_each_replica(pods: Any) -> None:
    leader = pod(pods, "leader", "l-1", "raw")
    found = gated(leader)["metadata"]
    assert found["labels"][GROUP] == replica_group_name("l", 1)
    assert found["annotations"] == {**leader["metadata"]["annotations"], TOTAL: "3"}
    worker = gated(pod(pods, "worker", "l-0-2", "raw"))["metadata"]
    assert worker["labels"][GROUP] == replica_group_name("l", 0)
    assert len(replica_group_name("a" * 63, 1_000_000)) <= 63


def test_a_pod_that_does_not_say_its_replica_gets_no_group(pods: Any) -> None:
    assert GROUP not in gated(pod(pods, "leader", "other", "raw"))["metadata"]["labels"]


# ---- the group


def store(*objs: Obj) -> Parents:
    found: Store[Obj] = Store()
    found.replace([(ObjectKey("ns", each["metadata"]["name"]), each) for each in objs])
    return Parents(None, lambda: found)


def parent(found: Obj | None = None, index: str = "0") -> Parent:
    obj = found or leader_worker_set(queue="q")
    workload = {"metadata": {"ownerReferences": [{**REF}], "annotations": {INDEX: index}}}
    made = parent_of((), workload, "ns", store(obj))
    assert made is not None
    return made


REF = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "name": "l",
    "uid": "uid-l",
}
INDEX = f"{KUEUE}/component-workload-index"


def workload(pods: Any) -> Obj:
    (create,) = [
        each
        for each in pods.plan(pod(pods, "leader", "l-0"), parent=parent())
        if isinstance(each, Create)
    ]
    found = copy.deepcopy(create.obj)
    found["metadata"].update(
        uid="wl", resourceVersion="7", creationTimestamp="2024-01-01T00:00:00Z"
    )
    return found


def test_the_first_pod_makes_the_workload_of_leader_and_workers(pods: Any) -> None:
    found = workload(pods)
    assert found["metadata"]["ownerReferences"] == [REF]
    assert found["metadata"]["annotations"][INDEX] == "0"
    sets = [(each["name"], each["count"]) for each in found["spec"]["podSets"]]
    assert sets == [("leader", 1), ("worker", 2)]
    cpus = [
        each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for each in found["spec"]["podSets"]
    ]
    assert cpus == ["2", "1"]


def test_labels_of_the_templates_are_in_the_pod_sets() -> None:
    obj = leader_worker_set(queue="q")
    before = parent(obj).digest
    parts = obj["spec"]["leaderWorkerTemplate"]
    parts["workerTemplate"]["metadata"] = {"labels": {"app": "serving", QUEUE: "q"}}
    leader, worker = pod_sets_of(obj)
    assert worker.template["metadata"] == {"labels": {"app": "serving"}}
    assert "metadata" not in leader.template
    assert parent(obj).digest == before, "labels alone make no other Workload"


def test_pods_start_by_role_and_more_workers_than_declared_wait(pods: Any) -> None:
    held = pods.admitted(workload(pods))
    members = [pod(pods, "leader", "l-0", "running")]
    members += [pod(pods, "worker", f"l-0-{number}", age=9 - number) for number in (1, 2, 3)]
    plan = pods.plan(*members, workload=held, parent=parent())
    started = [each.new["metadata"]["name"] for each in plan if isinstance(each, Change)]
    assert started == ["l-0-1", "l-0-2"]
    (event,) = [each for each in plan if isinstance(each, Emit) and each.reason == "PodRejected"]
    assert event.obj["metadata"]["name"] == "l-0-3"
    assert not [each for each in plan if isinstance(each, Delete)], "it would come again"


def test_a_worker_that_asks_for_more_than_declared_waits(pods: Any) -> None:
    held = pods.admitted(workload(pods))
    greedy = pod(pods, "worker", "l-0-1", cpu="9")
    plan = pods.plan(pod(pods, "leader", "l-0", "running"), greedy, workload=held, parent=parent())
    assert not [each for each in plan if isinstance(each, Change | Delete)]


def test_the_workload_stays_while_its_replica_has_no_pods(pods: Any) -> None:
    held = pods.admitted(workload(pods))
    assert plan_until_pods_come(pods.facts(workload=held, parent=parent())) == ()


def test_a_set_of_another_shape_gets_another_workload(pods: Any) -> None:
    held = pods.admitted(workload(pods))
    other = parent(leader_worker_set(worker="5", queue="q"))
    assert other.replicas == parent().replicas
    plan = plan_until_pods_come(pods.facts(workload=held, parent=other))
    assert [type(each) for each in plan][:1] == [Delete]
    waiting = workload(pods)
    plan = pods.plan(pod(pods, "leader", "l-0"), workload=waiting, parent=other)
    (change,) = [each for each in plan if isinstance(each, Change)]
    (_, workers) = change.new["spec"]["podSets"]
    assert workers["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "5"


def test_another_image_needs_no_other_workload() -> None:
    assert parent().digest == parent(leader_worker_set(image="j", queue="q")).digest


@pytest.mark.parametrize(
    ("obj", "index", "replicas"),
    [
        (leader_worker_set(), "1", 3),
        (leader_worker_set(), "2", 0),
        (leader_worker_set(status={"replicas": 3}), "2", 3),
        (leader_worker_set(size=1), "0", 1),
        (leader_worker_set(None, replicas=None), "0", 3),
        (leader_worker_set(), "", 0),
    ],
)
def test_replicas_beyond_the_set_make_no_pods(obj: Obj, index: str, replicas: int) -> None:
    assert parent(obj, index).replicas == replicas


def test_the_parent_is_found_by_pods_and_missing_ones_make_none(pods: Any) -> None:
    leader = pod(pods, "leader", "l-0")
    found = parent_of((leader,), None, "ns", store(leader_worker_set()))
    assert found == parent()
    gone = parent_of((leader,), None, "ns", store())
    assert gone is not None
    assert gone.replicas == 0
    assert parent_of((leader,), None, "ns", Parents()) is None
    other = {**leader_worker_set(), "metadata": {"name": "l", "namespace": "ns", "uid": "other"}}
    assert parent(other).replicas == 0, "the set of the Workload was deleted"
    assert ObjectKey("ns", "l") in store(other).leader_worker_sets()  # type: ignore[misc]


def test_nothing_is_queued_until_the_set_is_known(pods: Any) -> None:
    plan = pods.plan(pod(pods, "leader", "l-0"), parent=Parent({}, 0))
    assert not [each for each in plan if isinstance(each, Create)]
