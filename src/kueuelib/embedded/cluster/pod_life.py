"""The life of a pod on a node: its next step, its time, and its statuses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import attrs

from kueuelib.api.meta import Obj, annotations_of, format_time, parse_time, with_raw_condition
from kueuelib.embedded.cluster.contract import exit_code, run_seconds

# ---- the statuses that a kubelet reports for running, ended and killed pods ----------------------

PHASES_OF_THE_END = ("Succeeded", "Failed")


def phase(pod: Mapping[str, Any]) -> str:
    """The phase, Pending when none is reported."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has ended."""
    return phase(pod) in PHASES_OF_THE_END


def _conditions(
    status: Mapping[str, Any], changes: Iterable[tuple[str, bool, str]], now: float
) -> list[Obj]:
    """The present conditions with some replaced: type, status, reason."""
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    for type_, value, reason in changes:
        conditions = with_raw_condition(conditions, type_, value, reason, now=now)
    return list(map(dict, conditions))


def _container(container: Mapping[str, Any], state: Obj, *, ready: bool) -> Obj:
    return {
        "name": container.get("name", ""),
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    }


def running_status(pod: Mapping[str, Any], now: float, pod_ip: str, host_ip: str) -> Obj:
    """The status of a pod whose containers have just started."""
    status, spec = pod.get("status") or {}, pod["spec"]
    at = format_time(now)
    changes = [
        (name, True, "")
        for name in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    done = {"terminated": _ended(0, "Completed", at, at)}
    new: Obj = {
        **status,
        "phase": "Running",
        "conditions": _conditions(status, changes, now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": at,
        "containerStatuses": [
            _container(one, {"running": {"startedAt": at}}, ready=True)
            for one in spec["containers"]
        ],
    }
    if spec.get("initContainers"):
        new["initContainerStatuses"] = [
            _container(one, {"running": {"startedAt": at}}, ready=True)
            if one.get("restartPolicy") == "Always"
            else {**_container(one, done, ready=True), "started": False}
            for one in spec["initContainers"]
        ]
    return new


def _ended(code: int, reason: str, started: str, at: str) -> Obj:
    return {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": at}


def finished_status(pod: Mapping[str, Any], code: int, now: float, reason: str = "") -> Obj:
    """The status of a pod whose containers have ended with the exit code.

    Args:
        pod: the pod as it is.
        code: 0 is a success.
        now: seconds since the epoch.
        reason: why the whole pod failed, for example `DeadlineExceeded`; usually empty.
    """
    status, spec = pod.get("status") or {}, pod["spec"]
    at = format_time(now)
    why = "PodFailed" if code else "PodCompleted"
    changes = [
        ("PodReadyToStartContainers", False, ""),
        ("ContainersReady", False, why),
        ("Ready", False, why),
    ]
    if not code:
        changes.append(("Initialized", True, why))
    started = status.get("startTime") or at
    ended = _ended(code, "Error" if code else "Completed", started, at)
    new: Obj = {
        **status,
        "phase": "Failed" if code else "Succeeded",
        "conditions": _conditions(status, changes, now),
        "containerStatuses": [
            _container(one, {"terminated": ended}, ready=False) for one in spec["containers"]
        ],
    }
    if reason:
        new["reason"] = reason
    return new


# --------------------------------------------------------------------------------------------------


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
class PodTimes:
    """What a kubelet remembers of a running pod, because the API has whole seconds only.

    Attributes:
        started: when the pod was first seen running.
        run: the present `run-seconds`, or None.
        run_since: when these were first seen on the running pod.
        doomed: when the deletion was first seen, or None.
    """

    started: float
    run: float | None = None
    run_since: float = 0.0
    doomed: float | None = None


def remember(pod: Mapping[str, Any], memory: PodTimes | None, now: float) -> PodTimes:
    """The memory after another look at a pod on its node."""
    meta = pod["metadata"]
    deleted = meta.get("deletionTimestamp")
    if memory is None:
        began = (pod.get("status") or {}).get("startTime")
        memory = PodTimes(started=parse_time(began) if began else now)
        if deleted:
            grace = meta.get("deletionGracePeriodSeconds") or 0
            memory = attrs.evolve(memory, doomed=parse_time(deleted) - grace)
    run = run_seconds(annotations_of(pod))
    if run != memory.run:
        memory = attrs.evolve(memory, run=run, run_since=now)
    if memory.doomed is None and deleted:
        memory = attrs.evolve(memory, doomed=now)
    return memory


def next_step(pod: Mapping[str, Any], memory: PodTimes) -> PodStep:
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


def _step_of_doomed(pod: Mapping[str, Any], memory: PodTimes) -> PodStep:
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


def _earliest_end(pod: Mapping[str, Any], memory: PodTimes) -> PodStep:
    step = PodStep(Action.NOTHING)
    if memory.run is not None:
        code = exit_code(annotations_of(pod))
        step = PodStep(Action.FINISH, memory.run_since + max(memory.run, 0.0), code)
    limit = pod["spec"].get("activeDeadlineSeconds")
    if limit is not None:
        due = memory.started + limit
        if step.due is None or due < step.due:
            step = PodStep(Action.EXPIRE, due)
    return step
