"""Which events are created, counted, combined and dropped."""

from __future__ import annotations

import pytest

from kueuelib.errors import ConfigError
from kueuelib.machinery.recurrence import COMBINED, CreateEvent, EventFacts, EventSeries, PatchEvent

NOW = 1_700_000_000.0
POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "p", "uid": "u"}


def facts(message="m", reason="Started", regarding=POD, type="Normal"):
    return EventFacts(regarding, type, reason, message, "tester", "tester-host")


def test_the_first_occurrence_creates_an_event():
    write = EventSeries().record(facts(), NOW)
    assert isinstance(write, CreateEvent)
    assert write.obj == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "n", "name": f"p.{int(NOW * 1e9):x}"},
        "involvedObject": POD,
        "type": "Normal",
        "reason": "Started",
        "message": "m",
        "source": {"component": "tester"},
        "reportingComponent": "tester",
        "reportingInstance": "tester-host",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }


def test_the_same_facts_again_only_count():
    series = EventSeries()
    created = series.record(facts(), NOW)
    again = series.record(facts(), NOW + 60)
    assert isinstance(again, PatchEvent)
    assert again.key == ("n", created.obj["metadata"]["name"])
    assert again.patch == {"count": 2, "lastTimestamp": "2023-11-14T22:14:20Z", "message": "m"}


@pytest.mark.parametrize(
    "other",
    [
        facts(message="other"),
        facts(reason="Stopped"),
        facts(type="Warning"),
        facts(regarding={**POD, "uid": "u2"}),
    ],
)
def test_other_facts_are_another_event_with_another_name(other):
    series = EventSeries()
    first = series.record(facts(), NOW)
    second = series.record(other, NOW)
    assert isinstance(second, CreateEvent)
    assert second.obj["metadata"]["name"] != first.obj["metadata"]["name"]


def test_many_similar_messages_share_one_event():
    series = EventSeries()
    writes = [series.record(facts(message=f"m{n}"), NOW + n) for n in range(13)]
    assert [type(write) for write in writes] == [CreateEvent] * 11 + [PatchEvent] * 2
    assert writes[9].obj["message"] == "m9"
    assert writes[10].obj["message"] == COMBINED + "m10"
    assert writes[12].patch["message"] == COMBINED + "m12"
    assert writes[12].patch["count"] == 3


def test_similar_messages_are_forgotten_after_ten_minutes_of_silence():
    series = EventSeries()
    for n in range(11):
        series.record(facts(message=f"m{n}"), NOW)
    later = series.record(facts(message="fresh"), NOW + 601)
    assert later.obj["message"] == "fresh"


def test_a_talkative_source_is_cut_off_per_object_and_slowly_heard_again():
    series = EventSeries()
    writes = [series.record(facts(), NOW) for _ in range(30)]
    assert [write is None for write in writes] == [False] * 25 + [True] * 5
    assert series.dropped == 5
    assert series.record(facts(regarding={**POD, "name": "q"}), NOW) is not None
    late = series.record(facts(), NOW + 300)
    assert late.patch["count"] == 31


def test_an_event_that_the_server_lost_is_created_again_with_its_count():
    series = EventSeries()
    series.record(facts(), NOW)
    patch = series.record(facts(), NOW + 1)
    created = series.lost(patch.series, NOW + 2)
    assert created.obj["count"] == 2
    assert created.obj["metadata"]["name"] != patch.key.name
    assert series.record(facts(), NOW + 3).key.name == created.obj["metadata"]["name"]


def test_a_forgotten_series_starts_anew():
    series = EventSeries()
    first = series.record(facts(), NOW)
    series.forget(first.series)
    assert isinstance(series.record(facts(), NOW), CreateEvent)
    assert series.lost("unknown", NOW) is None


def test_events_of_cluster_scoped_objects_live_in_the_default_namespace():
    write = EventSeries().record(facts(regarding={"kind": "ClusterQueue", "name": "q"}), NOW)
    assert write.obj["metadata"]["namespace"] == "default"


def test_long_texts_are_cut_at_whole_letters():
    found = facts(message="é" * 600, reason="R" * 200)
    assert len(found.message.encode()) <= 1024
    assert found.message.endswith("é...")
    assert len(found.reason) == 128
    with pytest.raises(ConfigError, match="no such type; write 'Normal' or"):
        facts(type="Odd")


def test_memory_is_bounded():
    series = EventSeries(remembered=3)
    first = series.record(facts(regarding={**POD, "name": "o0"}), NOW)
    for n in range(1, 4):
        series.record(facts(regarding={**POD, "name": f"o{n}"}), NOW)
    assert series.lost(first.series, NOW) is None
