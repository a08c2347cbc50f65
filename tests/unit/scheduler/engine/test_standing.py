"""Where a workload stands while objects around it come, change and go."""

from __future__ import annotations

import attrs
import pytest
from engine_cluster import NOW, STRICT, Cluster, holding, key

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import LocalQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.object_reasons import (
    ClusterQueueInactive,
    ClusterQueueMissing,
    LocalQueueFacts,
    LocalQueueMissing,
    LocalQueueStopped,
    NamespaceMismatch,
    NamespaceUnknown,
)
from kueuelib.testing.builders import (
    make_flavor,
    make_local_queue,
    make_workload,
)


def test_missing_local_queue(cluster: Cluster) -> None:
    cluster.submit("w", "q")
    assert cluster.where("w") is Where.NO_QUEUE
    assert cluster.reason("w") == LocalQueueMissing("q")
    assert cluster.reason("w").condition_reason == "Misconfigured"
    effects = cluster.engine.observe(events.LocalQueueSet(make_local_queue("q", "q")), NOW)
    assert effects.workloads == (key("w"),)
    assert cluster.where("w") is Where.NO_QUEUE
    assert cluster.reason("w") == ClusterQueueMissing("q")
    cluster.queue("q", 1)
    assert cluster.rest() == ["w"]


def test_cluster_queue_that_goes_and_comes_back(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("w", "q", 2)
    cluster.rest()
    effects = cluster.engine.observe(events.ClusterQueueGone("q"), NOW)
    assert effects.workloads == (key("w"),)
    assert cluster.where("w") is Where.NO_QUEUE
    assert cluster.engine.cluster_queue_status("q") is None
    cluster.queue("q", 2)
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_cluster_queue_offers_nothing(cluster: Cluster, policy: str) -> None:
    cluster.queue("q", 1, stopPolicy=policy)
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.where("w") is Where.CLUSTER_QUEUE_INACTIVE
    assert cluster.reason("w") == ClusterQueueInactive("q", "Stopped")
    assert cluster.reason("w").condition_reason == "Suspended"
    status = cluster.engine.cluster_queue_status("q")
    assert status is not None
    assert (status.active, status.inadmissible) == (0, 1)
    cluster.queue("q", 1)
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_local_queue_holds_its_workloads_back(cluster: Cluster, policy: str) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q", stopPolicy=policy)))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.where("w") is Where.NO_QUEUE
    assert cluster.reason("w") == LocalQueueStopped("q")
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q")))
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("spec", [{}, {"stopPolicy": "Hold"}, {"stopPolicy": "None"}])
def test_what_decides_about_a_local_queue_is_read_alike_from_both_its_forms(
    spec: dict[str, str],
) -> None:
    raw = encode(make_local_queue("q", "cq", **spec))
    assert LocalQueueFacts.of_raw(raw) == LocalQueueFacts.of(decode(LocalQueue, raw))
    raw["spec"].pop("stopPolicy", None)
    assert LocalQueueFacts.of_raw(raw) == LocalQueueFacts.of(decode(LocalQueue, raw))
    assert LocalQueueFacts.of_raw(raw) == LocalQueueFacts("q", "cq")


def test_missing_flavor_and_its_return(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.FlavorGone("f"))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.engine.activity("q").reason == "FlavorNotFound"
    assert cluster.reason("w").condition_reason == "Misconfigured"
    cluster.tell(events.FlavorSet(make_flavor("f")))
    assert cluster.rest() == ["w"]


def test_edited_flavor_wakes_its_users(cluster: Cluster) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    cluster.tell(events.FlavorSet(make_flavor("f", taints=[taint])))
    cluster.queue("q", 1)
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.reason("w").condition_reason == "NoMatchingFlavor"
    cluster.tell(events.FlavorSet(make_flavor("f")))
    assert cluster.rest() == ["w"]


def test_deactivated_workload_leaves_the_queue(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("w", "q", active=False)
    assert cluster.rest() == []
    assert cluster.where("w") is Where.DEACTIVATED
    cluster.submit("w", "q")
    assert cluster.rest() == ["w"]


def test_workload_that_is_being_deleted_is_not_admitted(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    found = make_workload("w", "q", {"gpu": 1})
    meta = attrs.evolve(found.metadata, deletion_timestamp=5.0)
    cluster.tell(events.WorkloadSet(attrs.evolve(found, metadata=meta)))
    assert cluster.rest() == []
    assert cluster.where("w") is Where.LEAVING
    assert cluster.where("unheard-of") is Where.UNKNOWN


def test_recreated_workload_of_the_same_name_is_another_one(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.WorkloadSet(holding("w", "q", 1)))
    found = make_workload("w", "q", {"gpu": 1})
    meta = attrs.evolve(found.metadata, uid="other")
    cluster.tell(events.WorkloadSet(attrs.evolve(found, metadata=meta)))
    assert cluster.rest() == ["w"]


def test_local_queue_that_points_elsewhere_takes_its_workloads_along(cluster: Cluster) -> None:
    cluster.queue("a", 1)
    cluster.queue("b", 2)
    cluster.submit("w", "a", 2)
    assert cluster.rest() == []
    cluster.tell(events.LocalQueueSet(make_local_queue("a", "b")))
    assert cluster.engine.pending("a") == ()
    assert cluster.rest() == ["w"]
    assert cluster.admits[0].cluster_queue == "b"


def test_namespace_that_does_not_match_and_then_does(cluster: Cluster) -> None:
    cluster.queue("q", 1, selector={"matchLabels": {"team": "blue"}}, **STRICT)
    cluster.queue("free", 1)
    cluster.submit("w", "q")
    cluster.submit("v", "q", created=1, namespace="other")
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q", "other")))
    cluster.tell(events.NamespaceSet("other", {"team": "blue"}))
    assert cluster.rest() == ["v"]
    assert cluster.reason("w") == NamespaceMismatch("q", "ns")
    cluster.tell(events.WorkloadGone(ObjectKey("other", "v")))
    assert cluster.rest() == []
    cluster.tell(events.NamespaceSet("ns", {"team": "blue"}))
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "team", "operator": "In", "values": ["blue"]}, True),
        ({"key": "team", "operator": "In", "values": ["red"]}, False),
        ({"key": "team", "operator": "NotIn", "values": ["blue"]}, False),
        ({"key": "color", "operator": "In", "values": ["blue"]}, False),
    ],
)
def test_namespaces_are_selected_by_expressions(
    cluster: Cluster, expression: dict[str, object], matches: bool
) -> None:
    cluster.queue("q", 1, selector={"matchExpressions": [expression]})
    cluster.tell(events.NamespaceSet("ns", {"team": "blue"}))
    cluster.submit("w", "q")
    assert cluster.rest() == (["w"] if matches else [])


def test_selector_that_opens_lets_parked_workloads_in(cluster: Cluster) -> None:
    cluster.queue("q", 1, selector={"matchLabels": {"team": "blue"}})
    cluster.submit("w", "q")
    assert cluster.rest() == []
    cluster.queue("q", 1)
    assert cluster.rest() == ["w"]


def test_unknown_namespace_is_a_passing_state(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.tell(events.LocalQueueSet(make_local_queue("q", "q", "new")))
    cluster.submit("w", "q", namespace="new")
    assert cluster.rest() == []
    (wait,) = cluster.waits
    assert wait.transient
    assert wait.reason == NamespaceUnknown("new")
    cluster.tell(events.NamespaceSet("new", {}))
    assert cluster.rest() == ["w"]
