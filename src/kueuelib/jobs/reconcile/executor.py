"""Executes plans (see `kueuelib.jobs.contract.commands`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import attrs

from kueuelib.api.answers import expect_change, is_changed_back
from kueuelib.api.conversion import convert
from kueuelib.api.kinds import KUEUE, PODS, WORKLOADS, spoken
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of, parse_time
from kueuelib.api.patch import diff_merge_patch
from kueuelib.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
)
from kueuelib.jobs.contract.commands import (
    CREATED_WORKLOAD,
    MISSED,
    WARNING,
    Change,
    Command,
    Count,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    Recheck,
    RequeueAfter,
)
from kueuelib.jobs.reconcile.refusals import Refusals
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Result
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.failures import is_denied
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.workload.writer import refuse_lost_status

# ---- decides which commands of a plan may run in parallel (KEP-369) ------------------------------
# The pods of a group are independent: their order does not matter, and the next plan completes one
# that ended halfway. So consecutive commands about pods run in lanes, one per pod. All others run
# one after the other.

Lane = tuple[Command, ...]
"""Commands that run in order."""


def stretches(commands: Sequence[Command]) -> list[tuple[Lane, ...]]:
    """The plan in consecutive pieces, each made of lanes that may run in parallel."""
    pieces: list[tuple[Lane, ...]] = []
    lanes: dict[str, list[Command]] = {}
    last = ""
    for command in commands:
        key = last if isinstance(command, Count) else _pod(command)
        if key:
            lanes.setdefault(key, []).append(command)
        else:
            pieces += _closed(lanes)
            lanes = {}
            pieces.append(((command,),))
        last = key
    return [*pieces, *_closed(lanes)]


def _closed(lanes: dict[str, list[Command]]) -> list[tuple[Lane, ...]]:
    return [tuple(map(tuple, lanes.values()))] if lanes else []


def _pod(command: Command) -> str:
    """The UID of the pod that a command is about; empty if it is about anything else."""
    match command:
        case Change(resource, obj) | PatchStatus(resource, obj):
            pass
        case DropFinalizer(resource, obj) | Delete(resource, obj):
            pass
        case Emit(obj) if obj.get("kind") == PODS.kind:
            resource = PODS
        case _:
            return ""
    return str(obj["metadata"].get("uid", "")) if resource == PODS else ""


# --------------------------------------------------------------------------------------------------

REFUSED_RETRY = 60.0
"""Seconds until a permanently refused command is repeated, if nothing changes."""
BEHIND_RETRY = 60.0
"""The longest delay, in seconds, after a plan from a stale state; the first delay is short."""
LANES = 8
"""How many pods of one plan are written at a time."""


class Learner(Protocol):
    """The cache of the reconcilers, updated with the answers of the server; see `Cache`."""

    def learn(self, answer: Obj, *, shared: bool = False) -> None:
        """Store the answer to a create or a patch; `shared`: it need not be copied."""
        ...

    def learn_deleted(self, obj: Obj, answer: Obj) -> None:
        """Store the answer to a delete."""
        ...

    def is_overtaken(self, obj: Obj) -> bool:
        """Whether a newer state of an object is known."""
        ...

    async def refresh(self, resource: Resource, key: ObjectKey) -> Obj | None:
        """Read an object from the server and store the answer."""
        ...


@attrs.frozen
class PlanResult:
    """The result of executing a plan.

    Attributes:
        wait: seconds until the next look even if nothing happens, or None.
        behind: whether the plan was stale, so that the next look comes soon, and further ones
            later.
    """

    wait: float | None = None
    behind: bool = False

    @property
    def result(self) -> Result:
        """The result for the controller."""
        return Result(self.wait, rate_limited=self.behind)


class Executor:
    """Sends the commands of one plan, one after the other; those about pods run in parallel lanes.

    A write with a resource version uses that of the plan's own last write to the object, if there
    was one. Each answer is stored before the next command, so the next plan is never made from a
    state older than a write of this one.

    If a write fails because the plan is stale (a conflict, an object that exists already or no
    longer), the executor reads the object, drops the rest of the plan and requests another look. It
    does the same without a call if a newer state became known after the plan was made, because
    answers to its first writes may take long. Other failures are raised. A write whose answer lacks
    what was written is refused, too, although nobody says so; it is repeated after growing delays.

    Args:
        client: writes.
        known: stores the answers.
        recorder: reports events.
        component: who reports them.
        version: of the API group `kueue.x-k8s.io` on the wire.
        count: executes `Count` commands.
        clock: time.
    """

    def __init__(
        self,
        client: Client,
        known: Learner,
        recorder: EventSink,
        component: str,
        version: str,
        count: Callable[[str, Sequence[str], float | None], None] = lambda _, __, ___: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._known = known
        self._recorder = recorder
        self._component = component
        self._version = version
        self._count = count
        self._refusals = Refusals(recorder, component, clock)
        self._log = get_logger("jobs")

    async def run(self, commands: Sequence[Command], about: Obj | None = None) -> PlanResult:
        """Execute the plan, as far as it is still valid.

        Args:
            commands: the plan.
            about: the job that it is for. A permanent refusal is reported on it, and retried only
                after a change or a long delay. Without it, the refusal is raised.
        """
        run = _PlanRun(about)
        for lanes in stretches(commands):
            if len(lanes) == 1:
                whole = await self._follow(lanes[0], about, run)
            else:
                whole = await self._follow_all(lanes, about, run)
            if not whole:
                break
        return PlanResult(BEHIND_RETRY if run.behind else run.wait, run.behind)

    def warn(self, about: Obj, message: str) -> None:
        """Report on a job that no plan can be made for it."""
        self._recorder.event(about, WARNING, COMPOSE_ERROR, message, component=self._component)

    async def _follow_all(self, lanes: Sequence[Lane], about: Obj | None, run: _PlanRun) -> bool:
        """Execute all lanes, a few at a time; returns whether all were completed.

        The failure of one lane does not stop the others.
        """
        room = asyncio.Semaphore(LANES)
        ends: list[bool | Exception] = [False] * len(lanes)

        async def follow(number: int, lane: Lane) -> None:
            async with room:
                try:
                    ends[number] = await self._follow(lane, about, run)
                except Exception as error:  # noqa: BLE001 - raised when all have ended
                    ends[number] = error

        async with anyio.create_task_group() as group:
            for number, lane in enumerate(lanes):
                group.start_soon(follow, number, lane)
        for each in ends:
            if isinstance(each, Exception):
                raise each
        return all(ends)

    async def _follow(self, commands: Sequence[Command], about: Obj | None, run: _PlanRun) -> bool:
        """Execute commands in order; returns whether all were still valid."""
        for command in commands:
            if self._is_overtaken(command, run):
                run.behind = True
                return False
            try:
                if not await self._do(command, run):
                    return False
            except NotFound as error:
                if isinstance(command, Create):
                    raise  # the kind or the namespace is not there: nothing of ours to wait for
                live = await self._look_at(command)
                if isinstance(command, PatchStatus):
                    try:
                        refuse_lost_status(error, command.obj, live)
                    except MethodNotAllowed as refused:
                        self._report(command, refused, about, run)
                        return False
                if not isinstance(command, Delete | DropFinalizer):
                    run.behind = True
                    return False
            except AlreadyExists:
                await self._look_at(command)
                run.behind = True
                return False
            except (Conflict, Invalid) as error:
                if _was_outdated(command, error):
                    await self._look_at(command)
                    run.behind = True
                else:
                    self._report(command, error, about, run)
                return False
            except (BadRequest, Forbidden) as error:
                self._report(command, error, about, run)
                return False
            except ApiError as error:
                self._refusals.report(command, error, about)
                raise
        return True

    def _is_overtaken(self, command: Command, run: _PlanRun) -> bool:
        match command:
            case Change(given=given) if given is not None and self._known.is_overtaken(
                run.latest(given)
            ):
                return True
            case Change(_, obj, versioned=True) | PatchStatus(_, obj, versioned=True):
                return self._known.is_overtaken(run.latest(obj))
        return False

    async def _look_at(self, command: Command) -> Obj | None:
        """Read the object of a command again; None if it is gone."""
        match command:
            case Create(resource, obj) | Change(resource, obj) | PatchStatus(resource, obj):
                pass
            case Delete(resource, obj) | DropFinalizer(resource, obj):
                pass
            case _:
                return None
        return await self._known.refresh(spoken(resource, self._version), key_of(obj))

    def _report(self, command: Command, error: ApiError, about: Obj | None, run: _PlanRun) -> None:
        """Reports on a job what the server refused to do for it, and will refuse again; on an
        object without a job, that it cannot be released.
        """
        self._refusals.report(command, error, about)
        is_reported = about is not None or isinstance(command, DropFinalizer)
        if not is_reported or isinstance(error, Conflict):
            raise error
        self._log.warning("the server refuses", why=error.message, seconds=REFUSED_RETRY)
        run.wait = REFUSED_RETRY
        run.behind = is_changed_back(error)

    async def _do(self, command: Command, run: _PlanRun) -> bool:
        """Execute one command; returns whether to continue."""
        match command:
            case Create(resource, obj):
                wire = spoken(resource, self._version)
                made = await self._client.create(wire, self._speak(resource, obj))
                self._known.learn(made, shared=True)
                if resource == WORKLOADS and run.about is not None:
                    self._count_workload(made, run.about)
            case Recheck(resource, obj):
                return await self._exists(resource, obj, run)
            case Change():
                await self._change(command, run)
            case PatchStatus():
                await self._patch_status(command, run)
            case Delete(resource, obj):
                uid = obj["metadata"]["uid"]
                answer = await self._client.delete(
                    spoken(resource, self._version), key_of(obj), uid=uid, propagation="Background"
                )
                self._known.learn_deleted(self._speak(resource, obj), answer)
            case DropFinalizer():
                await self._drop_finalizer(command, run)
            case Emit(obj, reason, message, type):
                self._recorder.event(obj, type, reason, message, component=self._component)
            case Count(what, labels, took):
                self._count(what, labels, took)
            case RequeueAfter(why, seconds):
                self._log.debug("the job has to wait", why=why, seconds=seconds)
                run.wait = seconds if run.wait is None else min(seconds, run.wait)
        return True

    def _count_workload(self, made: Obj, job: Obj) -> None:
        """Counts how long a job had no Workload, unless the job has changed since."""
        meta, refs = job["metadata"], made["metadata"].get("ownerReferences")
        if refs and int(meta.get("generation") or 1) <= 1 and "creationTimestamp" in meta:
            times = [parse_time(each["creationTimestamp"]) for each in (made["metadata"], meta)]
            self._count(CREATED_WORKLOAD, (refs[0]["kind"],), times[0] - times[1])

    async def _exists(self, resource: Resource, obj: Obj, run: _PlanRun) -> bool:
        """Whether the server still has an object that is not being deleted."""
        live = await self._known.refresh(spoken(resource, self._version), key_of(obj))
        meta = {} if live is None else live["metadata"]
        if meta.get("uid") == obj["metadata"]["uid"] and not meta.get("deletionTimestamp"):
            return True
        run.behind = True
        return False

    async def _change(self, command: Change, run: _PlanRun) -> None:
        old = self._speak(command.resource, command.old)
        body = diff_merge_patch(old, self._speak(command.resource, command.new))
        if not body:
            return
        identity = {"uid": old["metadata"]["uid"]}
        if command.versioned:
            identity["resourceVersion"] = run.version(old)
        body["metadata"] = {**(body.get("metadata") or {}), **identity}
        changed = await self._client.patch(
            spoken(command.resource, self._version),
            key_of(old),
            body,
            PatchType.MERGE,
            subresource=command.subresource,
        )
        self._wrote(command.old, changed, run)
        expect_change(old, self._speak(command.resource, command.new), changed)

    async def _patch_status(self, command: PatchStatus, run: _PlanRun) -> None:
        wire, meta = spoken(command.resource, self._version), command.obj["metadata"]
        identity = {field: meta[field] for field in ("name", "namespace", "uid")}
        if command.versioned:
            identity["resourceVersion"] = run.version(command.obj)
        body = {
            "apiVersion": command.resource.api_version,
            "kind": wire.kind,
            "metadata": identity,
            "status": command.status,
        }
        changed = await self._client.patch(
            wire,
            key_of(command.obj),
            self._speak(command.resource, body),
            PatchType.APPLY if command.style == "apply" else PatchType.MERGE,
            subresource="status",
            field_manager=command.field_manager,
            force=command.force,
        )
        self._wrote(command.obj, changed, run)
        expect_change(command.obj, {"status": command.status}, changed)

    async def _drop_finalizer(self, command: DropFinalizer, run: _PlanRun) -> None:
        known = run.latest(command.obj)
        finalizers = known["metadata"].get("finalizers") or ()
        if command.finalizer not in finalizers:
            return
        path = f"/metadata/finalizers/{list(finalizers).index(command.finalizer)}"
        body = [
            {"op": "test", "path": "/metadata/uid", "value": known["metadata"]["uid"]},
            {"op": "test", "path": path, "value": command.finalizer},
            {"op": "remove", "path": path},
        ]
        changed = await self._client.patch(
            spoken(command.resource, self._version), key_of(known), body, PatchType.JSON
        )
        self._wrote(command.obj, changed, run)

    def _wrote(self, before: Obj, answer: Obj, run: _PlanRun) -> None:
        run.wrote(before, answer)
        self._known.learn(answer, shared=True)

    def _speak(self, resource: Resource, obj: Obj) -> Obj:
        return convert(obj, self._version) if resource.group == KUEUE else obj


class _PlanRun:
    """The state of one plan while it is executed."""

    def __init__(self, about: Obj | None = None) -> None:
        self.about = about
        self.wait: float | None = None
        self.behind = False
        self._latest: dict[str, Obj] = {}

    def latest(self, obj: Obj) -> Obj:
        """The object after our last write."""
        return self._latest.get(obj["metadata"]["uid"], obj)

    def version(self, obj: Obj) -> str:
        """The resource version that our next write depends on."""
        return str(self.latest(obj)["metadata"].get("resourceVersion", ""))

    def wrote(self, before: Obj, after: Obj) -> None:
        """Record the answer of the server."""
        self._latest[before["metadata"]["uid"]] = after


def _was_outdated(command: Command, error: Conflict | Invalid) -> bool:
    """Whether a command was refused because it was made from an old state of the object."""
    if isinstance(error, Invalid):  # unless a policy says so, the finalizer is not where it was
        return isinstance(command, DropFinalizer) and not is_denied(error)
    return isinstance(command, Change | PatchStatus) and command.versioned


# ---- metrics of jobs of all kinds ---------------------------------------------------------------

LATENCY_BUCKETS = tuple(0.01 * 2**exponent for exponent in range(11))


class JobMetrics:
    """Counters about jobs; all integrations of a process share them.

    Args:
        telemetry: where they are reported; None: nowhere.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        self._missed = telemetry.counter(
            "kueuelib_missed_by_webhook_total",
            "Jobs that bypassed our webhook, by kind and outcome.",
            ("kind", "what"),
        )

        self._latency = telemetry.histogram(
            "kueue_workload_creation_latency_seconds",
            "From the creation of a job to that of its Workload.",
            ("job_kind",),
            LATENCY_BUCKETS,
        )

    def missed(self, kind: str, what: str) -> None:
        """A job bypassed the webhook."""
        self._missed.labels(kind, what).inc()

    def count(self, what: str, labels: Sequence[str], seconds: float | None = None) -> None:
        """Execute a `Count` of a plan, with its time if there is one."""
        if what == MISSED:
            self.missed(*labels)
        elif what == CREATED_WORKLOAD:
            self._latency.labels(*labels).observe(max(seconds or 0.0, 0.0))
