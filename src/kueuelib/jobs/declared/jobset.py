"""JobSet (jobset.x-k8s.io): one pod set for each of its replicated Jobs."""

from __future__ import annotations

from kueuelib.api.meta import Resource
from kueuelib.jobs.contract.topology import COMPLETION_INDEX, Ranks
from kueuelib.jobs.declared.declarative import AtMost, Done, HasCondition, declare, enough
from kueuelib.jobs.declared.pod_shape import Pods

_PODS_OF_A_JOB = AtMost("template.spec.parallelism", "template.spec.completions")
_STATUS = "status.replicatedJobsStatus"

JOB_SET = declare(
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True),
    pods=[
        Pods(
            "name",
            each="spec.replicatedJobs",
            template="template.spec.template",
            count=("replicas", _PODS_OF_A_JOB),
            succeeded=Done(_STATUS, pods=(_PODS_OF_A_JOB,)),
            ranks=Ranks(COMPLETION_INDEX, "jobset.sigs.k8s.io/job-index", "replicas"),
        )
    ],
    active=f"{_STATUS}.*.active",
    # the status counts Jobs, not pods
    ready=enough(
        f"{_STATUS}.*.ready", f"{_STATUS}.*.succeeded", units="spec.replicatedJobs.*.replicas"
    ),
    succeeded=HasCondition("Completed"),
    failed=HasCondition("Failed"),
    suspended=HasCondition("Suspended"),
    allows_prebuilt=True,
)
