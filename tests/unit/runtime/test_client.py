from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
import time
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    LeadershipLost,
    NotConnected,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.transport import CONNECT_RETRIES, RETRIES, Transport
from kueuelib.testing import free_port


def client_for(url: str, clock: Any = None, **more: Any) -> Client:
    transport = Transport(Endpoint(url=url, authorization="Bearer t"), **more)
    return Client(transport, clock=clock) if clock else Client(transport)


class Recorder:
    """Answers every request with the same JSON and keeps what came."""

    def __init__(self, answer: Any = None, status: int = 200, **headers: str) -> None:
        self.answer, self.status, self.headers = answer or {}, status, headers
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []

    async def __call__(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.read())
        return web.json_response(self.answer, status=self.status, headers=self.headers)

    @property
    def last(self) -> web.Request:
        return self.requests[-1]

    @property
    def body(self) -> Any:
        return orjson.loads(self.bodies[-1])


async def test_get_sends_credentials_and_returns_the_object(serve):
    server = Recorder({"kind": "Job", "metadata": {"name": "a"}})
    async with client_for(await serve(server)) as client:
        found = await client.get(JOBS, ObjectKey("ns", "a"))
    assert found["metadata"]["name"] == "a"
    assert server.last.path == "/apis/batch/v1/namespaces/ns/jobs/a"
    assert server.last.headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("patch_type", "content_type"),
    [
        (PatchType.MERGE, "application/merge-patch+json"),
        (PatchType.JSON, "application/json-patch+json"),
        (PatchType.APPLY, "application/apply-patch+yaml"),
        (PatchType.STRATEGIC, "application/strategic-merge-patch+json"),
    ],
)
async def test_a_patch_says_how_it_is_to_be_understood(serve, patch_type, content_type):
    server = Recorder()
    async with client_for(await serve(server)) as client:
        await client.patch(
            WORKLOADS,
            ObjectKey("ns", "a"),
            {"status": {"x": None}},
            patch_type,
            subresource="status",
            field_manager="me",
            force=True,
        )
    assert server.last.headers["Content-Type"] == content_type
    assert server.last.path.endswith("/namespaces/ns/workloads/a/status")
    assert dict(server.last.query) == {"fieldManager": "me", "force": "true"}
    assert server.body == {"status": {"x": None}}


async def test_delete_carries_preconditions_and_propagation(serve):
    server = Recorder()
    async with client_for(await serve(server)) as client:
        await client.delete(
            JOBS,
            ObjectKey("ns", "a"),
            uid="u",
            resource_version="7",
            propagation="Background",
            grace_period=0,
            dry_run=True,
        )
    assert server.body == {
        "dryRun": ["All"],
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }


async def test_create_goes_to_the_namespace_of_the_object_and_may_be_a_dry_run(serve):
    server = Recorder()
    async with client_for(await serve(server)) as client:
        await client.create(JOBS, {"metadata": {"namespace": "ns"}}, dry_run=True)
    assert server.last.path == "/apis/batch/v1/namespaces/ns/jobs"
    assert dict(server.last.query) == {"fieldManager": "kueuelib", "dryRun": "All"}


async def test_a_guarded_client_asks_before_each_attempt_to_write(serve, clock):
    allowed = [True]
    asked: list[bool] = []

    def guard() -> None:
        asked.append(allowed[-1])
        if not allowed[-1]:
            raise LeadershipLost("no lease")

    async def handler(request: web.Request) -> web.Response:
        handled.append(request.method)
        if len(handled) == 2:
            allowed.append(False)
            return web.json_response({"kind": "Status", "code": 429}, status=429)
        return web.json_response({"kind": "Job", "metadata": {"name": "a"}})

    handled: list[str] = []
    key = ObjectKey("ns", "a")
    async with client_for(await serve(handler), clock) as client:
        guarded = client.guarded(guard)
        await guarded.delete(JOBS, key)
        with pytest.raises(LeadershipLost):
            await guarded.patch(JOBS, key, {}, PatchType.MERGE)
        with pytest.raises(LeadershipLost):
            await guarded.create(JOBS, {"metadata": {"namespace": "ns"}})
        await guarded.get(JOBS, key)
        await client.delete(JOBS, key)
    assert handled == ["DELETE", "PATCH", "GET", "DELETE"]
    assert asked == [True, True, False, False]


async def test_an_unread_client_decodes_no_answers_to_writes(serve, clock):
    async def handler(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"kind": "Job"})
        if request.method == "DELETE":
            return web.json_response({"reason": "NotFound"}, status=404)
        return web.Response(text="no JSON")

    key = ObjectKey("ns", "a")
    async with client_for(await serve(handler), clock) as client:
        unread = copy.copy(client)
        unread.reads = False
        assert await unread.create(JOBS, {"metadata": {"namespace": "ns"}}) == {}
        assert await unread.patch(JOBS, key, {}, PatchType.MERGE) == {}
        assert await unread.get(JOBS, key) == {"kind": "Job"}
        with pytest.raises(NotFound):
            await unread.delete(JOBS, key)
        with pytest.raises(TransportError):
            await client.patch(JOBS, key, {}, PatchType.MERGE)


async def test_list_reads_pages_and_gives_items_their_kind(serve):
    async def handler(request: web.Request) -> web.Response:
        token = request.query.get("continue", "")
        assert request.query["labelSelector"] == "a in (b,c)"
        page = {"": ("x", "more"), "more": ("y", "")}[token]
        return web.json_response(
            {
                "kind": "JobList",
                "apiVersion": "batch/v1",
                "metadata": {"resourceVersion": "5", "continue": page[1]},
                "items": [{"metadata": {"name": page[0]}}],
            }
        )

    async with client_for(await serve(handler)) as client:
        found = [
            item
            async for item in client.list_all(JOBS, "ns", label_selector="a in (b,c)", page_size=1)
        ]
    assert found == [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "y"}},
    ]


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (500, "InternalError", ServerError),
    ],
)
async def test_a_status_becomes_the_error_of_its_reason(serve, code, reason, expected):
    body = {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": "told so",
        "details": {"name": "a"},
    }
    async with client_for(await serve(Recorder(body, code))) as client:
        with pytest.raises(expected) as caught:
            await client.get(JOBS, ObjectKey("ns", "a"))
    assert (caught.value.message, caught.value.details) == ("told so", {"name": "a"})


async def test_a_failure_that_is_no_status_shows_what_was_said(serve):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html")

    async with client_for(await serve(handler)) as client:
        with pytest.raises(ApiError, match="502: <html>bad gateway") as caught:
            await client.get(JOBS, ObjectKey("ns", "a"))
    assert caught.value.code == 502


async def test_an_answer_that_is_no_json_is_named(serve):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async with client_for(await serve(handler)) as client:
        with pytest.raises(TransportError, match="not JSON"):
            await client.get(JOBS, ObjectKey("ns", "a"))


async def test_too_many_requests_waits_as_long_as_the_server_asks(serve, clock):
    answers = iter([429, 429, 200])

    async def handler(_: web.Request) -> web.Response:
        status = next(answers)
        return web.json_response({"ok": True}, status=status, headers={"Retry-After": "3"})

    async with client_for(await serve(handler), clock) as client:
        assert await client.create(JOBS, {"metadata": {"namespace": "ns"}}) == {"ok": True}
    assert clock.slept == [3.0, 3.0]


async def test_too_many_requests_is_given_up_after_the_last_try(serve, clock):
    server = Recorder({}, 429)
    async with client_for(await serve(server), clock) as client:
        with pytest.raises(TooManyRequests):
            await client.get(JOBS, ObjectKey("ns", "a"))
    assert len(server.requests) == RETRIES + 1
    assert clock.slept[-1] > clock.slept[0]


async def test_too_many_requests_is_said_before_a_deadline_passes_with_its_flow(serve, clock):
    async def handler(request: web.Request) -> web.Response:
        uids = {"FlowSchema": "flow-uid", "PriorityLevel": "level-uid"}
        headers = {f"X-Kubernetes-PF-{kind}-UID": uid for kind, uid in uids.items()}
        if request.path.endswith("/a"):
            return web.Response(text="busy", status=429, headers={"Retry-After": "20", **headers})
        body = {"kind": "Status", "message": "storage is (re)initializing", "code": 429}
        return web.json_response(body, status=429, headers={"Retry-After": "20", **headers})

    async with client_for(await serve(handler), clock) as client:
        with anyio.fail_after(10), pytest.raises(TooManyRequests) as found:
            await client.get(JOBS, ObjectKey("ns", "a"))
        with anyio.fail_after(10), pytest.raises(TooManyRequests) as admitted:
            await client.get(JOBS, ObjectKey("ns", "b"))
    text = "the server answered 429: busy (priority and fairness: FlowSchema flow-uid, "
    assert str(found.value) == f"{text}PriorityLevelConfiguration level-uid)"
    assert str(admitted.value) == "storage is (re)initializing", "no FlowSchema rejected it"
    assert clock.slept == []


async def test_all_repetitions_of_a_command_wait_only_so_long_together(serve, clock):
    server = Recorder({}, 429)
    async with client_for(await serve(server), clock) as client:
        hurried = client.hurried(10.0)
        for _ in range(20):
            with pytest.raises(TooManyRequests):
                await hurried.get(JOBS, ObjectKey("ns", "a"))
    assert 5 < sum(clock.slept) < 10


async def test_calls_of_a_command_that_wait_at_the_same_time_count_once_and_return_by_turns(
    serve, clock, monkeypatch
):
    async def sleep(seconds: float) -> None:
        clock.slept.append(seconds)  # all of them at the same moment

    async def handler(request: web.Request) -> web.Response:
        if request.path in known:
            return web.json_response({})
        known.add(request.path)
        return web.Response(text="busy", status=429, headers={"Retry-After": "1"})

    known: set[str] = set()
    monkeypatch.setattr(clock, "sleep", sleep)
    async with client_for(await serve(handler), clock) as client:
        hurried = client.hurried(3.0)
        async with anyio.create_task_group() as group:
            for name in "abcdefghij":
                group.start_soon(hurried.get, JOBS, ObjectKey("ns", name))
    assert len(set(clock.slept)) == 10
    assert 1.0 <= min(clock.slept) < max(clock.slept) < 1.25


async def test_reads_without_connection_are_repeated_and_writes_are_not(clock):
    url = f"http://127.0.0.1:{free_port()}"
    async with client_for(url, clock) as client:
        with pytest.raises(NotConnected, match="refused"):
            await client.get(JOBS, ObjectKey("ns", "a"))
        assert len(clock.slept) == CONNECT_RETRIES
        with pytest.raises(NotConnected):
            await client.create(JOBS, {"metadata": {"namespace": "ns"}})
        assert len(clock.slept) == CONNECT_RETRIES


async def test_a_slow_server_meets_a_deadline(serve):
    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with client_for(await serve(handler)) as client:
        with pytest.raises(TransportError, match="no answer in time"):
            await client.request("GET", "/slow", timeout=0.05)


async def test_a_large_body_is_decoded_whole(serve):
    server = Recorder({"data": "x" * 400_000})
    async with client_for(await serve(server)) as client:
        assert len((await client.request("GET", "/x"))["data"]) == 400_000


async def test_a_body_of_megabytes_arrives_whole(serve):
    server = Recorder()
    async with client_for(await serve(server)) as client:
        await client.create(JOBS, {"metadata": {"namespace": "ns"}, "data": "x" * 3_000_000})
    assert len(server.body["data"]) == 3_000_000


async def test_discovery_lists_versions_and_kinds(serve):
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/apis/g":
            return web.json_response({"versions": [{"version": "v2"}, {"version": "v1"}]})
        if request.path == "/apis/g/v2":
            resources = [{"name": "as", "kind": "A"}, {"name": "as/status", "kind": "A"}]
            return web.json_response({"resources": resources})
        if request.path == "/api":
            return web.json_response({"versions": ["v1"]})
        return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)

    async with client_for(await serve(handler)) as client:
        assert await client.served_versions("g") == ("v2", "v1")
        assert await client.served_versions("") == ("v1",)
        assert await client.served_versions("other") == ()
        assert await client.served_kinds("g", "v2") == ("A",)
        assert await client.served_kinds("g", "v3") == ()


async def test_names_with_odd_characters_reach_the_server_unharmed(serve):
    server = Recorder()
    async with client_for(await serve(server)) as client:
        await client.get(JOBS, ObjectKey("ns", "system:a b"))
    assert server.last.path.endswith("/jobs/system:a b")


async def test_every_call_is_observed(serve):
    seen: list[tuple[Any, ...]] = []

    class Observer:
        def answered(self, *args: Any) -> None:
            seen.append(args)

        def retried(self, *args: Any) -> None:
            seen.append(args)

        def throttled(self, *args: Any) -> None:
            seen.append(args)

    server = Recorder({}, 404)
    async with client_for(await serve(server), observer=Observer()) as client:
        with pytest.raises(NotFound):
            await client.get(JOBS, ObjectKey("ns", "a"))
    verb, method, code, host, *_ = seen[0]
    assert (verb, method, code, host) == ("get", "GET", "404", server.last.host)


def test_importing_the_client_loads_nothing_heavy():
    code = (
        "import sys, kueuelib.runtime.client;"
        "print([m for m in ('kubernetes_asyncio', 'prometheus_client', 'cryptography')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_connections_are_closed_when_the_scope_around_them_is_cancelled(serve):
    url = await serve(Recorder({"kind": "Job", "metadata": {"name": "a"}}))
    client = client_for(url)
    with anyio.CancelScope() as scope:
        async with client:
            await client.get(JOBS, ObjectKey("ns", "a"))
            session = client.transport._session
            scope.cancel()
    assert session.closed


@pytest.mark.parametrize("call", ["get", "watch"])
async def test_a_cancellation_at_the_moment_of_the_deadline_is_not_lost(serve, call, monkeypatch):
    """As after a pause of the process: what was due meanwhile happens in one turn of the loop."""
    monkeypatch.setattr("kueuelib.runtime.transport.REQUEST_TIMEOUT", 0.2)
    arrived = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        arrived.set()
        await asyncio.sleep(60)
        return web.Response()

    async with Transport(Endpoint(url=await serve(silent))) as transport:
        asking = (
            transport.request("GET", "/version", timeout=0.2)
            if call == "get"
            else transport.watch("/version", timeout=60)
        )
        task = asyncio.create_task(asking)
        await arrived.wait()
        asyncio.get_running_loop().call_later(0.0, task.cancel)
        time.sleep(0.4)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_warnings_are_logged_whole(serve, monkeypatch) -> None:
    warning = '299 - "unknown field \\"spec.pausd\\" in a \\\\ b"'
    client = client_for(await serve(Recorder({}, Warning=warning)))
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr(
        client._calls._log, "warning", lambda _event, **fields: logged.append(fields)
    )
    await client.get(JOBS, ObjectKey("a", "b"))
    await client.close()
    path = "/apis/batch/v1/namespaces/a/jobs/b"
    assert logged == [{"warning": 'unknown field "spec.pausd" in a \\ b', "path": path}]
