"""How deltas become events of the engine."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.feed import (
    CLUSTER_QUEUES,
    COHORTS,
    NAMESPACES,
    WORKLOADS,
    Feed,
    ObjectSource,
)
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.scheduler import events
from kueuelib.scheduler.events import Effects


class Engine:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def observe(self, event: Any, now: float) -> Effects:
        self.seen.append(event)
        return Effects(cluster_queues=("cq",))

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.seen]


class Recorder:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def event(self, obj: Obj, type: str, reason: str, message: str, component: str) -> None:
        self.messages.append(message)


class Informer:
    def __init__(self, kind: str) -> None:
        self.resource = type("R", (), {"kind": kind})
        self.tell: Any = None

    def add_handler(self, handler: Any) -> None:
        self.tell = handler


def setup(source: ObjectSource) -> tuple[Engine, Recorder, Informer, Feed]:
    engine, recorder, informer = Engine(), Recorder(), Informer("ClusterQueue")
    feed = Feed(engine, recorder)  # type: ignore[arg-type]
    feed.attach(informer, source)  # type: ignore[arg-type]
    return engine, recorder, informer, feed


def queue(uid: str = "u", status: Any = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq", "uid": uid},
        "spec": spec,
        "status": status or {},
    }


KEY = ObjectKey("", "cq")


def added(obj: Obj) -> Delta[Obj]:
    return Delta(DeltaKind.ADDED, KEY, None, obj)


def updated(old: Obj, new: Obj) -> Delta[Obj]:
    return Delta(DeltaKind.UPDATED, KEY, old, new)


def test_cohorts_are_told_by_their_spec() -> None:
    engine, recorder, informer, _ = setup(COHORTS)
    key = ObjectKey("", "team")
    old = {**queue(), "kind": "Cohort", "metadata": {"name": "team", "uid": "u"}}
    new = {**old, "spec": {"parentName": "top", "fairSharing": {"weight": "2"}}}
    shown = {**new, "status": {"fairSharing": {"weightedShare": 1}}}
    informer.tell(Delta(DeltaKind.ADDED, key, None, old))
    informer.tell(Delta(DeltaKind.UPDATED, key, old, new))
    informer.tell(Delta(DeltaKind.UPDATED, key, new, shown))
    informer.tell(Delta(DeltaKind.DELETED, key, shown, None))
    assert engine.kinds == ["CohortChanged", "CohortChanged", "CohortDeleted"]
    assert engine.seen[1].cohort.spec.parent_name == "top"
    assert engine.seen[2].name == "team"
    assert recorder.messages == []


def test_additions_changes_and_deletions_are_told_and_spread() -> None:
    engine, _, informer, feed = setup(CLUSTER_QUEUES)
    heard: list[Effects] = []
    feed.subscribe(heard.append)
    informer.tell(added(queue()))
    informer.tell(updated(queue(), queue(stopPolicy="Hold")))
    informer.tell(Delta(DeltaKind.DELETED, KEY, queue(), None))
    assert engine.kinds == ["ClusterQueueSet", "ClusterQueueSet", "ClusterQueueGone"]
    assert engine.seen[1].cluster_queue.spec.stop_policy == "Hold"
    assert heard == [Effects(cluster_queues=("cq",))] * 3


def test_a_change_of_what_the_engine_does_not_read_is_no_event() -> None:
    engine, _, informer, _ = setup(CLUSTER_QUEUES)
    informer.tell(added(queue()))
    informer.tell(updated(queue(), queue(status={"pendingWorkloads": 3})))
    assert engine.kinds == ["ClusterQueueSet"]


def test_a_recreated_object_is_first_gone_and_then_there() -> None:
    engine, _, informer, _ = setup(CLUSTER_QUEUES)
    informer.tell(added(queue()))
    informer.tell(updated(queue(), queue(uid="other")))
    assert engine.kinds == ["ClusterQueueSet", "ClusterQueueGone", "ClusterQueueSet"]


def test_an_object_that_cannot_be_read_is_reported_once_and_counts_as_absent() -> None:
    engine, recorder, informer, _ = setup(CLUSTER_QUEUES)
    bad = queue(resourceGroups=[{"coveredResources": "cpu", "flavors": []}])
    informer.tell(added(queue()))
    informer.tell(updated(queue(), bad))
    informer.tell(updated(bad, {**bad, "spec": {**bad["spec"], "cohortName": "c"}}))
    assert engine.kinds == ["ClusterQueueSet", "ClusterQueueGone", "ClusterQueueGone"]
    (message,) = recorder.messages
    assert "spec.resourceGroups[0].coveredResources" in message
    informer.tell(updated(bad, queue()))
    assert engine.kinds[-1] == "ClusterQueueSet"
    informer.tell(updated(queue(), bad))
    assert len(recorder.messages) == 2


def test_a_selector_that_cannot_be_read_is_reported_too() -> None:
    engine, recorder, informer, feed = setup(CLUSTER_QUEUES)

    def observe(event: Any, now: float) -> Effects:
        from kueuelib.scheduler.quota.queue_spec import queue_spec

        if isinstance(event, events.ClusterQueueSet):
            queue_spec(event.cluster_queue)
        return Effects()

    engine.observe = observe  # type: ignore[method-assign]
    bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    informer.tell(added(queue(namespaceSelector=bad)))
    assert len(recorder.messages) == 1
    assert feed is not None


def test_namespaces_are_told_by_their_labels() -> None:
    engine, _, informer, _ = setup(NAMESPACES)
    space = {"metadata": {"name": "ns", "uid": "u", "labels": {"a": "b"}}}
    informer.tell(Delta(DeltaKind.ADDED, ObjectKey("", "ns"), None, space))
    assert engine.seen == [events.NamespaceSet("ns", {"a": "b"})]


def test_a_workload_whose_spec_changed_back_is_told_with_its_new_generation() -> None:
    engine, _, informer, _ = setup(WORKLOADS)
    old = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"podSets": []},
    }
    new = {**old, "metadata": {**old["metadata"], "generation": 3}}
    key = ObjectKey("ns", "w")
    informer.tell(Delta(DeltaKind.ADDED, key, None, old))
    informer.tell(Delta(DeltaKind.UPDATED, key, old, new))
    assert [event.workload.metadata.generation for event in engine.seen] == [1, 3]
