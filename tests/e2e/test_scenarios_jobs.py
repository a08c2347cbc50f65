"""The acceptance scenarios of batch Jobs; `scenarios.yaml` says which is which."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from place import (
    DOMAIN,
    MANAGED,
    PARENT,
    PREBUILT,
    QUEUE,
    Place,
    name_of,
    pod_spec,
    shared_cluster,
    uid_of,
)
from rest import KUEUE, Rest, condition

from kueuelib.testing.processes import LocalCluster

FLAVOR = {"flavors": {"spot": {"kueuelib.dev/pool": "spot"}}}
SELECTOR = {"kueuelib.dev/pool": "spot"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    with shared_cluster(tmp_path_factory.mktemp("jobs")) as found:
        yield found


@pytest.fixture
def every_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place whose jobs are queued without a queue name, too."""
    settings = "manageJobsWithoutQueueName: true"
    with shared_cluster(tmp_path_factory.mktemp("every"), settings=settings) as (_, rest):
        yield Place(rest)


@pytest.fixture
def place(shared: tuple[LocalCluster, Rest]) -> Place:
    cluster, rest = shared
    return Place(rest, cluster.metrics_port)


def template(place: Place, job: dict) -> dict:
    return place.get(job)["spec"]["template"]


def suspended(place: Place, job: dict) -> bool:
    return place.get(job)["spec"]["suspend"]


# ---- which jobs are queued


def test_a_job_without_a_queue_is_left_alone(place: Place) -> None:
    job = place.job(queue=None)
    assert not job["spec"]["suspend"]
    place.runs(job)
    assert not place.workloads_of(job)


def test_every_job_is_queued_where_the_configuration_says_so(every_job: Place) -> None:
    job = every_job.job(queue=None)
    assert job["spec"]["suspend"]
    assert "queueName" not in every_job.workload(job)["spec"]


def test_a_queued_job_is_stored_suspended_and_gets_its_workload(place: Place) -> None:
    place.priority(7, "high")
    labels = {f"{DOMAIN}/priority-class": place.named("high")}
    job = place.job(parallelism=3, labels=labels)
    assert job["spec"]["suspend"]
    found = place.workload(job)
    (pod_set,) = found["spec"]["podSets"]
    assert pod_set["count"] == 3
    assert found["metadata"]["finalizers"] == [f"{DOMAIN}/resource-in-use"]
    assert found["metadata"]["labels"][f"{DOMAIN}/job-uid"] == uid_of(job)
    (ref,) = found["metadata"]["ownerReferences"]
    assert (ref["uid"], ref["controller"]) == (uid_of(job), True)
    assert (found["spec"]["queueName"], found["spec"]["priority"]) == ("q", 7)


def test_the_deprecated_annotation_names_the_queue_too(place: Place) -> None:
    job = place.job(queue=None, notes={QUEUE: "other"}, suspend=True)
    assert place.workload(job)["spec"]["queueName"] == "other"


def test_the_queue_of_a_suspended_job_may_change_and_its_workload_follows(place: Place) -> None:
    job = place.job(queue="first")
    assert place.workload(job)["spec"]["queueName"] == "first"
    place.merge(job, {"metadata": {"labels": {QUEUE: "second"}}})
    place.eventually(lambda: place.workload(job)["spec"]["queueName"] == "second")


def test_the_queue_of_a_running_job_stays(place: Place, every_job: Place) -> None:
    for queue, where in (("q", place), (None, every_job)):
        where.queue(1)
        job = where.job(queue=queue, suspend=queue is None)
        if queue is None:
            where.merge(job, {"metadata": {"labels": {QUEUE: "q"}}})
        where.runs(job)
        body = {"metadata": {"labels": {QUEUE: "other"}}}
        where.refused(lambda job=job, body=body, where=where: where.merge(job, body), QUEUE)


def test_a_job_that_waits_for_no_queue_gets_one_when_it_appears(place: Place) -> None:
    other = Place(place.rest)
    job = place.job()
    place.waits(job)
    place.queue(1, local=False)
    place.local_queue(namespace=other.ns)
    place.quiet(lambda: suspended(place, job))
    place.local_queue()
    place.runs(job)


# ---- Workloads of a job


def test_a_second_workload_of_a_job_is_deleted(place: Place) -> None:
    job = place.job()
    first = place.workload(job)
    meta = {"name": "second", "ownerReferences": first["metadata"]["ownerReferences"]}
    kind = {"apiVersion": first["apiVersion"], "kind": "Workload"}
    spec = {key: first["spec"][key] for key in ("podSets", "queueName")}
    second = place.rest.create(place.workloads, {**kind, "metadata": meta, "spec": spec})
    place.gone(second)
    assert [uid_of(wl) for wl in place.workloads_of(job)] == [uid_of(first)]
    place.event(job, "DeletedWorkload")


def test_a_workload_that_only_refers_to_a_job_is_left_alone(place: Place) -> None:
    job = place.job()
    first = place.workload(job)
    (ref,) = first["metadata"]["ownerReferences"]
    meta = {"name": "other", "ownerReferences": [{**ref, "controller": False}]}
    kind = {"apiVersion": first["apiVersion"], "kind": "Workload"}
    spec = {"podSets": first["spec"]["podSets"]}
    other = place.rest.create(place.workloads, {**kind, "metadata": meta, "spec": spec})
    place.quiet(lambda: {*map(uid_of, place.workloads_of(job))} == {uid_of(first), uid_of(other)})
    place.delete(job)
    place.gone(first)


def test_an_admitted_job_starts_where_its_flavor_says(place: Place) -> None:
    place.queue(1, **FLAVOR)
    job = place.job()
    place.runs(job)
    assert template(place, job)["spec"]["nodeSelector"] == SELECTOR
    place.event(job, "Started", f"Admitted by clusterQueue {place.named('q')}")


def test_a_running_job_that_is_edited_waits_again_in_its_place(place: Place) -> None:
    place.queue(3, **FLAVOR)
    job = place.job(parallelism=2)
    place.runs(job)
    first = place.workload(job)
    place.merge(job, {"spec": {"parallelism": 1}})
    place.event(job, "Stopped")
    place.event(job, "UpdatedWorkload")
    place.admitted(job)
    assert uid_of(place.workload(job)) == uid_of(first)
    assert place.workload(job)["spec"]["podSets"][0]["count"] == 1
    assert "nodeSelector" not in place.workload(job)["spec"]["podSets"][0]["template"]["spec"]
    place.runs(job)


@pytest.mark.parametrize(("code", "reason"), [(0, "Succeeded"), (1, "Failed")])
def test_a_job_that_ends_finishes_its_workload(place: Place, code: int, reason: str) -> None:
    place.queue(1)
    job = place.job(run=0.1, exit_code=code)
    found = place.finished(job, reason)
    place.eventually(lambda: not place.get(found)["metadata"].get("finalizers"))
    place.event(job, "FinishedWorkload")


def test_a_waiting_job_that_is_edited_keeps_its_workload(place: Place) -> None:
    place.queue(2)
    job = place.job(parallelism=3)
    first = place.waits(job)
    toleration = {"key": "a", "operator": "Exists"}
    spec = {"tolerations": [toleration]}
    place.merge(job, {"spec": {"parallelism": 2, "template": {"spec": spec}}})
    place.runs(job)
    found = place.workload(job)
    assert uid_of(found) == uid_of(first)
    assert found["spec"]["podSets"][0]["count"] == 2
    assert found["spec"]["podSets"][0]["template"]["spec"]["tolerations"] == [toleration]
    place.event(job, "UpdatedWorkload")


def test_a_job_that_loses_its_admission_is_restored(place: Place) -> None:
    place.queue(1, **FLAVOR)
    job = place.job(pod={"nodeSelector": {"kueuelib.dev/simulated": "true"}})
    place.runs(job)
    place.evict(job)
    place.suspended(job)

    def restored() -> bool:
        found = place.get(job)
        selector = found["spec"]["template"]["spec"]["nodeSelector"]
        return selector == {"kueuelib.dev/simulated": "true"} and not found["status"].get(
            "startTime"
        )

    place.eventually(restored)


def test_a_deleted_workload_stops_its_job_which_gets_another(place: Place) -> None:
    place.queue(1, **FLAVOR)
    job = place.job()
    place.runs(job)
    first = place.workload(job)
    place.delete(first)
    place.event(job, "Stopped", "The workload is deleted")
    place.gone(first)
    second = place.admitted(job)
    assert uid_of(second) != uid_of(first)
    assert "nodeSelector" not in second["spec"]["podSets"][0]["template"]["spec"]
    place.runs(job)


def test_with_the_job_goes_its_workload(place: Place) -> None:
    place.queue(1)
    job = place.job()
    place.runs(job)
    found = place.workload(job)
    place.delete(job)
    place.gone(job, found)


def test_quota_returns_when_the_last_pod_is_gone(place: Place) -> None:
    place.queue(1)
    job = place.job(pod={"terminationGracePeriodSeconds": 1})
    place.runs(job)
    place.evict(job)
    seen: set[tuple[bool, bool]] = set()

    def freed() -> bool:
        active = bool(place.get(job)["status"].get("active"))
        held = condition(place.workload(job), "QuotaReserved")["status"] == "True"
        seen.add((active, held))
        return not held

    place.eventually(freed)
    assert (True, False) not in seen, "quota was free while a pod was active"
    place.when(job, "Admitted", "False")
    assert suspended(place, job)


# ---- children


def test_a_child_follows_the_workload_of_its_parent(place: Place) -> None:
    place.queue(2)
    place.queue(1, "none")
    parent = place.job("parent", "none", cpu="5")
    workload = place.waits(parent)
    child = place.job("child", None, notes={PARENT: name_of(workload)}, owner=parent)
    place.eventually(lambda: suspended(place, child))
    place.merge(child, {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
    place.quiet(lambda: not place.workloads_of(child))
    assert place.workload(parent)["spec"]["queueName"] == "none"
    place.merge(parent, {"metadata": {"labels": {QUEUE: "q"}}})
    place.merge(parent, {"spec": {"template": {"spec": {"containers": pod_spec()["containers"]}}}})
    place.admitted(parent)
    place.merge(child, {"spec": {"suspend": False}})
    place.runs(child)
    place.quiet(lambda: not suspended(place, child))


def test_a_child_of_a_workload_that_does_not_exist_is_suspended(place: Place) -> None:
    parent = place.job("parent", "q")
    child = place.job("child", None, notes={PARENT: "missing"}, owner=parent)
    place.eventually(lambda: suspended(place, child))
    assert not place.workloads_of(child)


def test_a_child_with_a_parent_that_is_made_up_never_runs(place: Place) -> None:
    place.queue(1)
    stranger = place.job("stranger", None)
    child = place.job("child", notes={PARENT: "missing"}, owner=stranger)
    assert child["spec"]["suspend"] is True, "from the start"
    place.event(child, "ErrWorkloadCompose", "missing, which does not exist")
    assert not place.workloads_of(child)


def test_only_a_job_with_an_owner_has_a_parent_workload(place: Place) -> None:
    place.refused(lambda: place.job(notes={PARENT: "some"}), PARENT)


# ---- prebuilt Workloads


def prebuilt(place: Place, pod: dict, count: int = 1) -> dict:
    obj = {"apiVersion": f"{DOMAIN}/v1beta2", "kind": "Workload", "metadata": {"name": "made"}}
    pod_set = {"name": "main", "count": count, "template": {"spec": pod}}
    spec = {"queueName": "q", "podSets": [pod_set]}
    return place.rest.create(place.workloads, {**obj, "spec": spec})


@pytest.mark.parametrize("where", ["labels", "notes"])
def test_a_job_waits_for_the_workload_that_it_names(place: Place, where: str) -> None:
    place.queue(1)
    job = place.job(run=0.2, **{where: {PREBUILT: "made"}})
    place.event(job, "ErrWorkloadCompose", "made")
    assert suspended(place, job)
    assert not place.rest.items(place.workloads)
    made = prebuilt(place, job["spec"]["template"]["spec"])
    found = place.finished(job, "Succeeded")
    assert uid_of(found) == uid_of(made)
    assert found["metadata"]["labels"][f"{DOMAIN}/job-uid"] == uid_of(job)
    assert found["metadata"]["ownerReferences"][0]["controller"] is True


def test_a_prebuilt_workload_of_other_pods_is_out_of_sync(place: Place) -> None:
    place.queue(3)
    prebuilt(place, pod_spec(), 2)
    job = place.job(labels={PREBUILT: "made"})
    place.finished(job, "OutOfSync")
    assert suspended(place, job)


def test_the_name_of_a_prebuilt_workload_is_for_jobs_and_stays(place: Place) -> None:
    place.refused(lambda: place.pod(labels={PREBUILT: "made"}), PREBUILT)
    job = place.job(labels={PREBUILT: "made"})
    place.refused(lambda: place.merge(job, {"metadata": {"labels": {PREBUILT: "b"}}}), PREBUILT)


# ---- checks


def test_what_checks_add_is_merged_and_taken_away_again(place: Place) -> None:
    for check in ("a", "b"):
        place.check(check)
    place.queue(1, checks=("a", "b"))
    job = place.job()
    workload = place.when(job, "QuotaReserved")
    assert suspended(place, job)
    toleration = {"key": "t", "operator": "Exists"}
    place.answer(workload, "a", "Ready", labels={"la": "1"}, tolerations=[toleration])
    place.answer(workload, "b", "Ready", annotations={"nb": "2"}, nodeSelector={})
    place.runs(job)
    found = template(place, job)
    assert found["metadata"]["labels"]["la"] == "1"
    assert found["metadata"]["annotations"]["nb"] == "2"
    assert found["spec"]["tolerations"] == [toleration]
    place.evict(job)
    place.suspended(job)
    place.eventually(lambda: "tolerations" not in template(place, job)["spec"])
    meta = template(place, job)["metadata"]
    assert "la" not in meta.get("labels", {})
    assert "nb" not in (meta.get("annotations") or {})


def test_a_job_whose_checks_contradict_each_other_never_starts(place: Place) -> None:
    for check in ("a", "b"):
        place.check(check)
    place.queue(1, checks=("a", "b"))
    job = place.job()
    workload = place.when(job, "QuotaReserved")
    place.answer(workload, "a", "Ready", labels={"one": "1"})
    place.answer(workload, "b", "Ready", labels={"one": "2"})
    place.finished(job, "FailedToStart")
    assert suspended(place, job)


# ---- counts


def test_quota_that_the_last_completions_do_not_need_is_used_by_others(place: Place) -> None:
    place.queue(2)
    job = place.job("first", parallelism=2, completions=3)
    place.runs(job)
    other = place.job("other")
    place.waits(other)

    def three_done() -> bool:
        running = [pod for pod in place.pods_of(job) if pod["status"].get("phase") == "Running"]
        done = place.get(job)["status"].get("succeeded") or 0
        if done < 2 and running:
            place.finish(running[0])
        return done >= 2

    place.eventually(three_done)
    place.runs(other)
    (entry,) = place.workload(job)["status"]["reclaimablePods"]
    assert entry == {"name": "main", "count": 1}


def test_a_job_may_run_with_fewer_pods(place: Place) -> None:
    place.queue(2)
    notes = {
        f"{DOMAIN}/job-min-parallelism": "1",
        f"{DOMAIN}/job-completions-equal-parallelism": "true",
    }
    job = place.job(parallelism=4, completions=4, completionMode="Indexed", notes=notes)
    place.runs(job)
    spec = place.get(job)["spec"]
    assert (spec["parallelism"], spec["completions"]) == (2, 2)
    place.evict(job)
    place.suspended(job)
    place.eventually(lambda: place.get(job)["spec"]["parallelism"] == 4)
    assert place.get(job)["spec"]["completions"] == 4


@pytest.mark.parametrize("text", ["a", "0", "5"])
def test_a_minimum_that_is_none_is_refused(place: Place, text: str) -> None:
    notes = {f"{DOMAIN}/job-min-parallelism": text}
    place.refused(lambda: place.job(parallelism=4, notes=notes), "job-min-parallelism")
    assert not place.rest.items(place.workloads)


def test_completions_follow_parallelism_in_indexed_jobs_only(place: Place) -> None:
    notes = {f"{DOMAIN}/job-completions-equal-parallelism": "true"}
    place.refused(lambda: place.job(parallelism=2, completions=2, notes=notes), "equal-parallelism")


def test_a_job_that_asks_for_nothing_but_pods_gets_the_flavor(place: Place) -> None:
    place.create("ResourceFlavor", "spot", spec={"nodeLabels": SELECTOR})
    quota = [{"name": "pods", "nominalQuota": "1"}]
    flavors = [{"name": place.named("spot"), "resources": quota}]
    groups = [{"coveredResources": ["pods"], "flavors": flavors}]
    place.create("ClusterQueue", "q", spec={"namespaceSelector": {}, "resourceGroups": groups})
    place.local_queue()
    empty = copy.deepcopy(pod_spec())
    del empty["containers"][0]["resources"]
    job = place.job(pod=empty)
    place.runs(job)
    assert template(place, job)["spec"]["nodeSelector"] == SELECTOR


# ---- life


def test_a_deactivated_job_stays_away_until_it_is_activated(place: Place) -> None:
    place.queue(1)
    job = place.job()
    place.runs(job)
    place.evict(job)
    place.when(job, "Evicted", reason="Deactivated")
    place.suspended(job)
    place.quiet(lambda: suspended(place, job))
    place.evict(job, back=True)
    place.runs(job)
    assert "requeueState" not in place.workload(job)["status"]


@pytest.mark.parametrize("kind", ["workload", "pod"])
def test_a_victim_goes_on_in_the_other_flavor(place: Place, kind: str) -> None:
    flavors = {"one": {"kueuelib.dev/pool": "on-demand"}, "two": SELECTOR}
    place.queue(1, flavors=flavors, **place.preempting())
    low = place.job("low")
    place.runs(low)
    assert template(place, low)["spec"]["nodeSelector"] == flavors["one"]
    pod = {"nodeSelector": flavors["one"]}
    if kind == "workload":
        place.priority(100, "high")
        high = place.job("high", labels={f"{DOMAIN}/priority-class": place.named("high")}, pod=pod)
    else:
        name = place.named("high")
        obj = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 100}
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        place.rest.create(path, {**obj, "metadata": {"name": name}})
        high = place.job("high", pod={**pod, "priorityClassName": name})
    place.runs(high, low)
    assert template(place, low)["spec"]["nodeSelector"] == flavors["two"]
    place.when(low, "Preempted", "False")


def test_a_job_that_is_made_again_gets_a_workload_of_its_own(place: Place) -> None:
    place.queue(1)
    first = place.job(run=0.1)
    old = place.finished(first)
    place.delete(first)
    place.gone(first)
    second = place.job(run=0.1)
    new = place.finished(second)
    assert name_of(new) != name_of(old)
    assert uid_of(new) != uid_of(old)


def test_pods_of_a_queued_job_are_not_queued_themselves(place: Place) -> None:
    meta = {"labels": {QUEUE: "q"}}
    job = place.job(suspend=True)
    place.merge(job, {"spec": {"template": {"metadata": meta}}})
    place.queue(2)
    place.runs(job)
    (pod,) = place.pods_of(job)
    assert "schedulingGates" not in pod["spec"]
    assert MANAGED not in pod["metadata"]["labels"]
    assert len(place.rest.items(place.workloads)) == 1


def test_both_versions_of_the_api_are_there(place: Place) -> None:
    found = place.rest.get(KUEUE)
    assert "workloads" in {entry["name"] for entry in found["resources"]}


def test_a_job_that_came_past_the_webhook_is_suspended_and_counted(place: Place) -> None:
    """The webhook is asked about labels only, so the annotation is a way past it."""
    place.queue(1)
    job = place.job(queue=None, notes={QUEUE: "q"})
    assert not job["spec"].get("suspend")
    place.event(job, "Stopped", "no workload")
    place.admitted(job)
    place.runs(job)
    place.counted('kueuelib_missed_by_webhook_total{kind="Job",what="suspended"}')
