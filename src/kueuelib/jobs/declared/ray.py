"""RayJob, RayCluster and RayService (ray.io/v1): the head, and a pod set per group of workers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import FieldError, InvalidJob
from kueuelib.jobs.contract.field_rules import forbidden, invalid
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.paths import drop, value, values
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.declared.declarative import (
    Declaration,
    HasCondition,
    SeenStopDeclaredJob,
    declare,
    differs,
    equals,
    every,
    never,
)
from kueuelib.jobs.declared.pod_shape import Pods

_STATUS = "status.jobDeploymentStatus"
_SUBMITTER = "ray-job-submitter"
_SUBMITTER_RESOURCES = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
"""The resources that KubeRay gives the container that submits the job."""


def _cluster(spec: str) -> list[Pods]:
    """The pods of a Ray cluster whose spec is at a path."""
    return [
        Pods("head", template=f"{spec}.headGroupSpec.template", adds=_sidecar),
        Pods(
            "groupName",
            each=f"{spec}.workerGroupSpecs",
            template="template",
            count=("replicas", "numOfHosts"),
        ),
    ]


def _sidecar(obj: Obj) -> Sequence[Obj]:
    """The container that submits the job from the head's pod."""
    if value(obj, "spec.submissionMode") != "SidecarMode":
        return ()
    return ({"name": _SUBMITTER, "resources": _SUBMITTER_RESOURCES},)


def _submitter(obj: Obj) -> Obj:
    """The template of the pod that submits the job, as KubeRay makes it."""
    containers = value(obj, "spec.rayClusterSpec.headGroupSpec.template.spec.containers")
    if not isinstance(containers, list) or not containers:
        path = "spec.rayClusterSpec.headGroupSpec.template.spec.containers"
        raise InvalidJob(path, "the submitter runs the image of the head's first container")
    resources = copy.deepcopy(_SUBMITTER_RESOURCES)
    container = {"name": _SUBMITTER, "image": containers[0].get("image"), "resources": resources}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def _validate_job(new: Obj, _old: Obj | None) -> Sequence[FieldError]:
    """A queued job must delete its cluster at its end, or the cluster would keep using quota."""
    if value(new, "spec.clusterSelector"):
        if value(new, "spec.rayClusterSpec") is None:
            return ()
        detail = "a queued job cannot use an existing cluster"
        return (invalid("spec.clusterSelector", value(new, "spec.clusterSelector"), detail),)
    errors = [*_autoscaling(new, "spec.rayClusterSpec")]
    if value(new, "spec.shutdownAfterJobFinishes") is not True:
        detail = "must be true for a queued job: otherwise its cluster would keep using quota"
        errors.append(invalid("spec.shutdownAfterJobFinishes", False, detail))
    return errors


def _validate_cluster(new: Obj, _old: Obj | None) -> Sequence[FieldError]:
    return _autoscaling(new, "spec")


def _autoscaling(obj: Obj, spec: str) -> Sequence[FieldError]:
    """Refuses the autoscaler: the workers that it adds would run without quota."""
    path = f"{spec}.enableInTreeAutoscaling"
    if value(obj, path) is not True:
        return ()
    return (invalid(path, True, "a queued cluster cannot autoscale: quota is for its replicas"),)


RAY_JOB = declare(
    Resource("ray.io", "v1", "rayjobs", "RayJob", namespaced=True),
    pods=[
        *_cluster("spec.rayClusterSpec"),
        Pods(
            "submitter",
            template="spec.submitterPodTemplate",
            when=equals("spec.submissionMode", "K8sJobMode"),
            default=_submitter,
        ),
    ],
    active=differs(_STATUS, "Suspended", "ValidationFailed", "Complete", "Failed"),
    ready=equals("status.rayClusterStatus.state", "ready"),
    succeeded=every(equals(_STATUS, "Complete", "Failed"), equals("status.jobStatus", "SUCCEEDED")),
    failed=equals(_STATUS, "Complete", "Failed"),
    message="status.message",
    skip="spec.clusterSelector",
    validate=_validate_job,
    allows_prebuilt=True,
)

RAY_CLUSTER = declare(
    Resource("ray.io", "v1", "rayclusters", "RayCluster", namespaced=True),
    pods=_cluster("spec"),
    # its state becomes "ready" late and "suspended" once no pod is left
    active=(
        "status.head.podName",
        "status.availableWorkerReplicas",
        equals("status.state", "ready"),
        HasCondition("RayClusterSuspending"),
    ),
    ready=equals("status.state", "ready"),
    succeeded=never,
    failed=never,
    validate=_validate_cluster,
    allows_prebuilt=True,
)

_SERVICE = Resource("ray.io", "v1", "rayservices", "RayService", namespaced=True)
_CONFIG: Final = "spec.rayClusterConfig"
_SCALE: Final = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
_PLACEMENT: Final = ("tolerations", "schedulingGates")


class RayService(SeenStopDeclaredJob):
    """One RayService.

    KubeRay passes `suspend` of the cluster's configuration on to a new RayCluster and never reads
    it again, so that it has to be false when the service starts. Other managers may have set it.
    """

    resource: ClassVar[Resource] = _SERVICE
    declaration: ClassVar[Declaration] = Declaration(
        _SERVICE,
        tuple(_cluster(_CONFIG)),
        # the names are removed when KubeRay begins to delete the clusters
        active=(
            "status.activeServiceStatus.rayClusterName",
            "status.pendingServiceStatus.rayClusterName",
            HasCondition("Suspending"),
        ),
        ready=HasCondition("Ready"),
        succeeded=never,
        failed=never,
        suspended=HasCondition("Suspended"),
    )

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Add the infos to the templates and clear both fields that suspend."""
        super().run_with_podsets_info(infos)
        drop(self.object, f"{_CONFIG}.suspend")


def _validate_service(new: Obj, old: Obj | None) -> Sequence[FieldError]:
    """Refuses what makes a running service need a second cluster, which would have no quota."""
    errors = [*_autoscaling(new, _CONFIG)]
    runs = old is not None and not any(value(each, "spec.suspend") for each in (old, new))
    if runs and value(new, "spec.upgradeStrategy.type") != "None" and _plan(new) != _plan(old):
        detail = (
            "a second cluster would run without quota: set spec.upgradeStrategy.type to None, "
            "or change it while the service is suspended"
        )
        errors.append(forbidden(_CONFIG, detail))
    return errors


def _plan(obj: Obj | None) -> Any:
    """The part of a service that KubeRay compares to decide whether a new cluster is needed."""
    plan = copy.deepcopy(value(obj, _CONFIG))
    for name in ("suspend", "upgradeStrategy"):
        drop(plan, name)
    for group in values(plan, "workerGroupSpecs.*"):
        for name in _SCALE:
            drop(group, name)
    for group in (*values(plan, "headGroupSpec"), *values(plan, "workerGroupSpecs.*")):
        for name in _PLACEMENT:
            drop(group, f"template.spec.{name}")
    return plan


RAY_SERVICE = Integration.of(RayService, validate=_validate_service, allows_prebuilt=True)
