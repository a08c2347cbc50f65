from __future__ import annotations

import asyncio
import sys
from typing import Any, get_args, get_type_hints

import anyio
import pytest
from aiohttp import web
from kubernetes_asyncio.client import V1Job, V1ObjectMeta
from structlog.testing import capture_logs

from kueuelib.api.kinds import EVENTS
from kueuelib.api.meta import format_time
from kueuelib.errors import ConfigError
from kueuelib.machinery.recurrence import EventType
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.events import LOOK, QUEUE_SIZE, TRIES, WAY, EventRecorder, reference
from kueuelib.runtime.operator.context import Context
from kueuelib.runtime.transport import Throttle, Transport

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7"},
}


class FakeEvents:
    """Takes events; answers with the statuses that a test lines up."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.writes: list[tuple[str, str, dict[str, Any]]] = []
        self.wrote = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.Response:
        self.writes.append((request.method, request.path, await request.json()))
        self.wrote.set()
        status = self.statuses.pop(0) if self.statuses else 200
        reasons = {409: "AlreadyExists", 404: "NotFound", 403: "Forbidden"}
        body = {"kind": "Status", "reason": reasons.get(status, "x")} if status > 299 else {}
        return web.json_response(body, status=status)

    async def count(self, number: int) -> None:
        async with asyncio.timeout(60):
            while len(self.writes) < number:
                self.wrote.clear()
                await self.wrote.wait()


@pytest.fixture
async def events(serve, clock):
    fake = FakeEvents()
    async with Client(Transport(Endpoint(url=await serve(fake)))) as client:
        fake.recorder = EventRecorder(client, "tester", instance="tester-1", clock=clock)
        fake.task = asyncio.create_task(fake.recorder.run(lambda: None))
        yield fake
        fake.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fake.task


async def test_an_event_says_what_happened_in_both_ways(events):
    events.recorder.event(JOB, "Normal", "Started", "it runs")
    await events.count(1)
    method, path, body = events.writes[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/events")
    assert body["involvedObject"] == {
        "kind": "Job",
        "namespace": "ns",
        "name": "a",
        "uid": "u",
        "apiVersion": "batch/v1",
        "resourceVersion": "7",
    }
    assert (body["type"], body["reason"], body["message"]) == ("Normal", "Started", "it runs")
    assert body["count"] == 1
    assert body["firstTimestamp"] == body["lastTimestamp"]
    assert body["source"] == {"component": "tester"}
    assert (body["reportingComponent"], body["reportingInstance"]) == ("tester", "tester-1")


async def test_the_same_again_is_counted(events):
    for _ in range(2):
        events.recorder.event(JOB, "Normal", "Started", "it runs", component="other")
    await events.count(2)
    method, path, body = events.writes[1]
    assert method == "PATCH"
    assert path.startswith("/api/v1/namespaces/ns/events/a.")
    assert body["count"] == 2


async def test_an_event_about_a_cluster_scoped_object_goes_to_default(events):
    events.recorder.event({"kind": "Node", "name": "n"}, "Warning", "Bad", "m")
    await events.count(1)
    assert events.writes[0][1] == "/api/v1/namespaces/default/events"


async def test_a_failing_server_is_tried_again_later(events, clock):
    events.statuses = [500, 503]
    events.recorder.event(JOB, "Normal", "Started", "it runs")
    await events.count(3)
    assert len(clock.slept) == 2
    assert all(7.5 <= pause <= 12.5 for pause in clock.slept)
    assert events.writes[0][2] == events.writes[2][2]


async def test_an_event_is_given_up_after_the_last_try_and_others_follow(events):
    events.statuses = [500] * TRIES
    events.recorder.event(JOB, "Normal", "Lost", "m")
    events.recorder.event(JOB, "Normal", "Kept", "m")
    await events.count(TRIES + 1)
    assert events.writes[-1][2]["reason"] == "Kept"


async def test_a_refused_event_is_dropped_at_once(events, clock):
    events.statuses = [403]
    events.recorder.event(JOB, "Normal", "Refused", "m")
    events.recorder.event(JOB, "Normal", "Next", "m")
    await events.count(2)
    assert (events.writes[1][2]["reason"], clock.slept) == ("Next", [])


async def test_a_counted_event_that_is_gone_is_created_anew(events):
    events.statuses = [200, 404]
    for _ in range(2):
        events.recorder.event(JOB, "Normal", "Started", "m")
    await events.count(3)
    assert [method for method, _, _ in events.writes] == ["POST", "PATCH", "POST"]
    assert events.writes[2][2]["count"] == 2


async def test_recording_never_waits_and_drops_when_too_much_is_queued(events):
    for number in range(QUEUE_SIZE + 5):
        events.recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
    assert events.recorder.dropped == 5
    await events.count(10)


async def test_the_first_drop_of_a_flood_is_logged(events, monkeypatch):
    monkeypatch.setattr("kueuelib.runtime.events.QUEUE_SIZE", 4)
    with capture_logs() as logs:
        for flood in (1, 2):
            for number in range(6):
                events.recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
            await events.count(4 * flood)
    assert [each["dropped"] for each in logs] == [1, 3]
    assert events.recorder.dropped == 4


async def test_a_long_flood_is_logged_again(events, monkeypatch):
    monkeypatch.setattr("kueuelib.runtime.events.QUEUE_SIZE", 4)
    with capture_logs() as logs:
        for number in range(4 + 2500):
            events.recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
    assert [each["dropped"] for each in logs] == [1, 1000, 2000]


async def test_the_log_counts_what_cannot_be_written_when_the_recorder_stops(serve, monkeypatch):
    monkeypatch.setattr("kueuelib.runtime.events.FLUSH", 0.05)
    came, leave = asyncio.Event(), asyncio.Event()

    async def never(_request: web.Request) -> web.Response:
        came.set()
        await leave.wait()
        return web.json_response({})

    async with Client(Transport(Endpoint(url=await serve(never)))) as client:
        recorder = EventRecorder(client, "tester")
        task = asyncio.create_task(recorder.run(lambda: None))
        for number in range(5):
            recorder.event(JOB, "Normal", "R", f"m{number}")
        await came.wait()
        with capture_logs() as logs:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        leave.set()
    assert [each["count"] for each in logs if each["event"] == "events are lost"] == [5]


async def test_what_is_queued_is_written_when_the_recorder_stops(serve):
    fake = FakeEvents()
    async with Client(Transport(Endpoint(url=await serve(fake)))) as client:
        recorder = EventRecorder(client, "tester")
        task = asyncio.create_task(recorder.run(lambda: None))
        await asyncio.sleep(0)
        for number in range(5):
            recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(fake.writes) == 5


async def test_what_is_queued_is_written_when_the_scope_of_the_recorder_ends(serve):
    fake = FakeEvents()
    async with Client(Transport(Endpoint(url=await serve(fake)))) as client:
        recorder = EventRecorder(client, "tester")
        async with anyio.create_task_group() as group:
            group.start_soon(recorder.run, lambda: None)
            await asyncio.sleep(0)
            for number in range(5):
                recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
            group.cancel_scope.cancel()
    assert len(fake.writes) == 5


async def test_events_do_not_use_up_the_rate_limit_of_other_calls(serve, clock):
    fake = FakeEvents()
    throttle = Throttle(1, 2, clock)
    async with Client(Transport(Endpoint(url=await serve(fake))), throttle=throttle) as client:
        recorder = EventRecorder(client, "tester", clock=clock)
        for number in range(2):
            recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
        task = asyncio.create_task(recorder.run(lambda: None))
        await fake.count(2)
        await client.create(EVENTS, {"metadata": {"name": "a", "namespace": "b"}})
        assert clock.slept == []
        recorder.event({"kind": "Job", "name": "j3"}, "Normal", "R", "m")
        await fake.count(4)
        assert clock.slept == pytest.approx([1.0])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_unknown_type_is_a_mistake(events):
    with pytest.raises(ConfigError, match="'Odd'"):
        events.recorder.event(JOB, "Odd", "R", "m")


def test_a_reference_is_taken_as_it_is():
    assert reference({"kind": "Job", "name": "a"}) == {"kind": "Job", "name": "a"}


def test_a_reference_is_made_of_a_model():
    model = V1Job(metadata=V1ObjectMeta(name="a", namespace="ns"))
    wanted = {"kind": "Job", "apiVersion": "batch/v1", "name": "a", "namespace": "ns"}
    assert reference(model) == wanted


async def test_an_event_lets_more_important_writes_go_first(events, clock):
    looks = iter([True, True, False])
    events.recorder.give_way(lambda: next(looks))
    events.recorder.give_way(lambda: False)
    events.recorder.event(JOB, "Normal", "Started", "it runs")
    await events.count(1)
    assert len(clock.slept) == 2


async def test_an_event_is_written_in_the_end_however_much_is_to_be_written(events, clock):
    events.recorder.give_way(lambda: True)
    events.recorder.event(JOB, "Normal", "Started", "it runs")
    began = clock.now()
    await events.count(1)
    assert WAY <= sum(clock.slept) <= WAY + LOOK
    assert events.writes[0][2]["firstTimestamp"] == format_time(began)


async def test_events_do_not_let_others_go_first_when_many_wait(events, clock, monkeypatch):
    async def forever(_seconds: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(clock, "sleep", forever)
    monkeypatch.setattr("kueuelib.runtime.events.POLITE", 4)
    events.recorder.give_way(lambda: True)
    for number in range(8):
        events.recorder.event({"kind": "Job", "name": f"j{number}"}, "Normal", "R", "m")
    await events.count(4)
    await asyncio.sleep(0.05)
    assert len(events.writes) == 4, "four may wait until the others have been written"


async def test_events_do_not_wait_for_a_clock_that_was_set_back(events, clock):
    events.recorder.give_way(lambda: True)
    events.recorder.event(JOB, "Normal", "Started", "it runs")
    clock.at -= 3600
    await events.count(1)
    assert clock.slept == []


@pytest.mark.parametrize("method", [EventRecorder.event, Context.event])
def test_type_checkers_know_both_types_of_events(method: Any) -> None:
    assert get_type_hints(method, vars(sys.modules[method.__module__]))["type"] == EventType
    assert get_args(EventType) == ("Normal", "Warning")
