"""The Job controller: executes the decisions of `job_decision`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import Obj, ObjectKey, controller_of, find_condition
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.job_decision import (
    JobDecision,
    JobMemory,
    PodBackoff,
    decide,
    first_memory,
    is_ours,
    new_pod,
)
from kueuelib.embedded.cluster.kinds import gone
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.verbs import Propagation
from kueuelib.errors import ApiError, NotFound
from kueuelib.machinery.store import Delta

COMPONENT = "job-controller"
CLUSTER = "simulated-cluster"
NOT_SIMULATED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes")
POD_LIMIT = 12_000
"""Jobs get no further pods while this many pods, of Jobs and others, have not ended."""
_SETTLE = 0.02
"""Seconds to wait for further events of the same pods, to write one status instead of three.

They are seconds of the event loop, not of the cluster's clock, because they limit the load even
when time stands still.
"""
_SETTLE_PER_POD = 1e-4
_LONGEST_SETTLE = 1.0
_LARGEST_BATCH = 16
"""The number of pods that are written before other tasks run."""
_FULL_PAUSE = 5.0
"""Seconds until the next look at a Job that the cluster has no room for."""


class JobController(SimulatedController[ObjectKey]):
    """Makes the pods of Jobs, and reports how they are doing.

    Args:
        parts: of the cluster.
        backoff: how long failures delay new pods.
        pod_limit: Jobs get no further pods while this many have not ended.
    """

    name = "job"
    workers = 8

    def __init__(
        self, parts: ControllerTools, backoff: PodBackoff | None = None, pod_limit: int = POD_LIMIT
    ) -> None:
        super().__init__(parts)
        self._pod_limit = pod_limit
        self.delay = 0.0
        """Seconds between reading a Job and its pods, and writing what was decided about them."""
        self._alive = 0
        self._promised = 0
        self._jobs = parts.kinds.of(JOBS)
        self._backoff = backoff or PodBackoff()
        self._memories: dict[str, JobMemory] = {}
        self._settling: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._jobs.add_handler(self._on_job)
        self._pods.add_handler(self._on_pod)

    def _on_job(self, delta: Delta[Obj]) -> None:
        if ended := gone(delta):
            self._memories.pop(ended, None)
        if delta.new is not None:
            self.loop.add(delta.key)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        for pod, step in ((delta.old, -1), (delta.new, 1)):
            if pod is not None:
                self._alive += 0 if is_terminal(pod) else step
                self._look_soon(delta.key.namespace, controller_of(pod))

    def _look_soon(self, namespace: str, ref: Mapping[str, Any] | None) -> None:
        if ref is not None and ref.get("kind") == "Job":
            key = ObjectKey(namespace, ref.get("name", ""))
            if key not in self._settling:
                timers = asyncio.get_running_loop()
                count = self._pods.count_owned_by(ref.get("uid", ""))
                delay = min(max(_SETTLE, count * _SETTLE_PER_POD), _LONGEST_SETTLE)
                self._settling[key] = timers.call_later(delay, self._settled, key)

    def _settled(self, key: ObjectKey) -> None:
        del self._settling[key]
        self.loop.add(key)

    @property
    def idle(self) -> bool:
        """Whether nothing is due now."""
        return self.loop.idle and not self._settling

    def close(self) -> None:
        """Stops waiting for further events."""
        for timer in self._settling.values():
            timer.cancel()
        self._settling.clear()

    async def _reconcile(self, key: ObjectKey) -> float | None:
        job = self._jobs.get(key)
        if job is None or not is_ours(job):
            return None
        uid = job["metadata"]["uid"]
        pods = self._pods.owned_by(uid)
        memory = self._memories.get(uid)
        if memory is None:
            memory = first_memory(job, pods)
            self._warn_of_what_is_missing(job)
        room = self._pod_limit - self._alive - self._promised
        decision = decide(job, pods, memory, self._clock.now(), self._backoff, room)
        if decision.expire:
            await self._jobs.delete(job, propagation=Propagation.BACKGROUND)
            return None
        if self.delay and (decision.create or decision.delete):
            await self._clock.wait(asyncio.Event(), self._clock.now() + self.delay)
        # Pods that are about to be deleted must not count as failures, whatever goes wrong below.
        self._memories[uid] = attrs.evolve(memory, disposed=decision.memory.disposed)
        problem = await self._change_pods(job, decision)
        if decision.status != (job.get("status") or {}):
            await self._jobs.update_status(job, decision.status)
            for said in told_by(job.get("status") or {}, decision.status):
                tell = self._events.normal if said.type == "Normal" else self._events.warning
                tell(job, COMPONENT, said.reason, said.message)
        self._memories[uid] = decision.memory
        if problem is not None:
            raise problem
        if decision.withheld:
            return self._wait_for_room(job, decision)
        return decision.due

    def _wait_for_room(self, job: Mapping[str, Any], decision: JobDecision) -> float:
        # Under the cluster's name: the controller's limit may be used up by events about pods.
        text = (
            f"Error creating: the simulated cluster takes at most {self._pod_limit} pods that "
            "have not ended"
        )
        self._events.warning(job, CLUSTER, "FailedCreate", text)
        again = self._clock.now() + _FULL_PAUSE
        return again if decision.due is None else min(again, decision.due)

    async def _change_pods(self, job: Mapping[str, Any], decision: JobDecision) -> ApiError | None:
        """Deletes and creates pods; after the first refusal, the status excludes the rest."""
        for number, pod in enumerate(decision.delete, 1):
            try:
                await self._pods.delete(pod, propagation=Propagation.BACKGROUND)
            except NotFound:
                continue
            text = f"Deleted pod: {pod['metadata']['name']}"
            self._events.normal(job, COMPONENT, "SuccessfulDelete", text)
            if number % _LARGEST_BATCH == 0:
                await asyncio.sleep(0)
        return await self._create_pods(job, decision)

    async def _create_pods(self, job: Mapping[str, Any], decision: JobDecision) -> ApiError | None:
        """Creates pods in batches, which begin with one and double as long as nothing is
        refused.
        """
        waiting = deque(decision.create)
        self._promised += len(waiting)
        size, problem = 1, None
        while waiting and problem is None:
            batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
            size = min(2 * size, _LARGEST_BATCH)
            outcomes = await asyncio.gather(*(self._create_pod(job, index) for index in batch))
            refusals = [error for error in outcomes if error is not None]
            if refusals:
                problem = refusals[0]
                self._claim_less(decision, len(refusals) + len(waiting))
            await asyncio.sleep(0)
        self._promised -= len(waiting)
        return problem

    async def _create_pod(self, job: Mapping[str, Any], index: int | None) -> ApiError | None:
        try:
            pod = await self._pods.create(new_pod(job, index))
        except ApiError as error:
            text = f"Error creating: {error.message}"
            self._events.warning(job, COMPONENT, "FailedCreate", text)
            return error
        finally:
            self._promised -= 1
        text = f"Created pod: {pod['metadata']['name']}"
        self._events.normal(job, COMPONENT, "SuccessfulCreate", text)
        return None

    @staticmethod
    def _claim_less(decision: JobDecision, missing: int) -> None:
        active = decision.status.get("active", 0) - missing
        if active > 0:
            decision.status["active"] = active
        else:
            decision.status.pop("active", None)

    def _warn_of_what_is_missing(self, job: Mapping[str, Any]) -> None:
        for key in NOT_SIMULATED:
            if job["spec"].get(key) is not None and not job.get("status"):
                text = f"spec.{key} is accepted, but this cluster does not obey it"
                self._events.warning(job, COMPONENT, "NotSimulated", text)


class Said(NamedTuple):
    """One event: `Normal` or `Warning`, its reason and its message."""

    type: str
    reason: str
    message: str


def told_by(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Said]:
    """The events for the change from one status to the next."""
    events = []

    def became(type_: str, value: str = "True") -> Mapping[str, Any] | None:
        condition = find_condition(new.get("conditions"), type_)
        before = find_condition(old.get("conditions"), type_)
        changed = condition.get("status") == value != before.get("status")
        return condition if changed else None

    if became("Suspended"):
        events.append(Said("Normal", "Suspended", "Job suspended"))
    if became("Suspended", "False"):
        events.append(Said("Normal", "Resumed", "Job resumed"))
    if became("Complete"):
        events.append(Said("Normal", "Completed", "Job completed"))
    failed = became("FailureTarget")
    if failed is not None:
        events.append(Said("Warning", failed.get("reason", ""), failed.get("message", "")))
    return events
