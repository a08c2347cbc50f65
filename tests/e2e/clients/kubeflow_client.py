"""The kubeflow SDK: lists runtimes, submits, lists and deletes a TrainJob."""

from __future__ import annotations

import sys

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubernetes import client, config

GROUP = "trainer.kubeflow.org"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KINDS = (
    ("trainjobs", "TrainJob", "Namespaced"),
    ("trainingruntimes", "TrainingRuntime", "Namespaced"),
    ("clustertrainingruntimes", "ClusterTrainingRuntime", "Cluster"),
)
POD = {"spec": {"containers": [{"name": "node", "image": "example"}]}}
JOB = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": POD},
    },
}
RUNTIME = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "plain", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [JOB]}}},
}

api = config.new_client_from_config(sys.argv[1])
definitions, custom = client.ApiextensionsV1Api(api), client.CustomObjectsApi(api)
for plural, kind, scope in KINDS:
    version = {"name": "v1alpha1", "served": True, "storage": True}
    definitions.create_custom_resource_definition(
        {
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": scope,
                "names": {"plural": plural, "kind": kind},
                "versions": [{**version, "schema": {"openAPIV3Schema": OPEN}}],
            },
        }
    )
custom.create_cluster_custom_object(GROUP, "v1alpha1", "clustertrainingruntimes", RUNTIME)
settings = KubernetesBackendConfig(namespace="default", client_configuration=api.configuration)
trainer = TrainerClient(backend_config=settings)
(runtime,) = trainer.list_runtimes()
assert runtime.name == "plain", runtime
name = trainer.train(runtime=runtime, trainer=CustomTrainerContainer(image="example", num_nodes=1))
assert [each.name for each in trainer.list_jobs()] == [name]
assert trainer.get_job(name).name == name
trainer.delete_job(name)
assert trainer.list_jobs() == []
