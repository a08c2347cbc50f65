from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.names import (
    REASON_CHECK_INACTIVE,
    REASON_CHECK_NOT_FOUND,
    REASON_FLAVOR_NOT_FOUND,
    REASON_READY,
    REASON_STOPPED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
)
from kueuelib.scheduler.quota.queue_spec import activity_of, flavor_of, queue_spec
from kueuelib.testing.builders import make_cluster_queue, make_flavor

FLAVORS = {"f": flavor_of(make_flavor("f"))}
ALIVE = {"k": True}


def activity(**more: Any) -> Any:
    flavors = more.pop("flavors", FLAVORS)
    checks = more.pop("known", ALIVE)
    found = make_cluster_queue("q", {"f": {"cpu": 1}}, checks=["k"], **more)
    return activity_of(queue_spec(found), flavors, checks)


def test_queue_with_everything_is_active() -> None:
    found = activity()
    assert found.active
    assert (found.reason, found.message) == (REASON_READY, "Can admit new workloads")


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_stopped_queue_is_inactive(policy: str) -> None:
    found = activity(stopPolicy=policy)
    assert (found.active, found.reason) == (False, REASON_STOPPED)


def test_missing_flavor_and_checks_are_named() -> None:
    found = activity(flavors={})
    assert found.reason == REASON_FLAVOR_NOT_FOUND
    assert found.message == ("Can't admit new workloads: references missing ResourceFlavor(s): f.")
    assert activity(known={}).reason == REASON_CHECK_NOT_FOUND
    assert "k" in activity(known={}).message
    assert activity(known={"k": False}).reason == REASON_CHECK_INACTIVE


def test_a_flavor_with_a_topology_is_of_no_use() -> None:
    flavors = {"f": flavor_of(make_flavor("f", topologyName="racks"))}
    found = activity(flavors=flavors)
    assert (found.active, found.reason) == (False, REASON_TOPOLOGY_NOT_FOUND)
    assert found.message == (
        'Can\'t admit new workloads: there is no Topology "racks" for TAS flavor "f".'
    )
    assert activity(flavors=flavors, known={}).reason == REASON_CHECK_NOT_FOUND
    assert activity(flavors=FLAVORS | {"other": flavors["f"]}).active


def test_first_cause_is_the_reason_and_all_are_in_the_message() -> None:
    found = activity(stopPolicy="Hold", flavors={}, known={})
    assert found.reason == REASON_STOPPED
    assert found.message == (
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): f, "
        "references missing AdmissionCheck(s): k."
    )


def test_terminating_queue_says_so_whatever_else_is_wrong() -> None:
    import attrs

    spec = queue_spec(make_cluster_queue("q", {"f": {"cpu": 1}}, stopPolicy="Hold"))
    found = activity_of(attrs.evolve(spec, terminating=True), {}, {})
    assert found.reason == REASON_TERMINATING
    assert found.message == "Can't admit new workloads; clusterQueue is terminating"
