"""Lists come in pages of one moment; watches tell exactly what has changed."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"


async def make(api, name, color="red"):
    body = {"metadata": {"name": name, "labels": {"color": color}}}
    made = await api.post(MAPS, body)
    assert made.status == 201
    return made.body


def names(items):
    return [each["metadata"]["name"] for each in items]


def told(events):
    return [(each["type"], each["object"]["metadata"].get("name")) for each in events]


async def test_items_of_built_in_kinds_come_without_kind(api):
    await make(api, "a")
    found = (await api.get(MAPS)).body
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert "kind" not in found["items"][0]
    assert found["items"][0]["metadata"]["name"] == "a"


async def test_a_list_is_ordered_and_filtered(api):
    for name, color in (("b", "red"), ("a", "blue"), ("c", "red")):
        await make(api, name, color)
    assert names((await api.get(MAPS)).body["items"]) == ["a", "b", "c"]
    red = await api.get(MAPS, params={"labelSelector": "color in (red)"})
    assert names(red.body["items"]) == ["b", "c"]
    one = await api.get("/api/v1/configmaps", params={"fieldSelector": "metadata.name=c"})
    assert names(one.body["items"]) == ["c"]
    others = await api.get(MAPS, params={"fieldSelector": "metadata.name!=c"})
    assert names(others.body["items"]) == ["a", "b"]


@pytest.mark.parametrize(
    "params",
    [
        {"labelSelector": "a in"},
        {"fieldSelector": "spec.nothing=1"},
        {"fieldSelector": "nonsense"},
        {"resourceVersion": "abc"},
        {"limit": "many"},
        {"continue": "nonsense"},
    ],
)
async def test_a_list_that_cannot_be_understood_is_a_bad_request(api, params):
    found = await api.get(MAPS, params=params)
    assert (found.status, found.body["reason"]) == (400, "BadRequest")


async def test_pages_show_the_moment_of_the_first_page(api):
    for name in "abcde":
        await make(api, name)
    first = (await api.get(MAPS, params={"limit": "2"})).body
    assert names(first["items"]) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    await api.delete(f"{MAPS}/c")
    await make(api, "bb")
    await api.patch(f"{MAPS}/d", {"data": {"late": "yes"}})
    token = first["metadata"]["continue"]
    second = (await api.get(MAPS, params={"limit": "2", "continue": token})).body
    assert names(second["items"]) == ["c", "d"]
    assert "data" not in second["items"][1]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    token = second["metadata"]["continue"]
    last = (await api.get(MAPS, params={"limit": "2", "continue": token})).body
    assert names(last["items"]) == ["e"]
    assert "continue" not in last["metadata"]


async def test_a_list_of_an_exact_version_shows_the_past(api):
    version = (await make(api, "a"))["metadata"]["resourceVersion"]
    await make(api, "b")
    past = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert names((await api.get(MAPS, params=past)).body["items"]) == ["a"]
    late = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    assert names((await api.get(MAPS, params=late)).body["items"]) == ["a", "b"]
    assert (await api.get(MAPS, params={"resourceVersionMatch": "Exact"})).status == 422


async def test_a_version_of_the_future_is_not_waited_for(api):
    found = await api.get(MAPS, params={"resourceVersion": "999999"})
    assert found.status == 504
    assert found.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_begins_with_what_is_there(api):
    await make(api, "a")
    await make(api, "b")
    assert told(await api.watch(MAPS, 2)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_goes_on_from_a_version(api):
    version = (await make(api, "a"))["metadata"]["resourceVersion"]
    await api.patch(f"{MAPS}/a", {"data": {"x": "2"}})
    await api.delete(f"{MAPS}/a")
    await make(api, "b")
    events = await api.watch(MAPS, 3, resourceVersion=version)
    assert told(events) == [("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


async def test_a_watch_tells_of_changes_as_they_happen(api):
    version = (await api.get(MAPS)).body["metadata"]["resourceVersion"]
    watching = asyncio.create_task(api.watch(MAPS, 1, resourceVersion=version))
    await asyncio.sleep(0.05)
    await make(api, "a")
    assert told(await watching) == [("ADDED", "a")]


async def test_what_begins_or_ends_to_match_is_added_or_deleted(api):
    version = (await make(api, "a", "blue"))["metadata"]["resourceVersion"]
    for color in ("red", "green"):
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"color": color}}})
    await api.delete(f"{MAPS}/a")
    await make(api, "end")
    events = await api.watch(MAPS, 3, resourceVersion=version, labelSelector="color=red")
    assert told(events) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "end")]
    left = events[1]["object"]["metadata"]
    assert left["labels"] == {"color": "red"}
    assert int(left["resourceVersion"]) > int(events[0]["object"]["metadata"]["resourceVersion"])


async def test_a_watch_of_one_name_tells_of_nothing_else(api):
    await make(api, "a")
    await make(api, "b")
    events = await api.watch(MAPS, 5, fieldSelector="metadata.name=b", timeoutSeconds="1")
    assert told(events) == [("ADDED", "b")]


async def test_a_streamed_list_ends_with_a_bookmark(api):
    await make(api, "a")
    events = await api.watch(
        MAPS,
        2,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    assert [each["type"] for each in events] == ["ADDED", "BOOKMARK"]
    meta = events[1]["object"]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(meta["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])
    wrong = await api.get(MAPS, params={"watch": "1", "sendInitialEvents": "true"})
    assert wrong.status == 422


@pytest.mark.embedded
async def test_a_watch_ends_at_its_timeout_with_a_bookmark(api):
    version = (await api.get(MAPS)).body["metadata"]["resourceVersion"]
    events = await api.watch(
        MAPS, 5, resourceVersion=version, timeoutSeconds="1", allowWatchBookmarks="true"
    )
    assert [each["type"] for each in events] == ["BOOKMARK"]


@pytest.mark.embedded
async def test_a_forgotten_version_is_expired(api, server):
    version = (await make(api, "a"))["metadata"]["resourceVersion"]
    first = (await make(api, "b"))["metadata"]["resourceVersion"]
    await make(api, "c")
    page = (await api.get(MAPS, params={"limit": "1"})).body["metadata"]["continue"]
    await api.delete(f"{MAPS}/a")
    table = server.service.storage.table("configmaps.")
    table.compact(100)
    (event,) = await api.watch(MAPS, 2, resourceVersion=version)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert f"too old resource version: {version}" in event["object"]["message"]
    found = await api.get(MAPS, params={"limit": "1", "continue": page})
    assert (found.status, found.body["reason"]) == (410, "Expired")
    past = {"resourceVersion": first, "resourceVersionMatch": "Exact"}
    assert (await api.get(MAPS, params=past)).status == 410


@pytest.mark.embedded
async def test_a_watcher_that_left_is_forgotten(api, server):
    await api.watch(MAPS, 0, resourceVersion="1", timeoutSeconds="1")
    await make(api, "a")
    assert await api.watch(MAPS, 1) != []
    table = server.service.storage.table("configmaps.")
    for _ in range(100):
        await asyncio.sleep(0.01)
        if not table._waiters:
            break
    assert not table._waiters


async def test_a_list_of_any_age_comes_whole(api):
    for name in "abc":
        await make(api, name)
    found = (await api.get(MAPS, params={"limit": "1", "resourceVersion": "0"})).body
    assert set("abc") <= set(names(found["items"]))
    assert "continue" not in found["metadata"]


def with_changes(token, **changes):
    body = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return base64.urlsafe_b64encode(json.dumps({**body, **changes}).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"v": "meta.k8s.io/v2"}, 400, "does not recognize this encoded version meta.k8s.io/v2"),
        ({"rv": 2**63}, 400, "continue key is not valid"),
        ({"rv": "5"}, 400, "continue key is not valid"),
        ({"rv": 0}, 400, "incorrect encoded start resourceVersion"),
        ({"start": ""}, 400, "encoded start key empty"),
        ({"rv": 10**9}, 504, "Timeout: Too large resource version: 1000000000"),
        ({"rv": -1}, 200, ""),
    ],
)
async def test_a_token_that_was_tampered_with_is_refused(api, changes, status, words):
    for name in "abc":
        await make(api, name)
    token = (await api.get(MAPS, params={"limit": "1"})).body["metadata"]["continue"]
    params = {"limit": "1", "continue": with_changes(token, **changes)}
    found = await api.get(MAPS, params=params)
    assert found.status == status
    assert words in found.body.get("message", "")
    assert status != 200 or names(found.body["items"]) == ["b"]


STATE = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


async def test_only_who_wants_bookmarks_gets_the_one_after_the_present_state(api):
    await make(api, "a")
    found = await api.watch(MAPS, 9, timeoutSeconds="1", **STATE)
    assert {type_ for type_, _ in told(found)} == {"ADDED"}


async def test_a_watch_of_a_state_to_come_is_told_that_it_is_not_there(api):
    (error,) = await api.watch(MAPS, 9, resourceVersion="99999999", timeoutSeconds="5", **STATE)
    assert (error["type"], error["object"]["code"]) == ("ERROR", 504)


async def test_a_watch_that_has_no_time_tells_no_state(api):
    await make(api, "a")
    assert {each["type"] for each in await api.watch(MAPS, 9, timeoutSeconds="-1")} <= {"ERROR"}


async def test_a_name_that_leads_elsewhere_is_a_bad_request(api):
    found = await api.get(f"{MAPS}/%2E%2E")
    assert found.status == 400
    assert found.body["message"] == "Name parameter invalid: \"..\": may not be '..'"
