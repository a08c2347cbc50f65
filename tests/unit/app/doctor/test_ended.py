"""Ends that nothing follows, and starts that nobody begins."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import format_time

from .conftest import LONG_AGO
from .test_findings import CRD, WORKLOADS, refuse_the_start


def own_a_job(patient: Any, spec: Any, status: Any) -> Any:
    refuse_the_start(patient)
    job = patient.get("Job", "held")
    job["spec"], job["status"] = spec, status
    return job


def found(patient: Any) -> list[Any]:
    return [one for one in patient.found() if one[0] in ("never-finished", "job-untouched")]


def test_a_definition_without_a_status_explains_what_is_not_written(patient: Any) -> None:
    for version in patient.get(CRD, WORKLOADS)["spec"]["versions"]:
        version.pop("subresources", None)
    finding = patient.only("crd-status")
    assert str(finding.subject) == f"{CRD} {WORKLOADS}"
    assert finding.problem.startswith("v1beta1, v1beta2 without subresources.status")
    assert finding.fix.startswith("kueuelib install")
    end = {"type": "Complete", "status": "True", "lastTransitionTime": LONG_AGO}
    own_a_job(patient, {}, {"startTime": LONG_AGO, "conditions": [end]})
    assert patient.causes()["never-finished"] == "crd-status"


def test_a_workload_whose_job_ended_is_found_after_a_minute(patient: Any) -> None:
    end = {"type": "Complete", "status": "True", "lastTransitionTime": LONG_AGO}
    job = own_a_job(patient, {}, {"startTime": LONG_AGO, "conditions": [end]})
    ((name, finding),) = found(patient)
    assert (name, str(finding.subject)) == ("never-finished", "Workload ns/runs")
    assert finding.problem.startswith("ns/held ended 10m")
    end["lastTransitionTime"] = format_time(patient.now - 30)
    assert found(patient) == []
    end |= {"lastTransitionTime": LONG_AGO, "status": "False"}
    job["status"]["active"] = 1
    assert found(patient) == []


def test_a_started_job_that_nobody_begins_is_found_after_a_minute(patient: Any) -> None:
    job = own_a_job(patient, {}, {})
    ((name, finding),) = found(patient)
    assert (name, str(finding.subject)) == ("job-untouched", "Job ns/held")
    assert finding.problem.endswith("1 Job in all. Is kube-controller-manager running?")
    job["metadata"]["managedFields"] = [{"time": format_time(patient.now - 30)}]
    assert found(patient) == []
    job["metadata"]["managedFields"] = []
    job["spec"] = {"managedBy": "theirs.dev/controller"}
    assert found(patient) == []
    job["spec"], job["status"] = {}, {"startTime": LONG_AGO}
    assert found(patient) == []
