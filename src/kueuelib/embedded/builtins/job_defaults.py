"""Generates the selector of a new Job, and the labels of its pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import subobject

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID = "controller-uid"
OLD_JOB_NAME = "job-name"


def generated_labels(job: Mapping[str, Any]) -> dict[str, str]:
    """The labels that distinguish the pods of a Job from all others."""
    meta = job["metadata"]
    uid, name = meta.get("uid", ""), meta.get("name", "")
    return {OLD_CONTROLLER_UID: uid, OLD_JOB_NAME: name, CONTROLLER_UID: uid, JOB_NAME: name}


def generate_selector(job: Obj) -> None:
    """Adds the selector to a new Job and the labels to its template; validation finds
    contradictions.
    """
    spec = subobject(job, "spec")
    if spec.get("manualSelector"):
        return
    labels = subobject(subobject(subobject(spec, "template"), "metadata"), "labels")
    for key, value in generated_labels(job).items():
        labels.setdefault(key, value)
    match = subobject(subobject(spec, "selector"), "matchLabels")
    match.setdefault(CONTROLLER_UID, job["metadata"].get("uid", ""))
    meta = job["metadata"]
    if not meta.get("labels"):
        meta["labels"] = dict(labels)
