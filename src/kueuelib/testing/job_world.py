"""One job in a world without a server: executes the plans that a manager would make.

The world stores the job and its Workloads, keeps resource versions and finalizers, and plays the
scheduler. It is deterministic and fast, but without the features of a server (schemas, webhooks,
watches).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, format_time, key_of
from kueuelib.api.names import ADMISSION_MANAGER
from kueuelib.api.patch import diff_merge_patch, merge_patch
from kueuelib.errors import KueuelibError
from kueuelib.jobs.contract.commands import (
    Change,
    Command,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
)
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.matching import by_age, controlled_by
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.written import ADDED_AT_START
from kueuelib.workload import states
from kueuelib.workload.states import BUNDLE

NAMESPACE = "conformance"
QUEUE = "team"
MOST_PLANS = 30
"""The maximum number of plans until there must be nothing left to do."""
_BUNDLED_FIELDS = (
    "admission",
    "requeueState",
    "resourceRequests",
    "schedulingStats",
    "accumulatedPastExecutionTimeSeconds",
)


def unshared(obj: Obj) -> Obj:
    """An object as an API server returns it: no part of it is in two places.

    Raises:
        TypeError: it is not JSON.
    """
    copied: Obj = orjson.loads(orjson.dumps(obj))
    return copied


def _described(command: Command) -> str:
    """A command in a few words, with the fields that it changes."""
    if isinstance(command, Change):
        return f"{command.resource.kind} gets {command.patch}"
    return f"{type(command).__name__} {command}"


class NotSettled(KueuelibError):
    """The plans of a job do not come to an end."""


class JobWorld:
    """The job, its Workloads, and their controllers.

    Args:
        integration: the kind of the job.
        obj: the job as a user creates it; a name is enough.
        one_at_a_time: execute only one command of each plan, like a manager that crashes after
            every write.
    """

    def __init__(self, integration: Integration, obj: Obj, *, one_at_a_time: bool = False) -> None:
        self.integration = integration
        self.now = 1_700_000_000.0
        self.events: list[str] = []
        self.flavors: dict[str, Mapping[str, Any]] = {}
        self.settings = JobSettings(frameworks=(integration.name,))
        self._one_at_a_time = one_at_a_time
        self._objects: dict[tuple[str, ObjectKey], Obj] = {}
        self._version = 0
        obj = unshared(obj)
        obj["apiVersion"] = integration.resource.api_version
        obj["kind"] = integration.resource.kind
        obj["metadata"].setdefault("namespace", NAMESPACE)
        self._job_key = self._add(integration.resource.kind, obj)

    # ---- reading

    @property
    def job(self) -> Obj | None:
        """The stored job; None if it is gone."""
        return self._objects.get((self.integration.resource.kind, self._job_key))

    @property
    def exists(self) -> bool:
        """Whether the job exists."""
        return self.job is not None

    @property
    def live_job(self) -> Obj:
        """The job, which has to exist."""
        job = self.job
        assert job is not None, "the job is gone"
        return job

    @property
    def workloads(self) -> tuple[Obj, ...]:
        """All Workloads, oldest first."""
        return by_age(obj for (kind, _), obj in self._objects.items() if kind == WORKLOADS.kind)

    @property
    def workload(self) -> Obj:
        """The only Workload."""
        assert len(self.workloads) == 1, f"there are {len(self.workloads)} Workloads, not one"
        return self.workloads[0]

    def holds_quota(self) -> bool:
        """Whether the only Workload holds quota."""
        return states.has_quota(self.workload)

    def is_suspended(self) -> bool:
        """Whether the job is suspended."""
        return self.integration.job_type(self.live_job).is_suspended()

    # ---- the manager

    def settle(self) -> None:
        """Makes and executes plans until there is nothing left to do.

        Raises:
            NotSettled: the plans do not come to an end.
        """
        for _ in range(MOST_PLANS):
            self.now += 1
            commands = plan(self._situation())
            if not self._carry_out(commands):
                return
        left = "; ".join(map(_described, commands))
        raise NotSettled(f"after {MOST_PLANS} steps the job still changes: {left}")

    def _situation(self) -> JobSnapshot:
        job = self.job
        if job is None:
            return JobSnapshot(None, self.now, self.settings, orphans=self.workloads)
        uid = job["metadata"]["uid"]
        owned = tuple(wl for wl in self.workloads if controlled_by(wl, uid))
        return JobSnapshot(
            self.integration.job_type(copy.deepcopy(job)),
            self.now,
            self.settings,
            workloads=copy.deepcopy(owned),
            flavors=self.flavors,
        )

    def _carry_out(self, commands: tuple[Command, ...]) -> bool:
        """Executes a plan; returns whether anything was written."""
        written = False
        for command in commands:
            match command:
                case Emit():
                    self.events.append(command.reason)
                case _:
                    written = self._write(command) or written
                    if self._one_at_a_time and written:
                        break
        return written

    def _write(self, command: Command) -> bool:
        match command:
            case Create(resource, obj):
                self._add(resource.kind, copy.deepcopy(obj))
            case Change(resource, old, new):
                patch = diff_merge_patch(old, new)
                if not patch:
                    return False
                self._store(resource.kind, merge_patch(self._get(resource.kind, old), patch))
            case PatchStatus():
                self._store(command.resource.kind, self._with_status(command))
            case Delete(resource, obj):
                self._delete(resource.kind, self._get(resource.kind, obj))
            case DropFinalizer(resource, obj, finalizer):
                stored = copy.deepcopy(self._get(resource.kind, obj))
                stored["metadata"]["finalizers"].remove(finalizer)
                self._store(resource.kind, stored)
            case _:
                return False
        return True

    def _with_status(self, command: PatchStatus) -> Obj:
        """The part of server-side apply that Workloads need."""
        stored = copy.deepcopy(self._get(command.resource.kind, command.obj))
        status = stored.setdefault("status", {})
        if command.style == "merge":
            return {**stored, "status": merge_patch(status, command.status)}
        conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
        if command.field_manager == ADMISSION_MANAGER:
            conditions = {k: entry for k, entry in conditions.items() if k not in BUNDLE}
            for field in _BUNDLED_FIELDS:
                status.pop(field, None)
        conditions.update({entry["type"]: entry for entry in command.status.get("conditions", ())})
        status.update(copy.deepcopy(command.status))
        status["conditions"] = list(conditions.values())
        return stored

    # ---- everybody else

    def change(self, obj: Obj) -> None:
        """Stores a change of the job by its controller or a user."""
        self._store(self.integration.resource.kind, unshared(obj))

    def admit(self, flavor: str, *, fewest: bool = False) -> None:
        """Admits the Workload on one flavor, whose nodes have the label `pool` and a taint.

        Args:
            flavor: its name.
            fewest: admit as few pods as the job can run with.
        """
        self._reserve(flavor, (), fewest=fewest)

    def reserve(self, flavor: str) -> None:
        """Reserves the quota of one flavor; the admission has to wait for a check."""
        self._reserve(flavor, ("check",), fewest=False)

    def _reserve(self, flavor: str, checks: Sequence[str], *, fewest: bool) -> None:
        toleration = {"key": flavor, "operator": "Exists", "effect": "NoSchedule"}
        self.flavors[flavor] = {
            "spec": {"nodeLabels": {"pool": flavor}, "tolerations": [toleration]}
        }
        wl = self.workload
        assignments = [
            {
                "name": entry["name"],
                "count": (fewest and entry.get("minCount")) or entry["count"],
                "flavors": {"cpu": flavor},
            }
            for entry in wl["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "cq", "podSetAssignments": assignments}
        self._store(WORKLOADS.kind, states.reserve(wl, admission, checks, self.now))

    def pass_checks(self) -> None:
        """Makes every admission check Ready; the Workload is admitted then."""
        wl = copy.deepcopy(self.workload)
        for check in wl["status"].get("admissionChecks") or ():
            check["state"] = "Ready"
        self._store(WORKLOADS.kind, states.sync_admitted(wl, self.now))

    def evict(self, reason: str = "Preempted") -> None:
        """Stops the job."""
        evicted = states.evict(self.workload, reason, "somebody else needs the quota", self.now)
        self._store(WORKLOADS.kind, evicted)

    def free(self) -> None:
        """Frees the quota of an evicted Workload, like another manager."""
        self._store(WORKLOADS.kind, states.release(self.workload, self.now))

    def delete_job(self) -> None:
        """Deletes the job, which stays until its finalizers are removed."""
        self._delete(self.integration.resource.kind, self.live_job)

    def delete_workload(self) -> None:
        """Deletes the Workload; its finalizer keeps it until it is released."""
        self._delete(WORKLOADS.kind, self.workload)

    def forget_start(self) -> None:
        """Removes what was noted of the start, as if another manager had started the job."""
        for (kind, _), obj in [*self._objects.items()]:
            left = unshared(obj)
            if (left["metadata"].get("annotations") or {}).pop(ADDED_AT_START, None):
                self._store(kind, left)

    def lose_workload(self) -> None:
        """Deletes the Workload without a trace, like somebody who removes its finalizer."""
        del self._objects[WORKLOADS.kind, key_of(self.workload)]

    # ---- the store

    def _add(self, kind: str, obj: Obj) -> ObjectKey:
        meta = obj["metadata"]
        assert (kind, key_of(obj)) not in self._objects, f"{kind} {meta['name']} exists already"
        meta["uid"] = f"uid-of-{meta['name']}-{self._version}"
        meta["creationTimestamp"] = format_time(self.now)
        self._store(kind, obj)
        return key_of(obj)

    def _get(self, kind: str, obj: Obj) -> Obj:
        stored = self._objects.get((kind, key_of(obj)))
        assert stored is not None, f"{kind} {key_of(obj)} is written and does not exist"
        assert stored["metadata"]["uid"] == obj["metadata"]["uid"], "a write to another object"
        return stored

    def _store(self, kind: str, obj: Obj) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self._objects[kind, key_of(obj)]
        else:
            self._objects[kind, key_of(obj)] = obj

    def _delete(self, kind: str, obj: Obj) -> None:
        deleted = copy.deepcopy(obj)
        deleted["metadata"].setdefault("deletionTimestamp", format_time(self.now))
        self._store(kind, deleted)
