"""The pods of a Job: classifies them, and makes new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import Obj, Resource, annotations_of, is_true
from kueuelib.embedded.cluster.contract import COMPLETION_INDEX
from kueuelib.embedded.cluster.pod_status import is_terminal
from kueuelib.embedded.decoding import copy_json

_PREFIX_LIMIT = 57
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is active for its Job."""
    return not is_terminal(pod) and not pod["metadata"].get("deletionTimestamp")


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is being deleted and has not ended yet."""
    return not is_terminal(pod) and bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is ready."""
    return is_true(pod, "Ready")


def index_of(pod: Mapping[str, Any]) -> int | None:
    """The completion index of a pod, None when it has none."""
    text = annotations_of(pod).get(COMPLETION_INDEX)
    return int(text) if text is not None and text.isdigit() else None


def new_pod(job: Mapping[str, Any], index: int | None) -> Obj:
    """A pod from the template of a Job.

    Args:
        job: the Job.
        index: its completion index, None for a Job that is not Indexed.
    """
    name = job["metadata"]["name"]
    pod = from_template(job, JOBS)
    pod["metadata"]["generateName"] = f"{name[:_PREFIX_LIMIT]}-"
    if index is not None:
        _set_index(pod, name, index)
    return pod


def from_template(owner: Mapping[str, Any], resource: Resource) -> Obj:
    """A pod without a name from the template of its controller.

    Args:
        owner: the raw controller.
        resource: its kind.
    """
    meta, template = owner["metadata"], owner["spec"]["template"]
    given = template.get("metadata") or {}
    pod: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": meta["namespace"],
            "ownerReferences": [
                {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": copy_json(template["spec"]),
    }
    for key in ("labels", "annotations"):
        if given.get(key):
            pod["metadata"][key] = dict(given[key])
    if given.get("finalizers"):
        pod["metadata"]["finalizers"] = list(given["finalizers"])
    return pod


def _set_index(pod: Obj, job: str, index: int) -> None:
    text = str(index)
    meta, spec = pod["metadata"], pod["spec"]
    meta["generateName"] = f"{job[: _PREFIX_LIMIT - len(text) - 1]}-{text}-"
    for key in ("labels", "annotations"):
        meta[key] = {**(meta.get(key) or {}), COMPLETION_INDEX: text}
    spec.setdefault("hostname", f"{job}-{text}"[:63])
    for key in ("containers", "initContainers"):
        for container in spec.get(key) or ():
            env = container.get("env") or []
            if not any(one.get("name") == _INDEX_VARIABLE for one in env):
                path = f"metadata.annotations['{COMPLETION_INDEX}']"
                source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
                container["env"] = [*env, {"name": _INDEX_VARIABLE, "valueFrom": source}]


def first_to_go(pod: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sort key of surplus pods: unbound ones are deleted first, then those not ready, then
    the youngest.
    """
    spec, meta = pod["spec"], pod["metadata"]
    created = meta.get("creationTimestamp") or ""
    return (
        bool(spec.get("nodeName")),
        is_ready(pod),
        tuple(-ord(letter) for letter in created),
        meta["name"],
    )
