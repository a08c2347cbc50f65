"""The kubeflow SDK: submits two TrainJobs to a queue that has room for one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer.options import Labels
from kubernetes import client, config

GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
SECONDS = 60.0
POD = {"spec": {"containers": [{"name": "node", "image": "example"}]}}
JOB = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": POD},
    },
}
RUNTIME = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "plain", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [JOB]}}},
}
DONE = {"type": "Complete", "status": "True", "reason": "Done", "message": "It is done"}
TIME = "2024-01-01T00:00:00Z"

_, active = config.list_kube_config_contexts(sys.argv[1])
namespace = active["context"]["namespace"]
api = config.new_client_from_config(sys.argv[1])
custom = client.CustomObjectsApi(api)
custom.create_cluster_custom_object(GROUP, VERSION, "clustertrainingruntimes", RUNTIME)
settings = KubernetesBackendConfig(namespace=namespace, client_configuration=api.configuration)
trainer = TrainerClient(backend_config=settings)
(runtime,) = trainer.list_runtimes()


def submit() -> str:
    work = CustomTrainerContainer(image="example", num_nodes=2, resources_per_node={"cpu": 1})
    queue = Labels({"kueue.x-k8s.io/queue-name": "q"})
    return trainer.train(runtime=runtime, trainer=work, options=[queue])


def is_suspended(name: str) -> bool:
    train_job = custom.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, name)
    return train_job["spec"]["suspend"]


def reserves(name: str) -> str | None:
    """What the Workload of a TrainJob says about quota."""
    workloads = custom.list_namespaced_custom_object(
        "kueue.x-k8s.io", "v1beta2", namespace, "workloads"
    )
    for one in workloads["items"]:
        if one["metadata"]["ownerReferences"][0]["name"] == name:
            conditions = one.get("status", {}).get("conditions", ())
            return next((c["status"] for c in conditions if c["type"] == "QuotaReserved"), None)
    return None


def until(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, f"not in {SECONDS} s"
        time.sleep(0.1)


first = submit()
until(lambda: not is_suspended(first))
second = submit()
until(lambda: reserves(second) == "False")
assert is_suspended(second)
assert not is_suspended(first)
status = {"status": {"conditions": [{**DONE, "lastTransitionTime": TIME}]}}
custom.patch_namespaced_custom_object_status(GROUP, VERSION, namespace, PLURAL, first, status)
until(lambda: not is_suspended(second))
assert reserves(second) == "True"
assert trainer.get_job(first).status == "Complete"
trainer.delete_job(second)
assert [each.name for each in trainer.list_jobs()] == [first]
