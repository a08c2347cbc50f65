"""What the laws about the memory of processes find, and what they let pass."""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

import attrs
import pytest

from kueuelib.api import kueue
from kueuelib.api.codec import decode
from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import Workload
from kueuelib.machinery.replica import WatchScope
from kueuelib.machinery.store import Store
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Wait
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.pending.tries import Requeue
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.reasons import NotEvaluated
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.inside import Believes, judge
from kueuelib.testing.storm.inside.leaks import gone_of, leaks, names_in, parts_in
from kueuelib.workload.orders import OrderBook

WORKLOADS = "workloads.kueue.x-k8s.io"
API = "kueue.x-k8s.io/v1beta2"
COHORTS = "cohorts.kueue.x-k8s.io"
QUEUES = "clusterqueues.kueue.x-k8s.io"


@attrs.define
class Root:
    """Stands for a process."""

    part: Any


def obj(name: str, namespace: str = "default", version: str = "1") -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": {**meta, **({"namespace": namespace} if namespace else {})}}


def commit(name: str, namespace: str = "default", *, removed: bool = False) -> Commit:
    state = obj(name, namespace)
    old, new = (state, None) if removed else (None, state)
    return Commit(0.0, 1, "user", "jobs.batch", namespace, name, old, new)


def laws_broken(root: object, objects: dict[str, list[dict[str, Any]]] | None = None) -> set[str]:
    stored = objects or {}
    found = judge({"manager-1": root}, lambda resource: stored.get(resource, []), [], [], 0.0)
    return {violation.law for violation in found}


HISTORY = [commit("here"), commit("left"), commit("left", removed=True)]
LEFT = ObjectKey("default", "left")


@pytest.mark.parametrize(
    "held",
    [
        {LEFT: 1},
        {LEFT},
        deque([LEFT]),
        [LEFT],
        {("kind", LEFT): 1},
        {"uid-left": 1},
        {"here": {"more": {"uid-left"}}},
    ],
)
def test_a_container_that_keeps_the_gone_leaks(held: object) -> None:
    book = OrderBook()
    book.extra = held  # type: ignore[attr-defined]
    found = list(leaks(list(parts_in(Root(book))), gone_of(HISTORY)))
    assert [place for place, _ in found] == ["OrderBook.extra"]
    assert "part.extra keeps" in found[0][1]


def test_what_exists_is_no_leak() -> None:
    held = {ObjectKey("default", "here"): 1, "uid-here": {"left"}}
    assert not list(leaks(list(parts_in(Root(held))), gone_of(HISTORY)))


def test_a_name_that_came_back_is_not_gone_but_its_first_uid_is() -> None:
    again = attrs.evolve(commit("left"), new={"metadata": {"uid": "second"}})
    gone = gone_of([*HISTORY, again])
    assert not gone.keys
    assert gone.uids == {"uid-left"}


def test_what_an_object_mentions_is_not_gone() -> None:
    local = attrs.evolve(
        commit("team"), new={**obj("team"), "spec": {"clusterQueue": "queue", "owner": "uid-queue"}}
    )
    gone = gone_of([commit("queue", ""), commit("queue", "", removed=True), local])
    assert not any((gone.names, gone.keys, gone.uids))


def test_names_of_the_cluster_are_gone_when_no_kind_has_them() -> None:
    gone = gone_of([commit("queue", ""), commit("queue", "", removed=True)])
    assert gone.names == {"queue"}
    assert gone.has("queue")
    assert not gone.has("team")


def test_calls_that_wait_are_entered() -> None:
    store: Store[Any] = Store()

    def closure() -> object:
        return store

    for way in (store.get, functools.partial(print, store), closure):
        assert any(found.what is store for found in parts_in(Root(way)))


def test_the_storm_and_other_packages_are_not_entered() -> None:
    secret = ["secret"]
    assert all(found.what is not secret for found in parts_in(Root(Root(secret))))


def test_names_are_found_in_tuples_and_records() -> None:
    assert list(names_in((1, "a", (LEFT,)))) == ["a", LEFT, "default", "left"]
    assert list(names_in(WatchScope("team"))) == ["team"]


def test_an_order_that_waits_at_rest_is_reported() -> None:
    book = OrderBook()
    assert laws_broken(Root(book)) == set()
    wait = Wait(LEFT, "uid", Workload(), "queue", NotEvaluated(), Requeue.GENERIC)
    book.submit(wait)
    assert laws_broken(Root(book)) == {"nothing-is-assumed-at-rest"}


def test_an_engine_that_does_not_know_a_queue_is_reported() -> None:
    engine = Engine()
    assert laws_broken(Root(engine)) == set()
    queue = {**obj("queue", ""), "spec": {}}
    assert laws_broken(Root(engine), {QUEUES: [queue]}) == {"engine-equals-objects"}


HELD: dict[str, Any] = {
    **obj("one"),
    "apiVersion": API,
    "kind": "Workload",
    "spec": {"podSets": [], "queueName": "team"},
    "status": {
        "admission": {"clusterQueue": "queue", "podSetAssignments": []},
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
    },
}


def test_quota_that_the_engine_does_not_count_is_reported() -> None:
    assert laws_broken(Root(Engine()), {WORKLOADS: [HELD]}) == {"engine-equals-objects"}


def test_an_engine_charges_the_very_workload_that_it_holds() -> None:
    engine = Engine()
    believes = Believes(Root(engine))
    assert not believes.charges("default", "one", "uid-one")
    engine.observe(events.WorkloadSet(decode(kueue.Workload, HELD)), 0.0)
    assert believes.charges("default", "one", "uid-one")
    assert not believes.charges("default", "one", "uid-two")
    assert Believes(Root(OrderBook())).charges("default", "one", "uid-one")


def node(name: str, kind: str, parent: str = "", nominal: int = 0) -> dict[str, Any]:
    row = {"name": "cpu", "nominalQuota": str(nominal)}
    flavors = [{"name": "main", "resources": [row]}]
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    above = {"cohortName" if kind == "ClusterQueue" else "parentName": parent} if parent else {}
    return {**obj(name, ""), "apiVersion": API, "kind": kind, "spec": {**spec, **above}}


@pytest.mark.parametrize(
    ("stored", "broken"),
    [
        ([node("top", "Cohort", nominal=2), node("low", "Cohort", "top")], False),
        ([node("top", "Cohort", nominal=1), node("low", "Cohort", "top")], True),
        ([node("top", "Cohort", nominal=2), node("low", "Cohort")], True),
        ([node("top", "Cohort", "low", nominal=2), node("low", "Cohort", "top")], True),
        ([node("top", "Cohort", nominal=2)], True),
    ],
)
def test_a_tree_that_the_engine_knows_otherwise_is_reported(
    stored: list[dict[str, Any]], *, broken: bool
) -> None:
    engine = Engine()
    queue = node("queue", "ClusterQueue", "low", 1)
    for cohort in (node("top", "Cohort", nominal=2), node("low", "Cohort", "top")):
        engine.observe(events.CohortChanged(decode(kueue.Cohort, cohort)), 0.0)
    engine.observe(events.ClusterQueueSet(decode(kueue.ClusterQueue, queue)), 0.0)
    expected = {"engine-trees-equal-objects"} if broken else set()
    assert laws_broken(Root(engine), {QUEUES: [queue], COHORTS: stored}) == expected


@pytest.mark.parametrize(
    ("root", "active", "broken"),
    [
        (("top", ""), True, False),
        (("low", ""), True, True),
        (("top", ""), False, True),
    ],
)
def test_a_queue_that_does_not_hear_of_its_tree_is_reported(
    root: tuple[str, str], *, active: bool, broken: bool
) -> None:
    engine = Engine()
    tree = [node("top", "Cohort"), node("low", "Cohort", "top")]
    queue = node("queue", "ClusterQueue", "low")
    engine.observe(events.FlavorSet(decode(kueue.ResourceFlavor, obj("main", ""))), 0.0)
    for cohort in tree:
        engine.observe(events.CohortChanged(decode(kueue.Cohort, cohort)), 0.0)
    engine.observe(events.ClusterQueueSet(decode(kueue.ClusterQueue, queue)), 0.0)
    spec = queue_spec(decode(kueue.ClusterQueue, queue))
    engine._queues.set_queue(spec, root, active=active, now=0.0)
    expected = {"engine-trees-equal-objects"} if broken else set()
    assert laws_broken(Root(engine), {QUEUES: [queue], COHORTS: tree}) == expected


@pytest.mark.parametrize(
    ("held", "stored", "fresh"),
    [
        (["1"], ["1"], True),
        (["1"], ["2"], False),
        ([], ["1"], False),
        (["1"], [], False),
    ],
)
def test_a_cache_that_differs_from_a_list_is_reported(
    held: list[str], stored: list[str], *, fresh: bool
) -> None:
    client: Any = None
    informer = Informer(client, JOBS)
    informer._synced = True
    for version in held:
        informer.store.put(ObjectKey("default", "one"), obj("one", version=version))
    objects = {"jobs.batch": [obj("one", version=version) for version in stored]}
    expected = set() if fresh else {"caches-equal-a-fresh-list"}
    assert laws_broken(Root(informer), objects) == expected


def test_a_repair_of_any_life_is_reported() -> None:
    telemetry = Telemetry()
    counter = telemetry.counter("kueuelib_orphaned_assumptions_total", "Repairs.")

    def found() -> list[str]:
        lives = [("manager-1", telemetry)]
        return [str(one) for one in judge({}, lambda _: [], [], lives, 0.0)]

    assert found() == []
    counter.inc()
    series = "kueuelib_orphaned_assumptions_total"
    assert found() == [f"no-repairs: {series}: manager-1: {series} is 1"]


def test_gauges_count_what_is_stored_and_name_what_exists() -> None:
    telemetry = Telemetry()
    pending = telemetry.gauge("kueue_pending_workloads", "Waiting.", ("cluster_queue", "status"))
    stored = {QUEUES: [{**obj("queue", ""), "status": {"pendingWorkloads": 2}}]}
    past = [commit("queue", ""), commit("old", ""), commit("old", "", removed=True)]

    def found() -> list[str]:
        lives = [("manager-1", telemetry)]
        return [str(one) for one in judge({"manager-1": Root(0)}, stored_of, past, lives, 0.0)]

    def stored_of(resource: str) -> list[dict[str, Any]]:
        return stored.get(resource, [])

    series = "metrics-match: kueue_pending_workloads: manager-1:"
    assert found() == [f"{series} queue has 2, but shows 0"]
    pending.labels("queue", "active").inc(1)
    pending.labels("queue", "inadmissible").inc(1)
    assert found() == []
    pending.labels("old", "active").inc(1)
    (text,) = found()
    assert text.startswith(f"{series} a series says")


def test_the_whole_of_a_manager_is_seen(simulate: Any) -> None:
    found = simulate("programs.py", ("inside",))["inside"]
    assert found["kinds"]["Engine"] == found["kinds"]["OrderBook"] == 1
    assert found["kinds"]["Informer"] >= 10
    assert found["kinds"]["Controller"] >= 8
    assert found["kinds"]["QueueCore"] >= 8
    assert found["clean"] == []
    assert found["planted"] == ["caches-equal-a-fresh-list", "no-leaks"]
