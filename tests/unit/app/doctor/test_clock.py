"""A leader's clock is judged by that of the API server."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import format_time
from kueuelib.app.doctor.finding import Severity


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
