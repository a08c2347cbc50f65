"""Nodes in no domain of a topology, and flavors that share nodes."""

from __future__ import annotations

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


CASES = [
    (ask_for_more_than_a_node_has, "never-fits", Severity.WARNING, "Workload ns/waits",
     "its pods do not fit on the nodes that are there"),
    (leave_a_node_out_of_all_racks, "topology-levels", Severity.WARNING, "Topology racks",
     "no pods are placed on 1 node (out) of flavor f: no label kubernetes.io/hostname"),
    (share_nodes_between_topologies, "topology-overlap", Severity.WARNING,
     "ResourceFlavor coarse", "it shares 1 node (n) with flavor f"),
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
    words = "no node of flavor f (n) has the label rack, so its pods cannot be placed"
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
