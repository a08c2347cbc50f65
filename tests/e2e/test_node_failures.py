"""A node of a running Job fails: its pods move, and no others (KEP-2724)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from rest import JOBS, PODS, Obj, Rest, condition, eventually, is_true, job
from test_topology import (
    HOST,
    RACK,
    admitted,
    asking,
    cluster,
    hosts_of,
    queues,
    rest,
    running,
    topology,
    workload_of,
)

__all__ = ["cluster", "rest"]
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"


def lasting(pods: int, **asked: str) -> Obj:
    """A Job of pods of 3 CPUs that may lose some of them."""
    made = asking(job("train", seconds=900, pods=pods, cpu="3"), **asked)
    made["spec"]["backoffLimit"] = 6
    return made


def start(rest: Rest, pods: int, **asked: str) -> list[Obj]:
    """The pods of such a Job, once they run."""
    topology(rest)
    queues(rest)
    rest.create(JOBS, lasting(pods, **asked))
    admitted(rest, "train")
    return running(rest, "job-name=train", pods)


def living(rest: Rest) -> list[Obj]:
    there = rest.items(f"{PODS}?labelSelector=job-name=train")
    return [
        pod
        for pod in there
        if pod["status"].get("phase") not in ("Failed", "Succeeded")
        and not pod["metadata"].get("deletionTimestamp")
    ]


def moved(rest: Rest, before: list[Obj], failed: str) -> Counter[str]:
    """Where all pods run once those of a node have others instead; the rest is as before."""
    stayed = {pod["metadata"]["uid"] for pod in before if pod["spec"]["nodeName"] != failed}

    def found() -> Counter[str]:
        workload = workload_of(rest, "train")
        places = hosts_of(workload)
        assert failed not in places, workload["status"]
        pods = living(rest)
        assert len(pods) == len(before), rest.get(f"{JOBS}/train")["status"]
        assert stayed <= {pod["metadata"]["uid"] for pod in pods}
        assert all(pod["status"].get("phase") == "Running" for pod in pods)
        assert Counter(pod["spec"]["nodeName"] for pod in pods) == places
        assert not workload["status"].get("unhealthyNodes")
        assert is_true(workload, "Admitted")
        return places

    return eventually(found)


def remove_pods(rest: Rest, pods: list[Obj], node: str) -> None:
    """What the taint manager does with pods of a node, and the kubelet or the pod collector."""
    for pod in pods:
        if pod["spec"]["nodeName"] == node:
            rest.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds="0")


def taint(rest: Rest, node: str, *taints: Obj) -> None:
    rest.merge(f"{NODES}/{node}", {"spec": {"taints": [*taints] or None}})


def not_ready(rest: Rest, node: str) -> None:
    known = rest.get(f"{NODES}/{node}")["status"]["conditions"]
    changed = [{**one, "status": "Unknown"} for one in known if one["type"] == "Ready"]
    others = [one for one in known if one["type"] != "Ready"]
    rest.merge(f"{NODES}/{node}/status", {"status": {"conditions": [*others, *changed]}})


def first_host(pods: list[Obj]) -> str:
    return min(pod["spec"]["nodeName"] for pod in pods)


def test_pods_of_a_node_that_is_gone_move(rest: Rest) -> None:
    pods = start(rest, 3, preferred_topology=RACK)
    failed = first_host(pods)
    rest.delete(f"{NODES}/{failed}")
    remove_pods(rest, pods, failed)
    places = moved(rest, pods, failed)
    assert places.total() == 3

    def said() -> str:
        events = [one for one in rest.items(EVENTS) if one["reason"] == "NodeReplaced"]
        kinds = sorted(one["involvedObject"]["kind"] for one in events)
        assert kinds == ["Job", "Workload"]
        assert len({one["message"] for one in events}) == 1
        return str(events[0]["message"])

    message = eventually(said)
    assert message.startswith(f"Node {failed} failed: ")
    assert f"from node {failed} to node" in message
    assert any(host in message for host in places)


def test_pods_of_a_node_that_is_not_ready_move_once_they_leave(rest: Rest) -> None:
    pods = start(rest, 3, preferred_topology=RACK)
    failed = first_host(pods)
    not_ready(rest, failed)
    remove_pods(rest, pods, failed)
    moved(rest, pods, failed)


def test_pods_of_a_tainted_node_move_once_they_leave(rest: Rest) -> None:
    pods = start(rest, 3, preferred_topology=RACK)
    failed = first_host(pods)
    taint(rest, failed, {"key": "repair", "value": "yes", "effect": "NoSchedule"})
    remove_pods(rest, pods, failed)
    moved(rest, pods, failed)


def test_a_job_is_evicted_if_no_node_can_replace_its_own(rest: Rest) -> None:
    pods = start(rest, 8, unconstrained_topology="true")
    failed = first_host(pods)
    rest.delete(f"{NODES}/{failed}")
    remove_pods(rest, pods, failed)

    def evicted() -> Any:
        events = [one for one in rest.items(EVENTS) if one["reason"] == "EvictedDueToNodeFailures"]
        assert events
        text = "Workload was evicted as there was no replacement for unhealthy node(s): "
        assert events[0]["message"].startswith(f"{text}{failed}")
        workload = workload_of(rest, "train")
        assert condition(workload, "QuotaReserved")["status"] == "False"
        assert "unhealthyNodes" not in workload["status"]
        return workload

    requeued = condition(eventually(evicted), "Requeued")
    assert (requeued["status"], requeued["reason"]) == ("True", "NodeFailures")


def test_a_job_that_loses_two_nodes_is_evicted_and_starts_on_others(rest: Rest) -> None:
    pods = start(rest, 4, required_topology=RACK)
    hosts = sorted({pod["spec"]["nodeName"] for pod in pods})
    assert len(hosts) == 2
    for host in hosts:
        rest.delete(f"{NODES}/{host}")
    remove_pods(rest, pods, hosts[0])
    remove_pods(rest, pods, hosts[1])

    def elsewhere() -> bool:
        workload = workload_of(rest, "train")
        assert is_true(workload, "Admitted"), workload["status"]
        assert not {*hosts} & hosts_of(workload).keys()
        return len([pod for pod in living(rest) if pod["status"].get("phase") == "Running"]) == 4

    assert eventually(elsewhere)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_pods_that_tolerate_a_taint_stay(rest: Rest, effect: str) -> None:
    topology(rest)
    queues(rest)
    made = lasting(2, required_topology=HOST)
    tolerations = [{"key": "repair", "operator": "Exists"}]
    made["spec"]["template"]["spec"]["tolerations"] = tolerations
    rest.create(JOBS, made)
    workload = admitted(rest, "train")
    (host,) = hosts_of(workload)
    pods = running(rest, "job-name=train", 2)
    taint(rest, host, {"key": "repair", "value": "yes", "effect": effect})
    remove_pods(rest, pods[:1], host)

    def again() -> bool:
        there = living(rest)
        assert [pod["status"].get("phase") for pod in there] == ["Running"] * 2
        assert pods[0]["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in there}
        return {pod["spec"]["nodeName"] for pod in there} == {host}

    assert eventually(again)
    assert "unhealthyNodes" not in workload_of(rest, "train")["status"]
