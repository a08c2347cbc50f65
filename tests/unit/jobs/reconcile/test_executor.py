"""What the commands become on the wire, against a server that only takes notes."""

from __future__ import annotations

import asyncio
import contextlib
import copy

import attrs
import pytest

from kueuelib.api.kinds import JOBS, PODS, WORKLOADS
from kueuelib.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unavailable,
)
from kueuelib.jobs.contract.commands import (
    CREATED_WORKLOAD,
    Change,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    Recheck,
    RequeueAfter,
)
from kueuelib.jobs.reconcile.executor import (
    BEHIND_RETRY,
    LANES,
    REFUSED_RETRY,
    Executor,
    PlanResult,
)
from kueuelib.runtime.clock import SystemClock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.queries import PatchType

IN_USE = "kueue.x-k8s.io/resource-in-use"


@attrs.define
class Server:
    """Answers every write with a new resource version, or with the error that is due."""

    calls: list = attrs.field(factory=list)
    failure: Exception | None = None
    fail_at: int = 0
    finalizers: list = attrs.field(factory=lambda: [IN_USE])

    def _answer(self, *call):
        self.calls.append(call)
        if self.failure is not None and len(self.calls) > self.fail_at:
            raise self.failure
        meta = {
            "name": "wl",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": str(100 + len(self.calls)),
            "finalizers": self.finalizers,
        }
        return {"metadata": meta}

    async def create(self, resource, obj):
        return self._answer("create", resource.version, obj)

    async def patch(self, resource, key, body, patch_type, **options):
        return self._answer(patch_type.name, resource.version, body, options)

    async def delete(self, resource, key, **options):
        return self._answer("delete", resource.version, options)


@attrs.define
class Known:
    """Notes what is learned."""

    learned: list = attrs.field(factory=list)
    stored: dict | None = None
    newest: int = 0

    def is_overtaken(self, obj):
        return int(obj["metadata"]["resourceVersion"]) < self.newest

    def learn(self, answer, *, shared=False):
        self.learned.append(("learn", answer["metadata"]["resourceVersion"]))

    def learn_deleted(self, obj, answer):
        version = answer["metadata"]["resourceVersion"]
        self.learned.append(("deleted", obj["apiVersion"], obj["metadata"]["uid"], version))

    async def refresh(self, resource, key):
        self.learned.append(("refresh", resource.api_version, key))
        return self.stored


@attrs.define
class Notes:
    found: list = attrs.field(factory=list)

    def event(self, obj_or_ref, type, reason, message, component=None):
        self.found.append((type, reason, component))


def workload(**meta):
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": "Workload",
        "metadata": {
            "name": "wl",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "finalizers": ["other", IN_USE],
            **meta,
        },
        "spec": {
            "priority": 1,
            "priorityClassRef": {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "low",
            },
            "podSets": [],
        },
    }


def status(**fields):
    return PatchStatus(WORKLOADS, workload(), "apply", {"reclaimablePods": []}, "manager", **fields)


async def run(*commands, server=None, version="v1beta2", known=None):
    server = server or Server()
    notes = Notes()
    executor = Executor(server, known or Known(), notes, "batch/job-kueue-controller", version)
    outcome = await executor.run(commands)
    return server.calls, outcome, notes.found


async def test_a_change_sends_the_difference_with_its_preconditions():
    job = {**workload(), "apiVersion": "batch/v1", "kind": "Job"}
    changed = copy.deepcopy(job)
    changed["spec"]["suspend"] = False
    known = Known()
    ((kind, version, body, _),), _, _ = await run(Change(JOBS, job, changed), known=known)
    assert (kind, version) == (PatchType.MERGE.name, "v1")
    assert body == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"suspend": False},
    }
    assert known.learned == [("learn", "101")]


@pytest.mark.parametrize(("generation", "counts"), [(1, 1), (2, 0)])
async def test_the_time_until_a_new_job_has_its_workload_is_counted(generation, counts):
    found = []

    class Stamping(Server):
        async def create(self, resource, obj):
            meta = {"creationTimestamp": "2024-01-01T00:00:07Z", "ownerReferences": [{"kind": "J"}]}
            answer = await super().create(resource, obj)
            return {"metadata": {**answer["metadata"], **meta}}

    meta = {"generation": generation, "creationTimestamp": "2024-01-01T00:00:05Z"}
    executor = Executor(Stamping(), Known(), Notes(), "c", "v1beta2", lambda *it: found.append(it))
    await executor.run([Create(WORKLOADS, workload())], {"metadata": meta})
    await executor.run([Create(WORKLOADS, workload())])
    assert found == [(CREATED_WORKLOAD, ("J",), 2.0)] * counts


@pytest.mark.parametrize(
    "command",
    [Change(WORKLOADS, workload(), workload(labels={"a": "b"})), status(versioned=True)],
)
async def test_what_came_to_be_known_meanwhile_ends_a_plan_without_a_call(command):
    after = Emit(workload(), "Reason", "text")
    calls, outcome, told = await run(command, after, known=Known(newest=8))
    assert (calls, told) == ([], [])
    assert outcome == PlanResult(BEHIND_RETRY, behind=True)


async def test_a_start_is_dropped_when_a_newer_state_of_its_workload_is_known():
    job = {**pod("job"), "kind": "Job"}
    job["metadata"]["resourceVersion"] = "9"
    start = Change(JOBS, job, {**job, "spec": {"suspend": False}}, given=workload())
    calls, outcome, _ = await run(start, known=Known(newest=8))
    assert (calls, outcome.behind) == ([], True)
    calls, outcome, _ = await run(start, known=Known(newest=7))
    assert (len(calls), outcome.behind) == (1, False)


async def test_own_writes_do_not_end_a_plan():
    calls, outcome, _ = await run(status(), status(versioned=True), known=Known(newest=101))
    assert [call[2]["metadata"].get("resourceVersion") for call in calls] == [None, "101"]
    assert outcome == PlanResult()


async def test_a_change_of_nothing_is_not_sent():
    known = Known()
    calls, _, _ = await run(Change(WORKLOADS, workload(), workload()), known=known)
    assert (calls, known.learned) == ([], [])


async def test_workloads_are_written_in_the_version_that_is_served():
    changed = workload()
    changed["spec"]["priorityClassRef"] = {
        **changed["spec"]["priorityClassRef"],
        "name": "high",
    }
    known = Known()
    calls, _, _ = await run(
        Change(WORKLOADS, workload(), changed),
        Create(WORKLOADS, changed),
        Delete(WORKLOADS, changed),
        version="v1beta1",
        known=known,
    )
    (_, version, body, _), (_, _, created), _ = calls
    assert version == "v1beta1"
    assert body["spec"] == {"priorityClassName": "high"}
    assert created["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert created["spec"]["priorityClassSource"] == "kueue.x-k8s.io/workloadpriorityclass"
    gone = ("deleted", "kueue.x-k8s.io/v1beta1", "u", "103")
    assert known.learned == [("learn", "101"), ("learn", "102"), gone]


async def test_a_write_depends_on_the_plans_own_last_write():
    known = Known()
    calls, _, _ = await run(status(), status(versioned=True), known=known)
    assert "resourceVersion" not in calls[0][2]["metadata"]
    assert calls[1][2]["metadata"]["resourceVersion"] == "101"
    assert known.learned == [("learn", "101"), ("learn", "102")]


async def test_a_status_is_applied_in_the_name_of_its_manager():
    ((kind, _, body, options),), _, _ = await run(status(force=True))
    assert kind == PatchType.APPLY.name
    assert options == {"subresource": "status", "field_manager": "manager", "force": True}
    assert body["metadata"] == {"name": "wl", "namespace": "ns", "uid": "u"}


async def test_a_finalizer_is_taken_from_where_it_is_now():
    calls, _, _ = await run(DropFinalizer(WORKLOADS, workload(), IN_USE))
    assert calls[0][2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": IN_USE},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    calls, _, _ = await run(status(), DropFinalizer(WORKLOADS, workload(), IN_USE))
    assert calls[1][2][2]["path"] == "/metadata/finalizers/0"
    calls, _, _ = await run(
        status(), DropFinalizer(WORKLOADS, workload(), IN_USE), server=Server(finalizers=[])
    )
    assert len(calls) == 1


async def test_a_plan_goes_on_if_the_object_is_still_there():
    known = Known(stored=workload(resourceVersion="9"))
    commands = Recheck(WORKLOADS, workload()), Create(WORKLOADS, workload())
    calls, outcome, _ = await run(*commands, known=known)
    assert (len(calls), outcome.wait) == (1, None)
    assert [entry[0] for entry in known.learned] == ["refresh", "learn"]


@pytest.mark.parametrize(
    "stored", [None, workload(uid="other"), workload(deletionTimestamp="2024-01-01T00:00:00Z")]
)
async def test_a_plan_ends_if_the_object_is_gone(stored):
    commands = Recheck(WORKLOADS, workload()), Create(WORKLOADS, workload())
    calls, outcome, _ = await run(*commands, known=Known(stored=stored))
    assert (calls, outcome) == ([], PlanResult(BEHIND_RETRY, behind=True))


async def test_a_deletion_names_the_uid():
    ((_, _, options),), _, _ = await run(Delete(WORKLOADS, workload()))
    assert options == {"uid": "u", "propagation": "Background"}


def test_a_stale_plan_is_made_again_soon_but_each_further_time_later():
    assert PlanResult(BEHIND_RETRY, behind=True).result == Result(BEHIND_RETRY, rate_limited=True)
    assert PlanResult(3.0).result == Result(3.0)
    assert PlanResult().result == DONE


async def test_an_event_comes_from_the_integration():
    _, _, events = await run(Emit(workload(), "Started", "so"))
    assert events == [("Normal", "Started", "batch/job-kueue-controller")]


EVENT = Emit(workload(), "Started", "so")
OUTDATED = [
    (Change(WORKLOADS, workload(), workload(labels={"a": "b"})), Conflict("changed")),
    (status(versioned=True), Conflict("changed")),
    (DropFinalizer(WORKLOADS, workload(), IN_USE), Invalid("the test failed")),
]


@pytest.mark.parametrize(("command", "error"), OUTDATED)
async def test_what_was_planned_from_an_old_state_is_read_and_planned_again(command, error):
    known = Known()
    _, outcome, events = await run(command, EVENT, server=Server(failure=error), known=known)
    assert (outcome, events) == (PlanResult(BEHIND_RETRY, behind=True), [])
    assert known.learned == [("refresh", WORKLOADS.api_version, ("ns", "wl"))]


@pytest.mark.parametrize(
    "command", [Change(WORKLOADS, workload(), workload(labels={"a": "b"})), status()]
)
async def test_nothing_more_is_done_about_what_is_gone(command):
    known = Known()
    missing = Server(failure=NotFound("gone"))
    _, outcome, events = await run(command, EVENT, server=missing, known=known)
    assert (outcome, events) == (PlanResult(BEHIND_RETRY, behind=True), [])
    assert known.learned == [("refresh", WORKLOADS.api_version, ("ns", "wl"))]


@pytest.mark.parametrize(
    "command", [Delete(WORKLOADS, workload()), DropFinalizer(WORKLOADS, workload(), IN_USE)]
)
async def test_what_is_gone_need_not_be_taken_away(command):
    known = Known()
    missing = Server(failure=NotFound("gone"))
    _, outcome, events = await run(command, EVENT, server=missing, known=known)
    assert (outcome.wait, len(events)) == (None, 1)
    assert known.learned == [("refresh", WORKLOADS.api_version, ("ns", "wl"))]


async def test_a_workload_that_exists_already_is_read():
    known, server = Known(), Server(failure=AlreadyExists("there is one"))
    create = Create(WORKLOADS, workload())
    _, outcome, events = await run(create, EVENT, server=server, known=known, version="v1beta1")
    assert (outcome, events) == (PlanResult(BEHIND_RETRY, behind=True), [])
    assert known.learned == [("refresh", "kueue.x-k8s.io/v1beta1", ("ns", "wl"))]


async def test_a_create_into_nowhere_is_an_error():
    known = Known()
    with pytest.raises(NotFound):
        await run(
            Create(WORKLOADS, workload()), server=Server(failure=NotFound("no ns")), known=known
        )
    assert known.learned == []


async def test_a_foreign_field_manager_is_an_error():
    with pytest.raises(Conflict):
        await run(status(), server=Server(failure=Conflict("owned by another")))


async def test_a_plan_that_asks_for_a_later_look_goes_on():
    plan = (
        RequeueAfter("a poll", 30.0),
        EVENT,
        RequeueAfter("another", 3.0),
        RequeueAfter("the last", 60.0),
    )
    _, outcome, events = await run(*plan)
    assert (outcome.wait, len(events)) == (3.0, 1), "the shortest time counts"


# ---- pods side by side


def pod(name):
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}}


class Slow(Server):
    """Holds every answer back until somebody lets all of them go."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.go = asyncio.Event()

    async def patch(self, resource, key, body, patch_type, **options):
        self.waiting += 1
        await self.go.wait()
        if key.name == "bad":
            raise Invalid("no")
        return self._answer(patch_type.name, key.name)


async def test_pods_are_written_a_few_at_a_time_and_one_that_fails_keeps_nobody():
    server, notes = Slow(), Notes()
    names = ["bad", *(f"pod-{n}" for n in range(11))]
    plan = [Change(PODS, pod(name), {**pod(name), "spec": {"x": 1}}) for name in names]
    plan.append(Delete(WORKLOADS, workload()))
    task = asyncio.create_task(Executor(server, Known(), notes, "test", "v1beta2").run(plan))
    while server.waiting < LANES:
        await asyncio.sleep(0)
    assert server.waiting == LANES
    server.go.set()
    with pytest.raises(Invalid):
        await task
    written = [call[1] for call in server.calls]
    assert written == names[1:], "all others were written, and the plan ended there"


async def test_a_refusal_that_no_retry_mends_is_told_to_the_job():
    about = pod("job")
    for failure, plan, reason in (
        (Invalid("bad field"), [Create(WORKLOADS, workload())], "ErrWorkloadCompose"),
        (Forbidden("not you"), [Change(PODS, about, {**about, "spec": {"x": 1}})], "Refused"),
        (Forbidden("not you"), [Delete(WORKLOADS, workload())], "Refused"),
    ):
        server, notes = Server(failure=failure), Notes()
        executor = Executor(server, Known(), notes, "test", "v1beta2")
        outcome = await executor.run(plan, about)
        assert notes.found == [("Warning", reason, "test")]
        assert outcome.wait == REFUSED_RETRY
        with pytest.raises(type(failure)):
            await executor.run(plan)


@attrs.define
class Told:
    """Events, each with its object and message."""

    found: list = attrs.field(factory=list)

    def event(self, obj_or_ref, type, reason, message, component=None):
        self.found.append((obj_or_ref["metadata"]["uid"], type, reason, message))


class Hand(SystemClock):
    """A clock that a test moves."""

    at = 0.0

    def monotonic(self):
        return self.at


async def test_a_start_that_the_server_refuses_is_told_once_a_minute_and_if_the_reason_changes():
    about, told, clock = pod("job"), Told(), Hand()
    changed = {**about, "spec": {"x": 1}}
    start, other = Change(PODS, about, changed, given=workload()), Change(PODS, about, changed)
    server = Server()
    executor = Executor(server, Known(), told, "test", "v1beta2", clock=clock)

    async def tried(failure, plan):
        server.failure = failure
        told.found.clear()
        try:
            await executor.run([plan], about)
        except type(failure):
            assert not isinstance(failure, Forbidden), "the job is looked at a minute later"
        return told.found

    text = "The API server did not accept the start, which is tried again: "
    dead = ServerError("failed calling webhook")
    both = [(uid, "Warning", "FailedToStart") for uid in (about["metadata"]["uid"], "u")]
    assert await tried(dead, start) == [(*one, f"{text}failed calling webhook") for one in both]
    assert await tried(dead, start) == []
    denied = [(*one, f"{text}denied the request") for one in both]
    assert await tried(Forbidden("denied the request"), start) == denied
    clock.at = 61.0
    assert await tried(Forbidden("denied the request"), start) == denied
    for stale in (Conflict("changed"), NotFound("gone"), TooManyRequests("later")):
        assert await tried(stale, start) == []
    told_about_the_job = [("uid-job", "Warning", "Refused")]
    assert [one[:3] for one in await tried(dead, other)] == told_about_the_job, "for example a stop"


@pytest.mark.parametrize(
    ("command", "reason", "text"),
    [
        (Create(WORKLOADS, workload()), "ErrWorkloadCompose", "The workload could not be created"),
        (
            Change(WORKLOADS, workload(), {**workload(), "spec": {}}),
            "ErrWorkloadCompose",
            "The workload could not be changed",
        ),
        (status(), "Refused", "The status of Workload ns/wl could not be changed"),
        (Delete(WORKLOADS, workload()), "Refused", "Workload ns/wl could not be deleted"),
        (DropFinalizer(WORKLOADS, workload(), IN_USE), "Refused", "Workload ns/wl could not be"),
    ],
)
async def test_each_refused_write_is_told_to_the_job_once_a_minute(command, reason, text):
    about, told, clock, server = pod("job"), Told(), Hand(), Server()
    executor = Executor(server, Known(), told, "test", "v1beta2", clock=clock)
    for error in (ServerError("failed calling webhook"), Forbidden("exceeded quota: q")):
        for at in (0, 30, 60):
            clock.at += at
            server.failure = error
            with contextlib.suppress(ServerError):
                await executor.run([command], about)
        assert [one[:3] for one in told.found] == [("uid-job", "Warning", reason)] * 2
        assert told.found[0][3].startswith(text)
        assert told.found[0][3].endswith(f": {error}")
        told.found.clear()
    for passing in (Unavailable("away", code=503), TooManyRequests("later")):
        server.failure = passing
        with pytest.raises(type(passing)):
            await executor.run([command], about)
    assert told.found == []


@attrs.define
class Mutated(Server):
    """Answers with what a mutating policy makes of every object."""

    makes: dict = attrs.field(factory=dict)

    def _answer(self, *call):
        return {**super()._answer(*call), **self.makes}


GATE = {"name": "kueue.x-k8s.io/admission"}
RESERVED = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}


@pytest.mark.parametrize(
    ("kind", "before", "after", "path"),
    [
        (JOBS, {"spec": {"suspend": True}}, {"spec": {"suspend": False}}, "spec.suspend"),
        (JOBS, {"spec": {}}, {"spec": {"suspend": True}}, "spec.suspend"),
        (
            PODS,
            {"spec": {"schedulingGates": [GATE, {"name": "other"}]}},
            {"spec": {"schedulingGates": [{"name": "other"}]}},
            "spec.schedulingGates",
        ),
        (
            WORKLOADS,
            {"spec": {"podSets": [{"count": 1}]}},
            {"spec": {"podSets": [{"count": 2}]}},
            "spec.podSets",
        ),
    ],
)
async def test_a_write_that_is_answered_with_success_and_changed_back_is_a_refused_one(
    kind, before, after, path
):
    made = workload() if kind == WORKLOADS else pod("job")
    job, told, server = {**made, **before}, Told(), Mutated(makes=before)
    executor = Executor(server, Known(), told, "test", "v1beta2")
    change = Change(kind, job, {**job, **after}, given=workload() if kind != WORKLOADS else None)
    outcome = await executor.run([change, Emit(job, "Started", "Admitted")], job)
    assert outcome.result == Result(BEHIND_RETRY, rate_limited=True), "tried again, ever later"
    assert told.found, "and nothing says that it was started"
    for _, severity, reason, message in told.found:
        assert (severity, reason != "Started") == ("Warning", True)
        assert f"{path} is still " in message
        assert message.endswith("changes it back")
    server.makes = after
    told.found.clear()
    outcome = await executor.run([change, Emit(job, "Started", "Admitted")], job)
    assert (outcome, [one[2] for one in told.found]) == (PlanResult(), ["Started"])


async def test_what_a_policy_adds_or_sets_to_a_third_value_is_no_refusal():
    job = {**pod("job"), "spec": {"suspend": True, "parallelism": 2, "template": {}}}
    spec = {"suspend": False, "parallelism": 1, "template": {"labels": {"a": "b"}}}
    server = Mutated(makes={"spec": {"suspend": False, "parallelism": 3, "backoffLimit": 3}})
    started = Emit(job, "Started", "Admitted")
    plan = [Change(JOBS, job, {**job, "spec": spec}), started]
    _, outcome, told = await run(*plan, server=server)
    assert (outcome, len(told)) == (PlanResult(), 1)


async def test_a_status_that_is_changed_back_is_a_refused_one():
    about, told = pod("job"), Told()
    server = Mutated(makes={"status": {}})
    executor = Executor(server, Known(), told, "test", "v1beta2")
    command = PatchStatus(WORKLOADS, workload(), "apply", RESERVED, "manager")
    assert (await executor.run([command], about)).behind
    assert "status.conditions[QuotaReserved] is still" in told.found[0][3]
    server.makes = {"status": RESERVED}
    assert await executor.run([command], about) == PlanResult()


POLICY = "ValidatingAdmissionPolicy 'freeze' with binding 'all' denied request: not now"


async def test_a_policy_that_keeps_a_workload_after_its_job_is_told_to_the_workload():
    told, known, server = Told(), Known(), Server(failure=Invalid(POLICY))
    executor = Executor(server, known, told, "test", "v1beta2")
    drop = DropFinalizer(WORKLOADS, workload(), IN_USE)
    outcome = await executor.run([drop])
    text = f"Workload ns/wl could not be changed: {POLICY}"
    assert told.found == [("u", "Warning", "Refused", text)]
    assert outcome.wait == REFUSED_RETRY
    about = pod("job")
    assert (await executor.run([drop], about)).wait == REFUSED_RETRY
    assert told.found[1] == (about["metadata"]["uid"], "Warning", "Refused", text)
    server.failure = Invalid("the server rejected our request due to an error in our request")
    assert (await executor.run([drop])).behind, "the finalizer is not where it was"
    assert len(told.found) == 2


async def test_a_status_that_the_kind_does_not_have_is_a_refused_write():
    about, told, missing = pod("job"), Told(), NotFound('workloads "wl" not found')
    missing.answer = "by HTTP"
    server, known = Server(failure=missing), Known(stored=workload())
    executor = Executor(server, known, told, "test", "v1beta2")
    assert (await executor.run([status()], about)).wait == REFUSED_RETRY
    text = "The status of Workload ns/wl could not be changed: its kind has no subresource status"
    assert told.found[0][3].startswith(text)
    known.stored = None
    assert (await executor.run([status()], about)).behind, "it is gone"
    assert len(told.found) == 1
