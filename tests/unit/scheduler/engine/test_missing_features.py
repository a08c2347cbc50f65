"""Who asks for a feature that this version does not have waits, and is told so."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from engine_cluster import Cluster

from kueuelib.api.crd import crd
from kueuelib.api.definitions import node
from kueuelib.api.kueue import Workload
from kueuelib.api.missing_features import DEVICES, KEYS, MANAGED_BY, OF_JOBS
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.object_reasons import FeaturesMissing
from kueuelib.scheduler.quota.resource_rules import ResourceRules
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import make_condition, make_flavor, make_pod_set, make_workload

ELASTIC = "kueue.x-k8s.io/elastic-job"
CLAIMS = [
    {"name": "gpu", "resourceClaimTemplateName": "one-that-does-not-exist"},
    {"name": "nic", "resourceClaimName": "of-a-class-without-quota"},
]


def submit(cluster: Cluster, made: Workload, **metadata: Any) -> None:
    meta = attrs.evolve(made.metadata, **metadata)
    cluster.tell(events.WorkloadSet(attrs.evolve(made, metadata=meta)))


def with_template(field: str, key: str, value: str) -> dict[str, Any]:
    """A pod set whose template has a label or an annotation."""
    pod_set = make_pod_set({"gpu": 1})
    pod_set["template"]["metadata"] = {field: {key: value}}
    return pod_set


def asks(cluster: Cluster) -> str:
    """Why the Workload waits; it does so with whatever quota."""
    assert cluster.rest() == []
    assert isinstance(cluster.reason("w"), FeaturesMissing)
    return f"{cluster.waits[-1].condition_reason}: {cluster.waits[-1].message}"


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("key", KEYS)
def test_every_key_that_asks_for_a_missing_feature_keeps_a_workload_waiting(
    cluster: Cluster, key: str, field: str
) -> None:
    cluster.queue("q", 9)
    made = make_workload("w", "q", {"gpu": 1})
    submit(cluster, made, **{field: {key: "1"}})
    by = "managedBy" if key == MANAGED_BY else key
    text = f"this version has no {KEYS[key]}, requested by {by} of the Workload"
    assert asks(cluster) == f"Misconfigured: {text}"
    cluster.queue("q", 99)
    assert cluster.rest() == []
    submit(cluster, made)
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("key", OF_JOBS)
def test_a_pod_template_asks_as_well(cluster: Cluster, key: str) -> None:
    cluster.queue("q", 9)
    cluster.submit("w", "q", pod_sets=[with_template("annotations", key, "true")])
    by = "managedBy" if key == MANAGED_BY else key
    assert f"requested by {by} of pod set main" in asks(cluster)
    cluster.submit("w", "q", pod_sets=[with_template("annotations", f"{key}s", "true")])
    assert cluster.rest() == ["w"]


@pytest.mark.parametrize("value", ["", "false", "0"])
def test_a_value_that_says_no_asks_for_nothing(cluster: Cluster, value: str) -> None:
    cluster.queue("q", 9)
    pod_set = with_template("annotations", ELASTIC, value)
    cluster.submit("w", "q", pod_sets=[pod_set])
    assert cluster.rest() == ["w"]


PLACES: dict[str, Any] = {
    "required": "rack",
    "preferred": "rack",
    "unconstrained": True,
    "podSetGroupName": "both",
    "podSetSliceRequiredTopology": "rack",
    "podSetSliceSize": 2,
    "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 2}],
}
RANKS = {"podIndexLabel": "index", "subGroupIndexLabel": "group", "subGroupCount": 2}


def test_every_field_of_a_topology_request_is_tried() -> None:
    schema = node(
        crd("Workload")["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        "spec.podSets[].topologyRequest",
    )
    assert schema["properties"].keys() == PLACES.keys() | RANKS.keys()


@pytest.mark.parametrize("field", PLACES)
def test_a_topology_request_waits_if_topologies_are_turned_off(field: str) -> None:
    cluster = Cluster(Engine(Settings(places_pods=False)))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("q", 9)
    asked = {**RANKS, field: PLACES[field]}
    cluster.submit("w", "q", pod_sets=[{**make_pod_set({"gpu": 1}), "topologyRequest": asked}])
    assert asks(cluster) == (
        "NoMatchingFlavor: topology-aware scheduling is turned off by the feature gate "
        "TopologyAwareScheduling, "
        f"requested by topologyRequest.{field} of pod set main"
    )
    none = {**RANKS, field: False} if field == "unconstrained" else RANKS
    cluster.submit("w", "q", pod_sets=[{**make_pod_set({"gpu": 1}), "topologyRequest": none}])
    assert cluster.rest() == ["w"]


def test_quota_alone_decides_in_a_flavor_with_a_topology_if_topologies_are_turned_off() -> None:
    cluster = Cluster(Engine(Settings(places_pods=False)))
    flavor = make_flavor("f", {"a": "b"}, topologyName="racks")
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(flavor))
    cluster.queue("q", 9)
    assert cluster.engine.activity("q").active
    cluster.submit("w", "q")
    assert cluster.rest() == ["w"]


def test_a_flavor_with_a_topology_admits_nothing_until_it_has_none(cluster: Cluster) -> None:
    cluster.queue("q", 9)
    cluster.tell(events.FlavorSet(make_flavor("f", topologyName="racks")))
    cluster.submit("w", "q")
    assert cluster.rest() == []
    assert cluster.engine.activity("q").reason == "TopologyNotFound"
    cluster.tell(events.FlavorSet(make_flavor("f")))
    assert cluster.rest() == ["w"]


def test_who_asks_for_devices_waits_wherever_the_claims_come_from(cluster: Cluster) -> None:
    cluster.queue("q", 9)
    cluster.submit("w", "q", pod_sets=[make_pod_set({"gpu": 1}, resourceClaims=CLAIMS)])
    assert asks(cluster) == (
        f"Misconfigured: this version has no {DEVICES}, "
        "requested by resourceClaims[gpu] of pod set main, resourceClaims[nic] of pod set main"
    )


def test_devices_may_be_used_without_quota_where_the_administrator_says_so() -> None:
    cluster = Cluster(Engine(Settings(resources=ResourceRules(admits_claims=True))))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("q", 9)
    cluster.submit("w", "q", pod_sets=[make_pod_set({"gpu": 1}, resourceClaims=CLAIMS)])
    assert cluster.rest() == ["w"]


def test_it_neither_stops_others_nor_is_counted_as_one_of_them(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    cluster.submit("runs", "q")
    assert cluster.rest() == ["runs"]
    cluster.submit("like", "q", created=1)
    assert cluster.rest() == []
    cluster.submit("w", "q", created=2, pod_sets=[with_template("annotations", ELASTIC, "true")])
    assert asks(cluster).startswith("Misconfigured: this version has no elastic jobs")
    cluster.submit("behind", "q", created=3)
    cluster.tell(events.WorkloadGone(cluster.submit("runs", "q").key))
    assert cluster.rest() == ["like"]


def test_what_holds_quota_keeps_it(cluster: Cluster) -> None:
    cluster.queue("q", 1)
    pod_set = with_template("annotations", ELASTIC, "true")
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "flavors": {}}]}
    cluster.submit(
        "w",
        "q",
        pod_sets=[pod_set],
        status={"admission": admission},
        conditions=[make_condition("QuotaReserved")],
    )
    assert cluster.rest() == []
    assert cluster.waits == []
    assert cluster.engine.cache.holder(make_workload("w", "q").key) is not None
