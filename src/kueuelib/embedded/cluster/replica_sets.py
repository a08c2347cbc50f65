"""The ReplicaSet controller: keeps as many pods as its objects ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import REPLICA_SETS
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    controller_of,
    find_condition,
    format_time,
    key_of,
    labels_of,
)
from kueuelib.embedded.builtins.workloads import selects
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.job_decision import MOST_AT_ONCE, PodBackoff
from kueuelib.embedded.cluster.kinds import gone
from kueuelib.embedded.cluster.owned_pods import (
    deletion_cost,
    first_to_go,
    from_template,
    is_active,
    is_deleted,
    is_ready,
    is_terminating,
    ready_since,
)
from kueuelib.embedded.cluster.pod_control import PodControl, PodRoom, claimed
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.errors import ApiError
from kueuelib.machinery.store import Delta

_COMPONENT = "replicaset-controller"
_FAILURE = "ReplicaFailure"
_PREFIX_LIMIT = 57


@attrs.frozen
class ReplicaStep:
    """What a ReplicaSet needs now.

    Attributes:
        create: how many pods.
        delete: raw pods.
        withheld: whether there are fewer because the cluster is full.
        due: when pods that replace ended ones may be created; None for at once.
    """

    create: int = 0
    delete: tuple[Obj, ...] = ()
    withheld: bool = False
    due: float | None = None


def wanted(owner: Mapping[str, Any]) -> int:
    """The number of replicas that an object asks for."""
    count = owner["spec"].get("replicas")
    return 1 if count is None else int(count)


def next_step(
    replica_set: Obj, active: Sequence[Obj], related: Sequence[Obj], room: int, patient: float
) -> ReplicaStep:
    """The next step for a raw ReplicaSet.

    Args:
        replica_set: the ReplicaSet.
        active: its active pods.
        related: the active pods of all ReplicaSets of the same owner.
        room: how many more pods the cluster takes.
        patient: seconds since the epoch until which none are created; 0 if they may be.
    """
    missing = wanted(replica_set) - len(active)
    if is_deleted(replica_set) or not missing:
        return ReplicaStep()
    if missing > 0:
        if patient:
            return ReplicaStep(due=patient)
        count = min(missing, MOST_AT_ONCE, room)
        return ReplicaStep(count, withheld=count < min(missing, MOST_AT_ONCE))
    crowds = Counter(pod["spec"].get("nodeName") for pod in related)

    def order(pod: Obj) -> tuple[Any, ...]:
        return first_to_go(pod, deletion_cost(pod), crowds[pod["spec"].get("nodeName")])

    return ReplicaStep(delete=tuple(sorted(active, key=order)[: min(-missing, MOST_AT_ONCE)]))


def status_of(
    replica_set: Obj, pods: Sequence[Obj], problem: ApiError | None, now: float
) -> tuple[Obj, float | None]:
    """The status of a raw ReplicaSet with these pods, and when it changes without an event.

    Args:
        replica_set: the ReplicaSet.
        pods: all of its pods.
        problem: why pods could not be created or deleted.
        now: seconds since the epoch.
    """
    old, spec = replica_set.get("status") or {}, replica_set["spec"]
    active = [pod for pod in pods if is_active(pod)]
    ready = [pod for pod in active if is_ready(pod)]
    wait = spec.get("minReadySeconds") or 0
    later = [due for pod in ready if wait and (due := ready_since(pod) + wait) > now]
    labels = labels_of(spec["template"]).items()
    counts = {
        "fullyLabeledReplicas": sum(labels <= labels_of(pod).items() for pod in active),
        "readyReplicas": len(ready),
        "availableReplicas": len(ready) - len(later),
        "observedGeneration": replica_set["metadata"].get("generation", 0),
    }
    failed = find_condition(old.get("conditions"), _FAILURE)
    conditions = [each for each in old.get("conditions") or () if each is not failed]
    if problem is not None:
        reason = "FailedCreate" if len(active) < wanted(replica_set) else "FailedDelete"
        new = {"type": _FAILURE, "status": "True", "reason": reason, "message": problem.message}
        conditions.append(dict(failed) or {**new, "lastTransitionTime": format_time(now)})
    status = {
        "replicas": len(active),
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": sum(map(is_terminating, pods)),
        **({"conditions": conditions} if conditions else {}),
    }
    return status, min(later, default=None)


class ReplicaSetController(SimulatedController[ObjectKey]):
    """Makes and deletes the pods of ReplicaSets, and writes their counts into the status.

    Args:
        parts: of the cluster.
        room: how many more pods the cluster takes.
        backoff: how long pods that ended delay those that replace them: the first not at all.
    """

    name = "replicaset"
    workers = 8

    def __init__(self, parts: ControllerTools, room: PodRoom, backoff: PodBackoff) -> None:
        super().__init__(parts)
        self._sets = parts.kinds.of(REPLICA_SETS)
        self._control = PodControl(parts, self._pods, room, _COMPONENT)
        self._backoff = backoff
        self._ended: dict[str, tuple[int, float]] = {}
        """By UID: how many ended pods there were, and since when."""
        self._sets.add_handler(self._on_set)
        self._pods.add_handler(self._on_pod)

    def _on_set(self, delta: Delta[Obj]) -> None:
        if ended := gone(delta):
            self._ended.pop(ended, None)
        if delta.new is not None:
            self.loop.add(delta.key)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        pods = [pod for pod in (delta.old, delta.new) if pod is not None]
        refs = [controller_of(pod) for pod in pods]
        for ref in refs:
            if ref is not None and ref.get("kind") == REPLICA_SETS.kind:
                count = self._pods.count_owned_by(ref.get("uid", ""))
                self.loop.settle(ObjectKey(delta.key.namespace, ref["name"]), count)
        if delta.new is not None and refs[-1] is None:
            known = delta.old is not None and refs[0] is None
            if not known or labels_of(pods[0]) != labels_of(delta.new):
                self._look_at_orphan(delta.new)

    def _look_at_orphan(self, pod: Obj) -> None:
        for replica_set in self._sets.in_namespace(pod["metadata"]["namespace"]):
            if selects(replica_set["spec"].get("selector") or {}, labels_of(pod)):
                self.loop.add(key_of(replica_set))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        replica_set = self._sets.get(key)
        if replica_set is None:
            return None
        now = self._clock.now()
        pods = await claimed(self._pods, replica_set)
        active = [pod for pod in pods if is_active(pod)]
        over = len(active) > wanted(replica_set)
        related = self._related(replica_set, active) if over else ()
        patient = self._patience(replica_set["metadata"]["uid"], sum(map(is_terminal, pods)), now)
        step = next_step(replica_set, active, related, self._control.room.left, patient)
        problem: ApiError | None = None
        try:
            await self._control.delete(replica_set, step.delete)
            new = (_new_pod(replica_set) for _ in range(step.create))
            _, problem = await self._control.create(replica_set, new, step.create)
        except ApiError as error:
            problem = error
        status, due = status_of(replica_set, pods, problem, now)
        if status != (replica_set.get("status") or {}):
            await self._sets.update_status(replica_set, status)
        if problem is not None:
            raise problem
        if step.withheld:
            return self._control.wait_for_room(replica_set, due)
        return min((each for each in (due, step.due) if each is not None), default=None)

    def _patience(self, uid: str, count: int, now: float) -> float:
        """Until when the last pod that ended delays others; 0 if it does not."""
        known, since = self._ended.get(uid, (0, 0.0))
        if count != known:
            since = now if count > known else since
            self._ended[uid] = (count, since)
        until = since + self._backoff.delay(count - 1)
        return until if until > now else 0.0

    def _related(self, replica_set: Obj, active: Sequence[Obj]) -> Sequence[Obj]:
        ref = controller_of(replica_set)
        if ref is None:
            return active
        sets = self._sets.owned_by(ref["uid"])
        pods = (pod for each in sets for pod in self._pods.owned_by(each["metadata"]["uid"]))
        return [pod for pod in pods if is_active(pod)]


def _new_pod(replica_set: Obj) -> Obj:
    pod = from_template(replica_set)
    pod["metadata"]["generateName"] = f"{replica_set['metadata']['name'][:_PREFIX_LIMIT]}-"
    return pod
