"""Decides the next step of a kubelet for a pod, and its time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from kueuelib.api.meta import annotations_of, parse_time
from kueuelib.embedded.cluster.contract import exit_code, run_seconds
from kueuelib.embedded.cluster.pod_status import is_terminal, phase


class Action(Enum):
    """An action on a pod."""

    NOTHING = "nothing"
    START = "start"
    FINISH = "finish"
    EXPIRE = "expire"
    KILL = "kill"
    REMOVE = "remove"


@attrs.frozen
class PodStep:
    """The action and its instant; None: nothing happens without an event."""

    action: Action
    due: float | None = None
    code: int = 0


@attrs.frozen
class Memory:
    """What a kubelet remembers of a running pod, because the API has whole seconds only.

    Attributes:
        started: when the pod was first seen running.
        run: the present `run-seconds`, or None.
        told: when these were first seen on the running pod.
        doomed: when the deletion was first seen, or None.
    """

    started: float
    run: float | None = None
    told: float = 0.0
    doomed: float | None = None


def remember(pod: Mapping[str, Any], memory: Memory | None, now: float) -> Memory:
    """The memory after another look at a pod on its node."""
    meta = pod["metadata"]
    deleted = meta.get("deletionTimestamp")
    if memory is None:
        began = (pod.get("status") or {}).get("startTime")
        memory = Memory(started=parse_time(began) if began else now)
        if deleted:
            grace = meta.get("deletionGracePeriodSeconds") or 0
            memory = attrs.evolve(memory, doomed=parse_time(deleted) - grace)
    run = run_seconds(annotations_of(pod))
    if run != memory.run:
        memory = attrs.evolve(memory, run=run, told=now)
    if memory.doomed is None and deleted:
        memory = attrs.evolve(memory, doomed=now)
    return memory


def next_step(pod: Mapping[str, Any], memory: Memory) -> PodStep:
    """The next step of a kubelet for a pod on its node.

    A deleted pod keeps running until its grace period is over, unless it ends by itself before.
    """
    if pod["metadata"].get("deletionTimestamp"):
        return _step_of_doomed(pod, memory)
    if is_terminal(pod):
        return PodStep(Action.NOTHING)
    if phase(pod) != "Running":
        return PodStep(Action.START, memory.started)
    return _earliest_end(pod, memory)


def _step_of_doomed(pod: Mapping[str, Any], memory: Memory) -> PodStep:
    meta = pod["metadata"]
    grace = meta.get("deletionGracePeriodSeconds") or 0
    if is_terminal(pod):
        # With a grace period of 0 the server removes it as soon as the finalizers are gone.
        return PodStep(Action.REMOVE, memory.doomed) if grace else PodStep(Action.NOTHING)
    doomed = memory.doomed if memory.doomed is not None else memory.started
    if phase(pod) != "Running":
        return PodStep(Action.KILL, doomed)
    end = doomed + grace
    own = _earliest_end(pod, memory)
    if own.due is not None and own.due < end:
        return own
    return PodStep(Action.KILL, end)


def _earliest_end(pod: Mapping[str, Any], memory: Memory) -> PodStep:
    step = PodStep(Action.NOTHING)
    if memory.run is not None:
        code = exit_code(annotations_of(pod))
        step = PodStep(Action.FINISH, memory.told + max(memory.run, 0.0), code)
    limit = pod["spec"].get("activeDeadlineSeconds")
    if limit is not None:
        due = memory.started + limit
        if step.due is None or due < step.due:
            step = PodStep(Action.EXPIRE, due)
    return step
