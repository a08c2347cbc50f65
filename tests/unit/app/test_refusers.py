"""Other programs' webhooks and policies that refuse what is written, and who is told."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj, Resource, format_time
from kueuelib.app.configuration import Configuration, Integrations
from kueuelib.app.doctor.examining import Report, examine
from kueuelib.app.doctor.reading import read
from kueuelib.app.doctor.snapshot import PERMISSIONS
from kueuelib.app.explaining.asking import ask
from kueuelib.app.explaining.subject import parse_reference
from kueuelib.app.refusers import remedy
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ApiError
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect

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
            "kind": "Job",
            "name": "big",
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


async def examined(client: Client, *, own: bool = False) -> Report:
    later = time.time() + 120
    families = Integrations(frameworks=("batch/job", "pod"))
    return examine(await read(client, Configuration(integrations=families), own=own, now=later))


def about(report: Report, check: str) -> list[tuple[str, str, str, str]]:
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
            fix = remedy(f"x: {DEAD}", [(resource.kind, obj)])
            assert bool(fix) is (name == "policies")
