"""JobSets in racks beside their own controller, on a real control plane (KEP-2724).

`$KUBEBUILDER_ASSETS` also has that controller, and what `kubectl kustomize config/default` prints
in its repository.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import go_manager
import pytest
import yaml
from place import Place, gates, phase, pod_spec, uid_of
from real_plane import lacking
from rest import Obj, Rest, condition, eventually, is_true
from test_topology import (
    HOST,
    NAME,
    OS,
    RACK,
    hosts_of,
    rack_of,
    racks_of_a_real_plane,
    topology,
)

from kueuelib.testing.processes import free_port

PROGRAM, MANIFESTS = "jobset-manager", "jobset-manifests.yaml"
MISSING = lacking(PROGRAM, MANIFESTS)
JOB_SET = "jobset.sigs.k8s.io"
API = "jobset.x-k8s.io/v1alpha2"
COMPLETION = "batch.kubernetes.io/job-completion-index"
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset")
ASKED = {f"{NAME}/podset-required-topology": RACK}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A cluster with two racks of three nodes with 8 CPUs each, and both managers."""
    found, port, probes = go_manager.certificates(), free_port(), free_port()
    with (
        racks_of_a_real_plane(tmp_path, "2x3", FRAMEWORKS) as cluster,
        Rest(cluster.kubeconfig) as client,
    ):
        go_manager.install(client, go_manager.manifests(port, found, MANIFESTS))
        certificates = tmp_path / "certificates"
        go_manager.mount(found, certificates)
        content = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        }
        config = tmp_path / "jobset.yaml"
        config.write_text(yaml.safe_dump(content))
        with go_manager.started(PROGRAM, config, cluster.kubeconfig, probes):
            cluster.install()
            cluster.start_manager()
            cluster.wait_for_manager()
            yield client


def replicated(name: str, replicas: int, pods: int, cpu: str, *, retries: int) -> Obj:
    notes = {**ASKED, f"{NAME}/podset-group-name": "together"}
    made = {"metadata": {"annotations": notes}, "spec": pod_spec(cpu)}
    counts = {"parallelism": pods, "completions": pods, "backoffLimit": retries}
    job = {**counts, "completionMode": "Indexed", "template": made}
    return {"name": name, "replicas": replicas, "template": {"spec": job}}


class Train:
    """A JobSet of a driver and two Jobs of two workers, in one rack."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        topology(rest)
        self.place = place = Place(rest)
        for base, value in (("low", 1), ("high", 2)):
            place.priority(value, base)
        spec: Obj = {"nodeLabels": {OS: "linux"}, "topologyName": "racks"}
        row = {"name": place.create("ResourceFlavor", "hosts", spec=spec)}
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{**row, "resources": [{"name": "cpu", "nominalQuota": "1000"}]}],
        }
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **place.preempting()}
        place.create("ClusterQueue", "q", spec=spec)
        place.local_queue()
        self.path = f"/apis/{API}/namespaces/{place.ns}/jobsets"
        parts = [
            replicated("driver", 1, 1, "500m", retries=0),
            replicated("workers", 2, 2, "3500m", retries=6),
        ]
        spec = {"replicatedJobs": parts, "failurePolicy": {"maxRestarts": 9}}
        meta = {"name": "train", "labels": self.labels("low")}
        made = {"apiVersion": API, "kind": "JobSet", "metadata": meta, "spec": spec}
        self.uid = uid_of(eventually(lambda: rest.create(self.path, made)))

    def labels(self, priority: str) -> dict[str, str]:
        return {
            f"{NAME}/queue-name": "q",
            f"{NAME}/priority-class": self.place.named(priority),
        }

    def pods(self) -> list[Obj]:
        selector = f"{JOB_SET}/jobset-name=train"
        return [
            pod
            for pod in self.rest.items(f"{self.place.pods}?labelSelector={selector}")
            if phase(pod) not in ("Failed", "Succeeded")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def workload(self) -> Obj:
        return self.place.workload({"metadata": {"uid": self.uid}})

    def run(self) -> dict[str, str]:
        """The nodes of all pods by UID, once they run where their Workload has its places."""

        def found() -> dict[str, str]:
            pods, workload = self.pods(), self.workload()
            assert [phase(pod) for pod in pods] == ["Running"] * 5, [*map(gates, pods)]
            assert is_true(workload, "Admitted")
            hosts = {uid_of(pod): str(pod["spec"]["nodeName"]) for pod in pods}
            assert Counter(hosts.values()) == hosts_of(workload)
            assert all(pod["spec"]["nodeSelector"][HOST] == hosts[uid_of(pod)] for pod in pods)
            assert len({*map(rack_of, hosts.values())}) == 1
            return hosts

        return eventually(found)

    def in_order(self) -> list[str]:
        """The nodes of the workers by their ranks."""
        workers = [pod for pod in self.pods() if self._role(pod) == "workers"]
        return [str(pod["spec"]["nodeName"]) for pod in sorted(workers, key=self._rank)]

    def driver(self) -> Obj:
        (found,) = [pod for pod in self.pods() if self._role(pod) == "driver"]
        return {"kind": "Pod", **found}

    @staticmethod
    def _role(pod: Obj) -> str:
        return str(pod["metadata"]["labels"][f"{JOB_SET}/replicatedjob-name"])

    @staticmethod
    def _rank(pod: Obj) -> tuple[int, int]:
        labels = pod["metadata"]["labels"]
        return int(labels[f"{JOB_SET}/job-index"]), int(labels[COMPLETION])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_jobset_starts_restarts_moves_and_returns(rest: Rest) -> None:
    train = Train(rest)
    place = train.place
    before = train.run()
    assert train.in_order() == sorted(train.in_order())
    workload = uid_of(train.workload())

    place.finish(train.driver(), exit_code=1)  # its controller makes all Jobs again

    def restarted() -> dict[str, str]:
        hosts = train.run()
        assert not hosts.keys() & before.keys()
        return hosts

    again = eventually(restarted)
    assert Counter(again.values()) == Counter(before.values())
    assert train.in_order() == sorted(train.in_order())

    failed = max(again.values())
    pods = [pod for pod in train.pods() if pod["spec"]["nodeName"] == failed]
    left = {uid: host for uid, host in again.items() if host != failed}
    rest.delete(f"/api/v1/nodes/{failed}")
    for pod in pods:
        rest.delete(f"{place.pods}/{pod['metadata']['name']}", gracePeriodSeconds="0")

    def moved() -> dict[str, str]:
        hosts = train.run()
        assert failed not in hosts.values()
        return hosts

    assert left.items() <= eventually(moved).items()

    asked = {"metadata": {"annotations": ASKED}, "spec": pod_spec("7800m")}
    urgent = [
        place.job(name, labels=train.labels("high"), parallelism=2, completions=2, template=asked)
        for name in ("urgent-0", "urgent-1")
    ]
    eventually(lambda: condition(train.workload(), "Evicted").get("reason") == "Preempted")
    place.runs(*urgent)
    eventually(lambda: not train.pods())
    assert rest.get(f"{train.path}/train")["spec"]["suspend"]
    place.delete(*urgent)
    train.run()
    assert uid_of(train.workload()) == workload
