"""A tree of Cohorts by kubectl, with a manager that shares fairly."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rest import eventually
from warm import Processes

from kueuelib.testing.processes import LocalCluster

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH"),
]

Kubectl = Callable[..., str]
SETTINGS = "fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}"
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 0}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: vision, namespace: default}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: research}
spec:
  parentName: company
  fairSharing: {weight: "0.5"}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 0, borrowingLimit: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: company}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, labels: {kueue.x-k8s.io/queue-name: vision}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, resources: {requests: {cpu: 1}}}]
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """Runs kubectl against a cluster with a manager; fails on another exit code."""
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes, settings=SETTINGS)
        cluster.start()
        env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}

        def run(*args: str, stdin: str = "", code: int = 0) -> str:
            done = subprocess.run(
                ["kubectl", *args],
                env=env,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=180,
                check=False,
            )
            assert done.returncode == code, f"kubectl {' '.join(args)}: {done.stdout}"
            return done.stdout

        yield run


def read(kubectl: Kubectl, *args: str) -> Any:
    return json.loads(kubectl("get", *args, "-o", "json"))


def condition(kubectl: Kubectl, *args: str, type: str) -> dict[str, Any]:
    found = read(kubectl, *args).get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == type), {})


def test_a_tree_is_applied_used_broken_and_repaired(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=QUEUES)
    assert "research" in kubectl("get", "cohorts")
    kubectl("apply", "-f", "-", stdin=JOB.replace("NAME", "first"))
    eventually(lambda: read(kubectl, "job/first")["spec"]["suspend"] is False)

    def shares() -> list[int]:
        found = [read(kubectl, one) for one in ("cohort/company", "cohort/research", "cq/vision")]
        return [one["status"]["fairSharing"]["weightedShare"] for one in found]

    eventually(lambda: shares() == [0, 500, 1000])  # of 4 CPUs, and of the 1 that may come in

    # the schema knows which fields belong together
    orphan = '{"spec": {"parentName": null}}'
    refused = kubectl("patch", "co/research", "--type=merge", "-p", orphan, code=1)
    assert "need a parent: set parentName, or remove the limits" in refused

    # a limit of the Cohort holds a second Job up
    kubectl("apply", "-f", "-", stdin=JOB.replace("NAME", "second"))
    (name,) = eventually(
        lambda: [
            one["metadata"]["name"]
            for one in read(kubectl, "workloads")["items"]
            if one["metadata"]["ownerReferences"][0]["name"] == "second"
        ]
    )

    def waits(text: str) -> bool:
        found = condition(kubectl, f"workload/{name}", type="QuotaReserved")
        return found.get("status") == "False" and text in found["message"]

    eventually(lambda: waits("maximum capacity") or waits("insufficient"))

    # a cycle is accepted, reported by events and conditions, and repaired by one change
    cycle = '{"spec": {"parentName": "research"}}'
    kubectl("patch", "co/company", "--type=merge", "-p", cycle)
    eventually(
        lambda: condition(kubectl, "cq/vision", type="Active").get("reason") == "CohortCycle"
    )
    eventually(lambda: "company -> research -> company" in kubectl("describe", "co/company"))
    assert read(kubectl, "job/first")["spec"]["suspend"] is False
    kubectl("patch", "co/company", "--type=merge", "-p", '{"spec": {"parentName": null}}')
    eventually(lambda: condition(kubectl, "cq/vision", type="Active").get("status") == "True")
    limit = '[{"op": "remove", "path": "PATH"}]'.replace(
        "PATH", "/spec/resourceGroups/0/flavors/0/resources/0/borrowingLimit"
    )
    kubectl("patch", "co/research", "--type=json", "-p", limit)
    eventually(lambda: read(kubectl, "job/second")["spec"]["suspend"] is False)
    eventually(lambda: shares() == [0, 1000, 500])
