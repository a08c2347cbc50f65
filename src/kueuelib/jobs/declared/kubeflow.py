"""MPIJob and the training jobs of Kubeflow, which differ in version, one field and its keys."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kueuelib.api.meta import Resource
from kueuelib.api.names import INDEX_OFFSET, POD_SET_GROUP
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.topology import REPLICA_INDEX, Ranks, asking_annotations
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
        pods=[
            Pods(
                "",
                each=f"spec.{specs}",
                template="template",
                count="replicas",
                order=order,
                ranks=Ranks(REPLICA_INDEX),
            )
        ],
        priority_class="spec.runPolicy.schedulingPolicy.priorityClass",
        active="status.replicaStatuses.*.active",
        ready=HasCondition("Running"),
        succeeded=HasCondition("Succeeded"),
        failed=HasCondition("Failed"),
        suspended=HasCondition("Suspended"),
        allows_prebuilt=allows_prebuilt,
    )


_MPI_JOB = replicated("MPIJob", "v2beta1", "mpiReplicaSpecs", "Launcher", "Worker")
_DeclaredMPIJob: type[GenericJob] = _MPI_JOB.job_type


class MPIJob(_DeclaredMPIJob):  # type: ignore[misc,valid-type]  # `declare` has made it
    """One MPIJob, whose launcher may have the first index of its workers."""

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Add the infos and clear the field that suspends; say where indices of workers begin.

        A group of launcher and workers knows that by itself, and a template may say it.
        """
        specs = self.spec.get("mpiReplicaSpecs")
        launcher = value(specs, "Launcher.template")
        if self.spec.get("runLauncherAsWorker") is True and launcher is not None:
            notes = value(specs, "Worker.template.metadata.annotations") or {}
            is_known = INDEX_OFFSET in notes or POD_SET_GROUP in asking_annotations(launcher)
            offset = {} if is_known else {INDEX_OFFSET: "1"}
            infos = [
                attrs.evolve(info, annotations={**info.annotations, **offset})
                if info.name == "worker"
                else info
                for info in infos
            ]
        super().run_with_podsets_info(infos)


MPI_JOB = attrs.evolve(_MPI_JOB, job_type=MPIJob)
PYTORCH_JOB = replicated("PyTorchJob", "v1", "pytorchReplicaSpecs", "Master", "Worker")
TRAINING_JOBS = (
    PYTORCH_JOB,
    replicated("TFJob", "v1", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    replicated("XGBoostJob", "v1", "xgbReplicaSpecs", "Master", "Worker"),
    replicated("PaddleJob", "v1", "paddleReplicaSpecs", "Master", "Worker"),
    replicated("JAXJob", "v1", "jaxReplicaSpecs", "Worker", allows_prebuilt=False),
)
"""One integration for each of the kinds."""
