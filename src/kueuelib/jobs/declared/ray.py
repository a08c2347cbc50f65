"""RayJob and RayCluster (ray.io/v1): the head, and one pod set for each group of workers."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from kueuelib.api.meta import Obj, Resource
from kueuelib.errors import FieldError, InvalidJob
from kueuelib.jobs.declarative import Condition, Pods, declare, differs, equals, every, never
from kueuelib.jobs.field_rules import invalid
from kueuelib.jobs.paths import value

_STATUS = "status.jobDeploymentStatus"
_SUBMITTER = "ray-job-submitter"
_SUBMITTER_RESOURCES = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_AUTOSCALER_RESOURCES = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
"""What KubeRay gives its own containers when nobody says otherwise."""


def _cluster(spec: str) -> list[Pods]:
    """The pods of a Ray cluster whose spec is at a path."""

    def added(obj: Obj) -> Sequence[Obj]:
        found: list[Obj] = []
        if value(obj, f"{spec}.enableInTreeAutoscaling") is True:
            resources = value(obj, f"{spec}.autoscalerOptions.resources")
            found.append({"name": "autoscaler", "resources": resources or _AUTOSCALER_RESOURCES})
        if value(obj, "spec.submissionMode") == "SidecarMode":
            found.append({"name": _SUBMITTER, "resources": _SUBMITTER_RESOURCES})
        return found

    return [
        Pods("head", template=f"{spec}.headGroupSpec.template", adds=added),
        Pods(
            "groupName",
            each=f"{spec}.workerGroupSpecs",
            template="template",
            count=("replicas", "numOfHosts"),
        ),
    ]


def _submitter(obj: Obj) -> Obj:
    """The template of the pod that hands the job in, as KubeRay makes it."""
    containers = value(obj, "spec.rayClusterSpec.headGroupSpec.template.spec.containers")
    if not isinstance(containers, list) or not containers:
        path = "spec.rayClusterSpec.headGroupSpec.template.spec.containers"
        raise InvalidJob(path, "the submitter runs the image of the head's first container")
    resources = copy.deepcopy(_SUBMITTER_RESOURCES)
    container = {"name": _SUBMITTER, "image": containers[0].get("image"), "resources": resources}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def _validate(new: Obj, _old: Obj | None) -> Sequence[FieldError]:
    """A job that is queued deletes its cluster at the end, which would go on to hold quota."""
    if value(new, "spec.clusterSelector"):
        if value(new, "spec.rayClusterSpec") is None:
            return ()
        detail = "a job that is queued cannot use an existing cluster"
        return (invalid("spec.clusterSelector", value(new, "spec.clusterSelector"), detail),)
    if value(new, "spec.shutdownAfterJobFinishes") is True:
        return ()
    detail = "must be true for a job that is queued: its cluster would go on to use quota"
    return (invalid("spec.shutdownAfterJobFinishes", False, detail),)


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
    validate=_validate,
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
        Condition("RayClusterSuspending"),
    ),
    ready=equals("status.state", "ready"),
    succeeded=never,
    failed=never,
    allows_prebuilt=True,
)
