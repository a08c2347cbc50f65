"""`kueuelib install` with the manager's pods, and `kueuelib uninstall`."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_plane import lacking, real_plane
from rest import JOBS, KUEUE, PODS, WORKLOADS, Obj, Rest, eventually
from warm import Processes, kueuelib

from kueuelib.api.crd import all_crds
from kueuelib.api.meta import format_time
from kueuelib.testing.processes import LocalCluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
SYSTEM = "/apis/apps/v1/namespaces/kueue-system/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases"
MAPS = "/api/v1/namespaces/kueue-system/configmaps"
QUEUE = "kueue.x-k8s.io/queue-name"


def uninstall(cluster: LocalCluster, *args: str) -> subprocess.CompletedProcess[str]:
    return kueuelib("uninstall", "--kubeconfig", cluster.kubeconfig, *args)


def fill(rest: Rest) -> None:
    """Quota for one CPU."""
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
    }
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    for path, kind, name, spec in (
        (f"{KUEUE}/resourceflavors", "ResourceFlavor", "f", {}),
        (
            f"{KUEUE}/clusterqueues",
            "ClusterQueue",
            "cq",
            {"namespaceSelector": {}, "resourceGroups": [group]},
        ),
        (f"{KUEUE}/namespaces/default/localqueues", "LocalQueue", "main", {"clusterQueue": "cq"}),
    ):
        rest.create(path, {**head, "kind": kind, "metadata": {"name": name}, "spec": spec})


def container(cpu: int) -> Obj:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


def job(name: str) -> Obj:
    pod = {"restartPolicy": "Never", "containers": [container(1)]}
    annotations = {"kueuelib.dev/run-seconds": "600"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE: "main"}},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": pod}},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes, frameworks=("batch/job", "pod"))
        found.start()
        yield found


def test_nothing_goes_while_quota_is_held_unless_forced(cluster: LocalCluster) -> None:
    with Rest(cluster.kubeconfig) as rest:
        fill(rest)
        rest.create(JOBS, job("runs"))
        (holder,) = eventually(
            lambda: [
                one for one in rest.items(WORKLOADS) if (one.get("status") or {}).get("admission")
            ]
        )
        rest.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "gated", "labels": {QUEUE: "main"}},
                "spec": {"containers": [container(1)]},
            },
        )
        eventually(lambda: rest.get(f"{PODS}/gated")["metadata"].get("finalizers"))
        lease: Obj = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io"},
            "spec": {"holderIdentity": "desk_1", "leaseDurationSeconds": 600},
        }
        lease["spec"]["renewTime"] = f"{format_time(time.time())[:-1]}.000000Z"
        rest.merge(f"{LEASES}/c1f6bfd2.kueue.x-k8s.io", lease)  # the manager's notes are on it
        for forced in ((), ("--force",)):
            leads = uninstall(cluster, *forced, "--server-timeout", "2")
            assert leads.returncode == 2
            assert "manager desk_1 leads, and would stop the jobs" in leads.stderr
            assert "stop its process on desk, and try again" in leads.stderr
        assert rest.items(HOOKS)
        rest.merge(f"{LEASES}/c1f6bfd2.kueue.x-k8s.io", {"spec": {"holderIdentity": ""}})
        answers = uninstall(cluster, "--force")  # the manager runs without leader election
        assert answers.returncode == 2
        address = f"https://127.0.0.1:{cluster.webhook_port}"
        assert f"the webhooks at {address}: a manager without leader" in answers.stderr
        assert "stop its process, and try again" in answers.stderr
        assert rest.items(HOOKS)
        assert not rest.get(f"{JOBS}/runs")["spec"]["suspend"]
        cluster.processes.stop("manager")

        with pytest.raises(httpx.HTTPStatusError, match="vclusterqueue"):
            rest.merge(f"{KUEUE}/clusterqueues/cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        refused = uninstall(cluster)
        assert refused.returncode == 2
        assert f"default/{holder['metadata']['name']}: these Workloads hold quota" in refused.stderr
        assert "if a manager runs, stop the ClusterQueues" in refused.stderr
        assert "if none runs, webhooks refuse that: start one, or give --force" in refused.stderr
        assert len(rest.items(CRDS)) == len(all_crds())
        assert rest.items(HOOKS)

        elsewhere = uninstall(cluster, "--namespace", "typo")
        assert elsewhere.returncode == 2
        assert "its roles are those of 'kueue-system'; give --namespace" in elsewhere.stderr
        assert rest.items(HOOKS)

        kept = uninstall(cluster, "--force", "--keep-crds")
        assert kept.returncode == 0, kept.stderr
        assert "1 Pod released" in kept.stdout
        assert rest.items(HOOKS) == []
        assert rest.items(f"{KUEUE}/clusterqueues")

        done = uninstall(cluster, "--force")
        assert done.returncode == 0, done.stderr
        assert rest.items(CRDS) == []
        assert "1 ClusterQueue deleted" in done.stdout
        assert "Workloads deleted" in done.stdout
        assert "lease/c1f6bfd2.kueue.x-k8s.io deleted" in kept.stdout
        assert not rest.get(f"{JOBS}/runs")["spec"]["suspend"]
        assert rest.items("/api/v1/namespaces/kueue-system/secrets") == []
        rest.delete(f"{PODS}/gated?gracePeriodSeconds=0")
        eventually(lambda: "gated" not in [one["metadata"]["name"] for one in rest.items(PODS)])

        again = uninstall(cluster)
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines() == ["0 Pods released", "namespace/kueue-system kept"]


def test_the_managers_pods_are_installed_and_removed(cluster: LocalCluster) -> None:
    """Kinds that a cluster does not serve are left out, unless they were asked for."""
    cluster.processes.stop("manager")
    with Rest(cluster.kubeconfig) as rest:
        wanted = kueuelib("install", "--kubeconfig", cluster.kubeconfig, "--service-monitor")
        assert wanted.returncode == 2
        assert "does not serve monitoring.coreos.com/v1" in wanted.stderr
        assert rest.items(SYSTEM) == []
        args = ("--image", "k:1", "--dashboards")
        done = kueuelib("install", "--kubeconfig", cluster.kubeconfig, *args)
        assert done.returncode == 0, done.stderr
        assert "kueuelib.json" in rest.get(f"{MAPS}/kueue-dashboards")["data"]
        elsewhere = uninstall(cluster, "--namespace", "default")
        assert elsewhere.returncode == 2
        assert "is not where kueuelib is installed" in elsewhere.stderr
        assert "give --namespace kueue-system" in elsewhere.stderr
        assert "poddisruptionbudget/kueue-controller-manager left out" in done.stdout
        (deployment,) = rest.items(SYSTEM)
        (one,) = deployment["spec"]["template"]["spec"]["containers"]
        assert one["image"] == "k:1"
        again = kueuelib("install", "--kubeconfig", cluster.kubeconfig, *args)
        assert "created" not in again.stdout
        assert "configured" not in again.stdout
        removed = uninstall(cluster)
        assert removed.returncode == 0, removed.stderr
        assert "deployment/kueue-controller-manager deleted" in removed.stdout
        assert "kueue" not in " ".join(one["metadata"]["name"] for one in rest.items(MAPS))
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            rest.get(f"{SYSTEM}/kueue-controller-manager")


def test_a_manager_whose_kinds_are_gone_is_not_ready(cluster: LocalCluster) -> None:
    url = f"http://127.0.0.1:{cluster.health_port}/readyz"
    assert httpx.get(url).status_code == 200
    with Rest(cluster.kubeconfig) as rest:
        rest.delete(f"{CRDS}/localqueues.kueue.x-k8s.io")
        eventually(lambda: httpx.get(url).status_code == 500)
        assert "not served: localqueues.kueue.x-k8s.io" in httpx.get(f"{url}/kinds").text
        cluster.install()
        eventually(lambda: httpx.get(url).status_code == 200)


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_nothing_comes_back_on_a_real_control_plane(tmp_path: Path) -> None:
    """A controller there writes roles that collect others again when one of those is deleted."""
    with real_plane(tmp_path) as plane, Rest(plane.kubeconfig) as rest:
        for _ in range(3):
            for command in ("install", "uninstall"):
                done = kueuelib(command, "--kubeconfig", plane.kubeconfig)
                assert done.returncode == 0, done.stderr
            time.sleep(3)
            for path in (ROLES, ROLES.replace("roles", "rolebindings"), CRDS):
                names = [one["metadata"]["name"] for one in rest.items(path)]
                assert [name for name in names if "kueue" in name] == []
