"""Nodes in no domain of a topology, and flavors that share nodes."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest
from tests.unit.app.doctor.conftest import LONG_AGO

from kueuelib.api.workload import HOST
from kueuelib.app.doctor.checks.queues import users_of
from kueuelib.app.doctor.examining import examine
from kueuelib.app.doctor.finding import Severity
from kueuelib.app.explaining.gather import Lists, cluster_of
from kueuelib.errors import Forbidden


def put_in_racks(patient: Any, *levels: str) -> None:
    """Gives the flavor a Topology."""
    patient.get("ResourceFlavor")["spec"]["topologyName"] = "racks"
    spec = {"levels": [{"nodeLabel": level} for level in levels or (HOST,)]}
    patient.add("Topology", "racks", spec=spec)
    patient.get("Node")["metadata"]["labels"][HOST] = "n"


def name_a_level_without_label(patient: Any) -> None:
    put_in_racks(patient, "rack", HOST)


def leave_a_node_out_of_all_racks(patient: Any) -> None:
    put_in_racks(patient)
    status = {"conditions": patient.get("Node")["status"]["conditions"]}
    patient.add("Node", "out", metadata={"labels": {"pool": "f"}}, spec={}, status=status)


def share_nodes_between_topologies(patient: Any) -> None:
    put_in_racks(patient)
    patient.get("Node")["metadata"]["labels"]["rack"] = "r"
    patient.add("Topology", "coarse", spec={"levels": [{"nodeLabel": "rack"}]})
    spec = {"topologyName": "coarse", "nodeLabels": {"rack": "r"}}
    patient.add("ResourceFlavor", "coarse", spec=spec)


def ask_for_more_than_a_node_has(patient: Any) -> None:
    """Two nodes have the quota of four CPUs together, and a pod asks for three."""
    put_in_racks(patient)
    status = patient.get("Node")["status"]
    status["allocatable"]["cpu"] = "2"
    meta = {"labels": {**patient.get("Node")["metadata"]["labels"], HOST: "m"}}
    patient.add("Node", "m", metadata=meta, spec={}, status=status)


def place(patient: Any, *hosts: str, **request: Any) -> None:
    """Gives the Workload `runs` one pod on each of these nodes, in racks."""
    put_in_racks(patient, "rack", HOST)
    patient.get("Node")["metadata"]["labels"]["rack"] = "r"
    workload, number = patient.get("Workload", "runs"), {"universal": 1}
    slices = [
        {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": number}
        for host in hosts
    ]
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assigned["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    pod_sets = copy.deepcopy(workload["spec"]["podSets"])  # which others share
    workload["spec"]["podSets"] = [{**pod_sets[0], "topologyRequest": request}]


def add_node(patient: Any, name: str, rack: str) -> None:
    labels, status = {"pool": "f", HOST: name, "rack": rack}, patient.get("Node")["status"]
    status = {**status, "allocatable": {"pods": "110"}}
    patient.add("Node", name, metadata={"labels": labels}, spec={}, status=status)


def relabel_a_rack_below_running_pods(patient: Any) -> None:
    place(patient, "n", "m", required="rack")
    add_node(patient, "m", "other")


def relabel_a_rack_below_a_slice(patient: Any) -> None:
    slices = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    place(patient, "n", "m", **slices)
    add_node(patient, "m", "other")


def lose_a_node_below_running_pods(patient: Any) -> None:
    place(patient, "n", "m", required="rack")


def rename_a_host_below_running_pods(patient: Any) -> None:
    place(patient, "n", unconstrained=True)
    patient.get("Node")["metadata"]["labels"][HOST] = "other"


def lose_a_rack_below_running_pods(patient: Any) -> None:
    place(patient, "r", unconstrained=True)
    patient.get("Topology")["spec"]["levels"].pop()
    (assigned,) = patient.get("Workload", "runs")["status"]["admission"]["podSetAssignments"]
    assigned["topologyAssignment"]["levels"] = ["rack"]
    patient.get("Node")["metadata"]["labels"]["rack"] = "renamed"


def misspell_an_annotation(patient: Any) -> None:
    template = copy.deepcopy(patient.get("Workload", "waits")["spec"]["podSets"][0])
    notes = {"kueue.x-k8s.io/podset-required-toplogy": "rack"}
    template["template"]["metadata"] = {"annotations": notes}
    patient.get("Workload", "waits")["spec"]["podSets"] = [template]


CASES = [
    (ask_for_more_than_a_node_has, "never-fits", Severity.WARNING, "Workload ns/waits",
     "its pods do not fit on the nodes that are there"),
    (leave_a_node_out_of_all_racks, "topology-levels", Severity.WARNING, "Topology racks",
     "no pods are placed on 1 node (out) of flavor f without the label kubernetes.io/hos"),
    (share_nodes_between_topologies, "topology-overlap", Severity.WARNING,
     "ResourceFlavor coarse", "it shares 1 node (n) with flavor f"),
    (relabel_a_rack_below_running_pods, "placement-stale", Severity.WARNING, "Workload ns/runs",
     "pod set main requires one rack, but its nodes are now in several: m in rack other; n in"),
    (relabel_a_rack_below_a_slice, "placement-stale", Severity.WARNING, "Workload ns/runs",
     "pod set main requires each slice of 2 pods in one rack, but rack other now has 1 pod"),
    (lose_a_node_below_running_pods, "placement-stale", Severity.WARNING, "Workload ns/runs",
     "pod set main is placed on node m, which no longer exists"),
    (rename_a_host_below_running_pods, "placement-stale", Severity.WARNING, "Workload ns/runs",
     "placed on node n, which has the label kubernetes.io/hostname=other now, so other Workloads"),
    (lose_a_rack_below_running_pods, "placement-stale", Severity.WARNING, "Workload ns/runs",
     "pod set main is placed in rack r, which no longer exists"),
    (misspell_an_annotation, "topology-ignored", Severity.WARNING, "Workload ns/waits",
     "spec.podSets[main].template.metadata.annotations[kueue.x-k8s.io/podset-required-toplogy] h"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make_ill", "check", "severity", "subject", "words"),
    CASES,
    ids=[one[0].__name__ for one in CASES],
)
def test_one_illness_has_exactly_one_finding(
    patient: Any, make_ill: Any, check: str, severity: Severity, subject: str, words: str
) -> None:
    make_ill(patient)
    found = patient.only(check)
    assert (found.severity, str(found.subject)) == (severity, subject)
    assert words in found.problem
    assert found.fix


def test_who_waits_for_a_level_without_labels_follows_from_it(patient: Any) -> None:
    name_a_level_without_label(patient)
    found = dict(patient.found())
    levels = found["topology-levels"]
    assert (levels.severity, str(levels.subject)) == (Severity.ERROR, "Topology racks")
    words = "no node of flavor f (n) has the label rack, so no pods can be placed on its nodes"
    assert words in levels.problem
    assert levels.fix
    assert patient.causes() == {"never-fits": "topology-levels"}


def test_flavors_that_see_each_others_pods_may_share_nodes(patient: Any) -> None:
    put_in_racks(patient)
    patient.add("ResourceFlavor", "other", spec={"topologyName": "racks"})
    assert patient.found() == []


def test_without_nodes_nothing_is_said_about_places(patient: Any) -> None:
    put_in_racks(patient, "rack", HOST)
    patient.unseen = {"Node": "nodes is forbidden"}
    report = examine(patient.snapshot())
    assert {"topology-levels", "topology-overlap", "fits-but-waits"} <= report.skipped.keys()
    assert {*report.skipped.values()} == {"nodes is forbidden"}


def test_a_deleted_topology_stays_while_a_flavor_names_it(patient: Any) -> None:
    put_in_racks(patient)
    finalizers = ["kueue.x-k8s.io/resource-in-use"]
    deleted = {"deletionTimestamp": LONG_AGO, "finalizers": finalizers}
    patient.get("Topology")["metadata"].update(deleted)
    found = patient.only("finalizer-stuck")
    assert (found.severity, str(found.subject)) == (Severity.HINT, "Topology racks")
    assert found.problem.endswith("ago and stays while in use by ResourceFlavor f")
    assert "kubectl patch topology racks" in found.fix
    assert found.fix.endswith("if you meant to delete it, delete these ResourceFlavors too")
    patient.add("Topology", "unused", metadata=deleted, spec={"levels": [{"nodeLabel": HOST}]})
    both = {str(one.subject): one for _, one in patient.found()}
    assert both["Topology unused"].severity is Severity.ERROR
    assert "nothing uses it" in both["Topology unused"].problem


def test_a_topology_is_in_use_even_if_nodes_may_not_be_listed(patient: Any) -> None:
    put_in_racks(patient)
    seen = patient.snapshot()
    objects = {kind: each for kind, each in seen.lists.objects.items() if kind != "Node"}
    lists = Lists(objects, {"Node": Forbidden("nodes is forbidden")})
    blind = attrs.evolve(seen, lists=lists, cluster=cluster_of(lists, seen.cluster.world.settings))
    assert [*users_of(blind, "Topology", "racks")] == ["ResourceFlavor f"]


def test_a_workload_on_nodes_that_are_still_together_is_healthy(patient: Any) -> None:
    place(patient, "n", "m", required="rack")
    add_node(patient, "m", "r")
    assert patient.found() == []
    patient.get("Node", "m")["metadata"]["labels"]["rack"] = "other"
    found = patient.only("placement-stale")
    assert found.fix.startswith(
        "kubectl get nodes -L rack  # correct the labels, or let the manager"
    )
    patient.get("Workload", "runs")["spec"]["podSets"][0]["topologyRequest"] = {"preferred": "rack"}
    assert patient.found() == [], "a preference is no promise"


def test_the_pod_sets_of_a_group_are_judged_together(patient: Any) -> None:
    place(patient, "n", required="rack", podSetGroupName="g")
    add_node(patient, "m", "other")
    workload = patient.get("Workload", "runs")
    worker = copy.deepcopy(workload["spec"]["podSets"][0]) | {"name": "workers"}
    workload["spec"]["podSets"].append(worker)
    assignments = workload["status"]["admission"]["podSetAssignments"]
    other = copy.deepcopy(assignments[0]) | {"name": "workers", "resourceUsage": {"cpu": "0"}}
    other["topologyAssignment"]["slices"][0]["valuesPerLevel"] = [{"universal": "m"}]
    assignments.append(other)
    (found,) = (one for name, one in patient.found() if name == "placement-stale")
    assert found.problem.startswith("pod sets main, workers require one rack, but their nodes are")


@pytest.mark.parametrize("condition", ["Finished", "Evicted"])
def test_a_workload_that_ends_may_name_what_is_gone(patient: Any, condition: str) -> None:
    place(patient, "gone", required="rack")
    assert [name for name, _ in patient.found()] == ["placement-stale"]
    made = {"type": condition, "status": "True", "reason": "X", "message": ""}
    made["lastTransitionTime"] = LONG_AGO
    patient.get("Workload", "runs")["status"]["conditions"].append(made)
    assert "placement-stale" not in [name for name, _ in patient.found()]


def test_an_annotation_of_the_job_itself_is_one_finding_for_all_jobs(patient: Any) -> None:
    notes = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    for name in ("job", "other", "ended"):
        ended = [{"type": "Complete", "status": "True", "lastTransitionTime": LONG_AGO}]
        status = {"conditions": ended if name == "ended" else []}
        metadata = {"annotations": notes, "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
        patient.add("Job", name, "ns", metadata=metadata, spec={"suspend": False}, status=status)
    (one,) = (one for name, one in patient.found() if name == "topology-ignored")
    assert str(one.subject) == "Job ns/job"
    assert one.problem == (
        "metadata.annotations[kueue.x-k8s.io/podset-required-topology] has no effect: "
        "it belongs in the annotations of the pod template (also in 1 other Job)"
    )
    assert one.fix.startswith("kubectl -n ns get job job -o yaml  # ")
