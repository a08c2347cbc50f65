"""A leader's clock is judged by that of the API server, and so is whether it renews its Lease."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import format_time
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.doctor.finding import Severity

from .test_findings import suspend_for_nobody


def renew(patient: Any, skew: float, since: float) -> None:
    """A renewal some seconds ago, with the time of another clock."""
    lease = patient.get("Lease")
    lease["spec"]["renewTime"] = format_time(patient.now + skew - since)
    entry = {"time": format_time(patient.now - since), "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    lease["metadata"]["managedFields"] = [entry]


@pytest.mark.parametrize(("skew", "words"), [(600, "10m ahead of"), (-600, "10m behind")])
def test_a_wrong_clock_is_reported_and_its_manager_leads(
    patient: Any, skew: float, words: str
) -> None:
    renew(patient, skew, since=3)
    found = patient.only("clock-skew")
    assert found.severity is Severity.WARNING
    assert str(found.subject) == "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io"
    assert f"the clock of manager-1 is {words} that of the API server" in found.problem


def test_a_few_seconds_are_not_reported(patient: Any) -> None:
    renew(patient, 20, since=3)
    assert patient.found() == []


def test_a_dead_leader_with_a_clock_that_is_ahead_does_not_lead(patient: Any) -> None:
    renew(patient, 600, since=100)
    assert "manager-1 renewed it 100s ago" in patient.only("leader").problem


def test_who_does_not_renew_a_long_lease_leads_nothing(patient: Any) -> None:
    patient.get("Lease")["spec"] |= {"holderIdentity": "ghost", "leaseDurationSeconds": 86400}
    renew(patient, 600, since=78)
    found = patient.only("leader")
    assert found.severity is Severity.ERROR
    until = format_time(patient.now - 78 + 86400)
    assert found.problem == (
        "ghost holds it, and has not renewed it for 78s, although it lasts 86400 s: no manager "
        f"leads before {until}, or until it is deleted"
    )
    command = "kubectl -n kueue-system delete lease c1f6bfd2.kueue.x-k8s.io"
    assert found.fix == f"{command}  # if ghost no longer runs"
    suspend_for_nobody(patient)
    assert patient.causes() == {"job-unqueued": "leader"}
    renew(patient, 0, since=20)
    report = dict(patient.found())
    assert report["leader"].severity is Severity.WARNING
    assert report["leader"].problem.startswith("ghost holds it for 86400 s, and by the ")
    assert "by the configuration it lasts 15 s" in report["leader"].problem
    assert "although a manager leads" in report["job-unqueued"].problem


def test_managers_with_a_long_lease_may_be_silent_for_longer(patient: Any) -> None:
    patient.get("Lease")["spec"]["leaseDurationSeconds"] = 120
    patient.configuration = parse_configuration(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta1",
            "kind": "Configuration",
            "leaderElection": {"leaseDuration": "120s", "renewDeadline": "90s"},
        },
        "test",
    )
    renew(patient, 0, since=100)
    assert patient.found() == []
