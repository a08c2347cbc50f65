"""Jobs and pods in racks: placed, started there, and taken over from the Go manager (KEP-2724)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from real_plane import lacking, ready_node, real_cluster
from rest import JOBS, KUEUE, PODS, WORKLOADS, Obj, Rest, condition, eventually, is_true, job
from warm import Processes

from kueuelib.testing.processes import LocalCluster

NAME = "kueue.x-k8s.io"
HOST, RACK, OS = "kubernetes.io/hostname", "kueuelib.dev/rack", "kubernetes.io/os"
FRAMEWORKS = ("batch/job", "pod")


@contextmanager
def racks_of_the_embedded_server(
    folder: Path, shape: str, frameworks: tuple[str, ...]
) -> Iterator[LocalCluster]:
    with Processes(folder) as processes:
        cluster = LocalCluster(processes, frameworks=frameworks)
        cluster.start_server("--racks", shape)
        yield cluster


@contextmanager
def racks_of_a_real_plane(
    folder: Path, shape: str, frameworks: tuple[str, ...]
) -> Iterator[LocalCluster]:
    with real_cluster(folder, frameworks=frameworks) as cluster:
        with Rest(cluster.kubeconfig) as rest:
            nodes_in_racks(rest, shape)
        yield cluster


def nodes_in_racks(rest: Rest, shape: str) -> None:
    """Those of `--racks` that are not there."""
    racks, nodes = map(int, shape.split("x"))
    there = {node["metadata"]["name"] for node in rest.items("/api/v1/nodes")}
    for rack in [f"rack-{number}" for number in range(racks)]:
        for name in [f"{rack}-node-{number}" for number in range(nodes)]:
            if name not in there:
                labels = {HOST: name, RACK: rack, OS: "linux"}
                ready_node(rest, name, labels, cpu="8", pods="110")


RACKS = (
    pytest.param(racks_of_the_embedded_server, id="embedded"),
    pytest.param(
        racks_of_a_real_plane,
        marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
        id="real",
    ),
)
"""Clusters with nodes in racks: a folder, `RACKSxNODES` and integrations are given."""


@pytest.fixture(params=RACKS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    with request.param(tmp_path, "2x2", FRAMEWORKS) as found:
        found.install()
        found.start_manager()
        found.wait_for_manager()
        yield found


@pytest.fixture
def rest(cluster: LocalCluster) -> Iterator[Rest]:
    with Rest(cluster.kubeconfig) as client:
        yield client


def typed(kind: str, name: str, spec: Obj) -> Obj:
    return {"apiVersion": f"{NAME}/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def topology(rest: Rest) -> None:
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    rest.create(f"{KUEUE}/topologies", typed("Topology", "racks", {"levels": levels}))


def queues(rest: Rest, cpu: str = "64", name: str = "team", **flavor: Any) -> None:
    """A queue for the nodes in racks, with a flavor of its name."""
    spec = {"nodeLabels": {OS: "linux"}, "topologyName": "racks", **flavor}
    rest.create(f"{KUEUE}/resourceflavors", typed("ResourceFlavor", name, spec))
    row = {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    group = {"coveredResources": ["cpu"], "flavors": [row]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    rest.create(f"{KUEUE}/clusterqueues", typed("ClusterQueue", name, spec))
    spec = {"clusterQueue": name}
    rest.create(f"{KUEUE}/namespaces/default/localqueues", typed("LocalQueue", name, spec))


def asking(made: Obj, **asked: str) -> Obj:
    """The Job with requests for places in its pod template, `_` for `-`."""
    meta = made["spec"]["template"].setdefault("metadata", {})
    notes = {f"{NAME}/podset-{key.replace('_', '-')}": value for key, value in asked.items()}
    meta["annotations"] = {**meta.get("annotations", {}), **notes}
    return made


def workload_of(rest: Rest, name: str) -> Obj:
    owned = [
        one
        for one in rest.items(WORKLOADS)
        for ref in one["metadata"].get("ownerReferences") or ()
        if ref["name"] == name
    ]
    assert len(owned) == 1
    return owned[0]


def admitted(rest: Rest, name: str) -> Obj:
    def found() -> Obj | None:
        workload = workload_of(rest, name)
        assert is_true(workload, "Admitted"), condition(workload, "QuotaReserved")
        return workload

    return eventually(found)


def hosts_of(workload: Obj) -> Counter[str]:
    """How many pods of a Workload belong on each node."""
    found: Counter[str] = Counter()
    for one in workload["status"]["admission"]["podSetAssignments"]:
        placed = one["topologyAssignment"]
        assert placed["levels"] == [HOST]
        for part in placed["slices"]:
            (values,) = part["valuesPerLevel"]
            counts = part["podCounts"]
            for at in range(part["domainCount"]):
                name = values.get("universal")
                if name is None:
                    each = values["individual"]
                    name = each.get("prefix", "") + each["roots"][at] + each.get("suffix", "")
                found[name] += counts.get("universal") or counts["individual"][at]
    return found


def running(rest: Rest, selector: str, pods: int) -> list[Obj]:
    """The pods once they all run."""

    def found() -> list[Obj]:
        there = rest.items(f"{PODS}?labelSelector={selector}")
        assert [one["status"].get("phase") for one in there] == ["Running"] * pods, there
        return there

    return eventually(found)


def rack_of(host: str) -> str:
    return host.rpartition("-node-")[0]


def report(rest: Rest, host: str, ready: str) -> None:
    """The kubelet of a node says that it is ready, or not; that taints it."""
    path = f"/api/v1/nodes/{host}"
    conditions = rest.get(path)["status"]["conditions"]
    for one in conditions:
        if one["type"] == "Ready":
            one["status"] = ready
    rest.merge(f"{path}/status", {"status": {"conditions": conditions}})
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    rest.merge(path, {"spec": {"taints": None if ready == "True" else [taint]}})


def test_who_asks_for_a_rack_without_effect_is_warned(rest: Rest) -> None:
    made = asking(job("misspelled", seconds=1), required_toplogy=RACK)
    rest.create(JOBS, made)
    (warning,) = rest.warnings
    assert "did you mean kueue.x-k8s.io/podset-required-topology?" in warning
    made = job("misplaced", seconds=1)
    made["metadata"]["annotations"] = {f"{NAME}/podset-required-topology": RACK}
    rest.create(JOBS, made)
    (warning,) = rest.warnings
    assert "has no effect: it belongs in the annotations of the pod template" in warning


def test_all_pods_of_a_job_run_in_one_rack(rest: Rest) -> None:
    topology(rest)
    queues(rest)
    made = asking(job("train", seconds=600, pods=4, cpu="3"), required_topology=RACK)
    rest.create(JOBS, made)
    assert rest.warnings == []
    placed = hosts_of(admitted(rest, "train"))
    assert placed.total() == 4
    assert len({rack_of(host) for host in placed}) == 1
    pods = running(rest, "job-name=train", 4)
    assert Counter(pod["spec"]["nodeName"] for pod in pods) == placed
    for pod in pods:
        assert pod["spec"]["nodeSelector"][HOST] == pod["spec"]["nodeName"]
        assert not pod["spec"].get("schedulingGates")
