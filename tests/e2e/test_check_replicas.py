"""Replicas of a check process: one decides; when all are gone the AdmissionCheck says so."""

from __future__ import annotations

from typing import Any

import pytest
from rest import JOBS, KUEUE, WORKLOADS, Rest, condition, eventually, job, queues

from kueuelib.testing.processes import LocalCluster

PROGRAM = """
import sys

from kueuelib.checks import Ready, check, run


@check("example.com/who")
def who(workload, parameters):
    return Ready(f"said by {sys.argv[2]}")


run(who, kubeconfig=sys.argv[1], lease_duration=3)
"""
CHECK = f"{KUEUE}/admissionchecks/who"


def active(rest: Rest) -> tuple[str, str]:
    found = condition(rest.get(CHECK), "Active")
    return found.get("status", ""), found.get("message", "")


def told(rest: Rest, name: str) -> str:
    """What the check says about a job, once it says something."""

    def said() -> str:
        for wl in rest.items(WORKLOADS):
            if wl["metadata"]["ownerReferences"][0]["name"] == name:
                entries: list[dict[str, Any]] = wl["status"]["admissionChecks"]
                return str(entries[0]["message"] if entries[0]["state"] == "Ready" else "")
        return ""

    return eventually(said)


@pytest.mark.slow
def test_one_replica_decides_and_the_silence_of_all_is_shown(
    cluster: LocalCluster, rest: Rest
) -> None:
    program = cluster.processes.folder / "who.py"
    program.write_text(PROGRAM)

    def start(name: str) -> None:
        kubeconfig = str(cluster.kubeconfig)
        cluster.processes.start_program(name, str(program), kubeconfig, name)

    def log(name: str) -> str:
        return (cluster.processes.folder / f"{name}.log").read_text()

    meta = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck"}
    spec = {"controllerName": "example.com/who"}
    rest.create(f"{KUEUE}/admissionchecks", {**meta, "metadata": {"name": "who"}, "spec": spec})
    queues(rest, 9)
    (queue,) = rest.items(f"{KUEUE}/clusterqueues")
    strategy = {"admissionChecks": [{"name": "who"}]}
    path = f"{KUEUE}/clusterqueues/{queue['metadata']['name']}"
    rest.merge(path, {"spec": {"admissionChecksStrategy": strategy}})

    start("one")
    eventually(lambda: active(rest)[0] == "True")
    start("two")
    eventually(lambda: "leader changed" in log("two"))
    rest.create(JOBS, job("first", seconds=600))
    assert told(rest, "first") == "said by one"

    cluster.processes.kill("one")
    rest.create(JOBS, job("second", seconds=600))
    assert told(rest, "second") == "said by two"

    assert cluster.processes.stop("two") == 0
    status, message = eventually(lambda: (found := active(rest))[0] == "False" and found)
    assert status == "False"
    assert message.startswith("no sign of life from example.com/who since ")
    admitted = [condition(wl, "Admitted").get("status") for wl in rest.items(WORKLOADS)]
    assert admitted == ["True", "True"]

    start("three")
    eventually(lambda: active(rest)[0] == "True")
    rest.create(JOBS, job("third", seconds=600))
    assert told(rest, "third") == "said by three"
