"""Each row of the list and watch tables, fed by hand."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import (
    BadRequest,
    Forbidden,
    Gone,
    HistoryLost,
    ServerError,
    ServerTimeout,
    TooManyRequests,
    TransportError,
    Unauthorized,
    api_error,
)
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.machinery.reflector import ReflectorCore
from kueuelib.machinery.reflector_protocol import (
    Apply,
    List,
    Listed,
    ListFailed,
    MalformedStream,
    MarkSynced,
    Received,
    Replace,
    ReportError,
    Sleep,
    StreamEnded,
    Tick,
    Watch,
    WatchEvent,
    WatchOpened,
)
from kueuelib.machinery.replica import INITIAL_EVENTS_END
from kueuelib.machinery.store import StoreUpdate

REFUSED = TransportError("https://host", "connection refused")
GONE = Gone("too old resource version")
A, B = ObjectKey("n", "a"), ObjectKey("n", "b")


def pod(name, version):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "n", "name": name, "resourceVersion": version},
    }


class Driven:
    """A core with a clock; `core.feed(...)` returns the commands without the reports."""

    def __init__(self, **options):
        self.core = ReflectorCore(PODS, options=ReflectorOptions(**{"any_start": True, **options}))
        self.now = 0.0
        self.reports = []
        self.first = self.clean(self.core.start(self.now, 0.0))

    def clean(self, commands):
        self.reports += [c for c in commands if isinstance(c, ReportError)]
        return [c for c in commands if not isinstance(c, ReportError)]

    def feed(self, event, after=0.0):
        self.now += after
        return self.clean(self.core.step(event, self.now, 0.0))

    def woken(self, commands):
        (sleep,) = commands
        assert isinstance(sleep, Sleep)
        return self.feed(Tick(), after=sleep.seconds)


def watching(version="7", **options):
    driven = Driven(**options)
    driven.feed(Listed([pod("a", "5")], version))
    driven.feed(WatchOpened())
    return driven


def events(*pairs):
    return Received([WatchEvent(*pair) for pair in pairs])


# ---- lists --------------------------------------------------------------------------------------


def test_the_first_list_is_a_consistent_read():
    driven = Driven(any_start=False)
    assert driven.first == [List("", 500, cause="start")]
    driven.feed(Listed([pod("a", "5")], "7"))
    driven.feed(WatchOpened())
    assert driven.woken(driven.feed(StreamEnded(REFUSED))) == [List("7", 0, cause="error")]


def test_the_first_list_may_come_from_any_watch_cache():
    assert Driven().first == [List("0", 500, cause="start")]


def test_a_list_replaces_marks_synced_and_watches_from_its_version():
    driven = Driven()
    commands = driven.feed(Listed([pod("a", "5")], "7"))
    assert commands == [
        Replace(((A, pod("a", "5")),), initial=True),
        MarkSynced(),
        Watch("7", 300, cause="listed"),
    ]
    assert driven.core.synced
    assert driven.core.version == "7"


def test_the_timeout_of_a_watch_lies_between_five_and_ten_minutes():
    core = ReflectorCore()
    core.start(0.0, 0.0)
    commands = core.step(Listed([], "7"), 0.0, 0.999)
    assert commands[-1] == Watch("7", 599)


def test_pages_are_collected_and_replaced_once():
    driven = Driven(page_size=1)
    assert driven.first == [List("0", 1, cause="start")]
    assert driven.feed(Listed([pod("a", "5")], "7", "more")) == [List("", 1, "more", "page")]
    commands = driven.feed(Listed([pod("b", "6")], "7"))
    assert commands[0] == Replace(((A, pod("a", "5")), (B, pod("b", "6"))), initial=True)


def test_an_expired_continue_token_leads_to_one_full_list():
    driven = Driven()
    driven.feed(Listed([pod("a", "5")], "7", "more"))
    assert driven.feed(ListFailed(GONE)) == [List("0", 0, cause="expired")]
    assert driven.feed(Listed([pod("b", "6")], "8"))[0] == Replace(
        ((B, pod("b", "6")),), initial=True
    )


def test_a_relist_names_the_last_version_and_has_no_limit():
    driven = watching()
    driven.feed(events(("MODIFIED", pod("a", "9"))))
    assert driven.woken(driven.feed(StreamEnded(REFUSED))) == [List("9", 0, cause="error")]


def test_a_server_without_a_watch_cache_is_relisted_in_pages():
    driven = Driven()
    driven.feed(Listed([], "7", "more"))
    driven.feed(Listed([], "7"))
    driven.feed(WatchOpened())
    assert driven.woken(driven.feed(StreamEnded(GONE))) == [List("7", 500, cause="expired")]


@pytest.mark.parametrize(
    "error",
    [
        GONE,
        ServerTimeout("Too large resource version: 9, current: 7"),
        ServerTimeout("later", details={"causes": [{"reason": "ResourceVersionTooLarge"}]}),
    ],
)
def test_an_unavailable_version_is_replaced_by_a_consistent_read_at_once(error):
    driven = Driven()
    assert driven.feed(ListFailed(error)) == [List("", 500, cause="expired")]
    assert driven.woken(driven.feed(ListFailed(error))) == [List("", 500, cause="error")]
    driven.feed(Listed([], "9"))
    driven.feed(WatchOpened())
    assert driven.woken(driven.feed(StreamEnded(GONE))) == [List("9", 0, cause="expired")]


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        Forbidden("no"),
        Unauthorized("who"),
        ServerError("oops"),
        ServerTimeout("slow"),
        ValueError("not JSON"),
    ],
)
def test_a_failed_list_is_reported_and_repeated_after_growing_pauses(error):
    driven = Driven()
    pauses = []
    for _ in range(8):
        commands = driven.feed(ListFailed(error))
        pauses.append(commands[0].seconds)
        assert driven.woken(commands) == [List("0", 500, cause="error")]
    assert pauses == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])
    assert [report.error for report in driven.reports] == [error] * 8


def test_pauses_start_anew_after_two_minutes_of_health():
    driven = Driven()
    for _ in range(5):
        driven.woken(driven.feed(ListFailed(REFUSED)))
    driven.feed(Listed([], "7"))
    driven.feed(WatchOpened())
    assert driven.feed(StreamEnded(GONE), after=121.0) == [Sleep(0.8)]


def test_a_listed_object_without_a_name_fails_the_list():
    driven = Driven()
    assert driven.feed(Listed([{"metadata": {}}], "7")) == [Sleep(0.8)]
    assert isinstance(driven.reports[0].error, MalformedStream)


def test_listed_objects_get_the_kind_that_the_list_leaves_out():
    driven = Driven()
    bare = {"metadata": {"namespace": "n", "name": "a", "resourceVersion": "5"}}
    assert driven.feed(Listed([bare], "7"))[0].items == ((A, pod("a", "5")),)


# ---- watches ------------------------------------------------------------------------------------


def test_events_change_the_store_in_order_and_carry_the_version():
    driven = watching()
    commands = driven.feed(
        events(("ADDED", pod("b", "8")), ("MODIFIED", pod("b", "9")), ("DELETED", pod("a", "10")))
    )
    assert commands == [
        Apply((StoreUpdate(B, pod("b", "8")), StoreUpdate(B, pod("b", "9")), StoreUpdate(A, None)))
    ]
    assert driven.core.version == "10"


def test_a_bookmark_only_moves_the_version():
    driven = watching()
    assert driven.feed(events(("BOOKMARK", pod("", "50")))) == []
    assert driven.feed(StreamEnded(), after=60.0) == [Watch("50", 300, cause="ended")]


def test_a_stream_that_ends_normally_is_reopened_without_a_list():
    driven = watching()
    assert driven.feed(StreamEnded(), after=300.0) == [Watch("7", 300, cause="ended")]
    assert driven.reports == []


def test_a_short_stream_without_events_leads_to_a_pause_and_a_list():
    driven = watching()
    assert driven.woken(driven.feed(StreamEnded(), after=0.9)) == [
        List("7", 0, cause="short-watch")
    ]
    assert len(driven.reports) == 1


def test_a_short_stream_with_events_is_reopened_a_second_after_it_began():
    driven = watching()
    driven.feed(events(("MODIFIED", pod("a", "9"))))
    commands = driven.feed(StreamEnded(), after=0.25)
    assert commands == [Sleep(0.75)]
    assert driven.woken(commands) == [Watch("9", 300, cause="ended")]


def test_a_refused_watch_is_tried_again_without_a_list():
    driven = Driven()
    driven.feed(Listed([], "7"))
    for pause in (0.8, 1.6):
        commands = driven.feed(StreamEnded(TooManyRequests("slow down")))
        assert commands == [Sleep(pause)]
        assert driven.woken(commands) == [Watch("7", 300, cause="retry")]


LOOK = List("", 1, cause="look")


def test_a_server_that_was_away_is_asked_where_it_stands_before_the_watch_goes_on():
    driven = watching()
    driven.feed(StreamEnded(), after=60.0)
    assert driven.woken(driven.feed(StreamEnded(REFUSED))) == [LOOK]
    for error in (REFUSED, TooManyRequests("not yet")):
        assert driven.woken(driven.feed(ListFailed(error))) == [LOOK]
    assert driven.feed(Listed([pod("a", "5")], "9", "more")) == [Watch("7", 300, cause="retry")]
    assert driven.woken(driven.feed(StreamEnded(REFUSED))) == [LOOK]
    assert driven.woken(driven.feed(ListFailed(ServerError("oops")))) == [
        List("7", 0, cause="error")
    ]


def test_a_server_that_was_restored_from_an_older_copy_is_listed_and_said_to_be():
    driven = watching()
    driven.feed(StreamEnded(), after=60.0)
    driven.woken(driven.feed(StreamEnded(REFUSED)))
    assert driven.feed(Listed([], "6")) == [List("", 500, cause="outdated")]
    driven.reports.clear()
    replace, watch = driven.feed(Listed([pod("b", "6")], "6"))
    assert replace == Replace(((B, pod("b", "6")),), initial=False)
    assert watch == Watch("6", 300, cause="listed")
    assert [str(each.error) for each in driven.reports] == [
        "pods had resource version 7, and now 6: the server was restored from an older copy"
    ]
    assert isinstance(driven.reports[0].error, HistoryLost)


def test_a_list_from_a_replica_that_lags_is_no_older_copy():
    driven = watching()
    driven.woken(driven.feed(StreamEnded(GONE)))
    assert driven.feed(Listed([], "6")) == [List("", 500, cause="outdated")]
    driven.feed(Listed([pod("a", "5")], "7"))
    assert not any(isinstance(each.error, HistoryLost) for each in driven.reports)


def test_the_pause_that_the_server_asks_for_is_kept():
    driven = Driven()
    driven.feed(Listed([], "7"))
    error = api_error(429, None, retry_after=17.0)
    assert driven.feed(StreamEnded(error)) == [Sleep(17.0)]


def error_event(code, reason):
    return ("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "m"})


def test_too_many_requests_within_a_stream_reopen_the_watch():
    driven = watching()
    commands = driven.feed(events(error_event(429, "TooManyRequests")))
    assert driven.woken(commands) == [Watch("7", 300, cause="retry")]


def test_internal_errors_reopen_the_watch_for_a_while_and_then_list():
    driven = watching(internal_error_retry=3.0)
    asked = []
    for _ in range(4):
        commands = driven.woken(driven.feed(events(error_event(500, "InternalError"))))
        asked += commands
        if isinstance(commands[0], List):
            break
        driven.feed(WatchOpened())
    retry = Watch("7", 300, cause="retry")
    assert asked == [retry, retry, retry, List("7", 0, cause="error")]
    assert driven.now == pytest.approx(0.8 + 1.6 + 3.2 + 6.4)


@pytest.mark.parametrize("code", [410, 401, 403, 503])
def test_other_errors_within_a_stream_lead_to_a_list_at_the_last_version(code):
    driven = watching()
    commands = driven.feed(events(("MODIFIED", pod("a", "9")), error_event(code, "X")))
    assert commands[0] == Apply((StoreUpdate(A, pod("a", "9")),))
    (asked,) = driven.woken(commands[1:])
    assert asked == List("9", 0, cause="expired" if code == 410 else "error")
    assert driven.reports[0].error.code == code


@pytest.mark.parametrize("error", [REFUSED, ValueError("not JSON"), EOFError()])
def test_a_broken_stream_leads_to_a_list_at_the_last_version(error):
    driven = watching()
    assert driven.woken(driven.feed(StreamEnded(error), after=50.0)) == [
        List("7", 0, cause="error")
    ]


def test_an_expired_watch_tries_the_last_version_before_a_consistent_read():
    driven = Driven()
    driven.feed(Listed([], "7"))
    assert driven.woken(driven.feed(StreamEnded(GONE))) == [List("7", 0, cause="expired")]
    assert driven.feed(ListFailed(GONE)) == [List("", 500, cause="expired")]


def test_objects_of_another_kind_are_reported_and_dropped():
    driven = watching()
    stranger = {"kind": "Node", "metadata": {"name": "x", "resourceVersion": "99"}}
    assert driven.feed(events(("ADDED", stranger), ("ODD", pod("a", "98")))) == []
    assert driven.core.version == "7"
    assert [str(report.error) for report in driven.reports] == [
        "a watch of Pod delivered a Node",
        "unknown watch event 'ODD'",
    ]


def test_an_event_without_a_name_ends_the_stream_after_what_came_before_it():
    driven = watching()
    broken = {"kind": "Pod", "metadata": {"resourceVersion": "9"}}
    commands = driven.feed(events(("MODIFIED", pod("a", "8")), ("ADDED", broken)))
    assert commands == [Apply((StoreUpdate(A, pod("a", "8")),)), Sleep(0.8)]


def test_versions_of_a_stream_without_a_start_are_not_trusted_until_it_reports_a_change():
    driven = watching(version="")
    driven.feed(events(("ADDED", pod("b", "20"))))
    assert driven.core.version == ""
    driven.feed(events(("MODIFIED", pod("a", "9"))))
    assert driven.core.version == "9"


def test_a_stream_that_never_became_trusted_leads_to_a_list():
    driven = watching(version="")
    driven.feed(events(("ADDED", pod("b", "20"))))
    assert driven.woken(driven.feed(StreamEnded(), after=60.0)) == [
        List("0", 500, cause="untrusted")
    ]


def test_each_object_passes_the_transform_once():
    seen = []

    def note(obj):
        seen.append(obj["metadata"]["resourceVersion"])
        return {**obj, "seen": True}

    core = ReflectorCore(PODS, transform=note)
    core.start(0.0, 0.0)
    (replace, *_) = core.step(Listed([pod("a", "5")], "7"), 0.0, 0.0)
    core.step(WatchOpened(), 0.0, 0.0)
    (apply,) = core.step(events(("MODIFIED", pod("a", "8")), ("DELETED", pod("a", "9"))), 1.0, 0.0)
    assert seen == ["5", "8"]
    assert replace.items[0][1]["seen"]
    assert apply.changes[0].value["seen"]


# ---- initial events -----------------------------------------------------------------------------


def end_of_initial_events(version):
    obj = pod("", version)
    obj["metadata"]["annotations"] = {INITIAL_EVENTS_END: "true"}
    return ("BOOKMARK", obj)


def test_initial_events_are_collected_until_their_end_and_the_stream_goes_on():
    driven = Driven(stream_lists=True)
    assert driven.first == [Watch("", 300, initial_events=True, cause="start")]
    driven.feed(WatchOpened())
    assert driven.feed(events(("ADDED", pod("a", "5")), ("ADDED", pod("b", "6")))) == []
    assert driven.feed(events(("DELETED", pod("b", "8")))) == []
    commands = driven.feed(events(end_of_initial_events("8"), ("ADDED", pod("b", "9"))))
    assert commands == [
        Replace(((A, pod("a", "5")),), initial=True),
        MarkSynced(),
        Apply((StoreUpdate(B, pod("b", "9")),)),
    ]
    assert driven.feed(StreamEnded(), after=300.0) == [Watch("9", 300, cause="ended")]


def test_broken_initial_events_start_again_from_nothing():
    driven = Driven(stream_lists=True)
    driven.feed(WatchOpened())
    driven.feed(events(("ADDED", pod("a", "5"))))
    assert driven.woken(driven.feed(StreamEnded(TooManyRequests("x")))) == [
        Watch("", 300, initial_events=True, cause="error")
    ]
    driven.feed(WatchOpened())
    assert driven.feed(events(end_of_initial_events("8")))[0] == Replace((), initial=True)


def test_a_server_that_refuses_initial_events_is_listed_from_then_on():
    driven = Driven(stream_lists=True)
    assert driven.feed(StreamEnded(BadRequest("unknown"))) == [List("0", 500, cause="unsupported")]
    driven.feed(Listed([], "7"))
    assert driven.woken(driven.feed(StreamEnded(GONE))) == [List("7", 0, cause="expired")]


def test_another_failure_of_initial_events_is_followed_by_one_list():
    driven = Driven(stream_lists=True)
    assert driven.woken(driven.feed(StreamEnded(ServerError("oops")))) == [
        List("0", 500, cause="error")
    ]
    driven.feed(Listed([], "7"))
    assert driven.woken(driven.feed(StreamEnded(GONE))) == [
        Watch("7", 300, initial_events=True, cause="expired")
    ]


def test_an_expired_version_restarts_the_initial_events_without_one():
    driven = Driven(stream_lists=True)
    driven.feed(WatchOpened())
    driven.feed(events(end_of_initial_events("8")))
    driven.woken(driven.feed(StreamEnded(GONE)))
    assert driven.feed(StreamEnded(GONE)) == [Watch("", 300, initial_events=True, cause="expired")]
    assert isinstance(driven.feed(StreamEnded(GONE))[0], Sleep)


def test_a_missing_end_of_the_initial_events_is_reported_and_then_replaced_by_a_list():
    driven = Driven(stream_lists=True)
    assert driven.core.deadline is None
    driven.feed(WatchOpened())
    assert driven.core.deadline == 10.0
    assert driven.feed(Tick(), after=9.0) == []
    assert driven.reports == []
    assert driven.feed(Tick(), after=1.0) == []
    assert len(driven.reports) == 1
    assert driven.core.deadline == 30.0
    assert driven.feed(Tick(), after=20.0) == [List("0", 500, cause="unsupported")]


# ---- misuse -------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit_are_refused():
    driven = Driven()
    for event in (WatchOpened(), Received([]), StreamEnded(), Tick()):
        with pytest.raises(ValueError, match="does not fit while listing"):
            driven.core.step(event, 0.0, 0.0)
    with pytest.raises(ValueError, match="started only once"):
        driven.core.start(0.0, 0.0)
