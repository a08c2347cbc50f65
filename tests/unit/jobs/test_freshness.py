from __future__ import annotations

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import ObjectKey
from kueuelib.jobs.freshness import Freshness, Write, write_of

KEY, MADE = ObjectKey("ns", "job"), ObjectKey("ns", "wl")


class Seen(dict):
    """What the cache shows, by key."""

    def __call__(self, resource, key):
        version = self.get(key)
        return None if version is None else {"metadata": {"resourceVersion": version}}


def test_a_key_without_writes_never_rests():
    freshness = Freshness()
    freshness.expect(KEY, (), 0.0)
    assert freshness.rest(KEY, Seen(), 0.0) is None


def test_a_key_rests_until_the_cache_shows_another_version():
    freshness = Freshness(patience=5.0)
    freshness.expect(KEY, (Write(JOBS, KEY, frozenset({"1"})),), 0.0)
    assert freshness.rest(KEY, Seen({KEY: "1"}), 2.0) == 3.0
    assert freshness.rest(KEY, Seen({KEY: "2"}), 2.0) is None
    assert len(freshness) == 0


def test_a_key_rests_until_the_cache_shows_what_was_created():
    freshness = Freshness()
    freshness.expect(KEY, (Write(WORKLOADS, MADE),), 0.0)
    assert freshness.rest(KEY, Seen(), 1.0) is not None
    assert freshness.rest(KEY, Seen({MADE: "1"}), 1.0) is None


def test_what_was_seen_once_is_not_awaited_again():
    freshness = Freshness()
    freshness.expect(KEY, (Write(JOBS, KEY, frozenset({"1"})), Write(WORKLOADS, MADE)), 0.0)
    assert freshness.rest(KEY, Seen({KEY: "2"}), 0.0) is not None
    assert freshness.rest(KEY, Seen({KEY: "1", MADE: "1"}), 0.0) is None


def test_an_object_that_is_gone_was_seen():
    freshness = Freshness()
    freshness.expect(KEY, (Write(JOBS, KEY, frozenset({"1"})),), 0.0)
    assert freshness.rest(KEY, Seen(), 0.0) is None


def test_patience_ends():
    freshness = Freshness(patience=5.0)
    freshness.expect(KEY, (Write(JOBS, KEY, frozenset({"1"})),), 0.0)
    assert freshness.rest(KEY, Seen({KEY: "1"}), 5.0) is None
    assert len(freshness) == 0


def test_the_last_of_several_writes_to_an_object_is_awaited():
    freshness = Freshness()
    states = [{"metadata": {"name": "job", "namespace": "ns", "resourceVersion": v}} for v in "12"]
    freshness.expect(KEY, (write_of(JOBS, *states[:1]), write_of(JOBS, *states)), 0.0)
    assert freshness.rest(KEY, Seen({KEY: "2"}), 0.0) is not None
    assert freshness.rest(KEY, Seen({KEY: "3"}), 0.0) is None
