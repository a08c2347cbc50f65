"""The statuses that a kubelet reports for running, ended and killed pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kueuelib.api.conditions import with_raw_condition
from kueuelib.api.meta import Obj, format_time

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
