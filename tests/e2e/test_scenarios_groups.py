"""The acceptance scenarios of pod groups; see `scenarios.yaml`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from place import (
    DOMAIN,
    GATE,
    RETRIABLE,
    Place,
    container,
    gates,
    is_admitted,
    name_of,
    phase,
    shared_cluster,
    uid_of,
)
from rest import Rest, condition

from kueuelib.testing.processes import LocalCluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    with shared_cluster(tmp_path_factory.mktemp("groups")) as found:
        yield found


@pytest.fixture
def place(shared: tuple[LocalCluster, Rest]) -> Place:
    cluster, rest = shared
    return Place(rest, cluster.metrics_port)


def counts(workload: dict) -> list[int]:
    return sorted(entry["count"] for entry in workload["spec"]["podSets"])


def owners(workload: dict) -> set[str]:
    return {ref["uid"] for ref in workload["metadata"]["ownerReferences"]}


def next_second() -> None:
    """Times of creation and failure count whole seconds."""
    time.sleep(1.1)


def no_workload(place: Place) -> None:
    place.quiet(lambda: not place.rest.items(place.workloads))


# ---- before the Workload


def test_a_group_waits_for_all_its_pods(place: Place) -> None:
    place.queue(4)
    first = place.pod("a", group="g", total=3)
    place.pod("b", group="g", total=3)
    no_workload(place)
    place.pod("c", group="g", total=3, cpu="2")
    found = place.admitted(first)
    assert name_of(found) == "g"
    assert counts(found) == [1, 2]
    assert all("controller" not in ref for ref in found["metadata"]["ownerReferences"])


def test_a_group_starts_and_ends_together(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    place.finish(*pods)
    place.finished(pods[0], "Succeeded")
    place.released(*pods)


@pytest.mark.parametrize("fields", [{"total": 3}, {"queue": "other"}])
def test_pods_that_disagree_make_no_workload(place: Place, fields: dict) -> None:
    place.queue(4)
    place.pod("a", group="g", total=2)
    other = place.pod("b", **{"group": "g", "total": 2, **fields})
    place.event(other, "ErrWorkloadCompose")
    no_workload(place)


@pytest.mark.parametrize(("shapes", "made"), [(8, True), (9, False)])
def test_a_group_has_eight_shapes_at_most(place: Place, shapes: int, *, made: bool) -> None:
    pods = [place.pod(f"p{n}", cpu=f"{100 + n}m", group="g", total=shapes) for n in range(shapes)]
    if made:
        assert counts(place.workload(pods[0])) == [1] * 8
    else:
        place.event(pods[0], "ErrWorkloadCompose", "8")
        no_workload(place)


def test_the_youngest_pod_beyond_the_total_is_deleted(place: Place) -> None:
    place.queue(4)
    first = place.pod("a", group="g", total=3)
    second = place.pod("b", group="g", total=3)
    third = place.pod("c", group="g", total=3)
    next_second()
    place.workload(first)
    fourth = place.pod("d", group="g", total=3)
    place.event(fourth, "ExcessPodDeleted")
    place.gone(fourth)
    place.runs(first, second, third)
    assert owners(place.workload(first)) == {uid_of(pod) for pod in (first, second, third)}


def test_a_workload_of_another_kind_is_not_taken_over(place: Place) -> None:
    place.queue(4)
    job = place.job(cpu="9")
    taken = place.workload(job)
    pod = place.pod(group=name_of(taken), total=1)
    place.event(pod, "ErrWorkloadCompose", name_of(taken))
    place.delete(pod)
    place.gone(pod)
    found = place.workload(job)
    assert owners(found) == {uid_of(job)}
    assert found["metadata"]["finalizers"]


# ---- while it runs


def test_extra_pods_of_a_running_group_are_deleted(place: Place) -> None:
    place.queue(9)
    small, large = place.pod("a", group="g", total=2), place.pod("b", "q", "2", group="g", total=2)
    place.runs(small, large)
    extra = [place.pod("c", group="g", total=2), place.pod("d", "q", "2", group="g", total=2)]
    for pod in extra:
        place.event(pod, "ExcessPodDeleted")
    place.gone(*extra)
    place.quiet(lambda: phase(place.get(small)) == phase(place.get(large)) == "Running")
    place.counted(f'kueue_pods_rejected_total{{namespace="{place.ns}",reason="excess"}} 2.0')


def test_a_pod_of_another_shape_is_rejected(place: Place) -> None:
    place.queue(9)
    pods = place.group(size=2)
    place.runs(*pods)
    stranger = place.pod("stranger", cpu="3", group="g", total=2)
    place.event(stranger, "PodRejected")
    place.gone(stranger)
    place.counted(f'kueue_pods_rejected_total{{namespace="{place.ns}",reason="unknown_role"}} 1.0')


def test_a_failed_pod_is_replaced_with_the_same_quota(place: Place) -> None:
    place.queue(3)
    pods = place.group(size=3)
    place.runs(*pods)
    before = place.workload(pods[0])
    place.finish(pods[1], exit_code=1)
    place.eventually(lambda: phase(place.get(pods[1])) == "Failed")
    assert place.get(pods[1])["metadata"]["finalizers"], "its place is kept"
    new = place.pod("new", group="g", total=3)
    place.runs(new)
    place.released(pods[1])
    after = place.workload(pods[0])
    assert uid_of(after) == uid_of(before)
    assert uid_of(new) in owners(after)
    fourth = place.pod("fourth", group="g", total=3)
    place.gone(fourth)


def test_a_replacement_releases_the_pod_that_failed_first(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    for pod in reversed(pods):
        place.finish(pod, exit_code=1)
        place.eventually(lambda pod=pod: phase(place.get(pod)) == "Failed")
        next_second()
    new = place.pod("new", group="g", total=2)
    place.runs(new)
    place.released(pods[1])
    assert place.get(pods[0])["metadata"]["finalizers"]


def test_a_group_ends_when_it_is_given_up_not_when_all_have_failed(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    place.finish(*pods, exit_code=1)
    for pod in pods:
        place.eventually(lambda pod=pod: phase(place.get(pod)) == "Failed")
    place.quiet(lambda: all(place.get(pod)["metadata"]["finalizers"] for pod in pods))
    assert not condition(place.workload(pods[0]), "Finished")
    last = place.pod("last", group="g", total=2, notes={RETRIABLE: "false"})
    place.runs(last)
    place.finish(last, exit_code=1)
    place.finished(last, "Failed")
    place.released(*pods, last)


def test_an_evicted_group_waits_for_replacements_and_ends(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2, terminationGracePeriodSeconds=2)
    place.runs(*pods)
    place.evict(pods[0])
    for pod in pods:
        place.eventually(lambda pod=pod: "deletionTimestamp" in place.get(pod)["metadata"])
    assert is_admitted(place.workload(pods[0])), "quota is kept while a pod runs"
    before = place.when(pods[0], "Admitted", "False")
    place.evict(pods[0], back=True)
    new = [place.pod(f"n{n}", group="g", total=2) for n in range(2)]
    place.runs(*new)
    after = place.workload(new[0])
    assert uid_of(after) == uid_of(before)
    assert {uid_of(pod) for pod in new} <= owners(after)
    place.finish(*new)
    place.finished(new[0], "Succeeded")
    place.released(*new)


def drain(place: Place, *pods: dict) -> None:
    """What `kubectl drain` does to the pods of nodes."""
    for pod in pods:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
        place.rest.create(f"{place.path(pod)}/eviction", body)
    for pod in pods:
        place.eventually(lambda pod=pod: phase(place.get(pod)) == "Failed")


def test_a_drained_group_keeps_its_quota_for_its_replacements(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    before = place.workload(pods[0])
    others = place.group("w", 2)
    place.waits(others[0])
    drain(place, *pods)
    place.quiet(lambda: all(place.get(pod)["metadata"]["finalizers"] for pod in pods))
    new = [place.pod(f"n{n}", group="g", total=2) for n in range(2)]
    place.runs(*new)
    place.gone(*pods)
    after = place.workload(new[0])
    assert uid_of(after) == uid_of(before)
    assert condition(after, "Admitted") == condition(before, "Admitted")
    place.finish(*new)
    place.finished(new[0], "Succeeded")
    place.runs(*others)


@pytest.mark.parametrize("what", ["the Workload", "the replacement"])
def test_a_drained_group_goes_with_what_its_user_deletes(place: Place, what: str) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    found = place.workload(pods[0])
    others = place.group("w", 2)
    drain(place, *pods)
    if what == "the Workload":
        place.delete(found)
    else:
        new = place.pod("new", group="g", total=2)
        place.runs(new)
        place.delete(new)
    place.gone(*pods, found)
    place.runs(*others)


def test_a_running_group_goes_with_its_pods(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    found = place.workload(pods[0])
    others = place.group("w", 2)
    place.delete(*pods)
    place.gone(*pods, found)
    place.runs(*others)


def test_a_preempted_group_comes_back_after_the_one_that_took_its_place(place: Place) -> None:
    place.queue(2, **place.preempting())
    place.priority(100, "high")
    low = place.group("low")
    place.runs(*low)
    labels = {f"{DOMAIN}/priority-class": place.named("high")}
    high = place.group("high", labels=labels)
    place.runs(*high)
    new = [place.pod(f"new-{n}", group="low", total=2) for n in range(2)]
    place.quiet(lambda: all(GATE in gates(place.get(pod)) for pod in new))
    place.finish(*high)
    place.finished(high[0], "Succeeded")
    place.runs(*new)
    place.finish(*new)
    place.finished(new[0], "Succeeded")


def test_with_its_workload_goes_the_whole_group(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    place.finish(pods[0], exit_code=1)
    place.eventually(lambda: phase(place.get(pods[0])) == "Failed")
    waiting = place.group("w", 2)
    found = [place.workload(pods[0]), place.waits(waiting[0])]
    place.delete(*found)
    place.gone(*pods, *waiting, *found)


def test_a_finished_group_can_be_deleted_at_once(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    place.finish(*pods)
    place.delete(*pods)
    place.gone(*pods)
    place.eventually(lambda: not place.rest.items(place.workloads))


def test_a_group_that_never_ran_goes_at_once(place: Place) -> None:
    pods = place.group(size=2)
    found = place.workload(pods[0])
    place.delete(*pods)
    place.gone(*pods, found)


def test_quota_of_pods_that_succeeded_is_used_by_others(place: Place) -> None:
    place.queue(3)
    pods = place.group(size=3)
    place.runs(*pods)
    other = place.pod("other")
    place.waits(other)
    place.finish(pods[0])
    place.runs(other)
    (entry,) = place.workload(pods[1])["status"]["reclaimablePods"]
    assert entry["count"] == 1


def test_many_extra_pods_are_deleted_and_nobody_else(place: Place) -> None:
    place.queue(2)
    pods = place.group(size=2)
    place.runs(*pods)
    extra = [place.pod(f"x{n}", group="g", total=2) for n in range(6)]
    place.gone(*extra)
    place.quiet(lambda: all(phase(place.get(pod)) == "Running" for pod in pods))
    place.counted(f'kueue_pods_rejected_total{{namespace="{place.ns}",reason="excess"}} 6.0')


def test_images_do_not_make_a_shape(place: Place) -> None:
    place.queue(2)
    images = [container(image=image) for image in ("one", "two")]
    pods = [
        place.pod(f"p{n}", group="g", total=2, containers=[each]) for n, each in enumerate(images)
    ]
    assert counts(place.workload(pods[0])) == [2]
