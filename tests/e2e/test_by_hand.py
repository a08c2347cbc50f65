"""The README's sample with a real kubectl: two terminals, a flavor, two queues, three Jobs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rest import eventually, is_true

from kueuelib.testing.processes import LocalCluster

SAMPLE = Path(__file__).parents[2] / "examples/first_queue"

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH"),
]


class Kubectl:
    """kubectl with the cluster's kubeconfig and no cache of an earlier run."""

    def __init__(self, kubeconfig: Path) -> None:
        self._env = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(kubeconfig.parent),
            "KUBECACHEDIR": str(kubeconfig.parent / "cache"),
        }

    def __call__(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            ["kubectl", *args],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "-o", "json"))


@pytest.fixture
def kubectl(cluster: LocalCluster) -> Kubectl:
    return Kubectl(cluster.kubeconfig)


def running(kubectl: Kubectl) -> set[str]:
    jobs = kubectl.json("get", "jobs")["items"]
    return {job["metadata"]["name"] for job in jobs if not job["spec"].get("suspend")}


def test_two_of_three_jobs_wait_and_follow(kubectl: Kubectl, tmp_path: Path) -> None:
    applied = kubectl("apply", "-f", str(SAMPLE / "queues.yaml"))
    assert "clusterqueue.kueue.x-k8s.io/team created" in applied
    kubectl("wait", "--for=condition=Active", "clusterqueue/team", "--timeout=180s")
    assert "unchanged" in kubectl("apply", "-f", str(SAMPLE / "queues.yaml"))
    # The first one runs until the test ends it, so that the others surely wait when we look.
    end = 'annotations:\n        kueuelib.dev/run-seconds: "3"'
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text((SAMPLE / "jobs.yaml").read_text().replace(end, "annotations: {}", 1))
    kubectl("apply", "-f", str(jobs))

    kubectl("wait", "--for=jsonpath={.spec.suspend}=false", "job/first", "--timeout=180s")

    def two_wait() -> bool:
        workloads = kubectl.json("get", "workloads")["items"]
        assert len(workloads) == 3
        waiting = [wl for wl in workloads if not is_true(wl, "QuotaReserved")]
        assert len(waiting) == 2
        assert "insufficient unused quota" in json.dumps([wl["status"] for wl in waiting])
        return True

    eventually(two_wait)
    assert running(kubectl) == {"first"}
    table = kubectl("get", "clusterqueues")
    assert "PENDING WORKLOADS" in table
    told = kubectl("describe", "job", "second")
    assert "CreatedWorkload" in told
    listed = kubectl("get", "wl", "-o", "wide")
    assert "RESERVED IN" in listed or "ADMITTED BY" in listed

    pods = "batch.kubernetes.io/job-name=first"
    eventually(lambda: len(kubectl.json("get", "pods", "-l", pods)["items"]) == 2)
    kubectl("annotate", "pods", "-l", pods, "kueuelib.dev/run-seconds=0.1")
    for name in ("first", "second", "third"):
        kubectl("wait", "--for=condition=Complete", f"job/{name}", "--timeout=180s")
    runs = sorted(
        (job["status"]["startTime"], job["status"]["completionTime"], job["metadata"]["name"])
        for job in kubectl.json("get", "jobs")["items"]
    )
    assert runs[0][2] == "first"
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(runs))

    selector = kubectl("get", "job", "third", "-o", "jsonpath={.spec.template.spec.nodeSelector}")
    assert json.loads(selector) == {"kueuelib.dev/pool": "on-demand"}
    told = kubectl("describe", "job", "third")
    assert "Admitted by clusterQueue team" in told
    kubectl("delete", "-f", str(SAMPLE / "jobs.yaml"))
    eventually(lambda: kubectl.json("get", "workloads")["items"] == [])
    kubectl("delete", "-f", str(SAMPLE / "queues.yaml"))
    assert "No resources found" in kubectl("get", "clusterqueues,resourceflavors")


def test_an_invalid_queue_is_denied_with_the_field(kubectl: Kubectl, tmp_path: Path) -> None:
    text = (SAMPLE / "queues.yaml").read_text().replace("nominalQuota: 2", "nominalQuota: -2")
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    told = kubectl("apply", "-f", str(path), check=False)
    assert "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota" in told
