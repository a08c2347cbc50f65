"""When a check process counts as silent."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.checks.heartbeats import (
    Heartbeats,
    StaleHeartbeat,
    lease_annotations,
    lease_labels,
    lease_name,
)

A, B = "example.com/a", "example.com/b"


def lease(
    *controllers: str,
    renewed: int = 0,
    holder: str = "one",
    name: str = "lease",
    duration: int = 15,
) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "labels": lease_labels(),
            "annotations": lease_annotations(controllers),
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "renewTime": f"2026-01-01T00:00:{renewed:02}.000000Z",
        },
    }


def looks(found: Heartbeats, until: float, *leases: dict[str, Any], since: float = 0.0) -> None:
    """Looks every 5 seconds."""
    at = since
    while at <= until:
        found.observe(leases, at)
        at += 5.0


def test_who_renews_is_never_silent():
    found = Heartbeats()
    for second in range(59):
        found.observe([lease(A, renewed=second)], second * 5.0)
        assert found.silences() == {}


def test_who_does_not_renew_for_two_terms_is_silent_since_its_last_renewal():
    found = Heartbeats()
    looks(found, 30.0, lease(A, B, renewed=7))
    assert found.silences() == {}
    found.observe([lease(A, B, renewed=7)], 35.0)
    since = "2026-01-01T00:00:07Z"
    key = ObjectKey("ns", "lease")
    assert found.silences() == {A: StaleHeartbeat(A, key, since), B: StaleHeartbeat(B, key, since)}
    assert found.silences()[A].message == (
        f"no sign of life from {A} since {since}: its Lease ns/lease is not renewed"
    )
    found.observe([lease(A, B, renewed=40)], 40.0)
    assert found.silences() == {}


@pytest.mark.parametrize(("duration", "patience"), [(2, 10.0), (15, 30.0), (60, 120.0)])
def test_patience_follows_the_lease(duration, patience):
    found = Heartbeats()
    looks(found, patience, lease(A, duration=duration))
    assert found.silences() == {}
    found.observe([lease(A, duration=duration)], patience + 1.0)
    assert set(found.silences()) == {A}


@pytest.mark.parametrize(("before", "patience"), [(3, 10.0), (15, 30.0), (60, 120.0)])
def test_a_released_lease_is_waited_for_as_long_as_before(before, patience):
    found = Heartbeats()
    found.observe([lease(A, duration=before)], 0.0)
    looks(found, patience, lease(A, holder="", duration=1))
    assert found.silences() == {}
    found.observe([lease(A, holder="", duration=1)], patience + 5.0)
    assert set(found.silences()) == {A}


def test_time_in_which_nothing_could_be_read_does_not_count():
    found = Heartbeats()
    looks(found, 20.0, lease(A))
    found.missed()
    looks(found, 1010.0, lease(A), since=1000.0)
    assert found.silences() == {}
    looks(found, 1015.0, lease(A), since=1015.0)
    assert set(found.silences()) == {A}


def test_another_lease_of_the_same_controller_is_a_sign_of_life():
    found = Heartbeats()
    for at in range(0, 100, 5):
        found.observe([lease(A, B, name="old"), lease(A, name="new", renewed=at // 5)], float(at))
    assert set(found.silences()) == {B}


def test_the_latest_of_several_dead_leases_is_told():
    found = Heartbeats()
    looks(found, 40.0, lease(A, name="x", renewed=9), lease(A, name="y", renewed=3))
    assert found.silences()[A].lease == ObjectKey("ns", "x")
    assert found.silences()[A].since == "2026-01-01T00:00:09Z"


def test_a_deleted_lease_is_forgotten():
    found = Heartbeats()
    looks(found, 40.0, lease(A))
    found.observe([], 45.0)
    assert found.silences() == {}


def test_a_lease_without_content_does_no_harm():
    found = Heartbeats()
    bare = {"metadata": {"namespace": "ns", "name": "bare"}}
    named = {**bare, "metadata": {**bare["metadata"], "annotations": lease_annotations([A])}}
    looks(found, 40.0, bare)
    assert found.silences() == {}
    looks(found, 40.0, named)
    looks(found, 80.0, named, since=45.0)
    assert found.silences()[A].message == (
        f"no sign of life from {A}: its Lease ns/bare is not renewed"
    )


def test_names_of_leases_are_short_dns_labels_and_differ():
    names = [A, B, "Example.com/A", "example.com/" + "x" * 200, "example.com/" + "x" * 201, "_/_"]
    found = [lease_name(name) for name in names]
    assert len(set(found)) == len(names)
    for name in found:
        assert len(name) <= 63
        assert name.replace("-", "").isalnum()
        assert name == name.lower()
    assert found[0].startswith("kueuelib-check-example-com-a-")
