"""RayJob and RayCluster (ray.io/v1): the head, and one pod set for each group of workers."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import FieldError, InvalidJob
from kueuelib.jobs.contract.field_rules import invalid
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.declared.declarative import HasCondition, declare, differs, equals, every, never
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
