"""What to do next for a pod, and its status: the decisions of a kubelet. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, find_condition, format_time, parse_time, with_raw_condition

KILLED: Final = 137
FIRST_BACKOFF: Final = 10.0
LAST_BACKOFF: Final = 300.0
CALM: Final = 600.0
"""Seconds of running after which a container has no back-off from earlier ends."""
_DEFAULT_GRACE: Final = 30


@attrs.frozen
class Termination:
    """The end of one run of a container; times are seconds since the epoch."""

    code: int
    started: float | None
    finished: float
    reason: str
    message: str = ""


@attrs.frozen
class ContainerFacts:
    """What the node knows of a container.

    Attributes:
        restarts: how many runs have ended before the present one, as the status counts them.
        crashes: how many of them make the next start wait.
        since: when the present run began; None if nothing runs.
        ended: how the present run ended.
        last: how the run before it ended.
        waiting: reason and message of why it cannot be started.
        retry: when to try again to start it, in seconds since the epoch.
        started: whether its startup probe has passed, and its `postStart` hook is done.
        ready: whether its readiness probe passes; true without one.
        stopping: whether it is being ended.
    """

    restarts: int = 0
    crashes: int = 0
    since: float | None = None
    ended: Termination | None = None
    last: Termination | None = None
    waiting: tuple[str, str] = ("", "")
    retry: float = 0.0
    started: bool = False
    ready: bool = False
    stopping: bool = False

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.since is not None

    @property
    def begun(self) -> bool:
        """Whether it has ever run."""
        return self.running or self.ended is not None


@attrs.frozen
class PodEnd:
    """Why the containers of a pod have to end.

    Attributes:
        grace: seconds between SIGTERM and SIGKILL.
        reason: of the status; empty for a deletion.
        message: of the status.
        disrupted: the reason of the condition DisruptionTarget; empty if there is none.
    """

    grace: float
    reason: str = ""
    message: str = ""
    disrupted: str = ""


@attrs.frozen
class PodActions:
    """What is due.

    Attributes:
        start: containers to start.
        stop: containers to end.
        over: whether nothing runs, and nothing will be started again.
        due: when to ask again at the latest, in seconds since the epoch; None: after a change.
    """

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    over: bool = False
    due: float | None = None


NEW: Final = ContainerFacts()


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container keeps running beside the others."""
    return container.get("restartPolicy") == "Always"


def grace_of(pod: Mapping[str, Any]) -> float:
    """The seconds between SIGTERM and SIGKILL that the pod asks for."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return float(_DEFAULT_GRACE if seconds is None else seconds)


def pod_end(pod: Mapping[str, Any], now: float, started: float, *, shutdown: bool) -> PodEnd | None:
    """Why a pod has to end now, or None.

    Args:
        pod: raw.
        now: seconds since the epoch.
        started: when the pod began on this node.
        shutdown: whether the node stops.
    """
    meta, spec = pod["metadata"], pod["spec"]
    if meta.get("deletionTimestamp"):
        grace = meta.get("deletionGracePeriodSeconds")
        left = parse_time(meta["deletionTimestamp"]) - now
        return PodEnd(min(max(left, 0.0), grace if grace is not None else math.inf))
    limit = spec.get("activeDeadlineSeconds")
    if limit is not None and now >= started + limit:
        text = "Pod was active on the node longer than the specified deadline"
        return PodEnd(grace_of(pod), "DeadlineExceeded", text)
    if shutdown:
        text = "Pod was terminated in response to imminent node shutdown."
        return PodEnd(grace_of(pod), "Terminated", text, "TerminationByKubelet")
    return None


def backoff(crashes: int) -> float:
    """Seconds between an end and the next start; the first restart is immediate."""
    return 0.0 if crashes <= 0 else min(FIRST_BACKOFF * 2 ** min(crashes - 1, 9), LAST_BACKOFF)


def restarts(container: Mapping[str, Any], spec: Mapping[str, Any], code: int) -> bool:
    """Whether a container that has ended with a code is started again."""
    policy = spec.get("restartPolicy") or "Always"
    if is_sidecar(container) or policy == "Always":
        # A finished init container is not started again.
        return code != 0 or is_sidecar(container) or container in spec["containers"]
    return policy == "OnFailure" and code != 0


def after_end(facts: ContainerFacts, end: Termination) -> ContainerFacts:
    """The facts of a container whose run has ended."""
    calm = end.started is not None and end.finished - end.started >= CALM
    return attrs.evolve(
        facts,
        since=None,
        ended=end,
        started=False,
        ready=False,
        stopping=False,
        crashes=0 if calm else facts.crashes,
    )


def after_start(facts: ContainerFacts, now: float, *, probed: bool, ready: bool) -> ContainerFacts:
    """The facts of a container that has just been started.

    Args:
        facts: before.
        now: seconds since the epoch.
        probed: whether a startup probe or a hook decides when it counts as started.
        ready: whether it is ready without a probe.
    """
    again = facts.ended is not None
    return ContainerFacts(
        restarts=facts.restarts + again,
        crashes=facts.crashes + again,
        since=now,
        last=facts.ended or facts.last,
        started=not probed,
        ready=ready and not probed,
    )


def next_actions(
    spec: Mapping[str, Any], known: Mapping[str, ContainerFacts], now: float, end: PodEnd | None
) -> PodActions:
    """What is due for a pod.

    Init containers run one after the other, sidecars among them stay. When the others have ended
    for good, or have to, sidecars are ended one by one in reverse order.

    Args:
        spec: of the pod.
        known: the facts of its containers by name.
        now: seconds since the epoch.
        end: why it has to end.
    """
    inits: Sequence[Mapping[str, Any]] = spec.get("initContainers") or ()
    mains: Sequence[Mapping[str, Any]] = spec["containers"]
    if end is not None or has_failed(spec, known) or _complete(spec, known):
        return _ending(inits, mains, known)
    start: list[str] = []
    dues: list[float] = []

    def wants(container: Mapping[str, Any]) -> None:
        facts = known.get(container["name"], NEW)
        ended = facts.ended
        due = max(facts.retry, 0.0 if ended is None else ended.finished + backoff(facts.crashes))
        if due <= now:
            start.append(container["name"])
        elif due < math.inf:
            dues.append(due)

    begun = any(known.get(each["name"], NEW).begun for each in mains)
    blocked = False
    for each in inits:
        facts = known.get(each["name"], NEW)
        if is_sidecar(each):
            if not facts.running:
                wants(each)
            blocked = not (begun or (facts.running and facts.started))
        elif not begun and not (facts.ended is not None and facts.ended.code == 0):
            if not facts.running:
                wants(each)
            blocked = True
        if blocked:
            break
    if not blocked:
        for each in mains:
            facts = known.get(each["name"], NEW)
            again = facts.ended is None or restarts(each, spec, facts.ended.code)
            if not facts.running and again:
                wants(each)
    return PodActions(tuple(start), due=min(dues, default=None))


def _ending(
    inits: Sequence[Mapping[str, Any]],
    mains: Sequence[Mapping[str, Any]],
    known: Mapping[str, ContainerFacts],
) -> PodActions:
    def running(containers: Iterable[Mapping[str, Any]]) -> list[str]:
        return [each["name"] for each in containers if known.get(each["name"], NEW).running]

    first = running([*mains, *(each for each in inits if not is_sidecar(each))])
    sidecars = running(each for each in reversed(inits) if is_sidecar(each))
    names = first or sidecars[:1]
    stop = tuple(name for name in names if not known[name].stopping)
    return PodActions(stop=stop, over=not names)


def has_failed(spec: Mapping[str, Any], known: Mapping[str, ContainerFacts]) -> bool:
    """Whether an init container has failed for good."""
    for each in spec.get("initContainers") or ():
        ended = known.get(each["name"], NEW).ended
        if ended is not None and ended.code and not restarts(each, spec, ended.code):
            return True
    return False


def _complete(spec: Mapping[str, Any], known: Mapping[str, ContainerFacts]) -> bool:
    """Whether all containers have ended for good."""
    ends = [(each, known.get(each["name"], NEW).ended) for each in spec["containers"]]
    return all(end is not None and not restarts(each, spec, end.code) for each, end in ends)


# ---- the status ----------------------------------------------------------------------------------


def pod_phase(
    spec: Mapping[str, Any], known: Mapping[str, ContainerFacts], *, over: bool, failed: bool
) -> str:
    """The phase of a pod.

    Args:
        spec: of the pod.
        known: the facts of its containers by name.
        over: whether nothing runs, and nothing will be started again.
        failed: whether it failed as a whole.
    """
    mains = [known.get(each["name"], NEW) for each in spec["containers"]]
    if over:
        succeeded = all(each.ended is not None and each.ended.code == 0 for each in mains)
        return "Failed" if failed or has_failed(spec, known) or not succeeded else "Succeeded"
    return "Running" if mains and all(each.begun for each in mains) else "Pending"


@attrs.frozen
class PodPlace:
    """Where a pod is: its address, that of its node, and when it came there (epoch seconds)."""

    address: str
    host: str
    started: float


def pod_status(
    pod: Mapping[str, Any],
    known: Mapping[str, ContainerFacts],
    place: PodPlace,
    now: float,
    end: PodEnd | None,
    *,
    over: bool,
) -> Obj:
    """The status as a kubelet writes it; what others wrote is kept.

    Args:
        pod: raw.
        known: the facts of its containers by name.
        place: where it is.
        now: seconds since the epoch.
        end: why it has to end.
        over: whether nothing runs, and nothing will be started again.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    failed = end is not None and bool(end.reason)
    phase = pod_phase(spec, known, over=over, failed=failed)
    inits = [(each, known.get(each["name"], NEW)) for each in spec.get("initContainers") or ()]
    mains = [(each, known.get(each["name"], NEW)) for each in spec["containers"]]
    new: Obj = {
        **status,
        "phase": phase,
        "conditions": _conditions(pod, phase, inits, mains, now, end),
        "hostIP": place.host,
        "hostIPs": [{"ip": place.host}],
        "podIP": place.address,
        "podIPs": [{"ip": place.address}],
        "startTime": status.get("startTime") or format_time(place.started),
    }
    if failed and not any(facts.begun for _, facts in (*inits, *mains)):
        inits = mains = []  # a pod that was refused has no containers
    if mains:
        new["containerStatuses"] = [container_status(pod, *each) for each in mains]
    if inits:
        new["initContainerStatuses"] = [container_status(pod, *each) for each in inits]
    if end is not None and end.reason:
        new |= {"reason": end.reason, "message": end.message}
    return new


_Pairs = Sequence[tuple[Mapping[str, Any], ContainerFacts]]


def _conditions(
    pod: Mapping[str, Any], phase: str, inits: _Pairs, mains: _Pairs, now: float, end: PodEnd | None
) -> list[Obj]:
    over = phase in ("Succeeded", "Failed")
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    incomplete = [
        each["name"]
        for each, facts in inits
        if not (facts.started if is_sidecar(each) else facts.ended and not facts.ended.code)
    ]
    begun = any(facts.begun for _, facts in mains)
    initialized = phase == "Succeeded" or begun or not incomplete
    unready = [each["name"] for each, facts in mains if not facts.ready]
    unready += [each["name"] for each, facts in inits if is_sidecar(each) and not facts.ready]
    conditions: list[Obj] = (pod.get("status") or {}).get("conditions") or []
    gates = [each["conditionType"] for each in pod["spec"].get("readinessGates") or ()]
    closed = [each for each in gates if find_condition(conditions, each).get("status") != "True"]
    why = "" if initialized else "ContainersNotInitialized"
    text = "" if initialized else f"containers with incomplete status: [{' '.join(incomplete)}]"
    conditions = with_raw_condition(
        conditions, "Initialized", initialized, done if phase == "Succeeded" else why, text, now=now
    )
    whole = not unready and not over
    why = done or ("" if whole else "ContainersNotReady")
    text = "" if over or whole else f"containers with unready status: [{' '.join(unready)}]"
    conditions = with_raw_condition(conditions, "ContainersReady", whole, why, text, now=now)
    if whole and closed:
        why, text = "ReadinessGatesNotReady", f"conditions that are not True: {' '.join(closed)}"
    conditions = with_raw_condition(conditions, "Ready", whole and not closed, why, text, now=now)
    conditions = with_raw_condition(
        conditions, "PodReadyToStartContainers", not over, "", "", now=now
    )
    if end is not None and end.disrupted:
        conditions = with_raw_condition(
            conditions, "DisruptionTarget", True, end.disrupted, end.message, now=now
        )
    return conditions


def container_status(
    pod: Mapping[str, Any], container: Mapping[str, Any], facts: ContainerFacts
) -> Obj:
    """The entry of a container among those of its pod."""
    run = f"local://{pod['metadata']['uid']}/{container['name']}/"
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": container.get("image", "") if facts.begun else "",
        "containerID": f"{run}{facts.restarts}" if facts.begun else "",
        "restartCount": facts.restarts,
        "ready": facts.ready,
        "started": facts.started,
        "state": _state(pod, container, facts),
        "lastState": _last(pod, container, facts),
    }


def _state(pod: Mapping[str, Any], container: Mapping[str, Any], facts: ContainerFacts) -> Obj:
    if facts.since is not None:
        return {"running": {"startedAt": format_time(facts.since)}}
    if facts.waiting[0]:
        return {"waiting": {"reason": facts.waiting[0], "message": facts.waiting[1]}}
    if facts.ended is None:
        inits = pod["spec"].get("initContainers")
        return {"waiting": {"reason": "PodInitializing" if inits else "ContainerCreating"}}
    if _loops(pod, container, facts):
        meta = pod["metadata"]
        text = (
            f"back-off {backoff(facts.crashes):.0f}s restarting failed "
            f"container={container['name']} pod={meta['name']}_{meta['namespace']}({meta['uid']})"
        )
        return {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
    return {"terminated": _terminated(facts.ended)}


def _loops(pod: Mapping[str, Any], container: Mapping[str, Any], facts: ContainerFacts) -> bool:
    """Whether a restart waits for its back-off."""
    ended = facts.ended
    again = ended is not None and restarts(container, pod["spec"], ended.code)
    return again and facts.crashes > 0 and not pod["metadata"].get("deletionTimestamp")


def _last(pod: Mapping[str, Any], container: Mapping[str, Any], facts: ContainerFacts) -> Obj:
    waits = bool(facts.waiting[0]) or _loops(pod, container, facts)
    last = facts.ended if waits and facts.ended is not None else facts.last
    return {"terminated": _terminated(last)} if last is not None else {}


def _terminated(end: Termination) -> Obj:
    at = {"finishedAt": format_time(end.finished)}
    if end.started is not None:
        at["startedAt"] = format_time(end.started)
    text = {"message": end.message} if end.message else {}
    return {"exitCode": end.code, "reason": end.reason, **text, **at}


# ---- what a node finds when it returns -----------------------------------------------------------

LOST: Final = "ContainerStatusUnknown"


def facts_from(pod: Mapping[str, Any], now: float) -> dict[str, ContainerFacts]:
    """The facts that the status of a pod holds, when nothing of it runs.

    A container that ran is lost: it has ended with 137, and its restart policy applies.

    Args:
        pod: raw.
        now: seconds since the epoch; the end of what is lost.
    """
    status = pod.get("status") or {}
    listed = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    return {each["name"]: _facts_from(each, now) for each in listed}


def _facts_from(entry: Mapping[str, Any], now: float) -> ContainerFacts:
    state, count = entry.get("state") or {}, entry.get("restartCount") or 0
    last = _end_from((entry.get("lastState") or {}).get("terminated"))
    ended = _end_from(state.get("terminated"))
    if "running" in state:
        began = parse_time(state["running"]["startedAt"])
        text = "The node ended while the container ran"
        ended = Termination(KILLED, began, now, LOST, text)
    elif "waiting" in state and last is not None:
        ended, last = last, None
    return ContainerFacts(restarts=count, crashes=count, ended=ended, last=last)


def _end_from(state: Mapping[str, Any] | None) -> Termination | None:
    if state is None:
        return None
    started = parse_time(state["startedAt"]) if state.get("startedAt") else None
    finished = parse_time(state["finishedAt"]) if state.get("finishedAt") else 0.0
    text = state.get("message") or ""
    return Termination(state["exitCode"], started, finished, state.get("reason") or "", text)
