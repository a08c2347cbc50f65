"""Victims whose eviction the API server refuses."""

from __future__ import annotations

from typing import Any

import pytest
from preemption_cluster import LOWER, Cluster, key

from kueuelib.scheduler import events
from kueuelib.scheduler.decide.preemption.guard import FIRST_REST, LONGEST_REST, PreemptionHistory
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.policy import PreemptionPolicy, Refusal, Unevictable
from kueuelib.scheduler.reasons import NoFlavors, render
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import make_flavor

WHY = 'admission webhook "keep.example.com" denied the request: it stays'
WAYS = pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(parallel_preemptors=False),
        Settings(fair_sharing=FairSharingRules()),
    ],
    ids=["parallel", "one after the other", "fair"],
)


def cluster_of(settings: Settings, *running: str) -> Cluster:
    """A full ClusterQueue; its last Workload is preempted first."""
    cluster = Cluster(Engine(settings))
    cluster.tell(events.NamespaceSet("ns", {}), events.FlavorSet(make_flavor("f")))
    cluster.queue("q", {"f": {"gpu": len(running)}}, preemption=LOWER)
    for number, name in enumerate(running):
        cluster.running(name, "q", at=float(number))
    return cluster


def refuse(cluster: Cluster, *names: str) -> None:
    cluster.tell(*(events.EvictionFailed(key(name), why=WHY) for name in names))


def at_rest(cluster: Cluster) -> list[str]:
    """What happens until nothing is left to decide."""
    found: list[str] = []
    for _ in range(20):
        found += cluster.cycle()
        if not cluster.engine.has_work(cluster.now):
            return found
    raise AssertionError("the engine does not come to rest")


def reason_of(cluster: Cluster, name: str) -> NoFlavors:
    reason = cluster.engine.standing(key(name)).reason
    assert isinstance(reason, NoFlavors)
    return reason


@WAYS
def test_the_preemptor_chooses_another_victim(settings: Settings) -> None:
    cluster = cluster_of(settings, "other", "low")
    cluster.submit("high", "q", priority=1)
    assert at_rest(cluster) == ["-low"]
    refuse(cluster, "low")
    assert at_rest(cluster) == ["-other"]
    cluster.leaves("other")
    assert at_rest(cluster) == ["+high"]


@WAYS
def test_without_another_it_waits_says_why_and_tries_again_later(settings: Settings) -> None:
    cluster = cluster_of(settings, "low")
    cluster.submit("high", "q", priority=1)
    rests = []
    for _ in range(8):
        assert at_rest(cluster) == ["-low"]
        refuse(cluster, "low")
        assert at_rest(cluster) == []
        reason = reason_of(cluster, "high")
        assert reason.in_vain == 0
        assert reason.unevictable is not None
        until = cluster.engine.next_deadline()
        assert until == reason.unevictable.until
        assert until is not None
        rests.append(round(until - cluster.now))
        cluster.now = until - 1.5
        assert at_rest(cluster) == []
        cluster.now = until - 1
    assert rests == sorted(rests)
    assert abs(rests[0] - FIRST_REST) < 3
    assert abs(rests[-1] - LONGEST_REST) < 3
    assert "The eviction of ns/low was refused; tried again at " in render(reason)
    assert render(reason).endswith(f"Z: {WHY}")
    assert at_rest(cluster) == ["-low"]
    cluster.leaves("low")
    assert at_rest(cluster) == ["+high"]


def test_a_refusal_is_forgotten_with_the_quota() -> None:
    cluster = cluster_of(Settings(), "low")
    cluster.submit("high", "q", priority=1)
    at_rest(cluster)
    refuse(cluster, "low")
    assert at_rest(cluster) == []
    assert cluster.engine.history.past().refused
    cluster.leaves("low")
    assert cluster.engine.history.past().refused == {}
    assert at_rest(cluster) == ["+high"]


def test_preemptions_count_if_a_victim_leaves() -> None:
    cluster = cluster_of(Settings(), "v1", "v2")
    cluster.submit("both", "q", 2, priority=1)
    assert sorted(at_rest(cluster)) == ["-v1", "-v2"]
    item = cluster.engine._queues.get(key("both"))
    assert item is not None
    refuse(cluster, "v1")
    assert item.preemptions == 1, "v2 may leave"
    refuse(cluster, "v2")
    assert item.preemptions == 0


def test_another_victim_is_chosen_beside_one_that_leaves() -> None:
    cluster = cluster_of(Settings(), "v1", "v2", "v3")
    cluster.submit("both", "q", 2, priority=1)
    assert at_rest(cluster) == ["-v3", "-v2"]
    refuse(cluster, "v2")
    assert at_rest(cluster) == ["-v1"]
    cluster.leaves("v1")
    cluster.leaves("v3")
    assert at_rest(cluster) == ["+both"]


def test_a_void_eviction_is_tried_again_at_once() -> None:
    cluster = cluster_of(Settings(), "low")
    cluster.submit("high", "q", priority=1)
    assert at_rest(cluster) == ["-low"]
    cluster.tell(events.EvictionFailed(key("low")))
    assert at_rest(cluster) == ["-low"]


class Raises(PreemptionPolicy):
    name = "raises"

    def refuse(self, *_: Any) -> Refusal | None:
        raise ValueError("no idea")


class Keeps(PreemptionPolicy):
    name = "keeps"

    def refuse(self, asking: Any, running: Any, now: float) -> Refusal | None:
        del asking
        return Refusal("it is new", now + 9) if running.key.name == "new" else None


def test_a_policy_that_fails_does_not_bring_back_what_was_refused() -> None:
    cluster = cluster_of(Settings(preemption=Raises()), "other", "low")
    cluster.submit("high", "q", priority=1)
    assert at_rest(cluster) == ["-low"]
    refuse(cluster, "low")
    assert at_rest(cluster) == ["-other"]


def test_both_reasons_to_leave_one_out_are_told_and_the_earlier_end_counts() -> None:
    cluster = cluster_of(Settings(preemption=Keeps()), "new", "low")
    cluster.submit("high", "q", priority=1)
    assert at_rest(cluster) == ["-low"]
    refuse(cluster, "low")
    cluster.cycle()
    reason = cluster.waits["high"].reason
    assert isinstance(reason, NoFlavors)
    assert reason.protected is not None
    assert reason.unevictable is not None
    assert cluster.waits["high"].again == reason.protected.until
    assert reason.text.endswith(f"it is new. {reason.unevictable.text}")


def test_every_refusal_doubles_the_rest() -> None:
    history = PreemptionHistory(0)
    history.refused("u", "no", 1000.0)
    assert history.past().refused["u"].until == 1000.0 + FIRST_REST
    history.refused("u", "still\n  no", 2000.0)
    assert history.past().refused["u"].why == "still no"
    assert history.past().refused["u"].until == 2000.0 + 2 * FIRST_REST
    history.released("u")
    assert not history.past().refused


def test_several_are_told_in_one_sentence() -> None:
    found = Unevictable(key("low"), 3, "no", 0.0)
    assert found.text == (
        "The eviction of ns/low (and 2 more) was refused; tried again at 1970-01-01T00:00:00Z: no"
    )
