"""What is known before the watch shows it, row by row."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import PODS
from kueuelib.errors import InvalidSelector
from kueuelib.machinery.reflector import ReflectorCore
from kueuelib.machinery.reflector_protocol import (
    Apply,
    List,
    Listed,
    ListFailed,
    Received,
    Replace,
    ReportError,
    StreamEnded,
    Tick,
    WatchEvent,
    WatchOpened,
)
from kueuelib.machinery.replica import WatchScope, is_last_state, number_of
from kueuelib.machinery.store import Delta, DeltaKind, Store, StoreUpdate, same_version


def pod(name, version, uid="u", **meta):
    own = {"namespace": "n", "name": name, "resourceVersion": str(version), "uid": uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**own, **meta}}


def watching(*pods, version="10", transform=None):
    core = ReflectorCore(PODS, transform=transform)
    core.start(0.0, 0.0)
    core.step(Listed(pods, version), 0.0, 0.0)
    core.step(WatchOpened(), 0.0, 0.0)
    return core


def seen(core, *events):
    commands = core.step(Received([WatchEvent(*event) for event in events]), 0.0, 0.0)
    return [change for each in commands if isinstance(each, Apply) for change in each.changes]


def test_an_answer_that_is_news_enters_the_store():
    core, answer = watching(), pod("a", 12)
    assert core.learn(answer) == (StoreUpdate(("n", "a"), answer),)
    assert core.ahead == 1
    assert core.learn(pod("a", 11)) == ()


@pytest.mark.parametrize("shared", [False, True])
def test_a_shared_answer_is_kept_itself_and_another_one_is_copied(shared):
    core, answer = watching(), pod("a", 12)
    (change,) = core.learn(answer, shared=shared)
    assert (change.value is answer) == shared


def test_an_answer_that_the_watch_has_passed_says_nothing_new():
    core = watching(pod("a", 5))
    seen(core, ("DELETED", pod("a", 12)))
    assert core.learn(pod("a", 11)) == ()
    assert core.learn(pod("a", 12)) == ()
    assert core.ahead == 0


def test_events_from_before_the_answer_change_nothing():
    core = watching()
    core.learn(pod("a", 15))
    assert seen(core, ("ADDED", pod("a", 12)), ("DELETED", pod("a", 13))) == []
    assert seen(core, ("MODIFIED", pod("b", 15))) == [StoreUpdate(("n", "b"), pod("b", 15))]
    assert core.ahead == 0


def test_an_event_that_repeats_the_answer_changes_nothing():
    transformed = []
    core = watching(transform=lambda obj: transformed.append(obj) or obj)
    core.learn(pod("a", 15))
    assert seen(core, ("MODIFIED", pod("a", 15))) == []
    assert (core.ahead, len(transformed)) == (0, 1)


def test_an_event_about_what_an_answer_says_is_elsewhere_counts():
    core = watching()
    core.learn(pod("a", 15), included=False)
    assert seen(core, ("MODIFIED", pod("a", 15))) == [StoreUpdate(("n", "a"), pod("a", 15))]


def test_a_deletion_after_the_answer_counts():
    core = watching()
    core.learn(pod("a", 15))
    assert seen(core, ("DELETED", pod("a", 15))) == [StoreUpdate(("n", "a"), None)]


def test_the_copy_passes_the_transform_and_the_answer_stays_whole():
    def small(obj):
        del obj["spec"]
        return obj

    core, answer = watching(transform=small), {**pod("a", 12), "spec": {}}
    assert core.learn(answer) == (StoreUpdate(("n", "a"), pod("a", 12)),)
    assert "spec" in answer


@pytest.mark.parametrize("version", ["", "x7", "0"])
def test_versions_that_do_not_compare_teach_nothing(version):
    assert watching().learn(pod("a", version)) == ()
    assert watching(version=version).learn(pod("a", 5)) == ()


def test_before_the_first_list_an_answer_only_says_how_new_a_later_one_must_be():
    core = ReflectorCore(PODS)
    core.start(0.0, 0.0)
    assert core.learn(pod("a", 12)) == ()
    core.step(ListFailed(OSError()), 0.0, 0.0)
    assert core.step(Tick(), 1.0, 0.0) == (List("12", 0, cause="error"),)


def test_a_list_that_is_older_than_an_answer_leaves_it_alone():
    core = watching(pod("a", 5), pod("b", 6))
    core.step(StreamEnded(OSError()), 0.0, 0.0)
    core.learn(pod("c", 20))
    assert core.step(Tick(), 1.0, 0.0) == (List("20", 0, cause="error"),)
    core.learn(pod("a", 22))
    replace = core.step(Listed([pod("a", 5), pod("d", 20)], "21"), 1.0, 0.0)[0]
    assert replace == Replace(((("n", "d"), pod("d", 20)),), False, frozenset({("n", "a")}))


def test_a_list_that_is_older_than_asked_for_is_asked_again_and_then_believed():
    core = watching(pod("a", 5), version="50")
    core.step(StreamEnded(OSError()), 0.0, 0.0)
    core.step(Tick(), 1.0, 0.0)
    report, again = core.step(Listed([], "40"), 1.0, 0.0)
    assert isinstance(report, ReportError)
    assert "asked for version 50 or newer, got 40" in str(report.error)
    assert again == List("", 500, cause="outdated")
    assert core.step(Listed([], "40"), 1.0, 0.0)[1] == Replace((), initial=False)


def test_what_no_watch_confirms_is_decided_by_a_consistent_list():
    core = watching(pod("a", 5), pod("b", 6))
    core.step(StreamEnded(), 10.0, 0.0)  # what is learned now precedes the next stream
    core.learn(pod("a", 900))
    core.lose(pod("b", 6))
    core.step(WatchOpened(), 10.0, 0.0)
    assert core.step(StreamEnded(), 60.0, 0.0)[-1].cause == "ended"
    core.step(WatchOpened(), 60.0, 0.0)
    core.step(StreamEnded(), 120.0, 0.0)
    assert core.step(Tick(), 121.0, 0.0) == (List("", 500, cause="unconfirmed"),)
    core.learn(pod("c", 950))
    replace = core.step(Listed([pod("b", 6)], "940"), 121.0, 0.0)[0]
    assert replace == Replace(((("n", "b"), pod("b", 6)),), False, frozenset({("n", "c")}))


def test_a_long_stream_confirms_what_it_delivers():
    core = watching()
    core.step(StreamEnded(), 10.0, 0.0)
    core.learn(pod("a", 15))
    core.step(WatchOpened(), 10.0, 0.0)
    seen(core, ("ADDED", pod("a", 15)))
    core.learn(pod("b", 18))
    assert core.step(StreamEnded(), 90.0, 0.0)[-1].cause == "ended"


def test_what_is_gone_does_not_come_back():
    core = watching(pod("a", 5))
    assert core.lose(pod("a", 5)) == (StoreUpdate(("n", "a"), None),)
    assert seen(core, ("MODIFIED", pod("a", 11))) == []
    assert core.learn(pod("a", 12)) == ()
    assert core.ahead == 1
    assert seen(core, ("DELETED", pod("a", 13))) == []
    assert core.ahead == 0


def test_another_object_of_the_name_takes_the_place_of_one_that_is_gone():
    core = watching(pod("a", 5))
    core.lose(pod("a", 5))
    assert core.learn(pod("a", 14, "new")) == (StoreUpdate(("n", "a"), pod("a", 14, "new")),)
    events = ("MODIFIED", pod("a", 11)), ("DELETED", pod("a", 12)), ("ADDED", pod("a", 14, "new"))
    assert seen(core, *events) == []
    assert core.ahead == 0


def test_an_object_that_left_the_scope_is_dropped():
    core = watching(pod("a", 5))
    assert core.learn(pod("a", 12), included=False) == (StoreUpdate(("n", "a"), None),)
    assert seen(core, ("MODIFIED", pod("a", 11))) == []


def test_the_same_version_again_is_no_delta():
    store = Store()
    key = ("n", "a")
    store.apply([StoreUpdate(key, pod("a", 5))], same=same_version)
    assert store.apply([StoreUpdate(key, pod("a", 5))], same=same_version) == ()
    again = store.apply([StoreUpdate(key, pod("a", 5, "new"))], same=same_version)
    assert again == (Delta(DeltaKind.UPDATED, key, pod("a", 5), pod("a", 5, "new")),)


@pytest.mark.parametrize(
    ("meta", "last"),
    [
        ({}, False),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}, True),
        ({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}, False),
        ({"deletionTimestamp": "t"}, False),
        (
            {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0, "finalizers": ["x"]},
            False,
        ),
    ],
)
def test_the_last_state_of_an_object(meta, last):
    assert is_last_state(pod("a", 5, **meta)) is last


@pytest.mark.parametrize(
    ("scope", "included"),
    [
        (("", "", ""), True),
        (("n", "", ""), True),
        (("m", "", ""), False),
        (("", "q", ""), True),
        (("", "q=y", ""), False),
        (("", "", "metadata.name=a"), True),
        (("", "", "metadata.name=b"), False),
        (("", "", "status.phase!=Failed"), None),
        (("", "", "kind=Pod"), True),
        (("", "", "kind!=Pod"), False),
    ],
)
def test_what_belongs_to_a_scope(scope, included):
    assert WatchScope.parse(*scope).includes(pod("a", 5, labels={"q": "x"})) is included


def test_a_selector_that_cannot_be_read():
    with pytest.raises(InvalidSelector):
        WatchScope.parse("", "a in", "")


def test_versions_as_numbers():
    assert [number_of(each) for each in ("12", "", "x", "-1", "1.5")] == [12, 0, 0, 0, 0]
