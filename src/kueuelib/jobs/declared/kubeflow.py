"""MPIJob and the training jobs of Kubeflow, which differ in version, one field and its keys."""

from __future__ import annotations

from kueuelib.api.meta import Resource
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.declared.declarative import HasCondition, declare
from kueuelib.jobs.declared.pod_shape import Pods

GROUP = "kubeflow.org"


def replicated(
    kind: str, version: str, specs: str, *order: str, allows_prebuilt: bool = True
) -> Integration:
    """A kind with a mapping of replica specs and a run policy.

    Args:
        kind: for example `TFJob`.
        version: of the group.
        specs: the field of the spec with one replica spec for each role.
        order: the roles that come first.
        allows_prebuilt: whether its jobs may use an existing Workload.
    """
    return declare(
        Resource(GROUP, version, f"{kind.lower()}s", kind, namespaced=True),
        suspend="spec.runPolicy.suspend",
        pods=[Pods("", each=f"spec.{specs}", template="template", count="replicas", order=order)],
        priority_class="spec.runPolicy.schedulingPolicy.priorityClass",
        active="status.replicaStatuses.*.active",
        ready=HasCondition("Running"),
        succeeded=HasCondition("Succeeded"),
        failed=HasCondition("Failed"),
        suspended=HasCondition("Suspended"),
        allows_prebuilt=allows_prebuilt,
    )


MPI_JOB = replicated("MPIJob", "v2beta1", "mpiReplicaSpecs", "Launcher", "Worker")
PYTORCH_JOB = replicated("PyTorchJob", "v1", "pytorchReplicaSpecs", "Master", "Worker")
TRAINING_JOBS = (
    PYTORCH_JOB,
    replicated("TFJob", "v1", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    replicated("XGBoostJob", "v1", "xgbReplicaSpecs", "Master", "Worker"),
    replicated("PaddleJob", "v1", "paddleReplicaSpecs", "Master", "Worker"),
    replicated("JAXJob", "v1", "jaxReplicaSpecs", "Worker", allows_prebuilt=False),
)
"""One integration for each of the kinds."""
