"""Objects of kinds that are not known here are explained by their Workload."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import workload_name
from kueuelib.app.explaining.gather import ObjectNotFound
from kueuelib.app.explaining.subject import (
    name_problem,
    own_workload_key,
    owned_workload,
    parse_reference,
)

from .test_explaining import asked, job


def workload(name: str, owner: str, *, created: int = 0, finished: bool = False) -> Obj:
    obj = WORKLOADS.new(name, "ns")
    reference = {"apiVersion": "ml.example.com/v1", "kind": "Training", "name": owner, "uid": "u"}
    obj["metadata"] |= {
        "ownerReferences": [reference],
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        "uid": name,
    }
    obj["status"] = {"conditions": [{"type": "Finished", "status": str(finished)}]}
    return obj


@pytest.mark.parametrize("kind", ["Training", "training", "trainings", "trainings.ml.example.com"])
def test_the_newest_unfinished_workload_of_the_owner_is_meant(kind: str) -> None:
    workloads = [
        workload("old", "one", created=1),
        workload("new", "one", created=2),
        workload("done", "one", created=3, finished=True),
        workload("other", "two", created=4),
    ]
    found = owned_workload(parse_reference(f"{kind}/one"), "ns", workloads)
    assert found["metadata"]["name"] == "new"


def test_an_object_without_workload_is_not_found() -> None:
    with pytest.raises(ObjectNotFound, match="no Workload in namespace ns belongs to rayjob one"):
        owned_workload(parse_reference("rayjob/one"), "ns", [workload("a", "one")])
    with pytest.raises(ObjectNotFound):
        owned_workload(parse_reference("training/one"), "elsewhere", [workload("a", "one")])


def made_by_nightly(name: str, created: str, **status: object) -> Obj:
    train = job()
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "n"}
    train["metadata"] |= {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    train["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return {**train, "status": status}


async def test_a_cron_job_leads_to_its_newest_job_that_has_not_ended() -> None:
    made = [
        made_by_nightly("n-1", "2026-01-01T00:00:01Z"),
        made_by_nightly("n-2", "2026-01-01T00:00:02Z"),
        made_by_nightly(
            "n-3", "2026-01-01T00:00:03Z", conditions=[{"type": "Complete", "status": "True"}]
        ),
    ]
    answer = await asked("cj/nightly", *made)
    assert answer.title == "Job n-2 of CronJob nightly"
    assert answer.explanation is not None
    note = "a CronJob is not queued itself, but its Jobs are: n-2, n-1, n-3; this is about "
    assert answer.notes[0] == f"{note}the first"


async def test_a_cron_job_that_has_made_no_job_says_so() -> None:
    nightly = {"kind": "CronJob", "metadata": {"name": "nightly", "namespace": "ns"}}
    (problem,) = (await asked("cronjob/nightly", nightly)).problems
    assert problem.problem.startswith("has no Job now, and its Jobs are what is queued")
    assert problem.fix == "kubectl create job NAME --from=cronjob/nightly -n ns"
    with pytest.raises(ObjectNotFound):
        await asked("cronjob/nightly", job())


def test_a_workload_with_the_name_of_an_objects_own_is_a_problem() -> None:
    job = {"metadata": {"name": "one", "namespace": "ns", "uid": "u"}}
    key = own_workload_key(job, JOBS)
    assert key == ObjectKey("ns", workload_name("Job", "batch", "one", "u"))
    assert name_problem(job, JOBS, None) is None
    taken = workload(key.name, "other")
    taken["metadata"]["ownerReferences"][0]["controller"] = True
    problem = name_problem(job, JOBS, taken)
    assert problem is not None
    assert problem.problem.endswith(f"{key.name}, and there is one of this name that belongs to "
                                    "Training other")  # fmt: skip
    assert problem.fix.startswith(f"kubectl delete -n ns workload {key.name}")
