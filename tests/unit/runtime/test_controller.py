from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Self, cast

import pytest
from kubernetes_asyncio.client import V1Job

from kueuelib.api.kinds import CONFIG_MAPS, JOBS, NAMESPACES, PODS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ApiError, ConfigError, Conflict, TerminalError
from kueuelib.machinery.ownership import controller_key
from kueuelib.machinery.queue import LOW_PRIORITY
from kueuelib.machinery.selectors import parse_label_selector
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.controller import SETTLED, Controller, Result, is_terminal
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.predicates import (
    all_of,
    annotations_changed,
    any_of,
    generation_changed,
    labels_changed,
    matches_labels,
    negate,
    resource_version_changed,
)
from kueuelib.runtime.telemetry import Telemetry

KEY = ObjectKey("ns", "a")


class FakeInformer:
    """Hands deltas to handlers; is synced when told."""

    started = True
    cluster = ""
    resource = CONFIG_MAPS

    def __init__(self) -> None:
        self.handlers: list[Callable[[Delta[Any]], None]] = []
        self.ready = asyncio.Event()
        self.ready.set()

    def add_handler(self, handler: Callable[[Delta[Any]], None]) -> Callable[[], None]:
        self.handlers.append(handler)
        return lambda: self.handlers.remove(handler)

    async def wait_synced(self, timeout: float) -> None:
        await asyncio.wait_for(self.ready.wait(), timeout)

    def emit(self, delta: Delta[Any]) -> None:
        for handler in self.handlers:
            handler(delta)


def obj(name: str = "a", version: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "resourceVersion": str(version),
            **metadata,
        }
    }


def owned_by(name: str, kind: str = "Job", group: str = "batch/v2") -> dict[str, Any]:
    ref = {"apiVersion": group, "kind": kind, "name": name, "controller": True}
    return obj("pod", ownerReferences=[ref])


def added(new: Any, initial: bool = False) -> Delta[Any]:
    key = ObjectKey("ns", new["metadata"]["name"])
    return Delta(DeltaKind.ADDED, key, None, new, initial)


def updated(old: Any, new: Any) -> Delta[Any]:
    return Delta(DeltaKind.UPDATED, ObjectKey("ns", new["metadata"]["name"]), old, new)


def deleted(old: Any) -> Delta[Any]:
    return Delta(DeltaKind.DELETED, ObjectKey("ns", old["metadata"]["name"]), old)


class Scripted:
    """Plays one outcome per reconciliation, then succeeds."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.keys: list[ObjectKey] = []
        self.changed = asyncio.Event()

    async def reconcile(self, key: ObjectKey) -> Result:
        self.keys.append(key)
        self.changed.set()
        outcome = self.outcomes.pop(0) if self.outcomes else Result()
        if isinstance(outcome, Exception):
            raise outcome
        if callable(outcome):
            return await outcome() or Result()
        return outcome

    async def called(self, times: int) -> None:
        async with asyncio.timeout(60):
            while len(self.keys) < times:
                self.changed.clear()
                await self.changed.wait()


class Running:
    def __init__(self, reconciler: Any, **more: Any) -> None:
        self.telemetry = Telemetry()
        self.controller = Controller("test", reconciler, telemetry=self.telemetry, **more)

    async def __aenter__(self) -> Self:
        ready = asyncio.Event()
        self.task = asyncio.create_task(self.controller.run(ready.set))
        await asyncio.wait_for(ready.wait(), 60)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    def count(self, name: str, **labels: str) -> float:
        found = self.telemetry.registry.get_sample_value(
            f"controller_runtime_{name}", {"controller": "test", **labels}
        )
        assert found is not None
        return found

    def result(self, name: str) -> float:
        return self.count("reconcile_total", result=name)

    async def idle(self) -> None:
        async with asyncio.timeout(60):
            while self.controller.queue.core.processing or len(self.controller.queue):
                await asyncio.sleep(0.001)


async def test_success_forgets_and_is_not_repeated():
    reconciler = Scripted(ApiError("x"), Result())
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(2)
        await running.idle()
        assert running.controller.queue.core.num_requeues(KEY) == 0
        assert running.controller.queue.core.waiting == 0
        assert (running.result("success"), running.result("error")) == (1, 1)


async def test_all_results_are_reported_from_the_start():
    async with Running(Scripted()) as running:
        assert [
            running.result(name) for name in ("success", "error", "requeue", "requeue_after")
        ] == [0] * 4
        assert running.count("max_concurrent_reconciles") == 1


async def test_an_error_is_repeated_with_growing_delays():
    reconciler = Scripted(Conflict("x"), Conflict("x"), Conflict("x"))
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(4)
        await running.idle()
        assert running.result("error") == 3
        assert running.count("reconcile_errors_total") == 3
        assert running.count("reconcile_panics_total") == 0
        assert running.controller.queue.core.retries == 3


@pytest.mark.parametrize(
    ("error", "panics"),
    [
        (ZeroDivisionError("bug"), 1),
        (ExceptionGroup("tasks", [ApiError("x"), ExceptionGroup("more", [ValueError("bug")])]), 1),
        (ExceptionGroup("tasks", [ApiError("x"), Conflict("y")]), 0),
    ],
)
async def test_an_unforeseen_error_is_repeated_and_counted_as_such(error: Exception, panics: int):
    reconciler = Scripted(error)
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(2)
        await running.idle()
        assert running.count("reconcile_panics_total") == panics
        assert running.count("reconcile_errors_total") == 1


async def test_a_terminal_error_is_not_repeated():
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = TerminalError("inner")
    reconciler = Scripted(TerminalError("x"), wrapped)
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(1)
        await running.idle()
        running.controller.enqueue(KEY)
        await reconciler.called(2)
        await running.idle()
        assert running.controller.queue.core.waiting == 0
        assert running.count("terminal_reconcile_errors_total") == 2
        assert running.result("error") == 2


async def test_a_settled_key_is_not_repeated_for_what_changed_meanwhile():
    informer = FakeInformer()

    async def writes() -> Result:
        informer.emit(updated(obj(), obj(version=2)))
        return SETTLED

    reconciler = Scripted(writes)
    async with Running(reconciler) as running:
        running.controller.for_(cast(Informer, informer))
        running.controller.listen()
        running.controller.enqueue(KEY)
        await reconciler.called(1)
        await running.idle()
        assert reconciler.keys == [KEY]
        informer.emit(updated(obj(version=2), obj(version=3)))
        await reconciler.called(2)


@pytest.mark.parametrize("more", [{"requeue_after": 0.01}, {"rate_limited": True}])
async def test_a_settled_key_is_repeated_if_it_asks_for_that(more: dict[str, Any]):
    async def asks() -> Result:
        running.controller.enqueue(KEY)
        return Result(settled=True, **more)

    reconciler = Scripted(asks)
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(2)


async def test_a_requeue_comes_later_and_keeps_its_priority():
    reconciler = Scripted(Result(requeue_after=0.01), Result(requeue_after=500, priority=7))
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY, priority=3)
        await reconciler.called(2)
        await running.idle()
        core = running.controller.queue.core
        assert (core.waiting, running.result("requeue_after")) == (1, 2)
        assert core._records[KEY].priority == 7


async def test_rate_limited_results_are_repeated_with_growing_delays_until_a_success():
    async def counted():
        found.append(running.controller.queue.core.num_requeues(KEY))
        return Result(requeue_after=500, rate_limited=True)

    found = []
    reconciler = Scripted(Result(rate_limited=True), Conflict("x"), counted)
    async with Running(reconciler) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(4)
        await running.idle()
        core = running.controller.queue.core
        assert (found, core.num_requeues(KEY), core.waiting) == ([2], 0, 0)
        assert (running.result("requeue"), running.result("requeue_after")) == (2, 0)


async def test_a_reconciliation_that_takes_too_long_is_cancelled_and_repeated():
    reconciler = Scripted(lambda: asyncio.sleep(60))
    async with Running(reconciler, timeout=0.02) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(2)
        await running.idle()
        assert running.count("reconcile_timeouts_total") == 1
        assert running.result("error") == 1


async def test_a_time_out_of_its_own_making_is_an_ordinary_error():
    async def times_out() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    reconciler = Scripted(times_out)
    async with Running(reconciler, timeout=60) as running:
        running.controller.enqueue(KEY)
        await reconciler.called(2)
        await running.idle()
        assert running.count("reconcile_timeouts_total") == 0


async def test_running_work_ends_before_the_controller_does():
    going, finish, finished = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        going.set()
        await finish.wait()
        finished.append(True)

    async with Running(Scripted(work), workers=2) as running:
        running.controller.enqueue(KEY)
        await going.wait()
        asyncio.get_running_loop().call_later(0.01, finish.set)
    assert finished == [True]


async def test_one_key_is_never_with_two_workers_and_others_go_on():
    going, finish = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        going.set()
        await finish.wait()

    reconciler = Scripted(work)
    async with Running(reconciler, workers=2) as running:
        running.controller.enqueue(KEY)
        await going.wait()
        running.controller.enqueue(KEY)
        running.controller.enqueue(ObjectKey("ns", "b"))
        await reconciler.called(2)
        assert reconciler.keys == [KEY, ObjectKey("ns", "b")]
        finish.set()
        await reconciler.called(3)
        assert reconciler.keys[2] == KEY


async def test_workers_start_once_everything_watched_is_synced():
    informer, reconciler = FakeInformer(), Scripted()
    informer.ready.clear()
    controller = Controller("test", reconciler)
    controller.for_(informer)
    task = asyncio.create_task(controller.run(lambda: None))
    await asyncio.sleep(0.01)
    informer.emit(added(obj(), initial=True))
    await asyncio.sleep(0.01)
    assert reconciler.keys == []
    informer.ready.set()
    await reconciler.called(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_forgotten_cache_is_named_after_a_second():
    informer = FakeInformer()
    informer.started = False
    controller = Controller("test", Scripted()).for_(informer)
    with pytest.raises(
        ConfigError, match=r"controller test: nothing runs the informers of configm"
    ):
        async with asyncio.timeout(30):
            await controller.run(lambda: None)


def popped(controller: Controller) -> list[tuple[str, int]]:
    core, found = controller.queue.core, []
    while (item := core.pop_ready(monotonic())) is not None:
        found.append((item.key.name, item.priority))
    return found


async def test_old_news_have_low_priority():
    informer = FakeInformer()
    controller = Controller("test", Scripted()).for_(informer)
    controller.listen()
    informer.emit(added(obj("listed"), initial=True))
    informer.emit(updated(obj("echo", 5), obj("echo", 5)))
    informer.emit(added(obj("new")))
    informer.emit(updated(obj("changed", 5), obj("changed", 6)))
    informer.emit(deleted(obj("gone")))
    assert popped(controller) == [
        ("new", 0),
        ("changed", 0),
        ("gone", 0),
        ("listed", LOW_PRIORITY),
        ("echo", LOW_PRIORITY),
    ]


async def test_what_probably_needs_something_goes_before_other_old_news():
    informer = FakeInformer()
    controller = Controller("test", Scripted())
    controller.for_(informer, first=lambda delta: delta.last["metadata"]["name"] == "waits")
    controller.listen()
    for name in ("runs", "waits"):
        informer.emit(added(obj(name), initial=True))
    informer.emit(added(obj("new")))
    assert popped(controller) == [("new", 0), ("waits", LOW_PRIORITY + 1), ("runs", LOW_PRIORITY)]


async def test_other_tasks_run_between_old_news():
    informer, reconciler = FakeInformer(), Scripted()
    informer.ready.clear()
    controller = Controller("test", reconciler).for_(informer)
    task = asyncio.create_task(controller.run(lambda: None))
    await asyncio.sleep(0.01)
    for number in range(1000):
        informer.emit(added(obj(f"listed-{number}"), initial=True))
    informer.ready.set()
    await reconciler.called(1)
    assert len(reconciler.keys) < 10
    await reconciler.called(1000)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("owner", [JOBS, V1Job])
async def test_owners_old_and_new_are_reconciled(owner):
    informer = FakeInformer()
    controller = Controller("test", Scripted()).owns(informer, owner)
    controller.listen()
    new = owned_by("new")
    new["metadata"]["resourceVersion"] = "2"
    informer.emit(updated(owned_by("old"), new))
    informer.emit(added(owned_by("other", "CronJob")))
    informer.emit(added(owned_by("foreign", "Job", "example.com/v1")))
    informer.emit(deleted(owned_by("gone")))
    assert [name for name, _ in popped(controller)] == ["old", "new", "gone"]


def test_the_controller_of_a_core_kind_is_recognised():
    pod = owned_by("p", "Pod", "v1")
    assert controller_key(pod, PODS) == ObjectKey("ns", "p")
    assert controller_key(owned_by("n", "Namespace", "v1"), NAMESPACES) == ObjectKey("", "n")
    assert controller_key(obj(), PODS) is None


async def test_any_mapping_may_be_watched_and_a_predicate_may_drop():
    informer = FakeInformer()
    controller = Controller("test", Scripted()).watches(
        informer, lambda delta: [ObjectKey("x", "1"), ObjectKey("x", "1")], generation_changed
    )
    controller.listen()
    informer.emit(updated(obj(version=1, generation=1), obj(version=2, generation=1)))
    assert popped(controller) == []
    informer.emit(updated(obj(version=1, generation=1), obj(version=2, generation=2)))
    assert popped(controller) == [("1", 0)]


@pytest.mark.parametrize(
    ("predicate", "change"),
    [
        (generation_changed, {"generation": 2}),
        (labels_changed, {"labels": {"a": "2"}}),
        (annotations_changed, {"annotations": {"a": "2"}}),
        (resource_version_changed, {"resourceVersion": "2"}),
    ],
)
def test_predicates_look_at_their_part_of_updates(predicate, change):
    before = obj(generation=1, labels={"a": "1"}, annotations={"a": "1"})
    after = {"metadata": {**before["metadata"], **change}}
    assert predicate(updated(before, after))
    assert not predicate(updated(before, before))
    assert predicate(added(before))
    assert predicate(deleted(before))
    assert negate(predicate)(updated(before, before))
    assert not all_of(predicate, generation_changed)(updated(before, before))
    assert any_of(predicate, lambda _: True)(updated(before, before))


def test_a_label_predicate_looks_at_both_sides():
    predicate = matches_labels(parse_label_selector("a=1"))
    assert predicate(updated(obj(labels={"a": "1"}), obj()))
    assert not predicate(added(obj()))


def test_a_group_of_errors_is_terminal_when_all_are():
    assert is_terminal(ExceptionGroup("g", [TerminalError("a"), TerminalError("b")]))
    assert not is_terminal(ExceptionGroup("g", [TerminalError("a"), ValueError("b")]))


async def test_a_controller_that_waits_keeps_no_keys() -> None:
    informer = FakeInformer()
    controller = Controller("test", Scripted()).for_(cast("Informer", informer))
    informer.emit(added(obj("early")))
    informer.emit(deleted(obj("early")))
    assert not controller.listening
    assert popped(controller) == []
    controller.listen()
    controller.listen()
    assert controller.listening
    assert len(informer.handlers) == 1
    informer.emit(added(obj("late")))
    assert popped(controller) == [("late", 0)]


async def test_a_controller_that_has_ended_listens_to_nobody() -> None:
    informer = FakeInformer()
    running = Running(Scripted())
    running.controller.for_(cast("Informer", informer))
    async with running:
        assert len(informer.handlers) == 1
    assert informer.handlers == []
