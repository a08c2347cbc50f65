"""Decides how a Deployment proceeds: a pure function of it and of its ReplicaSets.

As in kube-controller-manager, sizes of ReplicaSets are what is asked for, their statuses what there
is. Each evaluation scales up or down, never both, so that a later one sees what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import attrs
import orjson

from kueuelib.api.kinds import DEPLOYMENTS
from kueuelib.api.meta import (
    Obj,
    annotations_of,
    find_condition,
    format_time,
    labels_of,
    owner_reference,
    parse_time,
)
from kueuelib.embedded.builtins.fields import meaning, section
from kueuelib.embedded.cluster.owned_pods import is_deleted
from kueuelib.embedded.cluster.replica_sets import wanted
from kueuelib.embedded.decoding import copy_json

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = frozenset(
    (
        *("kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MOST),
        "deprecated.deployment.rollback.to",
    )
)
_HISTORY_LENGTH = 2000
_NAME_LENGTH = 253
_NEVER = 2**31 - 1
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DIGITS = 10

Conditions = tuple[Mapping[str, Any], ...]

PROGRESSING, AVAILABLE, FAILURE = "Progressing", "Available", "ReplicaFailure"
COMPLETE, TIMED_OUT = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"


@attrs.frozen
class Resize:
    """A change of a ReplicaSet.

    Attributes:
        replica_set: as it is.
        patch: the merge patch.
        size: its new size.
    """

    replica_set: Obj
    patch: Obj
    size: int


@attrs.frozen
class RolloutStep:
    """What is done about a Deployment.

    Attributes:
        status: the whole new status; equal to the old one if nothing changed.
        revision: the number of the current template; empty before there is a ReplicaSet.
        create: the ReplicaSet of the current template, if there is none.
        change: other ReplicaSets.
        delete: ReplicaSets that are only history, and too old.
        due: when to evaluate it again without an event; None for never.
    """

    status: Obj
    revision: str = ""
    create: Obj | None = None
    change: tuple[Resize, ...] = ()
    delete: tuple[Obj, ...] = ()
    due: float | None = None


def decide(
    deployment: Obj, replica_sets: Iterable[Obj], running: Mapping[str, int], now: float
) -> RolloutStep:
    """The next step.

    Args:
        deployment: the Deployment.
        replica_sets: those that it controls.
        running: by the UID of a ReplicaSet, how many of its pods have not ended.
        now: seconds since the epoch.
    """
    return _Evaluation(deployment, replica_sets, running, now).run()


# ---- templates and revisions ---------------------------------------------------------------------


def template_hash(template: Mapping[str, Any], collisions: int) -> str:
    """The label value by which a ReplicaSet and its pods are distinguished."""
    text = orjson.dumps([meaning(template), collisions], option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    return "".join(
        _LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(_DIGITS)
    )


def _without_hash(template: Mapping[str, Any]) -> Any:
    meta = section(template, "metadata")
    labels = {key: value for key, value in section(meta, "labels").items() if key != HASH}
    return meaning({**template, "metadata": {**meta, "labels": labels}})


def revision_of(obj: Mapping[str, Any]) -> int:
    """The revision of a ReplicaSet; 0 if it has none that can be read."""
    text = annotations_of(obj).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _age(replica_set: Mapping[str, Any]) -> tuple[str, str]:
    meta = replica_set["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]


def is_rolling(deployment: Mapping[str, Any]) -> bool:
    """Whether pods are replaced step by step."""
    return section(deployment["spec"], "strategy").get("type") != "Recreate"


def allowances(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """How many pods more than asked for there may be, and how many of these may be missing."""
    if not is_rolling(deployment):
        return 0, 0
    count = wanted(deployment)
    rolling = section(deployment["spec"], "strategy", "rollingUpdate")
    surge = _part(rolling.get("maxSurge"), count, math.ceil)
    missing = _part(rolling.get("maxUnavailable"), count, math.floor)
    if not surge and not missing:  # small percentages of few pods: it has to move nevertheless
        missing = 1
    return surge, min(missing, count)


def _part(value: int | str | None, count: int, rounded: Any) -> int:
    if isinstance(value, str):
        return int(rounded(int(value.removesuffix("%")) * count / 100))
    return value or 0


# ---- one evaluation ------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Sized:
    """A ReplicaSet and what it will be like."""

    obj: Obj
    size: int
    notes: dict[str, str]
    fields: dict[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of(cls, obj: Obj) -> _Sized:
        return cls(obj, wanted(obj), dict(annotations_of(obj)))

    def has(self, field: str) -> int:
        return int(section(self.obj, "status").get(field) or 0)

    @property
    def available(self) -> int:
        """Available pods that will stay; the status may be from before it was made smaller."""
        return min(self.has("availableReplicas"), self.size)

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    def is_idle(self) -> bool:
        """Whether it has no pods and wants none."""
        meta = self.obj["metadata"]
        seen = self.has("observedGeneration") >= meta.get("generation", 0)
        return seen and not (self.size or self.has("replicas"))

    def resize(self) -> Resize | None:
        """The change, if there is one."""
        fields = dict(self.fields)
        if self.size != wanted(self.obj):
            fields["replicas"] = self.size
        before = annotations_of(self.obj)
        notes = {key: text for key, text in self.notes.items() if before.get(key) != text}
        if not fields and not notes:
            return None
        version = self.obj["metadata"]["resourceVersion"]
        patch: Obj = {"metadata": {"resourceVersion": version, "annotations": notes}}
        return Resize(self.obj, patch | ({"spec": fields} if fields else {}), self.size)


class _Evaluation:
    def __init__(
        self,
        deployment: Obj,
        replica_sets: Iterable[Obj],
        running: Mapping[str, int],
        now: float,
    ) -> None:
        self.deployment, self.spec, self.now = deployment, deployment["spec"], now
        self.running = running
        self.before: Mapping[str, Any] = deployment.get("status") or {}
        self.conditions: Conditions = tuple(self.before.get("conditions") or ())
        self.count = wanted(deployment)
        self.surge, self.unavailable = allowances(deployment)
        self.all = [_Sized.of(each) for each in sorted(replica_sets, key=_age)]
        wish = _without_hash(self.spec["template"])
        fitting = (one for one in self.all if _without_hash(one.obj["spec"]["template"]) == wish)
        self.new: _Sized | None = next(fitting, None)
        self.old = [one for one in self.all if one is not self.new]
        self.create: Obj | None = None
        self.delete: tuple[Obj, ...] = ()
        self.deadline = deadline_of(deployment)

    def run(self) -> RolloutStep:
        due = None
        if is_deleted(self.deployment):
            status = self._status()
        else:
            self._report_pause()
            if self.new is not None:
                self._describe(self.new)
            paused = bool(self.spec.get("paused"))
            if paused or self._was_scaled():
                self._scale_all()
                if paused:
                    self._clean()
                status = self._status()
            else:
                self._roll() if is_rolling(self.deployment) else self._recreate()
                status = self._status()
                due = self._report_progress(status)
        if self.conditions:
            status["conditions"] = list(self.conditions)
        change = tuple(change for one in self.all if (change := one.resize()) is not None)
        notes = section(self.create or {}, "metadata", "annotations")
        notes = self.new.notes if self.new is not None else notes
        return RolloutStep(status, notes.get(REVISION, ""), self.create, change, self.delete, due)

    def _set(self, type_: str, value: str, reason: str, text: str, *, again: bool = False) -> None:
        new = (type_, value, reason, text, self.now)
        self.conditions = with_condition(self.conditions, *new, again=again)

    # ---- sizes

    def _resize(self, one: _Sized, size: int) -> bool:
        """Gives a ReplicaSet another size; returns whether it has one now."""
        if one.size == size:
            return False
        one.size = size
        one.notes |= self._totals()
        return True

    def _totals(self) -> dict[str, str]:
        return {DESIRED: str(self.count), MOST: str(self.count + self.surge)}

    def _was_scaled(self) -> bool:
        """Whether a ReplicaSet with pods knows another number of replicas."""
        known = [one.notes.get(DESIRED, "") for one in self.all if one.size]
        return any(text.isdecimal() and int(text) != self.count for text in known)

    def _scale_all(self) -> None:
        active = [one for one in self.all if one.size]
        if len(active) <= 1:
            latest = self.new or (self.old[-1] if self.old else None)
            only = active[0] if active else latest
            if only is not None:
                self._resize(only, self.count)
        elif self._is_saturated():
            for one in self.old:
                self._resize(one, 0)
        elif is_rolling(self.deployment):
            self._scale_in_proportion(active)

    def _is_saturated(self) -> bool:
        new, count = self.new, self.count
        if new is None or new.notes.get(DESIRED) != str(count):
            return False
        return new.size == count == new.has("availableReplicas")

    def _scale_in_proportion(self, active: list[_Sized]) -> None:
        """Scales a rollout in the middle, so that each template keeps its share."""
        most = self.count + self.surge if self.count else 0
        total = most - sum(one.size for one in active)
        # The larger first; of equal ones the newer grow, and the older shrink.
        active = sorted(reversed(active) if total > 0 else active, key=lambda one: -one.size)
        sizes, added = [one.size for one in active], 0
        for place, one in enumerate(active):
            share = self._share(one, most)
            share = min(share, total - added) if total > 0 else max(share, total - added)
            share = share if total else 0
            sizes[place] += share
            added += share
        sizes[0] = max(sizes[0] + total - added, 0)
        for one, size in zip(active, sizes, strict=True):
            one.size = size
            one.notes |= self._totals()

    def _share(self, one: _Sized, most: int) -> int:
        if not self.count:
            return -one.size
        text = one.notes.get(MOST, "")
        base = int(text) if text.isdecimal() else 0
        base = base or int(self.before.get("replicas") or 0)
        return math.floor(one.size * most / base + 0.5) - one.size if base else 0

    # ---- revisions

    def _describe(self, new: _Sized) -> None:
        """Gives the ReplicaSet of the current template the next revision, and annotations."""
        note = annotations_of(self.deployment)
        new.notes |= {key: text for key, text in note.items() if key not in _NOT_COPIED}
        known, number = new.notes.get(REVISION, ""), self._next_revision()
        if not known or (known.isdecimal() and int(known) < number):
            new.notes[REVISION] = str(number)
            if known:
                new.notes[HISTORY] = _longer(new.notes.get(HISTORY, ""), known)
        ready = self.spec.get("minReadySeconds") or 0
        if (new.obj["spec"].get("minReadySeconds") or 0) != ready:
            new.fields["minReadySeconds"] = ready
        if self.deadline is not None and not find_condition(self.conditions, PROGRESSING):
            self._set(
                PROGRESSING, "True", "FoundNewReplicaSet", f'Found new replica set "{new.name}"'
            )

    def _next_revision(self) -> int:
        return 1 + max((revision_of(one.obj) for one in self.old), default=0)

    def _make(self) -> None:
        """Makes the ReplicaSet of the current template."""
        meta, spec = self.deployment["metadata"], self.spec
        template: Obj = copy_json(spec["template"])
        value = template_hash(template, self.before.get("collisionCount") or 0)
        labels = {**labels_of(template), HASH: value}
        template["metadata"] = {**section(template, "metadata"), "labels": labels}
        selector = spec["selector"]
        matched = {**(selector.get("matchLabels") or {}), HASH: value}
        notes = annotations_of(self.deployment)
        self.create = {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name'][: _NAME_LENGTH - 1 - len(value)]}-{value}",
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": {
                    **{key: text for key, text in notes.items() if key not in _NOT_COPIED},
                    **self._totals(),
                    REVISION: str(self._next_revision()),
                },
                "ownerReferences": [owner_reference(self.deployment)],
            },
            "spec": {
                "replicas": self._room(0),
                "minReadySeconds": spec.get("minReadySeconds") or 0,
                "selector": {**selector, "matchLabels": matched},
                "template": template,
            },
        }
        if self.deadline is not None:
            text = f'Created new replica set "{self.create["metadata"]["name"]}"'
            self._set(PROGRESSING, "True", "NewReplicaSetCreated", text)

    def _clean(self) -> None:
        """Deletes the oldest history."""
        limit = self.spec.get("revisionHistoryLimit")
        if limit is None or limit == _NEVER:
            return
        alive = [one for one in self.old if not is_deleted(one.obj)]
        alive.sort(key=lambda one: revision_of(one.obj))
        self.delete = tuple(one.obj for one in alive[: max(len(alive) - limit, 0)] if one.is_idle())

    # ---- strategies

    def _room(self, size: int) -> int:
        """The size to which the new ReplicaSet may grow from this one."""
        if not is_rolling(self.deployment):
            return self.count
        free = self.count + self.surge - sum(one.size for one in self.all)
        return size + max(min(free, self.count - size), 0)

    def _roll(self) -> None:
        if self.new is None:
            self._make()
            return
        size = min(self.count, self.new.size)
        if self.new.size < self.count:
            size = self._room(self.new.size)
        if self._resize(self.new, size) or self._shrink_old(self.new):
            return
        if self._is_complete(self.before):
            self._clean()

    def _shrink_old(self, new: _Sized) -> bool:
        """Takes away pods of older templates: first what is unavailable anyhow."""
        least = self.count - self.unavailable
        starting = new.size - new.available
        surplus = sum(one.size for one in self.all) - least - starting
        if surplus <= 0 or not any(one.size for one in self.old):
            return False
        shrunk = 0
        for one in self.old:
            sick = min(surplus - shrunk, one.size - one.available)
            shrunk += sick
            self._resize(one, one.size - sick)
        spare = sum(one.available for one in self.all) - least
        for one in self.old:
            gone = max(min(one.size, spare), 0)
            spare -= gone
            shrunk += gone
            self._resize(one, one.size - gone)
        return shrunk > 0

    def _recreate(self) -> None:
        active = [one for one in self.old if one.size]
        for one in active:
            self._resize(one, 0)
        if active:
            return
        if any(
            one.has("replicas") or self.running.get(one.obj["metadata"]["uid"]) for one in self.old
        ):
            return
        if self.new is None:
            self._make()
            return
        self._resize(self.new, self.count)
        if self._is_complete(self.before):
            self._clean()

    # ---- the status

    def _status(self) -> Obj:
        def total(field: str) -> int:
            return sum(one.has(field) for one in self.all)

        available = total("availableReplicas")
        asked = sum(one.size for one in self.all)
        if self.create is not None:
            asked += self.create["spec"]["replicas"]
        counts = {
            "observedGeneration": self.deployment["metadata"].get("generation", 0),
            "replicas": total("replicas"),
            "updatedReplicas": self.new.has("replicas") if self.new is not None else 0,
            "readyReplicas": total("readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(asked - available, 0),
        }
        if available >= self.count - self.unavailable:
            text = "Deployment has minimum availability."
            self._set(AVAILABLE, "True", "MinimumReplicasAvailable", text)
        else:
            text = "Deployment does not have minimum availability."
            self._set(AVAILABLE, "False", "MinimumReplicasUnavailable", text)
        status: Obj = {name: count for name, count in counts.items() if count}
        status["terminatingReplicas"] = total("terminatingReplicas")
        if self.before.get("collisionCount") is not None:
            status["collisionCount"] = self.before["collisionCount"]
        return status

    def _is_complete(self, status: Mapping[str, Any]) -> bool:
        names = ("replicas", "updatedReplicas", "availableReplicas")
        generation = self.deployment["metadata"].get("generation", 0)
        return (status.get("observedGeneration") or 0) >= generation and all(
            (status.get(name) or 0) == self.count for name in names
        )

    def _report_pause(self) -> None:
        """Time that a Deployment is paused does not count as lack of progress."""
        reason = find_condition(self.conditions, PROGRESSING).get("reason")
        if self.deadline is None or reason == TIMED_OUT:
            return
        if self.spec.get("paused"):
            self._set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused")
        elif reason == PAUSED:
            self._set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")

    def _report_progress(self, status: Mapping[str, Any]) -> float | None:
        """Sets Progressing and ReplicaFailure; returns when progress will have taken too long."""
        current = find_condition(self.conditions, PROGRESSING)
        over = status.get("replicas", 0) == status.get("updatedReplicas", 0)
        if self.deadline is None:
            self.conditions = _without(self.conditions, PROGRESSING)
        elif not (over and current.get("reason") == COMPLETE):
            self._judge(status, current, self.deadline)
        failures = [
            condition
            for one in ([self.new] if self.new is not None else []) + self.all
            if (condition := find_condition(section(one.obj, "status").get("conditions"), FAILURE))
        ]
        if failures:
            reason, message = failures[0].get("reason", ""), failures[0].get("message", "")
            self._set(FAILURE, failures[0]["status"], reason, message)
        else:
            self.conditions = _without(self.conditions, FAILURE)
        current = find_condition(self.conditions, PROGRESSING)
        ended = current.get("reason") in (None, COMPLETE, TIMED_OUT) or self._is_complete(status)
        return None if ended or self.deadline is None else _last(current) + self.deadline + 1

    def _judge(self, status: Mapping[str, Any], current: Mapping[str, Any], limit: int) -> None:
        new = self.create["metadata"]["name"] if self.create else self.new and self.new.name
        name = self.deployment["metadata"]["name"]
        subject = f'ReplicaSet "{new}"' if new else f'Deployment "{name}"'
        if self._is_complete(status):
            self._set(PROGRESSING, "True", COMPLETE, f"{subject} has successfully progressed.")
        elif _has_progressed(self.before, status):
            text = f"{subject} is progressing."
            self._set(PROGRESSING, "True", "ReplicaSetUpdated", text, again=True)
        elif current and current.get("reason") != COMPLETE and _last(current) + limit < self.now:
            text = f"{subject} has timed out progressing."
            self._set(PROGRESSING, "False", TIMED_OUT, text)


def _has_progressed(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    def count(of: Mapping[str, Any], name: str) -> int:
        return int(of.get(name) or 0)

    old = [count(of, "replicas") - count(of, "updatedReplicas") for of in (before, status)]
    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old[1] < old[0] or any(count(status, name) > count(before, name) for name in more)


def _longer(history: str, revision: str) -> str:
    known = [*filter(None, history.split(",")), revision]
    while known and len(",".join(known)) > _HISTORY_LENGTH:
        known.pop(0)
    return ",".join(known)


# ---- conditions ----------------------------------------------------------------------------------


def deadline_of(deployment: Mapping[str, Any]) -> int | None:
    """After how many seconds without progress a rollout has failed; None for never."""
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds == _NEVER else seconds


def with_condition(
    conditions: Conditions,
    type_: str,
    value: str,
    reason: str,
    message: str,
    now: float,
    *,
    again: bool = False,
) -> Conditions:
    """The conditions with one set; only its value and its reason count as a change.

    Args:
        conditions: those of a Deployment.
        type_: what is observed.
        value: True, False or Unknown.
        reason: a word for programs.
        message: a sentence for people.
        now: seconds since the epoch.
        again: whether it is updated even if it has not changed.
    """
    old, at = find_condition(conditions, type_), format_time(now)
    same = old.get("status") == value
    if same and old.get("reason") == reason and not again:
        return conditions
    new = {"type": type_, "status": value, "reason": reason, "message": message}
    times = {"lastUpdateTime": at, "lastTransitionTime": old["lastTransitionTime"] if same else at}
    return (*_without(conditions, type_), new | times)


def _without(conditions: Conditions, type_: str) -> Conditions:
    return tuple(one for one in conditions if one["type"] != type_)


def _last(condition: Mapping[str, Any]) -> float:
    return parse_time(condition["lastUpdateTime"])


def refused(deployment: Obj, message: str, now: float) -> Obj:
    """The status after the ReplicaSet could not be made."""
    status = dict(deployment.get("status") or {})
    if deadline_of(deployment) is not None:
        conditions = tuple(status.get("conditions") or ())
        reason = "ReplicaSetCreateError"
        status["conditions"] = list(
            with_condition(conditions, PROGRESSING, "False", reason, message, now)
        )
    return status
