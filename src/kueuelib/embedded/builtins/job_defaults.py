"""What a Job gets for what its author left out, and what the server makes up for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import drop_nulls, section, setdefault, subobject
from kueuelib.embedded.builtins.pod_defaults import default_pod_template

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID = "controller-uid"
OLD_JOB_NAME = "job-name"

_MAX = 2**31 - 1


def default_job(job: Obj) -> None:
    """The defaults that do not depend on the identity of the Job."""
    spec = subobject(job, "spec")
    drop_nulls(spec)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    setdefault(spec, "parallelism", 1)
    per_index = spec.get("backoffLimitPerIndex") is not None
    setdefault(spec, "backoffLimit", _MAX if per_index else 6)
    setdefault(spec, "completionMode", "NonIndexed")
    setdefault(spec, "suspend", value=False)
    setdefault(spec, "manualSelector", value=False)
    policy = spec.get("podFailurePolicy")
    setdefault(spec, "podReplacementPolicy", "Failed" if policy else "TerminatingOrFailed")
    for rule in (policy or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            setdefault(pattern, "status", "True")
    default_pod_template(subobject(spec, "template"))
    meta = subobject(job, "metadata")
    labels = section(spec, "template", "metadata").get("labels")
    if labels and not meta.get("labels"):
        meta["labels"] = labels  # the same ones: what a new Job gets for its pods, it gets itself


def generated_labels(job: Mapping[str, Any]) -> dict[str, str]:
    """The labels that tell the pods of a Job from all others."""
    meta = job["metadata"]
    uid, name = meta.get("uid", ""), meta.get("name", "")
    return {
        CONTROLLER_UID: uid,
        JOB_NAME: name,
        OLD_CONTROLLER_UID: uid,
        OLD_JOB_NAME: name,
    }


def generate_selector(job: Obj) -> None:
    """Gives a new Job its selector and its template the labels; validation sees contradictions."""
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
