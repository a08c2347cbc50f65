"""Good reviews of a manager's webhooks, to be changed into hostile ones."""

from __future__ import annotations

from typing import Any

FRAMEWORKS = (
    *("batch/job", "pod", "deployment", "statefulset", "jobset.x-k8s.io/jobset"),
    *("ray.io/rayjob", "kubeflow.org/pytorchjob", "kubeflow.org/mpijob"),
)
QUEUE_PATH = "/validate-kueue-x-k8s-io-v1beta1-clusterqueue"
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "q", "namespace": "", "labels": {"a": "b"}},
    "spec": {
        "cohort": "c",
        "namespaceSelector": {"matchLabels": {"a": "b"}},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "3"}]}],
            }
        ],
    },
}
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "n", "finalizers": ["f"]},
    "spec": {
        "queueName": "l",
        "priority": 1,
        "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{}]}}}],
    },
    "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
}


_LABELS = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "g"}
_META = {
    "name": "j",
    "namespace": "n",
    "labels": _LABELS,
    "annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}],
}
_POD = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
    },
}


def _job(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": _META, **fields}


_OWNED = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": _POD}
JOBS = (
    _job("batch/v1", "Job", spec={"parallelism": 3, "completions": 3, "template": _POD}),
    _job("v1", "Pod", spec=_POD["spec"], status={"conditions": [], "phase": "Pending"}),
    _job("apps/v1", "Deployment", spec=_OWNED, status={"readyReplicas": 1}),
    _job("apps/v1", "StatefulSet", spec=_OWNED, status={"replicas": 1}),
    _job(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        spec={"replicatedJobs": [{"name": "a", "template": {"spec": {"template": _POD}}}]},
    ),
    _job(
        "kubeflow.org/v1",
        "PyTorchJob",
        spec={
            "runPolicy": {"suspend": False},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": _POD}},
        },
    ),
)


def _group_and_version(obj: dict[str, Any]) -> dict[str, str]:
    group, _, version = obj["apiVersion"].rpartition("/")
    return {"group": group, "version": version, "kind": obj["kind"]}


def reviews() -> list[dict[str, Any]]:
    """Good ones, to be changed."""
    good = []
    for obj in (QUEUE, WORKLOAD, *JOBS):
        for operation, old in (("CREATE", None), ("UPDATE", obj), ("DELETE", obj)):
            request = {
                "uid": "u",
                "operation": operation,
                "kind": _group_and_version(obj),
                "name": "q",
                "namespace": "n",
                "object": None if operation == "DELETE" else obj,
                "oldObject": old,
                "userInfo": {"username": "u", "groups": ["g"]},
                "options": {"kind": "CreateOptions"},
            }
            head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            good.append({**head, "request": request})
    wanted = {
        "uid": "u",
        "desiredAPIVersion": "kueue.x-k8s.io/v1beta2",
        "objects": [QUEUE, WORKLOAD],
    }
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return [*good, {**head, "request": wanted}]
