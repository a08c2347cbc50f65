"""Writes that the API server refuses, and when they no longer count."""

from __future__ import annotations

from typing import Any

from .test_findings import QUOTA, exceed_a_quota, finish_the_other, told


def refuse_the_status(patient: Any) -> None:
    finish_the_other(patient)
    refusal = "The admission could not be written: denied the request"
    told(patient, "Workload", "waits", "AdmissionFailed", refusal)


def test_a_resource_quota_is_named_until_the_pods_are_there(patient: Any) -> None:
    exceed_a_quota(patient)
    found = patient.only("write-refused")
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in found.problem
    assert found.fix.startswith("kubectl -n ns describe resourcequota few  # raise spec.hard")
    patient.get("Job")["status"]["active"] = 3
    assert patient.found() == []


def test_an_old_refusal_no_longer_counts(patient: Any) -> None:
    patient.add("Job", "job", "ns", spec={"parallelism": 3}, status={"active": 2})
    told(patient, "Job", "job", "FailedCreate", QUOTA, ago=130)
    told(patient, "Job", "job", "FailedCreate", "no node is left", ago=10)
    assert patient.found() == []


def test_a_refused_admission_explains_that_a_workload_waits(patient: Any) -> None:
    refuse_the_status(patient)
    assert patient.causes() == {"fits-but-waits": "write-refused"}
