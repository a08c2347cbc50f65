"""Events: stored once, shown by two groups."""

from __future__ import annotations

import pytest

OLD = "/api/v1/namespaces/default/events"
NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
POD = {"kind": "Pod", "namespace": "default", "name": "p", "apiVersion": "v1"}


def old(name="e", **fields):
    return {
        "metadata": {"name": name},
        "involvedObject": POD,
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
        "count": 2,
        "source": {"component": "kubelet"},
        "firstTimestamp": "2020-01-01T00:00:00Z",
        **fields,
    }


def new(name="e", **fields):
    return {
        "metadata": {"name": name},
        "regarding": POD,
        "reason": "Started",
        "note": "it runs",
        "type": "Normal",
        "action": "Start",
        "eventTime": "2020-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "c-1",
        **fields,
    }


async def test_an_old_event_is_seen_in_the_new_group(api):
    made = (await api.post(OLD, old())).body
    found = (await api.get(f"{NEW}/e")).body
    assert found["apiVersion"] == "events.k8s.io/v1"
    assert found["regarding"] == POD
    assert found["note"] == "it runs"
    assert found["deprecatedCount"] == 2
    assert found["deprecatedSource"] == {"component": "kubelet"}
    assert found["deprecatedFirstTimestamp"] == "2020-01-01T00:00:00Z"
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    listed = (await api.get(NEW)).body
    assert listed["kind"] == "EventList"
    notes = [each["note"] for each in listed["items"] if each["regarding"] == POD]
    assert notes == ["it runs"]


async def test_a_new_event_is_seen_in_the_old_group(api):
    assert (await api.post(NEW, new())).status == 201
    found = (await api.get(f"{OLD}/e")).body
    assert found["apiVersion"] == "v1"
    assert found["involvedObject"] == POD
    assert found["message"] == "it runs"
    assert found["reportingComponent"] == "example.com/c"


async def test_a_series_goes_on_in_either_group(api):
    await api.post(NEW, new())
    series = {"count": 2, "lastObservedTime": "2020-01-01T00:00:09.000000Z"}
    assert (await api.patch(f"{NEW}/e", {"series": series})).body["series"] == series
    found = (await api.patch(f"{OLD}/e", {"message": "still"})).body
    assert found["series"]["count"] == 2
    assert (await api.get(f"{NEW}/e")).body["note"] == "still"
    assert (await api.delete(f"{NEW}/e")).status == 200
    assert (await api.get(f"{OLD}/e")).status == 404


async def test_a_watch_of_the_new_group_tells_of_both(api):
    await api.post(OLD, old("a"))
    await api.post(NEW, new("b"))
    events = await api.watch(NEW, 2)
    assert [each["object"]["note"] for each in events] == ["it runs", "it runs"]
    assert {each["object"]["apiVersion"] for each in events} == {"events.k8s.io/v1"}


async def test_fields_are_selected_by_their_names_in_each_group(api):
    await api.post(OLD, old("a"))
    await api.post(OLD, old("b", involvedObject={**POD, "name": "q"}))
    by_old = await api.get(OLD, params={"fieldSelector": "involvedObject.name=q"})
    by_new = await api.get(NEW, params={"fieldSelector": "regarding.name=q,reason=Started"})
    for found in (by_old, by_new):
        assert [each["metadata"]["name"] for each in found.body["items"]] == ["b"]
    wrong = await api.get(NEW, params={"fieldSelector": "involvedObject.name=q"})
    assert wrong.status == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"reportingController": ""}, "reportingController"),
        ({"action": ""}, "action"),
        ({"reason": ""}, "reason"),
        ({"type": "Odd"}, "type"),
        ({"note": "x" * 1025}, "message"),
        ({"deprecatedCount": 1}, "count"),
    ],
)
async def test_a_new_event_has_to_be_complete(api, change, field):
    found = await api.post(NEW, new(**change))
    assert found.status == 422
    assert {each["field"] for each in found.body["details"]["causes"]} == {field}


async def test_tables_of_both_groups_are_the_same(api):
    await api.post(OLD, old())
    first = (await api.get(OLD, headers={"Accept": TABLE})).body
    second = (await api.get(NEW, headers={"Accept": TABLE})).body
    assert first["rows"][0]["cells"][1:] == second["rows"][0]["cells"][1:]
    assert "pod/p" in second["rows"][0]["cells"]
