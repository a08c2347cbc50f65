"""Other programs' webhooks and policies that refuse what is written, and who is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj, ObjectKey, Resource, format_time, key_of
from kueuelib.app.configuration import Configuration, Integrations
from kueuelib.app.doctor.examining import DoctorReport, examine
from kueuelib.app.doctor.reading import read
from kueuelib.app.doctor.snapshot import PERMISSIONS
from kueuelib.app.explaining.asking import ask
from kueuelib.app.explaining.starts import refusal_notes
from kueuelib.app.explaining.subject import parse_reference
from kueuelib.app.refusers import remedy, standing
from kueuelib.controllers.applier import ADMISSION_REFUSED
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ApiError, Forbidden
from kueuelib.jobs.reconcile.refusals import START_REFUSED
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType

QUEUE = "kueue.x-k8s.io/queue-name"
VALIDATING = kinds.VALIDATING_WEBHOOKS.kind
KUEUE = kinds.KUEUE
POLICY = (
    'The workload could not be created: workloads.kueue.x-k8s.io "job-a" is forbidden: '
    "ValidatingAdmissionPolicy 'no-big' with binding 'no-big-here' denied request: too big"
)
DENIED = (
    'The workload could not be created: admission webhook "policy.example.com" denied the '
    "request: not today"
)
DEAD = 'Internal error occurred: failed calling webhook "policy.example.com": refused'


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A cluster with a queue and a suspended Job, and without a manager."""
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            for crd in all_crds():
                crd["spec"]["conversion"] = {"strategy": "None"}
                await client.create(kinds.CRDS, crd)
            await create(client, kinds.NAMESPACES, "team")
            await create(client, kinds.LOCAL_QUEUES, "lq", "team", spec={"clusterQueue": "cq"})
            quota = {"name": "cpu", "nominalQuota": "4"}
            group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
            spec = {"namespaceSelector": {}, "resourceGroups": [group]}
            await create(client, kinds.CLUSTER_QUEUES, "cq", spec=spec)
            await create(client, kinds.RESOURCE_FLAVORS, "f", spec={})
            yield client


async def create(
    client: Client, resource: Resource, name: str, namespace: str = "", **parts: Any
) -> Obj:
    labels = {QUEUE: "lq"} if resource is kinds.JOBS else {}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return await client.create(resource, {**kind, "metadata": meta, **parts})


def pods(cpu: str = "1") -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


async def suspended(client: Client) -> Obj:
    return await create(
        client, kinds.JOBS, "big", "team", spec={"suspend": True, "template": pods()}
    )


async def told(client: Client, job: Obj, message: str, reason: str, ago: float) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "big-", "namespace": "team"},
        "involvedObject": {
            "kind": job["kind"],
            "name": job["metadata"]["name"],
            "namespace": "team",
            "uid": job["metadata"]["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": format_time(time.time() - ago),
    }
    await client.create(kinds.EVENTS, event)


async def dead(client: Client, group: str, resource: str, operation: str, **fields: Any) -> None:
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [resource],
        "operations": [operation],
    }
    hook = {
        "name": "policy.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        **fields,
    }
    await create(client, kinds.VALIDATING_WEBHOOKS, "policies", webhooks=[hook])


async def examined(client: Client, *, own: bool = False) -> DoctorReport:
    later = time.time() + 120
    families = Integrations(frameworks=("batch/job", "pod"))
    return examine(await read(client, Configuration(integrations=families), own=own, now=later))


def about(report: DoctorReport, check: str) -> list[tuple[str, str, str, str]]:
    return [
        (one.severity.name, str(one.subject), one.problem, one.fix)
        for name, one in report.findings
        if name == check
    ]


@pytest.mark.parametrize(
    ("group", "resource", "operation", "what"),
    [
        (KUEUE, "workloads", "CREATE", "create Workloads"),
        (KUEUE, "workloads", "UPDATE", "update Workloads"),
        (KUEUE, "workloads/status", "UPDATE", "update the status of Workloads"),
        (KUEUE, "clusterqueues/status", "*", "update the status of ClusterQueues"),
        ("batch", "jobs", "CREATE", "create Jobs"),
        ("batch", "jobs", "UPDATE", "update Jobs"),
        ("", "pods", "CREATE", "create Pods"),
    ],
)
async def test_a_dead_webhook_for_what_is_written_is_an_error(
    client: Client, group: str, resource: str, operation: str, what: str
) -> None:
    await suspended(client)
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": pods()}]}
    await create(client, kinds.WORKLOADS, "waits", "team", spec=spec)
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team"}}
    await dead(client, group, resource, operation, namespaceSelector=selector)
    ((severity, subject, problem, fix),) = about(await examined(client), "another-webhook")
    assert (severity, subject) == ("ERROR", f"{VALIDATING} policies")
    assert problem.startswith(f"it does not answer, so nobody can {what}: ")
    assert 'failed calling webhook "policy.example.com"' in problem
    assert fix == "kubectl delete validatingwebhookconfiguration policies  # if nobody needs it"
    assert len((await client.list(kinds.JOBS)).items) == 1
    assert len((await client.list(kinds.PODS)).items) == 0


async def test_a_dead_webhook_that_stops_nothing_is_at_most_a_hint(client: Client) -> None:
    await dead(client, KUEUE, "workloads", "CREATE", failurePolicy="Ignore")
    ((severity, *_),) = about(await examined(client), "another-webhook")
    assert severity == "HINT"


async def test_what_a_dead_webhook_keeps_from_being_asked_is_said(client: Client) -> None:
    """Access reviews are created, so that a webhook for everything refuses them, too."""
    await dead(client, "*", "*/*", "*")
    request = client.request

    async def refused(method: str, path: str, **rest: Any) -> Any:
        if path.endswith("accessreviews"):
            raise ApiError(DEAD)
        return await request(method, path, **rest)

    client.request = refused  # type: ignore[method-assign]
    for own in (True, False):
        snapshot = await read(client, Configuration(), own=own)
        assert snapshot.unseen[PERMISSIONS] == DEAD
    report = await examined(client)
    assert report.skipped["permissions"] == DEAD
    ((severity, subject, _, fix),) = about(report, "another-webhook")
    assert (severity, subject) == ("ERROR", f"{VALIDATING} policies")
    assert fix.startswith("kubectl delete validatingwebhookconfiguration policies ")


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (
            POLICY,
            (
                "kubectl get validatingadmissionpolicy no-big -o yaml  # "
                "validatingadmissionpolicybinding no-big-here applies it: "
            ),
        ),
        (
            DENIED,
            (
                "kubectl get validatingwebhookconfiguration policies -o yaml  # its webhook "
                "policy.example.com refuses: "
            ),
        ),
        (
            (
                'The workload could not be created: workloads.kueue.x-k8s.io "job-a" is forbidden: '
                "exceeded quota: few, requested: count/workloads.kueue.x-k8s.io=1, used: "
                "count/workloads.kueue.x-k8s.io=1, limited: count/workloads.kueue.x-k8s.io=1"
            ),
            "kubectl -n team describe resourcequota few  # raise spec.hard of what",
        ),
        (
            (
                'The workload could not be created: workloads.kueue.x-k8s.io "job-a" is forbidden: '
                "failed quota: cpus: must specify requests.cpu for: c"
            ),
            "kubectl -n team describe resourcequota cpus  # raise spec.hard of what",
        ),
    ],
)
async def test_a_refused_workload_is_told_with_what_refuses_it(
    client: Client, message: str, fix: str
) -> None:
    await dead(client, "example.com", "things", "CREATE")
    job = await suspended(client)
    ((_, _, problem, before),) = about(await examined(client), "job-unqueued")
    assert problem.endswith(": is a manager running?")
    assert before == "kueuelib explain job/big -n team"
    await told(client, job, "an older message", "ErrWorkloadCompose", ago=300)
    await told(client, job, message, "ErrWorkloadCompose", ago=30)
    ((severity, subject, problem, after),) = about(await examined(client), "job-unqueued")
    assert (severity, subject) == ("ERROR", "Job team/big")
    assert f"ago the manager said ErrWorkloadCompose: {message}" in problem
    assert "is a manager running" not in problem
    assert after.startswith(fix)
    answer = await ask(client, parse_reference("job/big"), "team")
    (problem,) = answer.problems
    assert "s ago the manager said ErrWorkloadCompose: " in problem.problem
    assert problem.problem.endswith(message)
    assert problem.fix.startswith(fix)
    assert (answer.explanation, answer.notes) == (None, ())


def test_ours_are_never_removed() -> None:
    for resource in (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS):
        for name in ("kueue-mutating-webhook-configuration", "policies"):
            obj = {"metadata": {"name": name}, "webhooks": [{"name": "policy.example.com"}]}
            fix = remedy(f"x: {DEAD}", [(resource.kind, obj)], "team")
            assert bool(fix) is (name == "policies")


# --- refusals for a job that has a Workload

PODS = (
    'Error creating: pods "big-x" is forbidden: exceeded quota: few, requested: pods=1, used: '
    "pods=2, limited: pods=2"
)
START = f"{START_REFUSED}{DEAD}"


async def admitted(client: Client, kind: str = "Job", ago: float = 60.0) -> tuple[Obj, Obj]:
    """A Job with its Workload, which was admitted a while ago; it is not started yet."""
    job = await suspended(client)
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": "big", "controller": True}
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": pods()}]}
    head = {"apiVersion": kinds.WORKLOADS.api_version, "kind": "Workload"}
    meta = {"name": "job-big", "namespace": "team"}
    meta["ownerReferences"] = [{**owner, "uid": job["metadata"]["uid"]}]  # type: ignore[assignment]
    made = await client.create(kinds.WORKLOADS, {**head, "metadata": meta, "spec": spec})
    since = {"lastTransitionTime": format_time(time.time() - ago), "message": ""}
    conditions = [
        {"type": one, "status": "True", "reason": one, **since}
        for one in ("QuotaReserved", "Admitted")
    ]
    used = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    admission = {"clusterQueue": "cq", "podSetAssignments": [used]}
    status = {"conditions": conditions, "admission": admission}
    return job, await change(client, kinds.WORKLOADS, made, {"status": status}, "status")


async def change(
    client: Client, resource: Resource, obj: Obj, body: Obj, subresource: str = ""
) -> Obj:
    return await client.patch(resource, key_of(obj), body, PatchType.MERGE, subresource=subresource)


async def notes(client: Client, seconds: float = 0.0) -> str:
    """What explain adds about the job, seconds from now."""
    raw = await client.get(kinds.WORKLOADS, ObjectKey("team", "job-big"))
    return "\n".join(await refusal_notes(client, raw, time.time() + seconds))


async def test_the_quota_that_keeps_pods_from_being_created_is_named(client: Client) -> None:
    job, _ = await admitted(client)
    await change(client, kinds.JOBS, job, {"spec": {"suspend": False, "parallelism": 3}})
    await told(client, job, PODS, "FailedCreate", ago=30)
    answer = await ask(client, parse_reference("job/big"), "team")
    first, second = answer.notes
    assert first.startswith(f"its pods are not created: {PODS} (3")
    assert second.startswith("what refuses it: kubectl -n team describe resourcequota few  # ")
    await change(client, kinds.JOBS, job, {"status": {"active": 3}}, "status")
    assert await notes(client) == ""


async def test_a_refused_start_ends_with_the_start(client: Client) -> None:
    job, workload = await admitted(client)
    await told(client, job, START, "FailedToStart", ago=70)
    assert await notes(client) == "", "it is about an earlier admission"
    await told(client, workload, START, "FailedToStart", ago=20)
    assert f"its job is not started. {START} (2" in await notes(client)
    await change(client, kinds.JOBS, job, {"spec": {"suspend": False}})
    assert await notes(client) == ""


async def test_the_start_of_a_job_that_cannot_be_read_ends_the_refusal(client: Client) -> None:
    job, workload = await admitted(client, kind="TrainJob")
    await told(client, workload, START, "FailedToStart", ago=20)
    assert "its job is not started" in await notes(client)
    assert await notes(client, seconds=110) == ""
    await told(client, job, "Admitted by clusterQueue cq", "Started", ago=5)
    assert await notes(client) == ""


@pytest.mark.parametrize("part", ["status", ""])
async def test_a_refused_change_ends_with_the_next_change(client: Client, part: str) -> None:
    job, workload = await admitted(client)
    name = "The status of Workload team/job-big" if part else "The workload"
    reason = "Refused" if part else "ErrWorkloadCompose"
    await told(client, job, f"{name} could not be changed: {DEAD}", reason, ago=-2)
    said = f"{name} could not be changed: {DEAD}"
    assert (await notes(client, seconds=4)).startswith(said)
    await asyncio.sleep(3.1)
    other = (
        {"metadata": {"labels": {"a": "b"}}} if part else {"status": {"requeueState": {"count": 1}}}
    )
    await change(client, kinds.WORKLOADS, workload, other, "" if part else "status")
    assert (await notes(client)).startswith(said), "another part was changed"
    written = {"status": {"reclaimablePods": []}} if part else {"spec": {"priority": 7}}
    await change(client, kinds.WORKLOADS, workload, written, part)
    assert await notes(client) == ""


async def test_a_refused_admission_ends_with_the_admission(client: Client) -> None:
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": pods()}]}
    made = await create(client, kinds.WORKLOADS, "waits", "team", spec=spec)
    text = f"{ADMISSION_REFUSED}{DEAD}"
    await told(client, made, text, "AdmissionFailed", ago=10)
    answer = await ask(client, parse_reference("workload/waits"), "team")
    (note,) = answer.notes
    assert note.startswith(f"{text} (1"), "and not: is a manager running?"
    status = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    assert standing([], made, None, 0.0) is None
    raw = {**made, "status": status}
    (event,) = (await client.list(kinds.EVENTS)).items
    assert standing([event], made, None, time.time()) is event
    assert standing([event], raw, None, time.time()) is None


async def test_a_workload_that_was_made_ends_an_earlier_refusal(client: Client) -> None:
    job = await suspended(client)
    await told(client, job, POLICY, "ErrWorkloadCompose", ago=30)
    await told(client, job, "Created Workload team/job-big", "CreatedWorkload", ago=10)
    answer = await ask(client, parse_reference("job/big"), "team")
    assert answer.problems == ()


FREEZE = (
    'leases.coordination.k8s.io "c1f6bfd2.kueue.x-k8s.io" is forbidden: '
    "ValidatingAdmissionPolicy 'freeze' with binding 'all-of-it' denied request: not now"
)
MAY_NOT = 'leases "x" is forbidden: User "me" cannot patch resource "leases" in API group "g"'


MANAGER = "system:serviceaccount:kueue-system:kueue-controller-manager"


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ({MANAGER: FREEZE}, True),
        ({"": FREEZE}, False),
        ({MANAGER: MAY_NOT, "": FREEZE}, True),
        ({MANAGER: MAY_NOT, "": MAY_NOT}, False),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
async def test_a_refused_renewal_is_found_by_a_dry_run_as_the_manager(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    messages: dict[str, str],
    found: bool,
    exists: bool,
) -> None:
    """A policy may be for the manager's account alone, or exempt it."""
    lease = Configuration().lease
    await create(client, kinds.NAMESPACES, lease.namespace)
    if exists:
        spec = {"holderIdentity": "me", "leaseDurationSeconds": 15}
        await create(client, kinds.LEASES, lease.name, lease.namespace, spec=spec)
    request, tried = Client.request, list[tuple[str, str]]()

    async def refusing(it: Client, method: str, path: str, **options: Any) -> Any:
        if method != "GET" and "/leases" in path:
            assert "dryRun" in str(options["params"])
            user = dict((await it.transport.endpoint()).headers).get("Impersonate-User", "")
            tried.append((method, user))
            if user in messages:
                raise Forbidden(messages[user])
        return await request(it, method, path, **options)

    monkeypatch.setattr(Client, "request", refusing)
    report = await examined(client)
    method = "PATCH" if exists else "POST"
    asked = [MANAGER, ""] if messages.get(MANAGER) == MAY_NOT else [MANAGER]
    assert tried == [(method, user) for user in asked]
    leases = [one for one in about(report, "write-refused") if one[1].startswith("Lease ")]
    assert bool(leases) is found
    (leader,) = [one for name, one in report.findings if name == "leader"]
    assert ("write-refused" in leader.follows) is found
