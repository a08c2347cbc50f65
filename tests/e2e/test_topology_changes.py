"""What changes beside placed Workloads: flavors, labels of nodes, jobs, managers (KEP-2724)."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest
from place import pod_spec
from rest import JOBS, KUEUE, PODS, WORKLOADS, Rest, condition, eventually, is_true, job
from test_topology import (
    HOST,
    NAME,
    RACK,
    admitted,
    asking,
    cluster,
    hosts_of,
    queues,
    rack_of,
    report,
    rest,
    running,
    topology,
    typed,
    workload_of,
)

from kueuelib.testing.processes import LocalCluster

__all__ = ["cluster", "rest"]
NODES = "/api/v1/nodes"


def start(rest: Rest, name: str, pods: int, cpu: str = "8", **asked: str) -> None:
    rest.create(JOBS, asking(job(name, seconds=600, pods=pods, cpu=cpu), **asked))


def run(rest: Rest, name: str, pods: int) -> dict[str, str]:
    """The nodes of the pods of a Job, by their UIDs, once all run."""
    found = running(rest, f"job-name={name}", pods)
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in found}


def waits(rest: Rest, name: str, text: str = "") -> None:
    def told() -> bool:
        got = condition(workload_of(rest, name), "QuotaReserved")
        assert got.get("status") == "False", got
        return text in got["message"]

    eventually(told)


def test_a_flavor_of_running_jobs_gets_a_topology(rest: Rest, cluster: LocalCluster) -> None:
    """Their pods stay where they are, and others take only what they leave."""
    topology(rest)
    queues(rest, topologyName=None)
    start(rest, "before", 2)
    before = run(rest, "before", 2)
    flavor = f"{KUEUE}/resourceflavors/team"
    rest.merge(flavor, {"spec": {"topologyName": "racks"}})
    start(rest, "unasked", 1)
    start(rest, "asked", 1, required_topology=RACK)
    eventually(lambda: is_true(workload_of(rest, "unasked"), "Admitted"))
    nodes = [*before.values(), *run(rest, "unasked", 1).values(), *run(rest, "asked", 1).values()]
    assert len(set(nodes)) == 4
    for name in ("unasked", "asked"):
        assert hosts_of(admitted(rest, name)).total() == 1
    start(rest, "late", 2, unconstrained_topology="true")
    waits(rest, "late", "racks")
    (assigned,) = workload_of(rest, "before")["status"]["admission"]["podSetAssignments"]
    assert "topologyAssignment" not in assigned
    cluster.processes.kill("manager")
    cluster.start_manager()
    cluster.wait_for_manager()
    assert run(rest, "before", 2) == before
    rest.delete(f"{JOBS}/before")
    assert set(run(rest, "late", 2).values()) == set(before.values())


def test_labels_of_nodes_change_under_running_pods(rest: Rest) -> None:
    """The pods stay, and still take the room of their nodes in the racks where these are now."""
    topology(rest)
    queues(rest)
    start(rest, "first", 2, required_topology=RACK)
    first = run(rest, "first", 2)
    moved, left = sorted(first.values())
    other = "rack-1" if rack_of(moved) == "rack-0" else "rack-0"
    rest.merge(f"/api/v1/nodes/{moved}", {"metadata": {"labels": {RACK: other}}})
    rest.merge(f"/api/v1/nodes/{left}", {"metadata": {"labels": {RACK: None}}})
    start(rest, "second", 3, required_topology=RACK)
    waits(rest, "second", "allows to fit only 2 out of 3 pod(s)")
    start(rest, "third", 2, required_topology=RACK)
    assert {rack_of(node) for node in run(rest, "third", 2).values()} == {other}
    assert run(rest, "first", 2) == first
    rest.delete(f"{JOBS}/first")
    rest.delete(f"{JOBS}/third")
    assert moved in run(rest, "second", 3).values()


def test_pods_start_where_they_belong_after_a_crash(rest: Rest, cluster: LocalCluster) -> None:
    """The manager is killed when it has started the Job, before its pods lost their gates."""
    topology(rest)
    queues(rest)
    start(rest, "train", 40, "500m", preferred_topology=RACK)
    eventually(lambda: not rest.get(f"{JOBS}/train")["spec"]["suspend"], pause=0.0)
    cluster.processes.kill("manager")
    eventually(lambda: len(rest.items(f"{PODS}?labelSelector=job-name=train")) == 40)
    placed = hosts_of(admitted(rest, "train"))
    assert placed.total() == 40
    cluster.start_manager()
    cluster.wait_for_manager()
    assert Counter(run(rest, "train", 40).values()) == placed
    assert hosts_of(workload_of(rest, "train")) == placed


def test_slices_that_do_not_divide_the_pods_are_refused(rest: Rest) -> None:
    topology(rest)
    queues(rest)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        start(rest, "train", 4, slice_required_topology=RACK, slice_size="3")
    text = caught.value.response.text
    assert "podset-slice-size" in text
    assert "must evenly divide the pod set count 4" in text
    start(rest, "train", 4, slice_required_topology=RACK, slice_size="2")
    placed = Counter(map(rack_of, hosts_of(admitted(rest, "train")).elements()))
    assert set(placed.values()) <= {2, 4}


def test_a_user_asks_for_less(rest: Rest) -> None:
    """A waiting Job that asks otherwise is placed so."""
    topology(rest)
    queues(rest)
    start(rest, "train", 4, required_topology=RACK)
    waits(rest, "train", "allows to fit only 2 out of 4 pod(s)")
    notes = {f"{NAME}/podset-required-topology": None, f"{NAME}/podset-preferred-topology": RACK}
    template = {"metadata": {"annotations": notes}}
    rest.merge(f"{JOBS}/train", {"spec": {"template": template}})
    assert len(set(run(rest, "train", 4).values())) == 4
    (pod_set,) = workload_of(rest, "train")["spec"]["podSets"]
    assert pod_set["topologyRequest"]["preferred"] == RACK
    assert "required" not in pod_set["topologyRequest"]


def test_pods_that_a_user_touches(rest: Rest) -> None:
    """A pod that a user deletes is made again where it was; a place written by hand is refused."""
    topology(rest)
    queues(rest)
    made = asking(job("train", seconds=600, pods=4, cpu="3"), required_topology=RACK)
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 10}
    rest.create(JOBS, made)
    placed = hosts_of(admitted(rest, "train"))
    before = run(rest, "train", 4)
    pods = rest.items(f"{PODS}?labelSelector=job-name=train")
    lost = pods[0]["metadata"]
    rest.delete(f"{PODS}/{lost['name']}", gracePeriodSeconds="0")
    eventually(
        lambda: (
            lost["uid"]
            not in [
                p["metadata"]["uid"] for p in rest.items(f"{PODS}?labelSelector=job-name=train")
            ]
        )
    )
    alive = "job-name=train&fieldSelector=status.phase!=Failed"
    after = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in running(rest, alive, 4)}
    assert Counter(after.values()) == placed
    assert before.items() - {(lost["uid"], before[lost["uid"]])} <= after.items()


def test_a_topology_in_use_stays(rest: Rest) -> None:
    """It goes with its last flavor; until then, its queue works."""
    topology(rest)
    queues(rest)
    rest.delete(f"{KUEUE}/topologies/racks")
    start(rest, "train", 2, required_topology=RACK)
    assert len(run(rest, "train", 2)) == 2
    found = rest.get(f"{KUEUE}/topologies/racks")
    assert "deletionTimestamp" in found["metadata"]
    for path in ("namespaces/default/localqueues/team", "clusterqueues/team"):
        rest.delete(f"{KUEUE}/{path}")
    rest.delete(f"{JOBS}/train")
    rest.delete(f"{KUEUE}/resourceflavors/team")
    eventually(lambda: not rest.items(f"{KUEUE}/topologies"))


def test_a_queue_without_its_topology_says_so(rest: Rest) -> None:
    queues(rest)

    def told() -> bool:
        got = condition(rest.get(f"{KUEUE}/clusterqueues/team"), "Active")
        assert got["reason"] == "TopologyNotFound", got
        return '"racks"' in got["message"]

    eventually(told)
    start(rest, "train", 2, required_topology=RACK)
    topology(rest)
    assert len({rack_of(node) for node in run(rest, "train", 2).values()}) == 1


def on_node(rest: Rest, node: str, name: str, cpu: str) -> None:
    """A static pod as its kubelet shows it: nobody's Workload, on its node from the start."""
    uid = rest.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    notes = {"kubernetes.io/config.mirror": "0", "kubernetes.io/config.source": "file"}
    meta = {"name": name, "annotations": notes, "ownerReferences": [owner]}
    spec = {**pod_spec(cpu), "nodeName": node}
    rest.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def test_pods_of_others_take_room(rest: Rest) -> None:
    """They are not in the queue; what they take of a node is free when they end."""
    topology(rest)
    queues(rest)
    for rack in range(2):
        on_node(rest, f"rack-{rack}-node-0", f"agent-{rack}", "5")
    eventually(lambda: len(running(rest, "", 2)) == 2)
    start(rest, "train", 2, "4", required_topology=RACK)
    assert set(run(rest, "train", 2).values()) <= {"rack-0-node-1", "rack-1-node-1"}
    start(rest, "late", 3, "4", required_topology=RACK)
    waits(rest, "late", "allows to fit only 2 out of 3 pod(s)")
    rest.delete(f"{PODS}/agent-0", gracePeriodSeconds="0")
    rest.delete(f"{PODS}/agent-1", gracePeriodSeconds="0")
    assert len({rack_of(node) for node in run(rest, "late", 3).values()}) == 1


def test_two_flavors_share_their_nodes(rest: Rest) -> None:
    """What one takes of a node is not free in the other, and its end helps both."""
    topology(rest)
    queues(rest)
    levels = {"levels": [{"nodeLabel": HOST}]}
    rest.create(f"{KUEUE}/topologies", typed("Topology", "flat", levels))
    queues(rest, name="flat", topologyName="flat")
    start(rest, "first", 2, required_topology=RACK)
    first = run(rest, "first", 2)
    asked = asking(job("second", seconds=600, pods=3, cpu="8"), unconstrained_topology="true")
    asked["metadata"]["labels"][f"{NAME}/queue-name"] = "flat"
    rest.create(JOBS, asked)
    waits(rest, "second", "allows to fit only 2 out of 3 pod(s)")
    start(rest, "third", 1, required_topology=HOST)
    third = run(rest, "third", 1)
    assert not {*first.values()} & {*third.values()}
    rest.delete(f"{JOBS}/first")
    assert {*first.values()} < {*run(rest, "second", 3).values()}
    assert run(rest, "third", 1) == third


def test_a_node_that_is_not_ready_for_a_while_keeps_its_pods(rest: Rest) -> None:
    """They run on, and nothing else is placed there until it is ready again."""
    topology(rest)
    queues(rest)
    start(rest, "first", 1, "4", required_topology=HOST)
    first = run(rest, "first", 1)
    (node,) = first.values()
    report(rest, node, "Unknown")
    start(rest, "second", 7, "4", unconstrained_topology="true")
    waits(rest, "second", "allows to fit only 6 out of 7 pod(s)")
    assert "unhealthyNodes" not in workload_of(rest, "first")["status"]
    report(rest, node, "True")
    assert Counter(run(rest, "second", 7).values())[node] == 1
    assert run(rest, "first", 1) == first


def test_a_node_that_registers_under_another_name_keeps_its_place(rest: Rest) -> None:
    """Its label of hosts decides; the pods that ended with the old node start on the new one."""
    topology(rest)
    queues(rest)
    made = asking(job("train", seconds=600, pods=2, cpu="8"), required_topology=RACK)
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 10}
    rest.create(JOBS, made)
    before = run(rest, "train", 2)
    old = min(before.values())
    found = rest.get(f"{NODES}/{old}")
    meta = {"name": "again", "labels": found["metadata"]["labels"]}
    rest.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
    rest.merge(f"{NODES}/again/status", {"status": found["status"]})
    rest.merge(f"{NODES}/again", {"spec": {"taints": None}})
    rest.delete(f"{NODES}/{old}")
    for pod in rest.items(f"{PODS}?labelSelector=job-name=train"):
        if pod["spec"]["nodeName"] == old:
            rest.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")

    def moved() -> bool:
        alive = "job-name=train&fieldSelector=status.phase!=Failed"
        nodes = {pod["spec"]["nodeName"] for pod in running(rest, alive, 2)}
        return nodes == {"again", *before.values()} - {old}

    eventually(moved)
    assert set(hosts_of(workload_of(rest, "train"))) == set(before.values())


def test_pods_of_a_group_are_replaced_while_they_start(rest: Rest) -> None:
    """Whether a pod that a user deletes has started or not, the next one gets its place."""
    topology(rest)
    queues(rest)

    def create(name: str) -> None:
        labels = {f"{NAME}/queue-name": "team", f"{NAME}/pod-group-name": "g"}
        notes = {f"{NAME}/pod-group-total-count": "4", f"{NAME}/podset-required-topology": RACK}
        meta = {"name": name, "labels": labels, "annotations": notes}
        rest.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    spec = pod_spec("4")
    for index in range(4):
        create(f"g-{index}")
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/g"), "Admitted"), pause=0.0)
    for lost, new in (("g-0", "g-4"), ("g-3", "g-5")):
        rest.delete(f"{PODS}/{lost}", gracePeriodSeconds="0")
        create(new)

    def replaced() -> bool:
        pods = [pod for pod in rest.items(PODS) if pod["status"].get("phase") == "Running"]
        assert sorted(pod["metadata"]["name"] for pod in pods) == ["g-1", "g-2", "g-4", "g-5"]
        placed = hosts_of(rest.get(f"{WORKLOADS}/g"))
        return Counter(pod["spec"]["nodeName"] for pod in pods) == placed

    eventually(replaced)
