"""What the applier does when the API server does not simply agree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import structlog

from kueuelib.api import kinds
from kueuelib.api.codec import decode
from kueuelib.api.kueue import Admission, Workload
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.applier import EVICTION_DELAY, Applier, OrderWriter
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.errors import Conflict, Invalid, NotFound, ServerError, TransportError
from kueuelib.machinery.store import Store
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler.decide.cycle import Admit, Wait
from kueuelib.scheduler.decide.preemption.guard import PolicyFault
from kueuelib.scheduler.decide.preemption.victims import Path, PendingPreemption, Victim
from kueuelib.scheduler.engine import Settled
from kueuelib.scheduler.events import Effects, EvictionFailed, Forgotten
from kueuelib.scheduler.object_reasons import ClusterQueueMissing
from kueuelib.scheduler.ordering import queue_order
from kueuelib.scheduler.pending.tries import Requeue
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.workload import states
from kueuelib.workload.orders import REFUSALS
from kueuelib.workload.writer import StatusWriter

KEY = ObjectKey("ns", "wl")


def workload(version: int = 1, generation: int = 1, uid: str = "u1", **status: Any) -> Obj:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "wl",
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "generation": generation,
            "creationTimestamp": "2024-01-01T00:00:00Z",
        },
        "spec": {"queueName": "main", "active": True, "podSets": []},
        "status": status,
    }


def holder() -> Holder:
    """What the Workload is charged."""
    return Holder(
        key=KEY,
        uid="u1",
        cluster_queue="cq",
        local_queue=ObjectKey("ns", "main"),
        priority=0,
        order=queue_order(0, 0.0, "u1"),
        usage={},
        reserved_at=1.0,
        admitted=True,
        assumed=False,
        evicted=False,
        pods_ready=True,
    )


def preemption(*, assumed: bool = True) -> PendingPreemption:
    """The Workload has to make room for another one of its ClusterQueue."""
    other = decode(Workload, workload(uid="u9"))
    victim = Victim(attrs.evolve(holder(), assumed=assumed), Path.IN_CLUSTER_QUEUE)
    return PendingPreemption(ObjectKey("ns", "high"), "u9", other, "cq", {"cq": "/cq"}, (victim,))


def running(version: int = 1, uid: str = "u1") -> Obj:
    return states.reserve(workload(version, uid=uid), {"clusterQueue": "cq"}, [], 0.0)


class FakeClient:
    """One Workload; answers patches with what `failures` says first."""

    def __init__(self, stored: Obj | None) -> None:
        self.stored = stored
        self.failures: list[Exception] = []
        self.patches: list[Obj] = []

    async def patch(self, resource: Any, key: ObjectKey, body: Obj, *_: Any, **__: Any) -> Obj:
        self.patches.append(body)
        if self.failures:
            raise self.failures.pop(0)
        if self.stored is None:
            raise NotFound("gone")
        meta = self.stored["metadata"]
        if body["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict("changed")
        version = str(int(meta["resourceVersion"]) + 1)
        status = {**self.stored["status"], **body["status"]}
        self.stored = {**self.stored, "status": status}
        self.stored["metadata"] = {**meta, "resourceVersion": version}
        return self.stored


class FakeInformer:
    """Knows what was cached, what it learned, and what it was shown."""

    resource = kinds.WORKLOADS

    def __init__(self, client: FakeClient, cached: Obj | None) -> None:
        self.client = client
        self.store: Store[Obj] = Store()
        if cached is not None:
            self.learn(cached)

    def learn(self, obj: Obj, *, shared: bool = False) -> None:
        self.store.put(KEY, obj)

    async def refresh(self, key: ObjectKey) -> Obj | None:
        if self.client.stored is None:
            self.store.remove(key)
        else:
            self.learn(self.client.stored)
        return self.client.stored


class FakeController:
    """The controller, and whoever tells it when a reason to wait is to be written."""

    def __init__(self) -> None:
        self.keys: list[tuple[ObjectKey, float]] = []
        self.admissions: list[tuple[ObjectKey, str]] = []

    def enqueue(self, key: ObjectKey, after: float = 0.0, priority: int = 0) -> None:
        self.keys.append((key, after))

    def waits(self, key: ObjectKey, cluster_queue: str, after: float) -> None:
        self.keys.append((key, after))

    def admitted(self, key: ObjectKey, cluster_queue: str) -> None:
        self.admissions.append((key, cluster_queue))


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, obj: Obj, type: str, reason: str, message: str, component: str) -> None:
        self.events.append(reason)


class Case:
    """An applier with fakes all around."""

    def __init__(
        self,
        cached: Obj | None,
        stored: Obj | None = None,
        holder: Callable[[ObjectKey], Holder | None] | None = None,
    ) -> None:
        self.client = FakeClient(stored if stored is not None else cached)
        self.recorder = Recorder()
        self.told: list[Any] = []
        self.telemetry = Telemetry()
        self.controller = FakeController()
        self.informer = FakeInformer(self.client, cached)
        orders = OrderWriter(
            StatusWriter(self.client, self.informer),  # type: ignore[arg-type]
            self.recorder,  # type: ignore[arg-type]
            SchedulerMetrics(self.telemetry),
            self.told.append,
        )
        self.applier = Applier(orders, holder)

    def admit(self, seen: Obj | None = None) -> None:
        seen = seen or workload()
        order = Admit(
            key=KEY,
            uid=seen["metadata"]["uid"],
            workload=decode(Workload, seen),
            cluster_queue="cq",
            admission=Admission(cluster_queue="cq"),
            admitted=True,
            required_checks=(),
            wait_seconds=3.0,
            borrowing=0,
            usage={},
        )
        self.submit(Settled((order,), (), Effects()))

    def wait(self, name: str = "cq", *, transient: bool = False) -> None:
        order = Wait(
            KEY,
            "u1",
            decode(Workload, workload()),
            "cq",
            ClusterQueueMissing(name),
            Requeue.GENERIC,
            transient=transient,
        )
        self.submit(Settled((), (order,), Effects()))

    def evict(self) -> None:
        self.submit(Settled((), (), Effects(), (preemption(),)))

    def submit(self, settled: Settled) -> None:
        self.applier.submit(settled, self.controller, self.controller)  # type: ignore[arg-type]

    async def run(self) -> None:
        await self.applier.reconcile(KEY)


async def test_an_admission_is_one_patch_that_the_engine_hears_of() -> None:
    case = Case(workload())
    case.admit()
    await case.run()
    assert len(case.client.patches) == 1
    assert case.told == []
    assert case.recorder.events == ["QuotaReserved", "Admitted"]
    assert case.controller.admissions == [(KEY, "cq")]
    await case.run()
    assert len(case.client.patches) == 1


async def test_a_stale_copy_costs_one_more_try_on_the_newest_object() -> None:
    other = {"type": "PodsReady", "status": "False", "reason": "r", "message": ""}
    case = Case(workload(1), workload(5, conditions=[other]))
    case.admit()
    await case.run()
    assert len(case.client.patches) == 2
    assert case.told == []


@pytest.mark.parametrize(
    "now",
    [
        workload(generation=2),
        workload(uid="u2"),
        {**workload(), "spec": {"active": False, "podSets": []}},
        {**workload(), "metadata": {**workload()["metadata"], "deletionTimestamp": "x"}},
        states.finish(workload(), "Succeeded", "done", 0.0),
    ],
    ids=["changed", "recreated", "inactive", "deleted", "finished"],
)
@pytest.mark.parametrize("cached", [True, False])
async def test_an_admission_of_what_has_changed_is_void(now: Obj, cached: bool) -> None:
    newer = {**now, "metadata": {**now["metadata"], "resourceVersion": "9"}}
    case = Case(newer) if cached else Case(workload(1), newer)
    case.admit()
    await case.run()
    assert case.told == [Forgotten(KEY, "u1")]
    assert case.recorder.events == []
    await case.run()
    assert case.told == [Forgotten(KEY, "u1")]


async def test_an_admission_of_what_is_gone_is_void() -> None:
    case = Case(workload())
    case.client.stored = None
    case.admit()
    await case.run()
    assert case.told == [Forgotten(KEY, "u1")]


async def test_without_an_answer_the_assumption_stays_and_a_write_that_happened_counts() -> None:
    case = Case(workload())
    case.client.failures = [TransportError("https://x", "reset"), ServerError("down", code=503)]
    case.admit()
    for error in (TransportError, ServerError):
        with pytest.raises(error):
            await case.run()
    assert case.told == []
    case.client.stored = states.reserve(workload(7), {"clusterQueue": "cq"}, [], 0.0)
    await case.run()
    assert case.told == []
    assert len(case.client.patches) == 3


async def test_refusals_are_repeated_a_few_times_and_then_told() -> None:
    case = Case(workload())
    case.client.failures = [Invalid("no") for _ in range(REFUSALS)]
    case.admit()
    for _ in range(REFUSALS - 1):
        with pytest.raises(Invalid):
            await case.run()
    assert case.told == []
    await case.run()
    assert case.told == [Forgotten(KEY, "u1")]
    assert case.recorder.events == ["AdmissionFailed"]


async def test_a_dead_webhook_is_told_once_a_minute_while_the_order_is_tried_again() -> None:
    case = Case(workload())
    case.client.failures = [ServerError("failed calling webhook", code=500) for _ in range(3)]
    case.admit()
    for _ in range(3):
        with pytest.raises(ServerError):
            await case.run()
    assert case.told == []
    assert case.recorder.events == ["AdmissionFailed"]
    await case.run()
    assert len(case.client.patches) == 4


async def test_a_reason_is_written_and_told_once() -> None:
    case = Case(workload())
    for _ in range(2):
        case.wait()
        await case.run()
    assert case.recorder.events == ["Misconfigured"]
    condition = states.condition(case.client.stored or {}, "QuotaReserved")
    assert condition["message"] == "ClusterQueue cq doesn't exist"


async def test_the_own_answer_is_newer_than_the_cache_until_the_watch_tells_more() -> None:
    case = Case(workload())
    case.wait()
    await case.run()
    case.admit()
    await case.run()
    assert len(case.client.patches) == 2
    other = Case(workload())
    other.wait()
    await other.run()
    other.client.stored = {**workload(9), "status": {}}
    other.informer.learn(other.client.stored)
    other.admit()
    await other.run()
    assert len(other.client.patches) == 2


async def test_a_new_message_with_the_known_reason_may_wait_a_little() -> None:
    case = Case(states.wait(workload(), "Misconfigured", "other", 0.0))
    case.wait()
    assert case.controller.keys[-1][1] > 0
    fresh = Case(workload())
    fresh.wait()
    assert fresh.controller.keys == [(KEY, 0.0)]


async def test_a_passing_reason_is_not_written() -> None:
    case = Case(workload())
    case.wait(transient=True)
    assert case.controller.keys == []
    await case.run()
    assert case.client.patches == []


async def test_the_newest_order_counts() -> None:
    case = Case(workload())
    case.wait()
    case.admit()
    await case.run()
    assert case.recorder.events == ["QuotaReserved", "Admitted"]


async def test_a_workload_with_quota_is_not_told_to_wait() -> None:
    case = Case(states.reserve(workload(), {"clusterQueue": "cq"}, [], 0.0))
    case.wait()
    await case.run()
    assert case.client.patches == []


async def test_an_eviction_is_one_patch_with_the_path_and_the_preemptor() -> None:
    case = Case(running())
    case.evict()
    await case.run()
    assert len(case.client.patches) == 1
    stored = case.client.stored or {}
    evicted, preempted = (states.condition(stored, name) for name in ("Evicted", "Preempted"))
    assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")
    assert (preempted["status"], preempted["reason"]) == ("True", "InClusterQueue")
    assert evicted["message"] == preempted["message"]
    assert "UID: u9" in evicted["message"]
    assert states.has_quota(stored)
    assert case.recorder.events == ["EvictedDueToPreempted", "Preempted"]
    assert case.told == []
    await case.run()
    assert len(case.client.patches) == 1


@pytest.mark.parametrize(
    ("has_quota", "uid", "reserved"),
    [(True, "u9", False), (True, "u9", True), (True, "u8", False), (False, "u9", False)],
    ids=["served", "held before", "recreated", "waits"],
)
async def test_a_victim_stays_if_its_preemptor_got_quota_elsewhere(
    has_quota: bool, uid: str, reserved: bool
) -> None:
    high = attrs.evolve(holder(), key=ObjectKey("ns", "high"), uid=uid)
    case = Case(running(), holder=lambda key: high if has_quota and key == high.key else holder())
    order = attrs.evolve(preemption(), reserved=reserved)
    case.submit(Settled((), (), Effects(), (order,)))
    assert case.controller.keys == [(KEY, 0.0 if reserved else EVICTION_DELAY)]
    await case.run()
    stays = has_quota and uid == "u9" and not reserved
    assert states.is_evicted(case.client.stored or {}) is not stays
    assert case.told == ([EvictionFailed(KEY, "u1")] if stays else [])


async def test_a_victim_that_is_leaving_already_is_left_alone() -> None:
    case = Case(states.evict(running(), "ClusterQueueStopped", "stopped", 0.0))
    case.evict()
    await case.run()
    assert case.client.patches == []
    assert case.told == []
    assert case.recorder.events == []


async def test_a_victim_whose_copy_is_stale_is_read_again() -> None:
    case = Case(workload(1), running(5))
    case.evict()
    await case.run()
    assert states.is_evicted(case.client.stored or {})
    other = Case(running(1), running(5))
    other.evict()
    await other.run()
    assert len(other.client.patches) == 2
    assert states.is_evicted(other.client.stored or {})


@pytest.mark.parametrize(
    "now",
    [workload(9), running(9, uid="u2"), states.finish(running(9), "Succeeded", "done", 0.0), None],
    ids=["released", "recreated", "finished", "gone"],
)
async def test_a_victim_that_holds_nothing_any_more_lets_the_preemptor_look_again(
    now: Obj | None,
) -> None:
    case = Case(None, now)
    case.evict()
    await case.run()
    assert case.client.patches == []
    assert case.told == [EvictionFailed(KEY, "u1")]


async def test_an_eviction_without_an_answer_is_repeated() -> None:
    case = Case(running())
    case.client.failures = [TransportError("https://x", "reset"), ServerError("down", code=503)]
    case.evict()
    for error in (TransportError, ServerError):
        with pytest.raises(error):
            await case.run()
    assert case.told == []
    await case.run()
    assert states.is_evicted(case.client.stored or {})


async def test_a_victim_that_can_not_be_told_stays_after_a_few_tries() -> None:
    case = Case(running())
    case.client.failures = [Invalid("no") for _ in range(REFUSALS)]
    case.evict()
    for _ in range(REFUSALS - 1):
        with pytest.raises(Invalid):
            await case.run()
    assert case.told == []
    await case.run()
    assert case.told == [EvictionFailed(KEY, "u1", "no")]


async def test_a_victim_whose_admission_nobody_began_to_write_is_forgotten() -> None:
    case = Case(workload())
    case.admit()
    case.evict()
    assert case.told == [Forgotten(KEY, "u1"), EvictionFailed(KEY, "u1")]
    await case.run()
    assert case.client.patches == []


async def test_an_eviction_follows_the_admission_that_is_being_written() -> None:
    case = Case(workload())
    case.admit()
    slowly(case, case.evict)
    await case.run()
    assert not states.is_evicted(case.client.stored or {})
    await case.run()
    assert states.is_evicted(case.client.stored or {})
    assert case.told == []


def slowly(case: Case, meanwhile: Callable[[], None]) -> None:
    """While the next patch is under way something happens."""
    patch = case.client.patch

    async def patch_late(*args: Any, **more: Any) -> Obj:
        case.client.patch = patch  # type: ignore[method-assign]
        meanwhile()
        return await patch(*args, **more)

    case.client.patch = patch_late  # type: ignore[method-assign]


async def test_an_admission_that_waits_for_a_slow_reason_to_wait_does_not_vanish() -> None:
    """A preemption replaces it before anybody began to write it: the engine is told."""
    case = Case(workload())
    case.wait()

    def decided() -> None:
        case.admit()
        case.evict()

    slowly(case, decided)
    await case.run()
    assert case.told == [Forgotten(KEY, "u1"), EvictionFailed(KEY, "u1")]
    await case.run()
    assert len(case.client.patches) == 1
    assert not states.has_quota(case.client.stored or {})
    assert len(case.applier.book) == 0


async def test_a_void_admission_does_not_take_back_the_assumption_of_the_next_one() -> None:
    """The Workload was deleted and made again while the first admission was under way."""
    case = Case(workload())
    case.admit()

    def recreated() -> None:
        case.client.stored = workload(9, uid="u2")
        case.admit(workload(9, uid="u2"))

    slowly(case, recreated)
    await case.run()
    assert case.told == [Forgotten(KEY, "u1")]
    case.informer.learn(workload(9, uid="u2"))
    await case.run()
    assert len(case.told) == 1
    assert states.has_quota(case.client.stored or {})


async def test_an_admission_that_may_be_stored_is_cleared_up_before_its_eviction() -> None:
    case = Case(workload())
    case.client.failures = [TransportError("https://x", "reset")]
    case.admit()
    with pytest.raises(TransportError):
        await case.run()
    case.evict()
    assert case.told == []
    first = await case.applier.reconcile(KEY)
    assert first.requeue_after == EVICTION_DELAY
    assert states.phase_of(case.client.stored or {}) is states.Phase.ADMITTED
    await case.run()
    assert states.phase_of(case.client.stored or {}) is states.Phase.EVICTING
    assert case.told == []


async def test_an_eviction_of_an_earlier_reservation_is_not_written_to_the_next_one() -> None:
    case = Case(running())
    case.client.failures = [TransportError("https://x", "reset")]
    case.evict()
    with pytest.raises(TransportError):
        await case.run()
    case.informer.learn(workload(7))
    case.client.stored = workload(7)
    case.admit(workload(7))
    assert case.told == [EvictionFailed(KEY, "u1")]
    await case.run()
    await case.run()
    assert states.phase_of(case.client.stored or {}) is states.Phase.ADMITTED


@pytest.mark.parametrize("held", ["nothing", "another", "seen"])
async def test_an_admission_that_the_engine_does_not_assume_any_more_is_not_written(
    held: str,
) -> None:
    found = {
        "nothing": None,
        "another": attrs.evolve(holder(), uid="u2", assumed=True),
        "seen": attrs.evolve(holder(), assumed=False),
    }
    case = Case(workload(), holder=lambda _: found[held])
    case.admit()
    await case.run()
    assert case.client.patches == []
    assert case.told == ([] if held == "seen" else [Forgotten(KEY, "u1")])
    assert len(case.applier.book) == 0


async def test_an_assumption_that_ends_while_a_newer_object_is_read_is_not_written() -> None:
    held: list[Holder | None] = [attrs.evolve(holder(), assumed=True)]
    case = Case(workload(1), workload(5), holder=lambda _: held[0])
    case.admit()
    slowly(case, lambda: held.__setitem__(0, None))
    await case.run()
    assert len(case.client.patches) == 1
    assert case.told == [Forgotten(KEY, "u1")]


async def test_an_order_stays_when_its_writing_is_cancelled() -> None:
    case = Case(workload())
    case.admit()

    async def for_ever(*_: Any, **__: Any) -> Obj:
        await asyncio.Event().wait()
        raise AssertionError

    case.client.patch = for_ever  # type: ignore[method-assign]
    task = asyncio.create_task(case.applier.reconcile(KEY))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert case.told == []
    assert case.applier.book.explains(Forgotten(KEY, "u1"))


async def test_a_reason_that_the_server_does_not_take_is_given_up() -> None:
    case = Case(workload())
    case.client.failures = [Invalid("no") for _ in range(REFUSALS)]
    case.wait()
    for _ in range(REFUSALS - 1):
        with pytest.raises(Invalid):
            await case.run()
    await case.run()
    assert len(case.applier.book) == 0
    assert case.told == []


def test_a_failing_preemption_policy_is_logged_once_and_counted_always() -> None:
    case, fault = Case(workload()), PolicyFault("example.com/p", "refuse() raised KeyError: 'a'")
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            case.submit(Settled((), (), Effects(), (), (fault,)))
    (line,) = lines
    assert (line["log_level"], line["policy"]) == ("error", fault.policy)
    assert line["fault"] == fault.message
    labels = {"policy": fault.policy}
    name = "kueuelib_preemption_policy_failures_total"
    assert case.telemetry.registry.get_sample_value(name, labels) == 3
