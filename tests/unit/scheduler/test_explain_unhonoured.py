"""What objects ask for in vain is named, and nothing that has an effect is."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.problems import unhonoured_in, unhonoured_keys
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import FeaturesMissing
from kueuelib.scheduler.quota.resource_rules import ResourceRules
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import make_check

KEY = ObjectKey("ns", "job")
TOPOLOGY = "topology-aware scheduling is turned off by the feature gate TopologyAwareScheduling"
SLICES = "this version has no elastic jobs by workload slices"
DEVICES = "this version has no quota for devices of resource claims (DRA)"
OFF = "fair sharing is off, unless the manager's configuration says otherwise (--config)"
CLUSTERS = "this version has no dispatch to other clusters (MultiKueue)"
UNKNOWN = "this version does not know it"


def world(
    *,
    queue: Obj | None = None,
    local: Obj | None = None,
    cohort: Obj | None = None,
    flavor: Obj | None = None,
    check: Obj | None = None,
    pod_set: Obj | None = None,
    pod: Obj | None = None,
    container: Obj | None = None,
    annotations: Obj | None = None,
    template: Obj | None = None,
    status: Obj | None = None,
) -> World:
    quota = {"name": "cpu", "nominalQuota": "1"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    checks = {"admissionChecks": [{"name": "c"}]}
    spec = {"cohortName": "x", "namespaceSelector": {}, "resourceGroups": [group]}
    queue_spec = {**spec, "admissionChecksStrategy": checks, **(queue or {})}
    resources = {"requests": {"cpu": "1"}, **(container or {})}
    pods = {
        "containers": [{"name": "c", "image": "i", "resources": resources}],
        "restartPolicy": "Never",
        "volumes": [{"name": "v", "emptyDir": {}}],
        **(pod or {}),
    }
    one = {
        "name": "main",
        "count": 1,
        "template": {"metadata": {"annotations": template or {}}, "spec": pods},
        **(pod_set or {}),
    }
    meta = {"name": "job", "namespace": "ns", "annotations": annotations or {}}
    found = World().with_namespace("ns", {})
    found = found.with_cluster_queue(typed(ClusterQueue, "q", queue_spec))
    found = found.with_cohort(typed(Cohort, "x", cohort or {}))
    found = found.with_local_queue(
        typed(LocalQueue, "lq", {"clusterQueue": "q", **(local or {})}, namespace="ns")
    )
    found = found.with_flavor(typed(ResourceFlavor, "f", flavor or {}))
    served = make_check("c")
    raw = {"controllerName": "example.com/c", **(check or {})}
    found = found.with_check(attrs.evolve(served, spec=typed(AdmissionCheck, "c", raw).spec))
    return found.with_workload(
        decode(
            Workload,
            {
                "metadata": meta,
                "spec": {"queueName": "lq", "podSets": [one]},
                "status": status or {},
            },
        )
    )


def typed(cls: Any, name: str, spec: Obj, **meta: str) -> Any:
    return decode(cls, {"metadata": {"name": name, **meta}, "spec": spec})


@pytest.mark.parametrize(
    ("parts", "subject", "field", "meaning"),
    [
        (
            {"annotations": {"kueue.x-k8s.io/never-heard-of": "1"}},
            "Workload ns/job",
            "metadata.annotations[kueue.x-k8s.io/never-heard-of]",
            UNKNOWN,
        ),
        (
            {"queue": {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}},
            "ClusterQueue q",
            "spec.admissionScope",
            f"admission {OFF}",
        ),
        (
            {"queue": {"concurrentAdmissionPolicy": {"migration": {}}}},
            "ClusterQueue q",
            "spec.concurrentAdmissionPolicy",
            "this version has no admission in several flavors at once",
        ),
        (
            {"local": {"fairSharing": {"weight": "2"}}},
            "LocalQueue ns/lq",
            "spec.fairSharing",
            "ClusterQueue q has no admission fair sharing in its spec",
        ),
        ({"cohort": {"newField": 1}}, "Cohort x", "spec.newField", UNKNOWN),
        (
            {"check": {"controllerName": "kueue.x-k8s.io/multikueue"}},
            "AdmissionCheck c",
            "spec.controllerName",
            CLUSTERS,
        ),
        (
            {"cohort": {"parentName": "top", "fairSharing": {"weight": "2"}}},
            "Cohort x",
            "spec.fairSharing.weight",
            OFF,
        ),
    ],
)
def test_what_has_no_effect_is_named(
    parts: dict[str, Obj], subject: str, field: str, meaning: str
) -> None:
    found = explain(world(**parts), KEY, 0.0, changes=False)
    assert [(one.subject, one.field, one.meaning) for one in found.unhonoured] == [
        (subject, field, meaning)
    ]
    assert found.unhonoured[0].text == f"{subject}: {field} has no effect: {meaning}"


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"queue": {"admissionScope": {"admissionMode": "NoAdmissionFairSharing"}}},
        {"queue": {"fairSharing": {"weight": "1"}, "futureField": None}},
        {"pod": {"schedulerName": "mine"}},
        {"template": {"kueue.x-k8s.io/podset": "main", "example.com/own": "1"}},
        {"annotations": {"kueue.x-k8s.io/queue-name": "lq"}},
    ],
)
def test_what_has_an_effect_or_asks_for_nothing_is_not_named(parts: dict[str, Obj]) -> None:
    assert unhonoured_in(world(**parts), KEY) == ()


def test_annotations_about_a_topology_have_an_effect_in_pod_templates() -> None:
    kinds = ("required-topology", "preferred-topology", "unconstrained-topology")
    slices = ("slice-required-topology", "slice-size", "slice-required-topology-constraints")
    template = {f"kueue.x-k8s.io/podset-{name}": "1" for name in (*kinds, *slices, "group-name")}
    typo = "kueue.x-k8s.io/podset-requird-topology"
    (one,) = unhonoured_in(world(template={**template, typo: "1"}), KEY)
    meant = "did you mean kueue.x-k8s.io/podset-required-topology?"
    assert (one.field, one.meaning) == (f"metadata.annotations[{typo}]", f"{UNKNOWN}; {meant}")
    assert list(unhonoured_keys("Pod p", {"annotations": template}, of_pods=True)) == []
    misplaced = list(unhonoured_keys("Job train", {"annotations": template}))
    assert [one.field for one in misplaced] == [
        f"metadata.annotations[{key}]" for key in sorted(template)
    ]
    assert {one.meaning for one in misplaced} == {
        "it belongs in the annotations of the pod template"
    }


def test_weights_count_where_shares_decide() -> None:
    found = world(queue={"fairSharing": {"weight": "2"}}, cohort={"fairSharing": {"weight": "0"}})
    (one,) = unhonoured_in(found, KEY)
    assert one.subject == "ClusterQueue q, Cohort x"
    assert (
        unhonoured_in(attrs.evolve(found, settings=Settings(fair_sharing=FairSharingRules())), KEY)
        == ()
    )


def test_fair_sharing_decides_in_place_of_the_policy_for_borrowers() -> None:
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": 10}
    preemption = {"reclaimWithinCohort": "Any", "borrowWithinCohort": borrow}
    found = world(queue={"preemption": preemption})
    assert unhonoured_in(found, KEY) == ()
    (one,) = unhonoured_in(
        attrs.evolve(found, settings=Settings(fair_sharing=FairSharingRules())), KEY
    )
    assert (one.subject, one.field) == ("ClusterQueue q", "spec.preemption.borrowWithinCohort")


CLAIM = {"resourceClaims": [{"name": "gpu"}]}
RUNNING = {
    "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]},
    "conditions": [{"type": "QuotaReserved", "status": "True"}],
}


@pytest.mark.parametrize(
    ("parts", "subject", "field", "meaning"),
    [
        (
            {"template": {"kueue.x-k8s.io/elastic-job": "true"}},
            "Workload ns/job, pod set main",
            "metadata.annotations[kueue.x-k8s.io/elastic-job]",
            SLICES,
        ),
        (
            {"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"}},
            "Workload ns/job",
            "metadata.annotations[kueue.x-k8s.io/workload-slice-replacement-for]",
            SLICES,
        ),
        (
            {"pod": CLAIM},
            "Workload ns/job",
            "spec.podSets[0].template.spec.resourceClaims",
            DEVICES,
        ),
        (
            {"container": {"claims": [{"name": "gpu"}]}},
            "Workload ns/job",
            "spec.podSets[0].template.spec.containers[0].resources.claims",
            DEVICES,
        ),
    ],
)
def test_a_request_for_a_missing_feature_has_no_effect_on_what_runs(
    parts: dict[str, Obj], subject: str, field: str, meaning: str
) -> None:
    assert unhonoured_in(world(**parts), KEY) == ()
    (one,) = unhonoured_in(world(**parts, status=RUNNING), KEY)
    assert (one.subject, one.field, one.meaning) == (subject, field, meaning)


def test_a_request_for_a_topology_has_no_effect_on_what_runs_if_topologies_are_off() -> None:
    found = world(
        pod_set={"topologyRequest": {"required": "rack", "podIndexLabel": "index"}}, status=RUNNING
    )
    assert unhonoured_in(found, KEY) == ()
    (one,) = unhonoured_in(attrs.evolve(found, settings=Settings(places_pods=False)), KEY)
    assert (one.subject, one.field) == ("Workload ns/job, pod set main", "topologyRequest.required")
    assert one.meaning == TOPOLOGY


def test_a_topology_of_a_flavor_has_no_effect_if_topologies_are_off() -> None:
    found = world(flavor={"topologyName": "racks", "nodeLabels": {"a": "b"}})
    found = attrs.evolve(found, settings=Settings(places_pods=False))
    (one,) = unhonoured_in(found, KEY)
    assert one.text == f"ResourceFlavor f: spec.topologyName has no effect: {TOPOLOGY}"
    assert explain(found, KEY, 0.0).problems == ()


def test_devices_without_quota_are_named_where_they_are_allowed() -> None:
    found = world(pod=CLAIM)
    allowed = attrs.evolve(found, settings=Settings(resources=ResourceRules(admits_claims=True)))
    (one,) = unhonoured_in(allowed, KEY)
    assert one.meaning == DEVICES
    assert isinstance(explain(found, KEY, 0.0, changes=False).reason, FeaturesMissing)
    assert explain(allowed, KEY, 0.0, changes=False).reason is None


def test_labels_and_annotations_of_other_objects_are_read_too() -> None:
    metadata = {
        "labels": {"kueue.x-k8s.io/multikueue-origin": "m", "kueue.x-k8s.io/queue-name": "lq"},
        "annotations": {
            "kueue.x-k8s.io/elastic-job": "true",
            "kueue.x-k8s.io/priority-boost": "1",
            "kueue.x-k8s.io/unheard-of": "1",
        },
    }
    found = list(unhonoured_keys("Job train", metadata))
    boost = "this version has no priority that others adjust"
    assert [one.text for one in found] == [
        f"Job train: metadata.annotations[kueue.x-k8s.io/priority-boost] has no effect: {boost}",
        f"Job train: metadata.annotations[kueue.x-k8s.io/unheard-of] has no effect: {UNKNOWN}",
    ]
