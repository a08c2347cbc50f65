"""Plays users and jobs: creates Workloads in time, and ends each one when its time is up.

Execution is played as upstream's runner plays it. A few workers write statuses: an evicted Workload
gives its quota back, an admitted one is finished after its run time. A Workload waits for a free
worker, so a slow API server keeps quota in use for longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import attrs

from kueuelib.api.kinds import CLUSTER_QUEUES, WORKLOADS
from kueuelib.api.meta import Obj, Resource, find_condition, is_true, key_of
from kueuelib.errors import ApiError, NotFound

from .calls import CountedClient
from .cleaning import remove_all
from .parts import Outcome, Patience
from .recorder import Recorder
from .shape import CLASS_LABEL, QueuePlace, Shape, WorkloadClass, workload

ADMISSION_OWNER = "kueue-admission"
FINISH_OWNER = "kueue-job-controller-Finished"
RETRY_SECONDS = 0.005
SAMPLE_SECONDS = 0.25
WATCH_SECONDS = 3600.0
_KEPT = (
    *("BlockedOnPreemptionGates", "Evicted", "Preempted", "Requeued", "DeactivationTarget"),
    *("PodsReady", "Finished"),
)
"""Conditions that stay as they are when quota is given back."""
_KEPT_FIELDS = ("requeueState", "accumulatedPastExecutionTimeSeconds", "schedulingStats")


async def create_all(client: CountedClient, shape: Shape) -> None:
    """Create the Workloads of every queue and class, each class at its own pace."""
    async with asyncio.TaskGroup() as group:
        for place in shape.places():
            for kind in shape.classes:
                group.create_task(_create(client, place, kind))


async def _create(client: CountedClient, place: QueuePlace, kind: WorkloadClass) -> None:
    for number in range(kind.count):
        await asyncio.sleep(kind.interval)
        await client.create(WORKLOADS, workload(place, kind, number))


@attrs.frozen
class Upstream:
    """The load of upstream's benchmark.

    Attributes:
        shape: of the queues and Workloads.
    """

    shape: Shape

    def queue_objects(self) -> Iterator[tuple[Resource, Obj]]:
        """Everything but the Workloads."""
        return self.shape.queue_objects()

    async def play(
        self, client: CountedClient, patience: Patience, sample: Callable[[], None]
    ) -> Outcome:
        """Until all have finished, or nothing more happens."""
        recorder = Recorder(self.shape)
        execution = Execution(client, self.shape, recorder)
        deadline = time.monotonic() + patience.limit
        async with asyncio.TaskGroup() as group:
            player = group.create_task(execution.run())
            creator = group.create_task(create_all(client, self.shape))
            while recorder.finished < self.shape.total and time.monotonic() < deadline:
                quiet = time.monotonic() - execution.progress
                if creator.done() and quiet > patience.quiet:
                    break
                await asyncio.sleep(SAMPLE_SECONDS)
                sample()
            creator.cancel()
            player.cancel()
        wall = recorder.ended - recorder.started
        use, said = recorder.use(), recorder.said_use()
        return Outcome(
            self.shape.total, recorder.finished, wall, use, recorder.waits(), said_use=said
        )

    async def remove(self, client: CountedClient) -> None:
        """Take Workloads and queues away."""
        await remove_all(client, self.shape)


class Execution:
    """Watches Workloads, and writes what jobs would bring about.

    Args:
        client: makes the calls.
        shape: says how long each Workload runs.
        recorder: sees every event.
    """

    def __init__(self, client: CountedClient, shape: Shape, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._workers = shape.workers
        self._queues = {each.name for each in shape.places()}
        self._seconds = {each.name: each.seconds for each in shape.classes}
        self._latest: dict[str, Obj] = {}
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self.progress = time.monotonic()

    async def run(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())
            group.create_task(self._watch(CLUSTER_QUEUES, self._see_queue))
            group.create_task(self._watch(WORKLOADS, self._see))

    async def _watch(self, resource: Resource, see: Callable[[Obj], None]) -> None:
        page = await self._client.client.list(resource)
        for item in page.items:
            see(item)
        version = page.resource_version
        while True:
            async with await self._client.client.watch(
                resource, resource_version=version, timeout=WATCH_SECONDS
            ) as stream:
                while batch := await stream.batch():
                    for event in batch:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] in ("ADDED", "MODIFIED"):
                            see(event["object"])

    def _see_queue(self, obj: Obj) -> None:
        if obj["metadata"]["name"] in self._queues:
            self._recorder.see_queue(obj, time.monotonic())

    def _see(self, obj: Obj) -> None:
        if CLASS_LABEL not in obj["metadata"].get("labels", ()):
            return
        uid = obj["metadata"]["uid"]
        before = self._recorder.finished
        self._recorder.see(uid, obj, time.monotonic())
        if self._recorder.finished != before or is_true(obj, "Admitted"):
            self.progress = time.monotonic()
        self._latest[uid] = obj
        if is_true(obj, "Finished"):
            self._latest.pop(uid)
        elif is_true(obj, "Admitted"):
            self._later(uid, self._remaining(uid))

    def _remaining(self, uid: str) -> float:
        """Seconds until there is something to do."""
        seen = self._recorder.seen[uid]
        if seen.evicted or seen.admitted is None:
            return 0.0
        return seen.admitted + self._seconds[seen.class_] - time.monotonic()

    def _later(self, uid: str, seconds: float) -> None:
        if seconds > 0:
            asyncio.get_running_loop().call_later(seconds, self._later, uid, 0.0)
        elif uid not in self._queued:
            self._queued.add(uid)
            self._due.put_nowait(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._due.get()
            self._queued.discard(uid)
            obj = self._latest.get(uid)
            if obj is None or not is_true(obj, "Admitted"):
                continue
            if (left := self._remaining(uid)) > 0:
                self._later(uid, left)
                continue
            body, owner = (
                (released(obj), ADMISSION_OWNER)
                if is_true(obj, "Evicted")
                else (finished(obj), FINISH_OWNER)
            )
            try:
                await self._client.apply_status(WORKLOADS, key_of(obj), body, owner)
            except NotFound:
                continue
            except ApiError:
                self._later(uid, RETRY_SECONDS)


def finished(obj: Obj) -> Obj:
    """What ends a Workload."""
    return _apply(obj, [_condition(obj, "Finished", "True", "ByTest", "By test runner")], {})


def released(obj: Obj) -> Obj:
    """What gives the quota of an evicted Workload back."""
    status = obj["status"]
    old = status.get("conditions")
    conditions = [dict(each) for type_ in _KEPT if (each := find_condition(old, type_))]
    conditions += [
        _condition(obj, "QuotaReserved", "False", "Pending", "Evicted by the test runner"),
        _condition(obj, "Admitted", "False", "NoReservation", "The workload has no reservation"),
    ]
    kept = {name: status[name] for name in _KEPT_FIELDS if name in status}
    if "admissionChecks" in status:
        kept["admissionChecks"] = status["admissionChecks"]
    return _apply(obj, conditions, kept)


def _apply(obj: Obj, conditions: list[Obj], status: Obj) -> Obj:
    meta = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations")
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {name: meta[name] for name in names if name in meta},
        "status": {**status, "conditions": conditions},
    }


def _condition(obj: Obj, type_: str, status: str, reason: str, message: str) -> Obj:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "observedGeneration": obj["metadata"].get("generation", 0),
    }
