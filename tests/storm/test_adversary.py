"""The adversary does what is legal, and the same at each asking."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from kueuelib.testing.storm.adversary import (
    AMBUSHES,
    MOST_BEHIND,
    TRICKLE,
    Hostile,
    Remaining,
)
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.exchange import ObservedRequest
from kueuelib.testing.storm.faults import CATALOGUE, FINE, FLOWING, Fate
from kueuelib.testing.storm.profiles import (
    PROFILES,
    WORKLOADS,
    Outage,
    Profile,
    Weather,
    weather,
)

VERBS = ("get", "list", "watch", "create", "update", "patch", "apply", "delete")


def call(verb: str, ordinal: int = 0, **more: str) -> ObservedRequest:
    fields = {"owner": "manager-1", "peer": "server", "query": "", "resource": "jobs.batch"}
    return ObservedRequest(
        method="?", path="/", verb=verb, namespace="default", name="one", subresource="",
        ordinal=ordinal, **{**fields, **more},
    )  # fmt: skip


def storm(rate: float = 0.2, *, outages: tuple[Outage, ...] = (), **more: object) -> Weather:
    profile = PROFILES["swarm"]
    return Weather(
        profile=profile,
        rates=dict.fromkeys(profile.kinds, rate),
        longest=20.0,
        focus="",
        spared=frozenset(),
        managers=1,
        outages=outages,
        seconds=100.0,
        **more,
    )


def fates(verb: str, number: int = 400, **more: str) -> list[Fate]:
    hostile = Hostile(Draws(5), storm(), start=0.0)
    return [hostile.call(call(verb, ordinal, **more), 1.0) for ordinal in range(number)]


@pytest.mark.parametrize("verb", VERBS)
def test_each_fault_strikes_only_its_verbs(verb: str) -> None:
    for fate in fates(verb, query="resourceVersion=0") + fates(verb, query="resourceVersion=17"):
        for kind in fate.faults:
            assert verb in CATALOGUE[kind].verbs


def test_every_fault_of_calls_does_strike() -> None:
    struck: Counter[str] = Counter()
    for verb in VERBS:
        for query in ("", "resourceVersion=0", "resourceVersion=17"):
            for fate in fates(verb, query=query):
                struck.update(fate.faults)
    wanted = {kind.name for kind in CATALOGUE.values() if kind.place in {"call", "watch"}}
    assert set(struck) == wanted - {"outage"}


@pytest.mark.parametrize(
    "query", ["", "limit=500", "continue=abc", "resourceVersion=17&resourceVersionMatch=Exact"]
)
def test_a_list_that_has_to_be_new_is_never_stale(query: str) -> None:
    assert all(fate.stale_list is None for fate in fates("list", query=query))


@pytest.mark.parametrize("query", ["resourceVersion=0", "resourceVersion=17"])
def test_a_list_not_older_than_a_version_may_be_stale(query: str) -> None:
    assert any(fate.stale_list for fate in fates("list", query=query))


def test_a_watch_without_a_version_never_expires() -> None:
    found = fates("watch", query="watch=1") + fates("watch", query="resourceVersion=0")
    assert not any("410" in fate.faults for fate in found)


def test_a_refusal_is_never_a_success() -> None:
    for verb in VERBS:
        for fate in fates(verb, query="resourceVersion=17"):
            if fate.refuse is not None:
                assert fate.refuse.status >= 400
                assert not any((fate.lose_answer, fate.silent, fate.instead))


def test_writes_that_were_done_are_never_reported_as_refused_with_4xx() -> None:
    for verb in VERBS:
        for fate in fates(verb):
            assert fate.instead is None or fate.instead.status == 504


def test_users_have_a_clean_link() -> None:
    assert all(fate == FINE for fate in fates("update", owner="user"))


def test_fates_do_not_depend_on_what_was_asked_before() -> None:
    one, other = Hostile(Draws(5), storm()), Hostile(Draws(5), storm())
    for ordinal in range(50):
        other.call(call("get", ordinal), 1.0)
    assert one.call(call("update", 9), 2.0) == other.call(call("update", 9), 3.0)


def test_a_suppressed_fault_changes_no_other_one() -> None:
    full = Hostile(Draws(5), storm(0.2))
    asked = [call("update", ordinal) for ordinal in range(100)]
    first = [full.call(each, 1.0) for each in asked]
    labels = [injection.label for injection in full.injections]
    gone = labels[3]
    less = Hostile(Draws(5), storm(0.2), only=frozenset(labels) - {gone})
    second = [less.call(each, 1.0) for each in asked]
    assert [injection.label for injection in less.injections] == labels[:3] + labels[4:]
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 1


def test_only_bookmarks_are_dropped() -> None:
    hostile = Hostile(Draws(5), storm(0.2))
    kinds: set[str] = set()
    for ordinal in range(200):
        watch = call("watch", ordinal)
        for number in range(10):
            fate = hostile.event(watch, number, b'{"type":"MODIFIED","object":{}}', 1.0)
            assert not fate.drop
            kinds.update(fate.faults)
    assert kinds == {"event-close", "event-cut", "event-silence", "event-gone", "event-delay"}


def test_a_stream_has_all_of_its_bookmarks_or_none() -> None:
    hostile = Hostile(Draws(5), storm(0.2))
    event = b'{"type":"BOOKMARK","object":{}}'
    found = set()
    for ordinal in range(40):
        drops = {hostile.event(call("watch", ordinal), n, event, 1.0).drop for n in range(5)}
        assert len(drops) == 1
        found |= drops
    assert found == {True, False}


def test_the_end_of_the_initial_events_always_arrives() -> None:
    event = b'{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":'
    hostile = Hostile(Draws(5), storm(0.3))
    assert not any(hostile.event(call("watch", n), 0, event, 1.0).drop for n in range(50))


def test_spared_resources_are_left_alone() -> None:
    spared = attrs.evolve(storm(0.9), spared=frozenset({"jobs.batch"}))
    hostile = Hostile(Draws(5), spared)
    assert all(hostile.call(call("update", n), 1.0) == FINE for n in range(50))
    event = b'{"type":"ADDED","object":{}}'
    assert all(hostile.event(call("watch", n), 0, event, 1.0) == FLOWING for n in range(50))


def test_an_outage_strikes_one_side_of_one_resource_for_its_time() -> None:
    outage = Outage("outage/0", "manager-1", "jobs.batch", reads=True, start=10.0, end=20.0)
    hostile = Hostile(Draws(5), storm(0.0, outages=(outage,)), start=1000.0)
    assert hostile.call(call("list"), 1009.0) == FINE
    assert hostile.call(call("list"), 1010.0).faults == ("outage",)
    assert hostile.call(call("update"), 1010.0) == FINE
    assert hostile.call(call("list", resource="pods"), 1010.0) == FINE
    assert hostile.call(call("list", owner="manager-2"), 1010.0) == FINE
    assert hostile.call(call("list"), 1020.0) == FINE


def test_an_outage_of_reads_ends_the_watches_of_its_resource() -> None:
    outage = Outage("outage/0", "manager-1", "jobs.batch", reads=True, start=10.0, end=20.0)
    hostile = Hostile(Draws(5), storm(0.0, outages=(outage,)), start=1000.0)
    event = b'{"type":"ADDED","object":{}}'
    assert hostile.event(call("watch"), 0, event, 1009.0) == FLOWING
    assert hostile.event(call("watch"), 1, event, 1010.0).gone
    assert hostile.event(call("watch", resource="pods"), 1, event, 1010.0) == FLOWING


def test_webhooks_are_away_slow_or_answer_garbage() -> None:
    found = fates("webhook", owner="server", peer="webhook@manager-1")
    kinds = Counter(kind for fate in found for kind in fate.faults)
    assert set(kinds) == {"webhook-away", "webhook-slow", "webhook-garbage"}


def test_connections_are_refused_or_slow() -> None:
    hostile = Hostile(Draws(5), storm(0.3))
    found = [hostile.connect("manager-1", "server", n, 1.0) for n in range(60)]
    assert {kind for fate in found for kind in fate.faults} == {"refused", "slow-connect"}


def test_only_writes_that_matter_end_a_process() -> None:
    hostile = Hostile(Draws(5), storm(0.9))
    leases = [hostile.wrote("manager-1", "leases.coordination.k8s.io", "a", "b", 1.0)] * 50
    jobs = [hostile.wrote("manager-1", "jobs.batch", "a", "b", 1.0) for _ in range(50)]
    assert not any(leases)
    assert set(jobs) == {"", "kill-after-write", "stop-after-write"}


def test_only_what_users_may_write_is_overtaken_and_only_if_there_are_users() -> None:
    def overtaken(resource: str, *, meddlers: bool = True) -> list[Fate]:
        hostile = Hostile(Draws(5), storm(0.9), meddlers=meddlers)
        asked = [call("patch", ordinal, resource=resource) for ordinal in range(200)]
        fates = [hostile.call(each, 1.0) for each in asked]
        return [fate for fate in fates if "overtaken" in fate.faults]

    found = overtaken("jobs.batch")
    assert found
    assert all(fate.delay >= 0.1 and fate.refuse is None for fate in found)
    assert overtaken("clusterqueues.kueue.x-k8s.io") == []
    assert overtaken("jobs.batch", meddlers=False) == []


MOMENTS = {
    "replaced": (WORKLOADS, b'{"status":{"admission":{"podSetAssignments":[]}}}'),
    "doubted": (WORKLOADS, b'{"status":{"admission":{"podSetAssignments":[]}}}'),
    "recreated": ("jobs.batch", b'{"spec":{"suspend":false}}'),
    "undone": ("jobs.batch", b'{"spec":{"suspend":false}}'),
    "overslept": (WORKLOADS, b'{"status":{"conditions":[{"type":"Finished"}]}}'),
}


def ambushed(kind: str, body: bytes, *, meddlers: bool = True) -> list[Fate]:
    hostile = Hostile(Draws(5), attrs.evolve(storm(), rates={kind: 0.6}), meddlers=meddlers)
    asked = attrs.evolve(call("patch", resource=MOMENTS[kind][0]), body=body)
    return [hostile.call(attrs.evolve(asked, ordinal=number), 1.0) for number in range(40)]


@pytest.mark.parametrize("kind", MOMENTS)
def test_an_ambush_waits_for_its_moment_and_for_users(kind: str) -> None:
    right = MOMENTS[kind][1]
    assert {fate.faults for fate in ambushed(kind, right)} == {(), (kind,)}
    assert set(ambushed(kind, right, meddlers=False)) == {FINE}
    assert set(ambushed(kind, b"{}")) == {FINE}


def test_every_ambush_has_a_moment() -> None:
    assert set(MOMENTS) == set(AMBUSHES)


def test_the_events_of_a_watch_may_come_one_by_one() -> None:
    hostile = Hostile(Draws(2), attrs.evolve(storm(), rates={"trickle": 0.6}))
    late = [hostile.event(call("watch", 1), number, b"{}", 10.0).delay for number in range(20)]
    assert late[:3] == [0.0, TRICKLE, 2 * TRICKLE]
    assert late[-1] == MOST_BEHIND


def test_events_are_often_late_after_a_lost_answer() -> None:
    weather = attrs.evolve(storm(), rates={"lost-answer": 0.6, "event-delay": 0.3})
    hostile = Hostile(Draws(5), weather)
    for ordinal in range(30):
        hostile.call(call("patch", ordinal), 1.0)
    assert any(each.label.endswith("stall/event-delay") for each in hostile.injections)
    watch = call("watch", 0)
    assert {hostile.event(watch, n, b"{}", 1.0).faults for n in range(3)} == {("event-delay",)}
    assert all(hostile.event(watch, n, b"{}", 1.0).delay > 0 for n in range(3))


def test_in_the_calm_the_first_change_of_an_object_may_meet_a_conflict() -> None:
    calm = Remaining(lags=False, conflicts=True)
    assert calm.call(call("list", query="resourceVersion=17"), 1.0) == FINE
    assert calm.call(call("patch", owner="user"), 1.0) == FINE
    assert calm.call(call("patch", resource="leases.coordination.k8s.io"), 1.0) == FINE
    found = [calm.call(call(verb), 1.0).faults for verb in ("patch", "patch", "apply")]
    assert found == [("409",), (), ()]


def test_in_the_calm_replicas_may_lag_for_ever() -> None:
    calm = Remaining(lags=True, conflicts=False)
    for _ in range(2):
        found = calm.call(call("list", query="resourceVersion=17"), 1.0)
        assert found.faults == ("too-large-version",)
    for fine in (call("list"), call("list", query="resourceVersion=17&continue=x"), call("patch")):
        assert calm.call(fine, 1.0) == FINE


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_weather_stays_within_its_profile(profile: Profile) -> None:
    for seed in range(50):
        drawn = weather(Draws(seed).stream("weather"), profile)
        assert set(drawn.rates) <= profile.kinds | profile.always
        assert profile.always <= set(drawn.rates)
        assert drawn.managers in profile.managers
        assert drawn.longest in profile.longest


def test_half_of_the_seeds_have_no_restarts() -> None:
    restarts = {"kill", "kill-after-write", "server-restart", "server-amnesia"}
    found = [
        not restarts.isdisjoint(weather(Draws(seed).stream("w"), PROFILES["swarm"]).rates)
        for seed in range(400)
    ]
    assert 0.3 < sum(found) / len(found) < 0.55


def test_every_kind_of_fault_is_active_in_some_seed_of_the_swarm_or_at_moments() -> None:
    active = set(weather(Draws(0), PROFILES["moments"]).rates)
    for seed in range(100):
        active |= weather(Draws(seed).stream("w"), PROFILES["swarm"]).rates.keys()
    assert active == set(CATALOGUE)
