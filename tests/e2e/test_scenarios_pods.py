"""The acceptance scenarios of plain pods; see `scenarios.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from place import (
    GATE,
    GATES,
    GROUP,
    MANAGED,
    QUEUE,
    RETRIABLE,
    RUN,
    TOTAL,
    Place,
    gates,
    name_of,
    phase,
    pod_spec,
    shared_cluster,
    uid_of,
)
from rest import KUEUE, Rest, condition, is_true

from kueuelib.testing.processes import LocalCluster

LEFT_OUT = {"left-out": "yes"}
PODS = (
    "podOptions: {podSelector: {matchExpressions: [{key: left-out, operator: DoesNotExist}]}, "
    "namespaceSelector: {matchExpressions: [{key: left-out, operator: DoesNotExist}, "
    "{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}]}}"
)
OTHER = {"name": "example.com/other"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    folder = tmp_path_factory.mktemp("pods")
    with shared_cluster(folder, integrations=PODS) as found:
        yield found


@pytest.fixture
def place(shared: tuple[LocalCluster, Rest]) -> Place:
    cluster, rest = shared
    return Place(rest, cluster.metrics_port)


def is_ours(pod: dict) -> bool:
    marks = {
        GATE in gates(pod),
        pod["metadata"].get("labels", {}).get(MANAGED) == "true",
        MANAGED in pod["metadata"].get("finalizers", ()),
    }
    assert len(marks) == 1, "either all marks or none"
    return marks.pop()


# ---- the webhook


def test_a_queued_pod_is_gated(place: Place) -> None:
    assert is_ours(place.pod())
    assert not is_ours(place.pod("free", None))


def test_the_system_namespace_is_left_alone(place: Place) -> None:
    place.pods = "/api/v1/namespaces/kube-system/pods"
    pod = place.pod(place.named("pod"))
    assert not is_ours(pod)
    place.runs(pod)


def test_every_pod_is_gated_where_the_configuration_says_so(
    tmp_path: Path,
) -> None:
    settings = "manageJobsWithoutQueueName: true"
    with shared_cluster(tmp_path, settings=settings, integrations=PODS) as (_, rest):
        assert is_ours(Place(rest).pod(queue=None))


def test_pods_and_namespaces_that_are_not_selected_are_left_alone(
    shared: tuple[LocalCluster, Rest], place: Place
) -> None:
    assert not is_ours(place.pod(labels=LEFT_OUT))
    assert not is_ours(Place(shared[1], labels=LEFT_OUT).pod())


def test_a_pod_that_is_not_selected_runs_whatever_its_labels_say(place: Place) -> None:
    marks = {**LEFT_OUT, MANAGED: "true"}
    pods = [place.pod("one", labels=marks), place.pod("two", labels=marks, group="g")]
    place.eventually(lambda: all(phase(place.get(pod)) == "Running" for pod in pods))
    place.quiet(lambda: {*map(uid_of, place.rest.items(place.pods))} == {*map(uid_of, pods)})


def test_a_pod_of_a_queued_job_is_left_alone(place: Place) -> None:
    job = place.job()
    pod = place.pod(owner=job)
    assert not is_ours(pod)
    marked = place.pod("marked", labels={MANAGED: "true"}, owner=job)
    assert GATE not in gates(marked)
    place.quiet(lambda: not place.workloads_of(pod) + place.workloads_of(marked))


@pytest.mark.parametrize(
    ("labels", "notes"),
    [({MANAGED: "true", GROUP: "g"}, {TOTAL: "1"}), ({GROUP: "g"}, {}), ({}, {TOTAL: "1"})],
)
def test_a_pod_of_a_queued_job_runs_whatever_its_labels_say(
    place: Place, labels: dict[str, str], notes: dict[str, str]
) -> None:
    place.queue(1)
    marks = {"labels": labels, "annotations": {**notes, RUN: "600"}}
    job = place.job(template={"metadata": marks, "spec": pod_spec("1")})
    place.eventually(lambda: place.get(job)["status"]["ready"])
    (pod,) = place.rest.items(place.pods)
    place.quiet(lambda: [*map(uid_of, place.rest.items(place.pods))] == [uid_of(pod)])


def test_other_gates_stay_and_ours_comes_once(place: Place) -> None:
    place.queue(2)
    pod = place.pod(schedulingGates=[OTHER])
    assert gates(pod) == [OTHER["name"], *GATES]
    assert gates(place.pod("twice", schedulingGates=[{"name": GATE}])) == GATES
    place.eventually(lambda: gates(place.get(pod)) == [OTHER["name"]])
    place.admitted(pod)
    assert phase(place.get(pod)) == "Pending"


def test_the_label_that_we_write_has_one_value(place: Place) -> None:
    place.refused(lambda: place.pod(queue=None, labels={MANAGED: "no"}), MANAGED)
    pod = place.pod()
    place.refused(lambda: place.merge(pod, {"metadata": {"labels": {MANAGED: "no"}}}), MANAGED)


def test_the_label_that_we_write_stays(place: Place) -> None:
    pod = place.pod()
    place.refused(lambda: place.merge(pod, {"metadata": {"labels": {MANAGED: None}}}), MANAGED)


def test_a_group_has_a_name_and_a_size(place: Place) -> None:
    place.refused(lambda: place.pod(group="g"), TOTAL)
    place.refused(lambda: place.pod(total=1), GROUP)
    for total in ("0", "-1", "x"):
        place.refused(lambda total=total: place.pod(group="g", total=total), TOTAL)


def test_the_name_of_a_group_stays(place: Place) -> None:
    pod = place.pod(group="g", total=2)
    place.refused(lambda: place.merge(pod, {"metadata": {"labels": {GROUP: "h"}}}), GROUP)


def test_a_group_that_is_given_up_stays_so(place: Place) -> None:
    pod = place.pod(group="g", total=2)
    place.annotate(pod, **{RETRIABLE: "false"})
    for text in ("true", None):
        place.refused(lambda text=text: place.annotate(pod, **{RETRIABLE: text}), RETRIABLE)


def test_the_queue_changes_only_while_a_pod_waits(place: Place) -> None:
    place.queue(1)
    body = {"metadata": {"labels": {QUEUE: "elsewhere"}}}
    waiting = place.pod("waiting", "none")
    place.merge(waiting, body)
    running = place.pod("running")
    place.runs(running)
    place.refused(lambda: place.merge(running, body), QUEUE)


POOL = "kueuelib.dev/pool"
POOLS = {name: {POOL: name} for name in ("a", "b")}


def test_a_waiting_pod_chooses_its_flavor(place: Place) -> None:
    queue = place.queue(1, flavors=POOLS, stopPolicy="Hold")
    pod = place.pod()
    place.eventually(lambda: place.workload(pod))
    place.merge(pod, {"spec": {"nodeSelector": {POOL: "b"}}})
    release(place, queue)
    place.eventually(lambda: not gates(place.get(pod)))
    assert flavors(place, pod) == ["b"]


def test_each_pod_of_a_waiting_group_chooses_its_flavor(place: Place) -> None:
    queue = place.queue(1, flavors=POOLS, stopPolicy="Hold")
    pods = place.group(size=2)
    place.eventually(lambda: place.workload(pods[0]))
    for pod, pool in zip(pods, ("b", "a"), strict=True):
        place.merge(pod, {"spec": {"nodeSelector": {POOL: pool}}})
    release(place, queue)
    place.eventually(lambda: not any(gates(place.get(pod)) for pod in pods))
    assert [place.get(pod)["spec"]["nodeSelector"][POOL] for pod in pods] == ["b", "a"]
    assert flavors(place, pods[0]) == ["a", "b"]
    assert not is_true(place.workload(pods[0]), "Finished")


@pytest.mark.parametrize("order", ["at once", "one after another"])
def test_a_pod_of_an_edited_group_is_replaced_by_one_like_it(place: Place, order: str) -> None:
    queue = place.queue(3, stopPolicy="Hold")
    pods = place.group(size=3)
    before = place.eventually(lambda: place.workload(pods[0]))
    spot = {"key": "spot", "operator": "Exists"}
    for number, pod in enumerate(pods, start=1):
        given = place.get(pod)["spec"].get("tolerations") or []
        place.merge(pod, {"spec": {"tolerations": [*given, spot]}})
        if order == "one after another":
            place.eventually(lambda number=number: counts_of(place, pods[0]) in followed(number))
    old = before["spec"]["podSets"][0]["name"]
    place.eventually(lambda: old not in [name for name, _ in pod_sets(place, pods[0])])
    place.eventually(lambda: counts_of(place, pods[0]) == [3])
    release(place, queue)
    place.runs(*pods)
    assert uid_of(place.workload(pods[0])) == uid_of(before)
    for number, pod in enumerate(pods):
        place.finish(pod, exit_code=1)
        place.eventually(lambda pod=pod: phase(place.get(pod)) == "Failed")
        new = place.pod(f"n{number}", group="g", total=3, tolerations=[spot])
        place.runs(new)
        place.released(pod)
        pods[number] = new
    place.finish(*pods)
    place.finished(pods[0], "Succeeded")


def pod_sets(place: Place, pod: dict) -> list[tuple[str, int]]:
    return [(each["name"], each["count"]) for each in place.workload(pod)["spec"]["podSets"]]


def counts_of(place: Place, pod: dict) -> list[int]:
    return sorted(count for _, count in pod_sets(place, pod))


def followed(edited: int) -> list[list[int]]:
    """The counts of pod sets after edits of some of three pods."""
    return [sorted(each for each in (edited, 3 - edited) if each)]


def release(place: Place, queue: str) -> None:
    path = f"{KUEUE}/clusterqueues/{place.named(queue)}"
    place.rest.merge(path, {"spec": {"stopPolicy": "None"}})


def flavors(place: Place, pod: dict) -> list[str]:
    assigned = place.workload(pod)["status"]["admission"]["podSetAssignments"]
    return sorted(each["flavors"]["cpu"].removeprefix(f"{place.ns}-") for each in assigned)


# ---- the life of one pod


def test_a_pod_waits_runs_and_ends(place: Place) -> None:
    place.queue(1, flavors={"spot": {"kueuelib.dev/pool": "spot"}})
    first = place.pod("first")
    place.runs(first)
    second = place.pod("second")
    assert place.get(first)["spec"]["nodeSelector"] == {"kueuelib.dev/pool": "spot"}
    place.event(first, "Started")
    place.waits(second)
    assert GATE in gates(place.get(second))
    place.finish(first)
    place.finished(first, "Succeeded")
    place.released(first)
    place.runs(second)


def test_a_pod_that_is_deleted_goes_at_once(place: Place) -> None:
    place.queue(1)
    running = place.pod("running")
    place.runs(running)
    waiting = place.pod("waiting")
    place.delete(running, waiting)
    place.gone(running, waiting)
    place.eventually(lambda: not place.rest.items(place.workloads))


def test_an_evicted_pod_is_deleted_and_says_why(place: Place) -> None:
    place.queue(1)
    finalizers = ["example.com/keep"]
    pod = place.pod(meta={"finalizers": finalizers})
    place.runs(pod)
    place.evict(pod)

    def told() -> bool:
        found = place.get(pod)
        target = condition(found, "TerminationTarget")
        assert target["status"] == "True"
        assert target["reason"] == "WorkloadEvictedDueToDeactivated"
        assert target["message"] == condition(place.workload(pod), "Evicted")["message"]
        return "deletionTimestamp" in found["metadata"]

    place.eventually(told)
    place.eventually(lambda: place.get(pod)["metadata"]["finalizers"] == finalizers)
    place.merge(pod, {"metadata": {"finalizers": []}})
    place.gone(pod)


def test_the_quota_of_an_evicted_pod_is_free_when_it_begins_to_end(place: Place) -> None:
    place.queue(1)
    pod = place.pod(terminationGracePeriodSeconds=60)
    place.runs(pod)
    other = place.pod("other")
    place.waits(other)
    place.evict(pod)
    place.runs(other)
    assert "deletionTimestamp" in place.get(pod)["metadata"], "the other waits for no end"


def test_a_pod_that_loses_its_quota_before_it_runs_is_tried_again(place: Place) -> None:
    place.check("a")
    place.queue(1, checks=("a",), **place.preempting())
    low = place.pod("low")
    place.when(low, "QuotaReserved")
    urgent = {"kueue.x-k8s.io/priority-class": place.priority(5, "high")}
    high = place.pod("high", labels=urgent)
    place.answer(place.when(high, "QuotaReserved"), "a", "Ready")
    place.runs(high)
    place.waits(low)
    place.finish(high)
    place.answer(place.when(low, "QuotaReserved"), "a", "Retry", after=1)
    place.eventually(
        lambda: place.workload(low)["status"]["admissionChecks"][0]["state"] == "Pending"
    )
    place.answer(place.when(low, "QuotaReserved"), "a", "Ready")
    place.runs(low)
    assert uid_of(place.get(low)) == uid_of(low)


def test_what_checks_add_reaches_the_pod(place: Place) -> None:
    for check in ("a", "b"):
        place.check(check)
    place.queue(1, checks=("a", "b"))
    pod = place.pod()
    workload = place.when(pod, "QuotaReserved")
    place.answer(workload, "a", "Ready", labels={"la": "1"})
    assert GATE in gates(place.get(pod))
    place.answer(workload, "b", "Ready", annotations={"nb": "2"})
    place.runs(pod)
    meta = place.get(pod)["metadata"]
    assert (meta["labels"]["la"], meta["annotations"]["nb"]) == ("1", "2")


def test_a_pod_that_loses_its_admission_is_deleted(place: Place) -> None:
    place.queue(1, flavors={"spot": {"kueuelib.dev/pool": "spot"}})
    pod = place.pod(meta={"finalizers": ["example.com/keep"]})
    place.runs(pod)
    workload = place.workload(pod)
    place.delete(workload)
    place.eventually(lambda: "deletionTimestamp" in place.get(pod)["metadata"])
    assert place.get(pod)["spec"]["nodeSelector"] == {"kueuelib.dev/pool": "spot"}
    place.merge(pod, {"metadata": {"finalizers": []}})
    place.gone(pod, workload)


def test_a_failed_pod_finishes_its_workload(place: Place) -> None:
    place.queue(1)
    pod = place.pod(run=0.1, exit_code=3)
    found = place.finished(pod, "Failed")
    place.released(pod)
    assert is_true(found, "Finished")
    assert name_of(found).startswith("pod-pod-")
    assert uid_of(pod) == found["metadata"]["ownerReferences"][0]["uid"]
