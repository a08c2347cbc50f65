"""A tree of Cohorts in storms: no change of it is missed, and shares end where usage does."""

from __future__ import annotations

import attrs
import pytest

from kueuelib.testing.hostile import create, delete, patch, trial
from kueuelib.testing.storm.bundled import BundledManager
from kueuelib.testing.storm.environment import CONFIGURATION
from kueuelib.testing.storm.run import LIMIT
from kueuelib.testing.storm.users import Act, Scenario
from kueuelib.testing.storm.users.acts import RESTORE

API = "kueue.x-k8s.io/v1beta2"
FLAVORS = "resourceflavors.kueue.x-k8s.io"
COHORTS = "cohorts.kueue.x-k8s.io"
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"
LOCAL_QUEUES = "localqueues.kueue.x-k8s.io"
FAIR = {**CONFIGURATION, "fairSharing": {"enable": True}}
LABELS = {"kueue.x-k8s.io/queue-name": "team"}


def named(kind, name, namespace="", **spec):
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def quota(nominal):
    row = {"name": "cpu", "nominalQuota": nominal}
    flavors = [{"name": "main", "resources": [row]}]
    return [{"coveredResources": ["cpu"], "flavors": flavors}]


QUEUE = named(
    "ClusterQueue",
    "team",
    cohortName="research",
    namespaceSelector={},
    resourceGroups=quota("0"),
)
COMPANY = named("Cohort", "company", resourceGroups=quota("0"), parentName=None)
RESEARCH = named("Cohort", "research", parentName="company")
SET_UP = (
    (FLAVORS, named("ResourceFlavor", "main")),
    (LOCAL_QUEUES, named("LocalQueue", "team", "default", clusterQueue="team")),
    (CLUSTER_QUEUES, QUEUE),
    (COHORTS, RESEARCH),
    (COHORTS, COMPANY),
)
CALM = (
    (COHORTS, RESEARCH),
    (COHORTS, {**COMPANY, "spec": {**COMPANY["spec"], "resourceGroups": quota("2")}}),
)
"""Without the last change of a Cohort, no Job can run."""


def restored(when, resource, obj):
    meta = obj["metadata"]
    label = f"{when}-{obj['kind']}-{meta['name']}"
    return Act(0.0, label, RESTORE, resource, meta.get("namespace", ""), meta["name"], obj)


def tree(draws, profile):
    """Users send Jobs, and break the tree, whose quota is at the top, in every way."""
    del profile
    found = []

    def user(label, act):
        at = draws.uniform(label, 0, 60)
        found.append(attrs.evolve(act, at=at, label=label))

    for number in range(6):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"annotations": {"kueuelib.dev/run-seconds": "5"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        meta = {"name": f"job-{number}", "namespace": "default", "labels": LABELS}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
        user(f"job-{number}", create(0, "jobs.batch", {**job, "spec": {"template": template}}))
    for label, name, spec in (
        ("cycle", "company", {"parentName": "research"}),
        ("no-quota", "company", {"resourceGroups": quota("0")}),
        ("quota", "company", {"resourceGroups": quota("1")}),
        ("weight", "research", {"fairSharing": {"weight": "0.3"}}),
        ("no-weight", "research", {"fairSharing": {"weight": 0}}),
        ("no-parent", "research", {"parentName": None}),
    ):
        if draws.chance(f"{label}?", 0.4):
            user(label, patch(0, COHORTS, "", name, {"spec": spec}))
    for name in ("company", "research"):
        if draws.chance(f"delete-{name}?", 0.3):
            user(f"delete-{name}", delete(0, COHORTS, "", name))
    return Scenario(
        tuple(restored("setup", *each) for each in SET_UP),
        tuple(sorted(found, key=lambda act: (act.at, act.label))),
        tuple(restored("calm", *each) for each in CALM),
    )


def every_job_has_run(cluster):
    """Quota that is there in the end is used."""
    for job in cluster.objects("jobs.batch"):
        conditions = job.get("status", {}).get("conditions", ())
        if not any(one["type"] == "Complete" and one["status"] == "True" for one in conditions):
            yield f"{job['metadata']['name']} is not complete"


def what_is_shown_is_true(cluster):
    """The queue is active, and nothing borrows."""
    for queue in cluster.objects(CLUSTER_QUEUES):
        conditions = queue.get("status", {}).get("conditions", ())
        if not any(one["type"] == "Active" and one["status"] == "True" for one in conditions):
            yield f"{queue['metadata']['name']} is not active"
    for resource in (COHORTS, CLUSTER_QUEUES):
        for obj in cluster.objects(resource):
            if obj.get("status", {}).get("fairSharing") != {"weightedShare": 0}:
                yield f"{obj['kind']} {obj['metadata']['name']} shows {obj.get('status')}"


async def _nothing(endpoint):
    """Replaced by the bundled manager."""


TREE = attrs.evolve(
    trial(_nothing, at_rest=[every_job_has_run, what_is_shown_is_true]),
    scenario=tree,
    program=BundledManager(FAIR),
    resources=(COHORTS, CLUSTER_QUEUES, "workloads.kueue.x-k8s.io"),
    limit=LIMIT,
    replicas=2,
)


@pytest.mark.slow
def test_no_change_of_a_tree_is_missed(storm):
    result = storm(TREE, seeds=range(1, 9))
    assert result.failed is None
    assert sum(result.faults.values()) > 80
