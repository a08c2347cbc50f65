"""The Job controller: executes the decisions of `job_decision`."""

from __future__ import annotations

import asyncio
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
from kueuelib.embedded.cluster.pod_control import PodControl, PodRoom
from kueuelib.embedded.verbs import Propagation
from kueuelib.errors import ApiError
from kueuelib.machinery.store import Delta

COMPONENT = "job-controller"
NOT_SIMULATED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes")


class JobController(SimulatedController[ObjectKey]):
    """Makes the pods of Jobs, and reports how they are doing.

    Args:
        parts: of the cluster.
        room: how many more pods the cluster takes.
        backoff: how long failures delay new pods.
    """

    name = "job"
    workers = 8

    def __init__(self, parts: ControllerTools, room: PodRoom, backoff: PodBackoff) -> None:
        super().__init__(parts)
        self._control = PodControl(parts, self._pods, room, COMPONENT)
        self.delay = 0.0
        """Seconds between reading a Job and its pods, and writing what was decided about them."""
        self._jobs = parts.kinds.of(JOBS)
        self._backoff = backoff
        self._memories: dict[str, JobMemory] = {}
        self._jobs.add_handler(self._on_job)
        self._pods.add_handler(self._on_pod)

    def _on_job(self, delta: Delta[Obj]) -> None:
        if ended := gone(delta):
            self._memories.pop(ended, None)
        if delta.new is not None:
            self.loop.add(delta.key)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        for pod in (delta.old, delta.new):
            ref = None if pod is None else controller_of(pod)
            if ref is not None and ref.get("kind") == "Job":
                count = self._pods.count_owned_by(ref.get("uid", ""))
                self.loop.settle(ObjectKey(delta.key.namespace, ref.get("name", "")), count)

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
        room, now = self._control.room.left, self._clock.now()
        decision = decide(job, pods, memory, now, self._backoff, room)
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
            for said in events_between(job.get("status") or {}, decision.status):
                report = self._events.normal if said.type == "Normal" else self._events.warning
                report(job, COMPONENT, said.reason, said.message)
        self._memories[uid] = decision.memory
        if problem is not None:
            raise problem
        if decision.withheld:
            return self._control.wait_for_room(job, decision.due)
        return decision.due

    async def _change_pods(self, job: Mapping[str, Any], decision: JobDecision) -> ApiError | None:
        """Deletes and creates pods; after the first refusal, the status excludes the rest."""
        await self._control.delete(job, decision.delete)
        new = (new_pod(job, index) for index in decision.create)
        missing, problem = await self._control.create(job, new, len(decision.create))
        if missing:
            self._claim_less(decision, missing)
        return problem

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


def events_between(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Said]:
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
