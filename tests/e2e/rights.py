"""A manager that uses every right that is installed for it, on an API server of any kind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey, Resource, is_true
from kueuelib.api.names import MAX_EXECUTION_LABEL, POD_SET_LABEL, WORKLOAD_ANNOTATION
from kueuelib.api.workload import HOST
from kueuelib.app.installation import Installation
from kueuelib.controllers.manifests import METRICS_READER_ROLE, SERVICE_ACCOUNT
from kueuelib.errors import Conflict, Forbidden, Invalid, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import PatchType
from kueuelib.testing.processes import free_port

NAMESPACE = "kueue-system"
WAIT = 120.0
QUEUE, GROUP, TOTAL = (
    f"kueue.x-k8s.io/{name}" for name in ("queue-name", "pod-group-name", "pod-group-total-count")
)
REQUESTS = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
Right = tuple[str, str, str]
"""Group, resource with subresource, verb."""


class World:
    """A server that asks for permissions, its administrator, and what the manager asked for.

    Args:
        client: with the administrator's rights.
        seen: the rights that the manager used until now, and those that it lacked.
        running: a manager that queues kinds with these names and serves metrics on that port,
            until the end of the context.
    """

    def __init__(
        self,
        client: Client,
        seen: Callable[[], tuple[set[Right], set[Right]]],
        running: Callable[[list[str], int], contextlib.AbstractAsyncContextManager[None]],
    ) -> None:
        self.client = client
        self.seen = seen
        self.running = running

    async def create(self, resource: Resource, name: str, **parts: Any) -> Obj:
        metadata = {"name": name, **parts.pop("metadata", {})}
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self.client.create(resource, {**head, "metadata": metadata, **parts})

    async def get(self, resource: Resource, name: str) -> Obj:
        namespace = "default" if resource.namespaced else ""
        return await self.client.get(resource, ObjectKey(namespace, name))

    async def delete(self, resource: Resource, name: str) -> None:
        namespace = "default" if resource.namespaced else ""
        await self.client.delete(resource, ObjectKey(namespace, name), propagation="Background")

    async def until(self, fn: Callable[[], Awaitable[Any]], what: str) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT
        while loop.time() < end:
            with contextlib.suppress(NotFound, KeyError):
                if value := await fn():
                    return value
            await asyncio.sleep(0.05)
        raise AssertionError(what)

    async def uses(self, right: Right) -> None:
        async def so() -> bool:
            return right in self.seen()[0]

        await self.until(so, f"{right} is not used")

    async def gone(self, resource: Resource, name: str) -> None:
        async def away() -> bool:
            try:
                await self.get(resource, name)
            except NotFound:
                return True
            return False

        await self.until(away, f"{name} stays")

    async def workload(self, owner: str) -> Obj:
        """The Workload of an owner."""
        for one in (await self.client.list(kinds.WORKLOADS, "default")).items:
            if owner in [ref["name"] for ref in one["metadata"].get("ownerReferences", ())]:
                return one
        raise KeyError(owner)

    async def admitted(self, owner: str) -> None:
        async def so() -> bool:
            return is_true(await self.workload(owner), "Admitted")

        await self.until(so, f"{owner} is not admitted")


def configuration(port: int, frameworks: list[str], metrics: int, probes: str = "0") -> Obj:
    """A configuration of a manager with everything turned on that needs rights."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "webhook": {"port": port, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": probes},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "integrations": {"frameworks": frameworks},
        "admissionFairSharing": {"usageHalfLifeTime": "1m", "usageSamplingInterval": "1s"},
        "fairSharing": {"enable": True},
        "objectRetentionPolicies": {
            "workloads": {"afterFinished": "0s", "afterDeactivatedByKueue": "0s"}
        },
        "waitForPodsReady": {
            "enable": True,
            "timeout": "5m",
            "blockAdmission": False,
        },
    }


async def token(client: Client) -> str:
    """A token of the manager's ServiceAccount."""
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = await client.request("POST", account, body={**head, "spec": {}}, verb="create")
    return str(answer["status"]["token"])


def pod_spec(cpu: str = "1", **more: Any) -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    base = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {**base, "containers": [container], **more}


def granted(objects: Iterable[Obj]) -> set[Right]:
    """What the roles of the manager say, one by one."""
    objects = list(objects)
    bound = {
        (obj["roleRef"]["kind"], obj["roleRef"]["name"])
        for obj in objects
        if obj["kind"].endswith("Binding")
        and SERVICE_ACCOUNT in [subject["name"] for subject in obj["subjects"]]
    }
    return {
        (group, resource, verb)
        for obj in objects
        if (obj["kind"], obj["metadata"]["name"]) in bound
        for rule in obj["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def queue(world: World, name: str, **more: Any) -> None:
    """A flavor, a ClusterQueue and a LocalQueue of one name."""
    await world.create(kinds.RESOURCE_FLAVORS, name, spec={})
    spec = {"namespaceSelector": {}, "resourceGroups": [group(name, "10")], **more}
    await world.create(kinds.CLUSTER_QUEUES, name, spec=spec)
    await world.create(kinds.LOCAL_QUEUES, name, spec={"clusterQueue": name})


def group(flavor: str, cpu: str) -> Obj:
    row = {"name": "cpu", "nominalQuota": cpu}
    return {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [row]}]}


async def queues(world: World) -> None:
    await world.create(kinds.COHORTS, "all", spec={"resourceGroups": [group("main", "1")]})
    await queue(
        world,
        "main",
        cohortName="all",
        preemption={"withinClusterQueue": "LowerPriority"},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
    )


async def job(world: World, name: str, seconds: str = "600", **metadata: Any) -> None:
    await world.create(
        kinds.JOBS,
        name,
        metadata={"labels": {QUEUE: "main"}, **metadata},
        spec={
            "template": {
                "metadata": {"annotations": {"kueuelib.dev/run-seconds": seconds}},
                "spec": pod_spec(),
            }
        },
    )


async def pod(world: World, name: str, seconds: str = "600", **metadata: Any) -> None:
    labels = {QUEUE: "main", **metadata.pop("labels", {})}
    annotations = {"kueuelib.dev/run-seconds": seconds, **metadata.pop("annotations", {})}
    await world.create(
        kinds.PODS,
        name,
        metadata={"labels": labels, "annotations": annotations, **metadata},
        spec=pod_spec(),
    )


def owned(kind: str, api_version: str, owner: Obj) -> Obj:
    """The metadata of what a controller has made."""
    reference = {"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"]}
    uid = owner["metadata"]["uid"]
    return {"ownerReferences": [{**reference, "uid": uid, "controller": True}]}


async def children(world: World) -> None:
    """Jobs and Pods of controllers whose own owners decide whether they are queued."""
    selector = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec(restartPolicy="Always")}
    scaled = {"replicas": 0, "selector": selector, "template": template}
    for plural, kind, spec in (
        ("deployments", "Deployment", scaled),
        ("replicasets", "ReplicaSet", scaled),
        ("statefulsets", "StatefulSet", {**scaled, "serviceName": "s"}),
    ):
        resource = Resource("apps", "v1", plural, kind, namespaced=True)
        owner = await world.create(resource, plural, spec=spec)
        await pod(world, f"of-{plural}", "0", **owned(kind, "apps/v1", owner))
    crons = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True)
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pod_spec()}}}}
    cron = await world.create(crons, "cron", spec=spec)
    await job(world, "of-cron", "0", **owned("CronJob", "batch/v1", cron))
    parent = await world.get(kinds.JOBS, "long")
    await pod(world, "of-job", "0", **owned("Job", "batch/v1", parent))


def request_definition() -> Obj:
    """The public shape of a ProvisioningRequest, loosely."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "group": REQUESTS.group,
        "scope": "Namespaced",
        "names": {"plural": REQUESTS.plural, "kind": REQUESTS.kind},
        "versions": [
            {
                "name": REQUESTS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": loose, "status": loose},
                    }
                },
            }
        ],
    }


async def name_is_taken(world: World, name: str) -> None:
    """Somebody else's request has the name; the job of a held queue is let go until it is gone."""

    async def made() -> Obj:
        return await world.workload(name)

    workload = await world.until(made, f"{name} has no Workload")
    taken = f"{workload['metadata']['name']}-nodes-1"
    await world.create(REQUESTS, taken, spec={"provisioningClassName": "theirs"})
    go = {"spec": {"stopPolicy": "None"}}
    await world.client.patch(kinds.CLUSTER_QUEUES, ObjectKey("", name), go, PatchType.MERGE)
    await world.uses((REQUESTS.group, REQUESTS.plural, "get"))
    await world.delete(REQUESTS, taken)


async def written_at_the_same_time(world: World) -> None:
    """Others change and delete what the manager writes: it looks at the object again."""
    for resource, namespace, spec in (
        (kinds.ADMISSION_CHECKS, "", {"controllerName": "example.com/busy"}),
        (kinds.CLUSTER_QUEUES, "", {"namespaceSelector": {}}),
        (kinds.RESOURCE_FLAVORS, "", {}),
        (kinds.TOPOLOGIES, "", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        (kinds.PODS, "default", pod_spec()),
    ):
        async with asyncio.timeout(WAIT):
            for number in itertools.count():
                name, labels = f"busy-{number}", {QUEUE: "main"} if namespace else {}
                await world.create(resource, name, metadata={"labels": labels}, spec=spec)
                await edited(world, resource, ObjectKey(namespace, name))
                if (resource.group, resource.plural, "get") in world.seen()[0]:
                    break


async def edited(world: World, resource: Resource, key: ObjectKey) -> None:
    """Changes an object's finalizers and labels while it comes, and while it goes."""
    with contextlib.suppress(NotFound):
        for change in range(50):
            finalizers = (await world.client.get(resource, key))["metadata"].get("finalizers", [])
            metadata: Obj = {"labels": {"change": str(change)}}
            if change < 5:
                metadata["finalizers"] = [f"example.com/{change}", *finalizers]
            if change == 5:
                await world.client.delete(resource, key, grace_period=0)
            if change >= 5 and finalizers:
                metadata["finalizers"] = finalizers[1:]
            with contextlib.suppress(Conflict, Invalid):
                await world.client.patch(resource, key, {"metadata": metadata}, PatchType.MERGE)


async def happens_again(world: World) -> None:
    """A Job is admitted, stopped by its user, and admitted again: the same event twice."""
    await job(world, "again")
    for active in (False, True):
        await world.admitted("again")
        workload = await world.workload("again")
        key = ObjectKey("default", workload["metadata"]["name"])
        body = {"spec": {"active": active}}
        await world.client.patch(kinds.WORKLOADS, key, body, PatchType.MERGE)
        if not active:

            async def stopped() -> bool:
                return not is_true(await world.workload("again"), "Admitted")

            await world.until(stopped, "the job is not stopped")
            await world.client.patch(
                kinds.WORKLOADS, key, {"spec": {"active": True}}, PatchType.MERGE
            )
    await world.uses(("", "events", "patch"))


async def start_time_is_removed(world: World) -> None:
    """The controller of a Job leaves its start time when it is stopped, unlike that of today."""
    name, since = "theirs", "2026-01-01T00:00:00Z"
    spec = {"managedBy": "example.com/job-controller", "template": {"spec": pod_spec()}}
    await world.create(kinds.JOBS, name, metadata={"labels": {QUEUE: "main"}}, spec=spec)

    async def report(**status: Any) -> None:
        key, body = ObjectKey("default", name), {"status": status}
        await world.client.patch(kinds.JOBS, key, body, PatchType.MERGE, subresource="status")

    async def suspended() -> bool:
        return (await world.get(kinds.JOBS, name))["spec"]["suspend"] is True

    await world.admitted(name)
    await report(startTime=since)
    workload = ObjectKey("default", (await world.workload(name))["metadata"]["name"])
    body = {"spec": {"active": False}}
    await world.client.patch(kinds.WORKLOADS, workload, body, PatchType.MERGE)
    await world.until(suspended, "the job is not stopped")
    seen = {"type": "Suspended", "status": "True", "lastTransitionTime": since}
    await report(conditions=[{**seen, "lastProbeTime": since, "reason": "JobSuspended"}])
    await world.uses(("batch", "jobs/status", "patch"))


async def nodes_are_requested(world: World) -> None:
    """A job of a queue with the check for ProvisioningRequests, which is suspended again."""
    name = f"{REQUESTS.plural}.{REQUESTS.group}"
    await world.create(kinds.CRDS, name, spec=request_definition())
    config = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}
    await world.create(kinds.PROVISIONING_REQUEST_CONFIGS, "nodes", spec=config)
    parameters = {
        "apiGroup": "kueue.x-k8s.io",
        "kind": "ProvisioningRequestConfig",
        "name": "nodes",
    }
    controller = "kueue.x-k8s.io/provisioning-request"
    await world.create(
        kinds.ADMISSION_CHECKS,
        "nodes",
        spec={"controllerName": controller, "parameters": parameters},
    )
    spec = {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}}
    await queue(world, "slow", **spec, stopPolicy="Hold")
    await job(world, "slow", labels={QUEUE: "slow"})
    await name_is_taken(world, "slow")

    async def asked() -> Any:
        return (await world.client.list(REQUESTS, "default")).items

    (request,) = await world.until(asked, "nothing is requested")
    assert blocked(request) == {("kueue.x-k8s.io", "Workload")}

    async def made() -> Any:
        return (await world.client.list(TEMPLATES, "default")).items

    templates = await world.until(made, "no template is made")
    assert {one for obj in templates for one in blocked(obj)} == {(REQUESTS.group, REQUESTS.kind)}
    workload = await world.workload("slow")
    key = ObjectKey("default", workload["metadata"]["name"])
    off = {"spec": {"active": False}}
    await world.client.patch(kinds.WORKLOADS, key, off, PatchType.MERGE)
    await world.gone(REQUESTS, request["metadata"]["name"])


async def only_pods(world: World) -> None:
    """Without Jobs of its own, the manager looks whether the owner of a Pod is one."""
    await world.create(
        kinds.JOBS, "foreign", spec={"suspend": True, "template": {"spec": pod_spec()}}
    )
    parent = await world.get(kinds.JOBS, "foreign")
    await pod(world, "of-foreign", "0", **owned("Job", "batch/v1", parent))
    await world.uses(("batch", "jobs", "get"))


async def running_pod_is_stopped(world: World) -> None:
    """A Pod of its own whose Workload is deactivated while it runs."""
    await pod(world, "halted")
    await world.admitted("halted")

    async def runs() -> bool:
        return (await world.get(kinds.PODS, "halted"))["status"].get("phase") == "Running"

    await world.until(runs, "the pod does not run")
    workload = await world.workload("halted")
    assert blocked(workload) == {("", "Pod")}
    key = ObjectKey("default", workload["metadata"]["name"])
    off = {"spec": {"active": False}}
    await world.client.patch(kinds.WORKLOADS, key, off, PatchType.MERGE)
    await world.gone(kinds.PODS, "halted")


async def nodes_are_read(world: World) -> None:
    """A flavor names a topology, and a pod of a placed job waits for a node that it may not use."""
    await world.create(kinds.TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": HOST}]})
    pool = {"example.com/pool": "a"}
    spec = {"topologyName": "hosts", "nodeLabels": pool}
    await world.create(kinds.RESOURCE_FLAVORS, "hosts", spec=spec)
    await world.uses(("", "nodes", "watch"))
    await world.create(kinds.NODES, "host", metadata={"labels": {HOST: "host", **pool}})
    ready = {"type": "Ready", "status": "True", "reason": "Played", "message": "played"}
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    room = {"cpu": "8", "pods": "9"}
    status = {"conditions": [{**ready, **times}], "capacity": room, "allocatable": room}
    node, body = ObjectKey("", "host"), {"status": status}
    await world.client.patch(kinds.NODES, node, body, PatchType.MERGE, subresource="status")
    await world.client.patch(kinds.NODES, node, {"spec": {"taints": None}}, PatchType.MERGE)
    spec = {"namespaceSelector": {}, "resourceGroups": [group("hosts", "10")]}
    await world.create(kinds.CLUSTER_QUEUES, "hosts", spec=spec)
    await world.create(kinds.LOCAL_QUEUES, "hosts", spec={"clusterQueue": "hosts"})
    await job(world, "placed", labels={QUEUE: "hosts"})
    await world.admitted("placed")
    meta = {
        "labels": {POD_SET_LABEL: "main"},
        "annotations": {WORKLOAD_ANNOTATION: (await world.workload("placed"))["metadata"]["name"]},
    }
    await world.create(kinds.PODS, "lost", metadata=meta, spec=pod_spec(nodeSelector={HOST: "x"}))
    await world.uses(("", "pods/status", "patch"))


async def everything(world: World) -> None:
    """The life of Jobs, Pods, groups, nodes on request, checks of others, and the end of queues."""
    await job(world, "short", "0")
    await job(world, "long")
    await world.admitted("long")
    assert blocked(await world.workload("long")) == {("batch", "Job")}
    await pod(world, "alone", "0")
    await running_pod_is_stopped(world)
    for number in range(3):
        labels, notes = {GROUP: "g"}, {TOTAL: "2"}
        await pod(world, f"g{number}", labels=labels, annotations=notes)
    await children(world)
    await world.create(
        kinds.ADMISSION_CHECKS, "other", spec={"controllerName": "example.com/other"}
    )
    await happens_again(world)
    await start_time_is_removed(world)
    await written_at_the_same_time(world)
    await job(world, "late", labels={QUEUE: "main", MAX_EXECUTION_LABEL: "1"})
    await nodes_are_requested(world)
    await nodes_are_read(world)
    await world.gone(kinds.JOBS, "late")
    for resource, name in (
        (kinds.LOCAL_QUEUES, "main"),
        (kinds.CLUSTER_QUEUES, "slow"),
        (kinds.RESOURCE_FLAVORS, "slow"),
        (kinds.ADMISSION_CHECKS, "nodes"),
    ):
        await world.delete(resource, name)
        await world.gone(resource, name)
    await world.uses(("coordination.k8s.io", "leases", "list"))


async def metrics_are_read(world: World, port: int) -> None:
    """Only those who may get `/metrics` can."""
    reader = await token(world.client)
    url, headers = f"https://127.0.0.1:{port}/metrics", {"Authorization": f"Bearer {reader}"}
    async with httpx.AsyncClient(verify=False, trust_env=False) as http:
        assert (await http.get(url)).status_code == 401
        refused = await http.get(url, headers=headers)
        assert refused.status_code == 403, refused.text
        assert 'cannot get path "/metrics"' in refused.text
        rbac = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}
        await world.create(
            Resource(rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
            "reader",
            roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": METRICS_READER_ROLE},
            subjects=[subject],
        )

        async def read() -> bool:
            return "kueue_pending_workloads" in (await http.get(url, headers=headers)).text

        await world.until(read, "the metrics are not served")


BLOCKED = (kinds.PODS, kinds.JOBS, kinds.WORKLOADS, REQUESTS)
"""The owners whose deletion the manager's objects block."""


def finalizers_of(owner: Resource) -> Right:
    """What a cluster with OwnerReferencesPermissionEnforcement asks for then."""
    return owner.group, f"{owner.plural}/finalizers", "update"


def blocked(obj: Obj) -> set[tuple[str, str]]:
    """Group and kind of the owners whose deletion an object blocks."""
    return {
        (one["apiVersion"].rpartition("/")[0], one["kind"])
        for one in obj["metadata"].get("ownerReferences") or ()
        if one.get("blockOwnerDeletion")
    }


UNSEEN: dict[Right, str] = {
    **{
        finalizers_of(owner): "see `needs_rights_over_owners`, for servers that ask for it"
        for owner in BLOCKED
    },
}
"""Rights that only a server with that plug-in asks for, and where that is tested."""


async def needs_all(world: World) -> None:
    """The manager may do what it does, and uses every right that is not in `UNSEEN`."""
    secret = ObjectKey(NAMESPACE, "kueue-webhook-server-cert")
    with contextlib.suppress(NotFound):
        await world.client.delete(kinds.SECRETS, secret)
    port = free_port()
    async with world.running(["pod", "ray.io/raycluster"], port):
        await queues(world)
        await only_pods(world)
    await world.client.patch(kinds.SECRETS, secret, {"data": None}, PatchType.MERGE)
    rights = granted(Installation(NAMESPACE).foundation())
    async with world.running(["batch/job", "pod"], port):
        await metrics_are_read(world, port)
        await everything(world)
        for right in sorted(rights - UNSEEN.keys()):
            await world.uses(right)
    used, denied = world.seen()
    assert denied == set()
    assert used <= rights
    assert UNSEEN.keys() <= rights


async def needs_rights_over_owners(world: World, own: Client) -> None:
    """Without any one of these rights, an object that blocks its owner's deletion is refused.

    Args:
        world: a server with OwnerReferencesPermissionEnforcement.
        own: a client with the manager's rights.
    """
    rbac = "rbac.authorization.k8s.io"
    roles = Resource(rbac, "v1", "clusterroles", "ClusterRole", namespaced=False)

    async def may(owner: Resource) -> bool:
        head = {"apiVersion": owner.api_version, "kind": owner.kind, "name": "o", "uid": "u"}
        reference = {**head, "controller": True, "blockOwnerDeletion": True}
        meta = {"name": "l", "namespace": NAMESPACE, "ownerReferences": [reference]}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        try:
            await own.create(kinds.LEASES, lease, dry_run=True)
        except Forbidden as error:
            if "cannot set blockOwnerDeletion" not in str(error):
                raise
            return False
        return True

    for owner in BLOCKED:
        group, resource, _ = finalizers_of(owner)
        assert await may(owner)
        for role in (await world.client.list(roles)).items:
            rules = [
                {**rule, "resources": [one for one in rule["resources"] if one != resource]}
                if group in rule.get("apiGroups", ()) and resource in rule.get("resources", ())
                else rule
                for rule in role.get("rules") or ()
            ]
            if rules != (role.get("rules") or []) and role["metadata"]["name"].startswith("kueue-"):
                rules = [rule for rule in rules if rule.get("resources") != []]
                body = {"rules": rules}
                key = ObjectKey("", role["metadata"]["name"])
                await world.client.patch(roles, key, body, PatchType.MERGE)

        async def refused(owner: Resource = owner) -> bool:
            return not await may(owner)

        await world.until(refused, f"{finalizers_of(owner)} is not needed")
