from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError, Forbidden, HistoryLost, NotFound
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.machinery.replica import version_number
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache, OptionalInformer
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.transport import Transport


def job(name: str, version: int, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}
    return {"kind": "Job", "apiVersion": "batch/v1", "metadata": {**meta, **metadata}}


class FakeJobs:
    """Lists and watches of one kind; tests push events into open watches."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 10
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.streams: list[asyncio.Queue[bytes | None]] = []
        self.opened = asyncio.Event()
        self.refuse_watch: list[web.Response] = []
        self.refuse_list: list[web.Response] = []
        self.hold_list: asyncio.Event | None = None
        self.single: web.Response | None = None

    def put(self, name: str, **metadata: Any) -> dict[str, Any]:
        self.version += 1
        self.objects[name] = job(name, self.version, **metadata)
        return self.objects[name]

    def push(self, type: str, obj: dict[str, Any]) -> None:
        line = orjson.dumps({"type": type, "object": obj}) + b"\n"
        for stream in self.streams:
            stream.put_nowait(line)

    def drop(self) -> None:
        streams, self.streams = self.streams, []
        self.opened.clear()
        for stream in streams:
            stream.put_nowait(None)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/jobs"):
            assert self.single is not None
            return self.single
        if "watch" not in request.query:
            self.lists.append(dict(request.query))
            if self.refuse_list:
                return self.refuse_list.pop(0)
            page = {
                "kind": "JobList",
                "apiVersion": "batch/v1",
                "metadata": {"resourceVersion": str(self.version)},
                "items": list(self.objects.values()),
            }
            if self.hold_list is not None:
                await self.hold_list.wait()
            return web.json_response(page)
        self.watches.append(dict(request.query))
        if self.refuse_watch:
            return self.refuse_watch.pop(0)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.streams.append(queue)
        self.opened.set()
        while (line := await queue.get()) is not None:
            await response.write(line)
        return response


@pytest.fixture
async def jobs(serve):
    fake = FakeJobs()
    fake.url = await serve(fake)
    async with Client(Transport(Endpoint(url=fake.url))) as client:
        fake.client = client
        yield fake
        fake.drop()


async def eventually(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.005)


def quick() -> Backoff:
    return Backoff(base=0.001, cap=0.01, jitter=0.0)


def informer_of(jobs: FakeJobs, **more: Any) -> tuple[Informer, list[Delta[Any]]]:
    informer = Informer(jobs.client, JOBS, backoff=quick(), **more)
    seen: list[Delta[Any]] = []
    informer.add_handler(seen.append)
    return informer, seen


async def running(informer: Informer) -> asyncio.Task[None]:
    task = asyncio.create_task(informer.run())
    await informer.wait_synced(10)
    return task


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def told(seen: list[Delta[Any]]) -> list[tuple[str, str, bool]]:
    return [(delta.kind.name, delta.key.name, delta.initial) for delta in seen]


async def test_lists_then_follows_the_watch(jobs):
    jobs.put("a")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    assert told(seen) == [("ADDED", "a", True)]
    await jobs.opened.wait()
    jobs.push("ADDED", jobs.put("b"))
    jobs.push("MODIFIED", jobs.put("a"))
    jobs.push("DELETED", jobs.objects.pop("b"))
    await eventually(lambda: len(seen) == 4)
    assert told(seen)[1:] == [
        ("ADDED", "b", False),
        ("UPDATED", "a", False),
        ("DELETED", "b", False),
    ]
    assert [obj["metadata"]["name"] for obj in informer.store.items()] == ["a"]
    assert jobs.watches[0]["resourceVersion"] == "11"
    assert jobs.watches[0]["allowWatchBookmarks"] == "true"
    await stopped(task)


async def test_a_dropped_watch_resumes_from_the_last_version_without_a_list(jobs):
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    jobs.push("ADDED", jobs.put("a"))
    await eventually(lambda: seen)
    jobs.drop()
    await jobs.opened.wait()
    jobs.push("ADDED", jobs.put("b"))
    await eventually(lambda: len(seen) == 2)
    assert jobs.watches[1]["resourceVersion"] == "11"
    assert len(jobs.lists) == 1
    await stopped(task)


async def test_an_expired_version_leads_to_a_list_that_tells_what_vanished(jobs):
    jobs.put("gone")
    jobs.put("stays")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    del jobs.objects["gone"]
    jobs.put("new")
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    jobs.push("ERROR", status)
    await eventually(lambda: len(seen) == 4)
    assert told(seen)[2:] == [("DELETED", "gone", False), ("ADDED", "new", False)]
    assert len(jobs.lists) == 2
    await stopped(task)


async def test_a_watch_refused_with_410_at_its_start_leads_to_a_list(jobs):
    status = {"kind": "Status", "code": 410, "reason": "Expired"}
    jobs.refuse_watch = [web.json_response(status, status=410)]
    informer, _ = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    assert len(jobs.lists) == 2
    await stopped(task)


async def test_a_server_that_fails_at_first_is_asked_again(jobs):
    jobs.refuse_list = [
        web.Response(status=500, text="boom"),
        web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403),
    ]
    jobs.put("a")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    assert told(seen) == [("ADDED", "a", True)]
    assert len(jobs.lists) == 3
    await stopped(task)


async def test_a_refused_first_list_is_settled_but_not_synced(jobs):
    refusal = {"kind": "Status", "reason": "Forbidden"}
    jobs.refuse_list = [web.Response(status=500), *[web.json_response(refusal, status=403)] * 9]
    informer, _ = informer_of(jobs)
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(10):
        await informer.wait_settled()
    assert informer.settled
    assert not informer.synced
    assert isinstance(informer.failing, Forbidden)
    await stopped(task)


async def test_a_torn_event_leads_to_a_list_and_nothing_is_lost(jobs):
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    for stream in jobs.streams:
        stream.put_nowait(b'{"type": "ADDED", "obj\n')
    jobs.put("a")
    await eventually(lambda: seen)
    assert told(seen) == [("ADDED", "a", False)]
    assert len(jobs.lists) == 2
    await stopped(task)


async def test_an_event_of_many_megabytes_arrives(jobs):
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    jobs.push("ADDED", jobs.put("a", annotations={"big": "x" * 6_000_000}))
    await eventually(lambda: seen)
    assert len(seen[0].new["metadata"]["annotations"]["big"]) == 6_000_000
    await stopped(task)


async def test_an_event_over_the_ceiling_is_an_error_that_names_the_kind(jobs):
    transport = Transport(Endpoint(url=jobs.url), max_line=1000)
    async with Client(transport) as client:
        informer = Informer(client, JOBS, backoff=quick())
        task = await running(informer)
        await jobs.opened.wait()
        jobs.push("ADDED", job("a", 99, annotations={"big": "x" * 2000}))
        await eventually(lambda: informer.last_error)
        assert "watch of /apis/batch/v1/jobs: an event is longer than 1000 bytes" in str(
            informer.last_error
        )
        await stopped(task)


async def test_a_late_handler_is_told_what_exists(jobs):
    jobs.put("a")
    informer, _ = informer_of(jobs)
    task = await running(informer)
    late: list[Delta[Any]] = []
    remove = informer.add_handler(late.append)
    assert told(late) == [("ADDED", "a", True)]
    remove()
    remove()
    await jobs.opened.wait()
    jobs.push("ADDED", jobs.put("b"))
    await eventually(lambda: informer.store.get(ObjectKey("ns", "b")))
    assert len(late) == 1
    await stopped(task)


async def test_managed_fields_are_not_kept(jobs):
    last = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    jobs.put("a", managedFields=[{}], annotations=last)
    jobs.put("b", annotations={**last, "mine": "1"})
    informer, _ = informer_of(jobs)
    task = await running(informer)
    a, b = (informer.store.get(ObjectKey("ns", name)) for name in "ab")
    assert set(a["metadata"]) == {"name", "namespace", "uid", "resourceVersion"}
    assert b["metadata"]["annotations"] == {"mine": "1"}
    await stopped(task)


async def test_an_index_finds_objects(jobs):
    jobs.put("a", labels={"q": "x"})
    jobs.put("b", labels={"q": "y"})
    informer, _ = informer_of(jobs)
    informer.add_index("queue", lambda obj: [obj["metadata"]["labels"]["q"]])
    task = await running(informer)
    assert [obj["metadata"]["name"] for obj in informer.store.by_index("queue", "y")] == ["b"]
    await stopped(task)


async def test_lists_can_be_streamed(jobs):
    informer, seen = informer_of(jobs, options=ReflectorOptions(stream_lists=True))
    task = asyncio.create_task(informer.run())
    await jobs.opened.wait()
    assert jobs.watches[0]["sendInitialEvents"] == "true"
    jobs.push("ADDED", jobs.put("a"))
    end = {"k8s.io/initial-events-end": "true"}
    jobs.push("BOOKMARK", job("", 99, annotations=end))
    await informer.wait_synced(10)
    assert told(seen) == [("ADDED", "a", True)]
    assert jobs.lists == []
    await stopped(task)


async def test_catching_up_does_not_wait_for_a_watch_that_lags(jobs):
    for name in ("same", "changed", "deleted", "recreated"):
        jobs.put(name)
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    seen.clear()
    late = [
        ("MODIFIED", jobs.put("changed")),
        ("DELETED", {**jobs.objects.pop("deleted")}),
        ("DELETED", {**jobs.objects.pop("recreated")}),
    ]
    for _, obj in late[1:]:
        jobs.version += 1
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(jobs.version)}
    late.append(("ADDED", jobs.put("recreated", uid="another")))
    late.append(("ADDED", jobs.put("new")))
    await informer.catch_up()
    assert "resourceVersion" not in jobs.lists[-1]
    versions = {obj["metadata"]["name"]: obj["metadata"] for obj in informer.store.items()}
    assert versions == {name: obj["metadata"] for name, obj in jobs.objects.items()}
    told_once = told(seen)
    assert sorted(told_once) == [
        ("ADDED", "new", False),
        ("DELETED", "deleted", False),
        ("UPDATED", "changed", False),
        ("UPDATED", "recreated", False),
    ]
    for event, obj in late:
        jobs.push(event, obj)
    jobs.push("ADDED", jobs.put("last"))
    await eventually(lambda: told(seen)[-1][1] == "last")
    assert told(seen)[:-1] == told_once
    await stopped(task)


async def test_catching_up_keeps_what_the_watch_brought_meanwhile(jobs):
    informer, _ = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    jobs.hold_list = asyncio.Event()
    catching = asyncio.create_task(informer.catch_up())
    await eventually(lambda: len(jobs.lists) == 2)
    jobs.push("ADDED", jobs.put("a"))
    await eventually(lambda: ObjectKey("ns", "a") in informer.store)
    jobs.hold_list.set()
    await catching
    assert ObjectKey("ns", "a") in informer.store
    await stopped(task)


async def test_an_answer_is_in_the_store_at_once_and_is_told_once(jobs):
    jobs.put("a")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    answer = jobs.put("a", managedFields=[{}])
    informer.learn(answer)
    assert informer.store.get(ObjectKey("ns", "a"))["metadata"]["resourceVersion"] == "12"
    assert answer["metadata"]["managedFields"] == [{}]
    assert told(seen)[1:] == [("UPDATED", "a", False)]
    jobs.push("MODIFIED", answer)
    jobs.push("ADDED", jobs.put("b"))
    await eventually(lambda: len(seen) == 3)
    assert told(seen)[2:] == [("ADDED", "b", False)]
    await stopped(task)


async def test_answers_about_others_are_not_learned(jobs):
    informer, seen = informer_of(jobs, namespace="ns", label_selector="q=x")
    task = await running(informer)
    informer.learn({**job("a", 99, labels={"q": "x"}), "apiVersion": "batch/v2"})
    informer.learn({**job("a", 99, labels={"q": "x"}), "kind": "Scale"})
    informer.learn({"kind": "Status", "apiVersion": "v1"})
    informer.learn({})
    informer.learn(job("a", 99, labels={"q": "x"}, namespace="other"))
    informer.learn(job("a", 99, labels={"q": "y"}))
    assert seen == []
    informer.learn(job("b", 99, labels={"q": "x"}))
    informer.learn(job("b", 100, labels={"q": "y"}))
    assert told(seen) == [("ADDED", "b", False), ("DELETED", "b", False)]
    await stopped(task)


async def test_an_answer_waits_in_line_behind_what_is_being_told(jobs):
    informer, seen = informer_of(jobs)
    for number in range(500):
        jobs.put(f"j{number:03}")
    late: list[Delta[Any]] = []
    between: list[int] = []

    def meanwhile() -> None:
        informer.learn(jobs.put("j499"))
        informer.learn(jobs.put("new"))
        informer.add_handler(late.append)
        between.append(len(seen))

    def handler(_: Delta[Any]) -> None:
        if len(seen) == 150:
            asyncio.get_running_loop().call_soon(meanwhile)

    informer.add_handler(handler)
    task = asyncio.create_task(informer.run())
    await informer.wait_synced(10)
    assert told(seen)[499:] == [
        ("ADDED", "j499", True),
        ("UPDATED", "j499", False),
        ("ADDED", "new", False),
    ]
    assert between == [200]
    assert len(late) == 501
    await stopped(task)


async def test_a_handler_that_learns_is_told_afterwards(jobs):
    informer, seen = informer_of(jobs)
    order: list[str] = []

    def first(delta: Delta[Any]) -> None:
        if delta.key.name == "a":
            informer.learn(job("b", 99))
        order.append(delta.key.name)

    informer.add_handler(first)
    task = await running(informer)
    informer.learn(job("a", 98))
    assert order == ["a", "b"]
    assert [delta.key.name for delta in seen] == ["a", "b"]
    await stopped(task)


async def test_a_handler_that_fails_on_an_answer_ends_the_informer_not_the_writer(jobs):
    informer, _ = informer_of(jobs)
    task = await running(informer)

    def handler(_: Delta[Any]) -> None:
        raise RuntimeError("bug")

    informer.add_handler(handler)
    informer.learn(job("a", 99))
    with pytest.raises(RuntimeError, match="bug"):
        await task


async def test_what_is_read_again_is_learned(jobs):
    jobs.put("a")
    jobs.put("b")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    newer = jobs.put("a")
    jobs.single = web.json_response(newer)
    assert await informer.refresh(ObjectKey("ns", "a")) == newer
    missing = {"kind": "Status", "reason": "NotFound", "details": {"name": "b"}}
    jobs.single = web.json_response(missing, status=404)
    assert await informer.refresh(ObjectKey("ns", "b")) is None
    assert told(seen)[2:] == [("UPDATED", "a", False), ("DELETED", "b", False)]
    jobs.single = web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
    with pytest.raises(NotFound):
        await informer.refresh(ObjectKey("ns", "a"))
    assert len(seen) == 4
    await stopped(task)


async def test_an_answer_that_was_overtaken_gives_way_to_the_newer_state(jobs):
    informer, _ = informer_of(jobs)
    jobs.put("a")
    task = await running(informer)
    await jobs.opened.wait()
    old, new = jobs.put("a"), jobs.put("a")
    informer.learn(new)
    jobs.single = web.json_response(old)
    assert await informer.refresh(ObjectKey("ns", "a")) == new
    await stopped(task)


OLDER = "restored from an older copy"


async def ended(task: asyncio.Task[None]) -> None:
    with pytest.raises(HistoryLost, match=OLDER):
        await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("how", ["refresh", "catch_up"])
async def test_a_cache_ends_with_a_server_that_was_restored_from_an_older_copy(jobs, how):
    jobs.put("a")
    cache = Cache(jobs.client)
    informer = cache.informer(JOBS)
    task = asyncio.create_task(cache.run())
    await cache.wait_synced(10)
    jobs.version = 5
    jobs.single = web.json_response(job("a", 5))
    asked = (JOBS, ObjectKey("ns", "a")) if how == "refresh" else ()
    with pytest.raises(HistoryLost, match=OLDER):
        await getattr(cache, how)(*asked)
    await ended(task)
    assert version_number(informer.store.items()[0]) == 11, "nothing of two histories"


async def test_a_list_from_an_older_copy_ends_an_informer_that_keeps_one_history(jobs):
    jobs.put("a")
    informer, seen = informer_of(jobs, one_history=True)
    task = await running(informer)
    await jobs.opened.wait()
    jobs.version, jobs.objects = 5, {}
    jobs.push("ERROR", {"code": 410})
    await ended(task)
    assert told(seen) == [("ADDED", "a", True)]


async def test_an_informer_alone_follows_a_server_that_was_restored_from_an_older_copy(jobs):
    jobs.put("a")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    jobs.version, jobs.objects = 5, {"b": job("b", 5)}
    jobs.push("ERROR", {"code": 410})
    await eventually(lambda: told(seen)[1:] == [("DELETED", "a", False), ("ADDED", "b", False)])
    await stopped(task)


async def test_the_last_state_of_an_object_is_its_end(jobs):
    jobs.put("a")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    ended = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    informer.learn(job("a", 99, **ended, uid="another"))
    informer.learn(job("a", 99, **ended, finalizers=["x"]))
    informer.learn(job("a", 100, **ended))
    assert told(seen)[1:] == [("UPDATED", "a", False), ("DELETED", "a", False)]
    await stopped(task)


async def test_what_was_deleted_is_gone_at_once_or_ending(jobs):
    first, second = jobs.put("a"), jobs.put("b")
    informer, seen = informer_of(jobs)
    task = await running(informer)
    await jobs.opened.wait()
    informer.learn_deleted(first, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
    informer.learn_deleted(second, job("b", 99, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert told(seen)[2:] == [("DELETED", "a", False), ("UPDATED", "b", False)]
    jobs.push("MODIFIED", {**first, "metadata": {**first["metadata"], "resourceVersion": "50"}})
    jobs.push("ADDED", job("c", 60))
    await eventually(lambda: len(seen) == 5)
    assert told(seen)[4:] == [("ADDED", "c", False)]
    await stopped(task)


async def test_a_cache_hands_answers_to_whom_they_are_meant_for(jobs):
    jobs.put("a", labels={"q": "x"})
    cache = Cache(jobs.client)
    every, some = cache.informer(JOBS), cache.informer(JOBS, namespace="other")
    ready = asyncio.Event()
    task = asyncio.create_task(cache.run(ready.set))
    await asyncio.wait_for(ready.wait(), 10)
    key = ObjectKey("ns", "a")
    cache.learn(job("a", 99))
    assert every.store.get(key)["metadata"]["resourceVersion"] == "99"
    assert some.store.get(key) is None
    overtaken = [cache.is_overtaken(job("a", version)) for version in (98, 99, 100)]
    assert overtaken == [True, False, False]
    assert not cache.is_overtaken({**job("a", 98), "kind": "CronJob"})
    assert not cache.is_overtaken(job("b", 98))
    jobs.single = web.json_response(job("a", 100))
    await cache.refresh(JOBS, key)
    assert every.store.get(key)["metadata"]["resourceVersion"] == "100"
    missing = {"kind": "Status", "reason": "NotFound", "details": {"name": "a"}}
    jobs.single = web.json_response(missing, status=404)
    assert await cache.refresh(JOBS, key) is None
    assert every.store.get(key) is None
    cache.learn(job("b", 101))
    cache.learn_deleted(job("b", 101), {"kind": "Status"})
    cache.learn(job("c", 102))
    cache.learn_gone(job("c", 102))
    assert every.store.keys() == ()
    await stopped(task)


async def test_an_answer_that_may_be_kept_is_copied_for_all_informers_but_the_first(jobs):
    cache = Cache(jobs.client)
    every = cache.informer(JOBS)
    ready = asyncio.Event()
    task = asyncio.create_task(cache.run(ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    answer = job("a", 99)
    cache.learn(answer, shared=True)
    assert every.store.get(ObjectKey("ns", "a")) is answer
    some = cache.informer(JOBS, namespace="ns")
    await some.wait_synced(60)
    answer = job("b", 100)
    cache.learn(answer, shared=True)
    stored = [informer.store.get(ObjectKey("ns", "b")) for informer in (every, some)]
    assert stored == [answer, answer]
    assert stored[0] is answer
    assert stored[1] is not answer
    await stopped(task)


async def test_a_cache_hands_answers_to_informers_apart_until_they_end(jobs):
    cache = Cache(jobs.client)
    apart = cache.apart(JOBS)
    task = await running(apart)
    cache.learn(job("a", 99))
    assert apart.store.keys() == (ObjectKey("ns", "a"),)
    await stopped(task)
    assert apart.ended
    cache.learn(job("b", 100))
    cache.learn_gone(job("a", 99))
    assert apart.store.keys() == (ObjectKey("ns", "a"),)


async def test_the_cache_shares_informers_and_starts_late_ones(jobs):
    jobs.put("a")
    cache = Cache(jobs.client)
    first = cache.informer(JOBS, label_selector="x")
    assert cache.informer(JOBS, label_selector="x") is first
    ready = asyncio.Event()
    task = asyncio.create_task(cache.run(ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    assert cache.synced
    assert jobs.lists[0]["labelSelector"] == "x"
    late = cache.informer(JOBS)
    await late.wait_synced(10)
    assert late is not first
    with pytest.raises(ValueError, match="another version"):
        cache.informer(JOBS.at("v2"))
    await stopped(task)


async def test_a_kind_that_cannot_be_listed_is_named(jobs):
    status = {"kind": "Status", "reason": "NotFound", "message": "no such kind"}
    jobs.refuse_list = [web.json_response(status, status=404) for _ in range(100)]
    cache = Cache(jobs.client, sync_timeout=0.2)
    cache.informer(JOBS)
    with pytest.raises(ConfigError, match=r"jobs: could not be listed in time \(no such kind\)"):
        await cache.run()


async def test_a_cache_catches_up_with_all_kinds_until_each_succeeds(jobs):
    cache = Cache(jobs.client)
    shared, apart = cache.informer(JOBS), cache.apart(JOBS)
    ready = asyncio.Event()
    tasks = [asyncio.create_task(cache.run(ready.set)), await running(apart)]
    await asyncio.wait_for(ready.wait(), 60)
    jobs.put("a")
    jobs.refuse_list = [web.json_response({"kind": "Status"}, status=500)]
    await cache.catch_up()
    assert len(jobs.lists) == 5
    assert shared.store.keys() == apart.store.keys() == (ObjectKey("ns", "a"),)
    for task in tasks:
        await stopped(task)


async def test_a_cache_that_cannot_catch_up_names_the_kind_unless_it_may_be_missing(jobs):
    cache = Cache(jobs.client, sync_timeout=1.0)
    cache.apart(JOBS)
    status = {"kind": "Status", "reason": "NotFound", "message": "no such kind"}
    jobs.refuse_list = [web.json_response(status, status=404) for _ in range(100)]
    await cache.catch_up()
    cache.informer(JOBS)
    with pytest.raises(ConfigError, match=r"jobs: could not be listed in time \(.*no such kind"):
        await cache.catch_up()


async def test_a_handler_that_raises_is_logged_and_named_to_whoever_waits(jobs):
    jobs.put("a")
    cache = Cache(jobs.client)
    informer = cache.informer(JOBS)

    def handler(_: Delta[Any]) -> None:
        raise RuntimeError("bug")

    informer.add_handler(handler)
    task = asyncio.create_task(cache.run())
    with capture_logs() as logs, pytest.raises(RuntimeError, match="bug"):
        await informer.wait_synced(10)
    with pytest.raises(RuntimeError, match="bug"):
        await task
    with pytest.raises(RuntimeError, match="bug"):
        await cache.wait_synced()
    (said,) = logs
    assert said["event"] == "a handler failed, which ends the informer"
    assert (said["handler"], said["object"]) == ("handler", "Job ns/a")
    assert said["error"] == "RuntimeError: bug"


async def test_a_handler_that_returns_a_coroutine_is_refused_when_it_is_called(jobs):
    jobs.put("a")
    informer, _ = informer_of(jobs)
    informer.add_handler(lambda _: asyncio.sleep(0))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=r"the handler <lambda>: is async, but handlers never"):
        await informer.run()


class Waiting:
    async def __call__(self, _: object) -> None:
        """What nobody would await."""


@pytest.mark.parametrize(
    ("handler", "said"),
    [(None, "the handler None: is not a function"), (Waiting(), "is async, but handlers never")],
)
async def test_what_cannot_be_a_handler_is_refused(jobs, handler, said):
    informer, _ = informer_of(jobs)
    optional = OptionalInformer(jobs.client, Cache(jobs.client), JOBS)
    for each in (informer, optional):
        with pytest.raises(ConfigError, match=said):
            each.add_handler(handler)
