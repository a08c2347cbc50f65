"""Acceptance scenarios that need another configuration: readiness, retries, shapes told only."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from place import DOMAIN, Place, is_admitted, phase, shared_cluster, uid_of
from rest import Rest, condition
from test_scenarios_declared import driver, worker

from kueuelib.testing.processes import LocalCluster

SETTINGS = """
waitForPodsReady:
  enable: true
  timeout: 4s
  blockAdmission: false
  requeuingStrategy: {{timestamp: {timestamp}, backoffBaseSeconds: 1, backoffLimitCount: 1}}
objectRetentionPolicies: {{workloads: {{afterDeactivatedByKueue: 1s}}}}
"""
NOWHERE = {"nodeSelector": {"nowhere": "yes"}}


@pytest.fixture(scope="module", params=["Creation", "Eviction"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalCluster, Rest, str]]:
    settings = SETTINGS.format(timestamp=request.param)
    folder = tmp_path_factory.mktemp("life")
    integrations = "podOptions: {podGroupShapePolicy: Warn}"
    with shared_cluster(folder, settings=settings, integrations=integrations) as found:
        yield (*found, request.param)


@pytest.fixture
def place(shared: tuple[LocalCluster, Rest, str]) -> Place:
    return Place(shared[1])


def ready(place: Place, owner: dict) -> str:
    return condition(place.workload(owner), "PodsReady").get("status", "")


def test_ready_pods_are_told_and_stay_so_while_the_job_is_admitted(place: Place) -> None:
    place.queue(2)
    job = place.job(parallelism=2, backoffLimit=5)
    place.when(job, "PodsReady")
    place.finish(place.pods_of(job)[0], exit_code=1)
    place.eventually(lambda: place.get(job)["status"].get("failed"))
    place.quiet(lambda: ready(place, job) == "True")
    place.evict(job)
    place.when(job, "PodsReady", "False")


def test_pods_that_are_not_ready_give_way_back_off_and_are_given_up(place: Place) -> None:
    place.queue(1)
    stuck = place.job("stuck", pod=NOWHERE)
    place.admitted(stuck)
    other = place.job("other", run=0.5)
    found = place.when(stuck, "Evicted", reason="PodsReadyTimeout")
    assert found["status"]["requeueState"]["count"] == 1
    place.finished(other, "Succeeded")
    place.gone(stuck)


def test_who_timed_out_comes_back_in_the_order_of_the_configuration(
    place: Place, shared: tuple[LocalCluster, Rest, str]
) -> None:
    place.queue(1)
    stuck = place.job("stuck", pod=NOWHERE)
    place.admitted(stuck)
    time.sleep(1.1)  # times of creation and eviction count whole seconds
    place.priority(9, "first")
    labels = {f"{DOMAIN}/priority-class": place.named("first")}
    blocker, late = place.job("blocker", labels=labels), place.job("late")
    place.when(stuck, "Evicted")
    place.runs(blocker)
    place.waits(late)
    place.eventually(lambda: condition(place.workload(stuck), "Requeued").get("status") == "True")
    place.finish(blocker)
    first, second = (stuck, late) if shared[2] == "Creation" else (late, stuck)
    place.admitted(first)
    assert not is_admitted(place.workload(second))


def test_a_group_that_is_given_up_by_us_goes_as_a_whole(place: Place) -> None:
    place.queue(2)

    def sent(turn: int) -> list[dict]:
        fields = {"group": "g", "total": 2}
        return [
            place.pod(f"ok-{turn}", **fields),
            place.pod(f"stuck-{turn}", **fields, **NOWHERE),
        ]

    first = sent(1)
    place.when(first[0], "Evicted", reason="PodsReadyTimeout")
    place.when(first[0], "QuotaReserved", "False")
    second = sent(2)
    place.gone(*first, *second)
    place.eventually(lambda: not place.rest.items(place.workloads))


def test_a_larger_worker_is_only_told_where_the_configuration_says_so(place: Place) -> None:
    place.queue(3)
    first = driver(place)
    large = worker(place, "large", cpu="2")
    place.event(large, "PodRejected")
    place.eventually(lambda: phase(place.get(large)) == "Running")
    place.delete(first, large)


def test_a_priority_class_that_changes_changes_no_workload(place: Place) -> None:
    place.priority(5, "some")
    job = place.job(labels={f"{DOMAIN}/priority-class": place.named("some")})
    found = place.workload(job)
    path = f"/apis/{DOMAIN}/v1beta2/workloadpriorityclasses/{place.named('some')}"
    obj = place.rest.get(path)
    place.rest.delete(path)
    place.priority(9, "some")
    assert obj["value"] == 5
    place.quiet(lambda: place.workload(job)["spec"]["priority"] == 5)
    place.merge(found, {"spec": {"priority": 7}})
    place.quiet(lambda: place.workload(job)["spec"]["priority"] == 7)
    assert uid_of(place.workload(job)) == uid_of(found)
