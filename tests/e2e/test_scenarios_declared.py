"""The acceptance scenarios of declared groups; see `scenarios.yaml`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from place import (
    DOMAIN,
    GATE,
    RETRIABLE,
    ROLE,
    SETS,
    Place,
    gates,
    is_admitted,
    phase,
    pod_spec,
    shared_cluster,
    uid_of,
)
from rest import Rest

from kueuelib.testing.processes import LocalCluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    with shared_cluster(tmp_path_factory.mktemp("declared")) as found:
        yield found


@pytest.fixture
def place(shared: tuple[LocalCluster, Rest]) -> Place:
    cluster, rest = shared
    return Place(rest, cluster.metrics_port)


def worker_set(count: Any = 2, name: str = "worker") -> dict:
    return {"name": name, "count": count, "template": {"spec": pod_spec()}}


def sets_of(count: int = 2) -> str:
    return json.dumps([{"name": "driver", "count": 1}, worker_set(count)])


def driver(place: Place, name: str = "driver", count: int = 2, **fields: Any) -> dict:
    return place.pod(name, group="g", sets=sets_of(count), **fields)


def worker(place: Place, name: str, **fields: Any) -> dict:
    return place.pod(name, **{"group": "g", "role": "worker", **fields})


def started(place: Place, count: int = 2, **fields: Any) -> list[dict]:
    """A driver with all its workers, running; the queue has room for them only."""
    place.queue(count + 1, **fields)
    pods = [driver(place, count=count)]
    pods += [worker(place, f"w{number}") for number in range(count)]
    place.runs(*pods)
    return pods


def test_a_driver_holds_the_quota_of_its_workers(place: Place) -> None:
    place.queue(11)
    pod = driver(place, count=10)
    place.runs(pod)
    first, second = place.workload(pod)["spec"]["podSets"]
    assert (first["name"], first["count"]) == ("driver", 1)
    assert (second["name"], second["count"]) == ("worker", 10)
    assert first["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    other = place.pod("other")
    place.waits(other)


def test_a_driver_waits_for_the_quota_of_its_workers(place: Place) -> None:
    place.queue(2)
    pod, early = driver(place), worker(place, "early")
    place.waits(pod)
    place.quiet(lambda: GATE in gates(place.get(pod)) and GATE in gates(place.get(early)))


def test_workers_start_on_arrival(place: Place) -> None:
    pods = started(place)
    assert place.workload(pods[0])["status"]["admission"]["podSetAssignments"][1]["count"] == 2


def test_a_worker_beyond_the_count_is_deleted(place: Place) -> None:
    started(place, 1)
    extra = worker(place, "extra")
    place.event(extra, "ExcessPodDeleted")
    place.gone(extra)
    place.counted(f'kueue_pods_rejected_total{{namespace="{place.ns}",reason="excess"}} 1.0')


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"role": "stranger"}, "unknown_role"), ({"cpu": "2"}, "shape_mismatch")],
)
def test_a_worker_that_was_not_declared_like_that_is_rejected(
    place: Place, fields: dict, reason: str
) -> None:
    place.queue(3)
    place.runs(driver(place))
    wrong = worker(place, "wrong", **fields)
    place.event(wrong, "PodRejected")
    place.gone(wrong)
    place.counted(f'kueue_pods_rejected_total{{namespace="{place.ns}",reason="{reason}"}} 1.0')


@pytest.mark.parametrize("code", [0, 1])
def test_a_group_is_finished_with_its_driver_though_workers_are_missing(
    place: Place, code: int
) -> None:
    place.queue(4)
    pods = [driver(place, count=3), worker(place, "w0"), worker(place, "w1")]
    place.runs(*pods)
    place.finish(pods[1])
    place.finish(pods[2], exit_code=code)
    place.finish(pods[0])
    place.finished(pods[0], "Succeeded")
    place.released(*pods)


def test_a_driver_that_failed_is_replaced_or_given_up(place: Place) -> None:
    place.queue(3)
    first = driver(place)
    place.runs(first)
    place.finish(first, exit_code=1)
    place.eventually(lambda: phase(place.get(first)) == "Failed")
    place.quiet(lambda: is_admitted(place.workload(first)))
    second = driver(place, "again", notes={RETRIABLE: "false"})
    place.runs(second)
    place.finish(second, exit_code=1)
    place.finished(second, "Failed")
    place.released(first, second)


def test_a_preempted_driver_comes_back_to_the_same_workload(place: Place) -> None:
    pods = started(place, **place.preempting())
    before = place.workload(pods[0])
    place.priority(100, "high")
    labels = {f"{DOMAIN}/priority-class": place.named("high")}
    high = place.pod("high", cpu="3", labels=labels)
    place.runs(high)
    place.when(pods[0], "Admitted", "False")
    again = driver(place, "again")
    place.finish(high)
    place.runs(again)
    assert uid_of(place.workload(again)) == uid_of(before)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        json.dumps([worker_set(1, f"w{n}") for n in range(9)]),
        json.dumps([worker_set(), worker_set()]),
        json.dumps([worker_set(0)]),
        json.dumps([worker_set("2")]),
        json.dumps([worker_set(True)]),
        json.dumps([{**worker_set(), "color": "red"}]),
        "- &a {name: driver, count: 1}\n- *a",
        "- {name: driver, count: 1}\n" + " " * 131072,
        json.dumps([{"name": "a", "count": 1}, {"name": "b", "count": 1}]),
    ],
    ids=["map", "nine", "twice", "zero", "text", "bool", "key", "alias", "long", "two-empty"],
)
def test_a_declaration_that_cannot_work_is_refused(place: Place, text: str) -> None:
    words = ROLE if text.startswith('[{"name": "a"') else SETS
    place.refused(lambda: place.pod(group="g", sets=text), words)


def test_a_declaration_stays(place: Place) -> None:
    pod = driver(place)
    place.refused(lambda: place.annotate(pod, **{SETS: sets_of(3)}), SETS)
    member = worker(place, "w")
    place.refused(lambda: place.merge(member, {"metadata": {"labels": {ROLE: "driver"}}}), ROLE)


def test_a_second_driver_that_declares_something_else_is_rejected(place: Place) -> None:
    place.queue(3)
    place.runs(driver(place))
    other = driver(place, "other", count=5)
    place.event(other, "PodRejected")
    place.gone(other)
    line = f'kueue_pods_rejected_total{{namespace="{place.ns}",reason="conflicting_sets"}} 1.0'
    place.counted(line)
