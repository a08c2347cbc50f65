"""A manager of one's own: a reconciler, a kind of jobs, a check and the queue in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from rest import KUEUE, WORKLOADS, Rest, eventually, is_true
from warm import Processes

from kueuelib.testing.processes import READY_SECONDS, LocalCluster, free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "own_manager"
TRAININGS = "/apis/ml.example.com/v1/namespaces/default/trainings"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PATHS = {
    "AdmissionCheck": f"{KUEUE}/admissionchecks",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/default/localqueues",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes)
        found.start_server()
        found.install()
        yield found


def program(cluster: LocalCluster) -> None:
    """Starts the example in the place of the bundled manager."""
    args = [str(EXAMPLE / "program.py"), str(cluster.kubeconfig), str(cluster.webhook_port)]
    cluster.processes.start_program("program", *args)


def answered(rest: Rest, path: str, obj: dict[str, Any]) -> dict[str, Any]:
    """The created object, once the webhooks answer."""

    def created() -> Any:
        try:
            return rest.create(path, obj)
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in (404, 500):  # no CRD, or no webhook yet
                raise
            return None

    return eventually(created)


def test_a_training_and_a_job_pass_the_queue_and_the_check_of_the_same_process(
    cluster: LocalCluster,
) -> None:
    program(cluster)
    with Rest(cluster.kubeconfig) as rest:
        for obj in yaml.safe_load_all((EXAMPLE / "queues.yaml").read_text()):
            answered(rest, PATHS[obj["kind"]], obj)
        training = yaml.safe_load((EXAMPLE / "training.yaml").read_text())
        stored = answered(rest, TRAININGS, training)
        assert stored["spec"]["suspend"] is True, "the webhook suspends what is queued"

        path = f"{TRAININGS}/digits"
        eventually(lambda: rest.get(path).get("status", {}).get("phase") == "Succeeded")
        started = rest.get(path)["spec"]
        assert not started.get("suspend")
        assert started["template"]["spec"]["nodeSelector"] == {"kueuelib.dev/pool": "spot"}

        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        pod = {
            "metadata": {"annotations": {"kueuelib.dev/run-seconds": "0.1"}},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        meta = {"name": "plain", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pod}}
        assert rest.create(JOBS, job)["spec"]["suspend"] is True
        eventually(lambda: is_true(rest.get(f"{JOBS}/plain"), "Complete"))

        def ended() -> Any:
            workloads = rest.items(WORKLOADS)
            return len(workloads) == 2 and all(is_true(each, "Finished") for each in workloads)

        eventually(ended)
        for workload in rest.items(WORKLOADS):
            (state,) = workload["status"]["admissionChecks"]
            assert state["state"] == "Ready"
            assert state["message"] == f"a license for {workload['metadata']['name']}"
    assert cluster.processes.stop("program") == 0


def test_kinds_run_beside_another_manager_with_three_lines(cluster: LocalCluster) -> None:
    cluster.start_manager()
    cluster.wait_for_manager()
    folder, port = EXAMPLES / "custom_job", free_port()
    script = cluster.processes.folder / "beside.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from kueuelib import jobs\n"
        "from training_typed import TrainingJob\n"
        f"jobs.run(TrainingJob, kubeconfig=sys.argv[1], webhook_address='127.0.0.1:{port}')\n"
    )
    module = str(folder / "training_typed.py")
    url = f"https://127.0.0.1:{port}"
    log = cluster.processes.folder / "manifests.log"
    cluster.processes.finish(
        "manifests", "manifests", module, "--webhook-url", url, seconds=READY_SECONDS
    )
    with Rest(cluster.kubeconfig) as rest:
        rest.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _crd(folder))
        for obj in yaml.safe_load_all(log.read_text()):
            if obj["kind"].endswith("WebhookConfiguration"):
                plural = f"{obj['kind'].lower()}s"
                rest.create(f"/apis/admissionregistration.k8s.io/v1/{plural}", obj)
        for obj in yaml.safe_load_all((folder / "queues.yaml").read_text()):
            rest.create(PATHS[obj["kind"]], obj)
        cluster.processes.start_program("beside", str(script), str(cluster.kubeconfig))
        training = yaml.safe_load((folder / "training.yaml").read_text())
        name = training["metadata"]["name"]
        stored = answered(rest, TRAININGS, training)
        assert stored["spec"]["suspend"] is True
        eventually(lambda: rest.get(f"{TRAININGS}/{name}")["spec"].get("suspend") is not True)
        (workload,) = rest.items(WORKLOADS)
        assert is_true(workload, "Admitted")
        lease = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases"
        assert rest.get(f"{lease}/kueuelib-trainings-ml-example-com")["spec"]["holderIdentity"]
    assert cluster.processes.stop("beside") == 0


def _crd(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "crd.yaml").read_text())
    return found
