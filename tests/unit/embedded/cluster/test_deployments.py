"""Deployments, ReplicaSets, and what stands behind Services."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kueuelib.api.kinds import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    LIMIT_RANGES,
    PODS,
    REPLICA_SETS,
    SERVICES,
)
from kueuelib.api.meta import find_condition
from kueuelib.embedded.cluster.services import MOST_IN_SLICE, endpoints_of, plan_slices

Obj = dict[str, Any]
LABELS = {"app": "web"}
PORT = {"name": "http", "containerPort": 8080}


def template(image: str = "i:1", **pod: Any) -> Obj:
    container = {"name": "c", "image": image, "ports": [PORT]}
    container["resources"] = {"requests": {"cpu": "1"}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5, **pod}
    return {"metadata": {"labels": LABELS}, "spec": spec}


def deployment(name: str = "web", image: str = "i:1", **spec: Any) -> Obj:
    wanted = {"selector": {"matchLabels": LABELS}, "template": template(image), **spec}
    return {**DEPLOYMENTS.new(name), "metadata": meta(name), "spec": wanted}


def meta(name: str, **fields: Any) -> Obj:
    return {"name": name, "namespace": "default", **fields}


class Web:
    """A Deployment and what belongs to it."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox = sandbox

    async def create(self, **spec: Any) -> None:
        await self.sandbox.create(DEPLOYMENTS, deployment(**spec))

    async def edit(self, **spec: Any) -> None:
        await self.sandbox.patch(DEPLOYMENTS, "web", {"spec": spec})

    async def image(self, image: str, **pod: Any) -> None:
        await self.edit(template=template(image, **pod))

    async def status(self) -> Obj:
        return (await self.sandbox.get(DEPLOYMENTS, "web"))["status"]

    async def reason(self, type_: str) -> str:
        found = find_condition((await self.status()).get("conditions"), type_)
        return found.get("reason", "")

    async def sets(self) -> dict[str, Obj]:
        """The ReplicaSets by image."""
        found = (await self.sandbox.service.list(REPLICA_SETS)).items
        return {each["spec"]["template"]["spec"]["containers"][0]["image"]: each for each in found}

    async def sizes(self) -> dict[str, int]:
        return {image: each["spec"]["replicas"] for image, each in (await self.sets()).items()}

    async def running(self) -> dict[str, int]:
        """Pods by image that are not being deleted."""
        pods = [pod for pod in await self.sandbox.pods() if pod["status"]["phase"] == "Running"]
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return Counter(pod["spec"]["containers"][0]["image"] for pod in alive)


@pytest.fixture
def web(sandbox) -> Web:
    return Web(sandbox)


async def test_a_rollout_replaces_all_pods_and_can_be_undone(web, sandbox):
    await web.create(replicas=3, revisionHistoryLimit=1)
    status = await web.status()
    counts = {"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"}
    assert {status[name] for name in counts} == {3}
    assert await web.reason("Progressing") == "NewReplicaSetAvailable"
    assert await web.reason("Available") == "MinimumReplicasAvailable"
    (first,) = (await web.sets()).values()
    value = first["metadata"]["labels"]["pod-template-hash"]
    assert first["metadata"]["name"] == f"web-{value}"
    assert first["spec"]["selector"]["matchLabels"] == {**LABELS, "pod-template-hash": value}
    for pod in await sandbox.pods():
        assert pod["metadata"]["labels"] == {**LABELS, "pod-template-hash": value}

    await web.image("i:2")
    assert (await web.sizes(), await web.running()) == ({"i:1": 0, "i:2": 3}, {"i:2": 3})
    assert (await web.status())["terminatingReplicas"] == 3
    await web.image("i:1")
    assert await web.sizes() == {"i:1": 3, "i:2": 0}
    notes = (await web.sets())["i:1"]["metadata"]["annotations"]
    assert notes["deployment.kubernetes.io/revision"] == "3"
    assert notes["deployment.kubernetes.io/revision-history"] == "1"
    notes = (await sandbox.get(DEPLOYMENTS, "web"))["metadata"]["annotations"]
    assert notes == {"deployment.kubernetes.io/revision": "3"}
    await web.image("i:3")
    assert await web.sizes() == {"i:1": 0, "i:3": 3}, "only one old one is kept"
    said = [each["message"] for each in (await sandbox.service.list(EVENTS)).items]
    assert f"Scaled up replica set web-{value} from 0 to 3" in said
    await sandbox.delete(DEPLOYMENTS, "web")
    await sandbox.pass_time(6)
    assert (await web.sets(), await sandbox.pods()) == ({}, [])


async def test_a_template_that_never_works_leaves_enough_of_the_old_one(web, sandbox):
    strategy = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": "30%"}}
    await web.create(replicas=10, strategy=strategy, progressDeadlineSeconds=60)
    await web.image("i:2", nodeSelector={"no": "where"})
    assert await web.sizes() == {"i:1": 7, "i:2": 5}
    assert await web.reason("Progressing") == "ReplicaSetUpdated"
    await web.edit(replicas=20)
    assert await web.sizes() == {"i:1": 13, "i:2": 9}, "each grows by its share"
    await web.edit(replicas=10)
    sizes = await web.sizes()
    assert sum(sizes.values()) == 12
    await sandbox.cluster.pass_time(sandbox.clock, 90)
    assert await web.reason("Progressing") == "ProgressDeadlineExceeded"
    await web.edit(paused=True)
    await web.edit(replicas=5)
    assert sum((await web.sizes()).values()) == 7
    await web.image("i:3", nodeSelector=None)
    assert "i:3" not in await web.sizes(), "a pause holds the rollout"
    await web.edit(paused=False)
    assert await web.running() == {"i:3": 5}
    assert await web.reason("Progressing") == "NewReplicaSetAvailable"


async def test_recreate_waits_until_old_pods_have_ended(web, sandbox):
    await web.create(replicas=2, strategy={"type": "Recreate", "rollingUpdate": None})
    await web.image("i:2")
    assert await web.sizes() == {"i:1": 0}
    assert await web.reason("Available") == "MinimumReplicasUnavailable"
    await sandbox.pass_time(6)
    assert await web.running() == {"i:2": 2}


async def test_a_pod_is_available_some_time_after_it_is_ready(web, sandbox):
    await web.create(replicas=1, minReadySeconds=30)
    assert (await web.status())["readyReplicas"] == 1
    assert "availableReplicas" not in await web.status()
    await sandbox.cluster.pass_time(sandbox.clock, 31)
    assert (await web.status())["availableReplicas"] == 1
    await web.edit(minReadySeconds=7)
    assert (await web.sets())["i:1"]["spec"]["minReadySeconds"] == 7


async def test_pods_that_are_refused_are_a_condition(web, sandbox):
    limits = {"limits": [{"type": "Container", "max": {"cpu": "500m"}}]}
    stored = await sandbox.create(
        LIMIT_RANGES, {**LIMIT_RANGES.new("l"), "metadata": meta("l"), "spec": limits}
    )
    await web.create(replicas=2)
    (found,) = (await web.sets()).values()
    assert find_condition(found["status"]["conditions"], "ReplicaFailure")["status"] == "True"
    assert await web.reason("ReplicaFailure") == "FailedCreate"
    await sandbox.delete(LIMIT_RANGES, stored["metadata"]["name"])
    await sandbox.cluster.pass_time(sandbox.clock, 10)
    assert await web.running() == {"i:1": 2}
    assert await web.reason("ReplicaFailure") == ""


async def test_pods_that_end_are_replaced_ever_later(web, sandbox):
    await web.create(replicas=1)
    for expected in ({"i:1": 1}, {}, {}):
        (pod,) = [pod for pod in await sandbox.pods() if pod["status"]["phase"] == "Running"]
        await sandbox.finish(pod)
        assert await web.running() == expected
        await sandbox.cluster.pass_time(sandbox.clock, 60)
        assert await web.running() == {"i:1": 1}
    (found,) = (await web.sets()).values()
    assert found["status"]["replicas"] == 1


async def test_orphans_are_adopted_and_others_released(web, sandbox):
    pod = {**PODS.new("own"), **template(), "metadata": meta("own", labels=LABELS)}
    await sandbox.create(PODS, pod)
    await web.create(replicas=2)
    assert await web.running() == {"i:1": 3}, "it has no hash"
    pods = await sandbox.pods()
    (found,) = (await web.sets()).values()
    labels = {"labels": found["metadata"]["labels"]}
    await sandbox.patch(PODS, "own", {"metadata": labels})
    owned = [pod for pod in await sandbox.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert len(owned) == 2, "with it, it is one of two"
    (first, *_) = [pod for pod in owned if pod["metadata"]["name"] != "own"] or pods
    name = first["metadata"]["name"]
    await sandbox.patch(PODS, name, {"metadata": {"labels": {"app": "debugged"}}})
    assert "ownerReferences" not in (await sandbox.get(PODS, name))["metadata"]
    assert (await web.status())["replicas"] == 2

    unlabelled = {"metadata": {"labels": {"app": None}}}
    await sandbox.patch(REPLICA_SETS, found["metadata"]["name"], unlabelled)
    assert (await web.status()).get("collisionCount") == 1, "the name is taken by the one released"
    status = await web.status()
    assert status["replicas"] == status["updatedReplicas"] == 2


async def test_as_many_pods_as_the_cluster_takes(sandbox):
    await sandbox.cluster.close()
    async with sandbox.restarted(pod_limit=4).cluster as cluster:
        sandbox.cluster = cluster
        await sandbox.create(DEPLOYMENTS, deployment(replicas=2**31 - 1))
        assert len(await sandbox.pods()) == 4


# ---- what stands behind Services


def service(**spec: Any) -> Obj:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    spec = {"selector": LABELS, "ports": ports, **spec}
    return {**SERVICES.new("web"), "metadata": meta("web", labels={"team": "a"}), "spec": spec}


async def behind(sandbox) -> tuple[list[Obj], Obj]:
    """The slices of the Service, and its Endpoints."""
    slices = (await sandbox.service.list(ENDPOINT_SLICES)).items
    return slices, await sandbox.get(ENDPOINTS, "web")


def states(found: Obj) -> list[tuple[bool, ...]]:
    conditions = [each["conditions"] for each in found["endpoints"] or ()]
    return sorted((each["ready"], each["serving"], each["terminating"]) for each in conditions)


async def not_ready(sandbox, pod: Obj) -> None:
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    await sandbox.patch(PODS, pod["metadata"]["name"], {"status": status}, "status")


async def test_endpoints_follow_pods(web, sandbox):
    await sandbox.create(SERVICES, service())
    (empty,), endpoints = await behind(sandbox)
    assert (empty["endpoints"] or [], empty["ports"] or []) == ([], [])
    assert not endpoints.get("subsets")
    await web.create(replicas=3)
    (found,), endpoints = await behind(sandbox)
    assert found["metadata"]["uid"] == empty["metadata"]["uid"], "it is used again"
    assert found["metadata"]["labels"] == {
        "team": "a",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    (subset,) = endpoints["subsets"]
    assert (len(subset["addresses"]), subset["ports"]) == (3, found["ports"])
    first, second, _ = await sandbox.pods()
    await not_ready(sandbox, first)
    await sandbox.delete(PODS, second["metadata"]["name"])
    (found,), endpoints = await behind(sandbox)
    assert states(found) == [
        (False, False, False),
        (False, True, True),
        (True, True, False),
        (True, True, False),
    ]
    (subset,) = endpoints["subsets"]
    assert (len(subset["addresses"]), len(subset["notReadyAddresses"])) == (2, 1)
    await sandbox.patch(SERVICES, "web", {"spec": {"publishNotReadyAddresses": True}})
    (found,), endpoints = await behind(sandbox)
    assert {ready for ready, *_ in states(found)} == {True}
    assert len(endpoints["subsets"][0]["addresses"]) == 4
    await sandbox.delete(ENDPOINTS, "web")
    await sandbox.delete(ENDPOINT_SLICES, found["metadata"]["name"])
    (found,), endpoints = await behind(sandbox)
    assert len(found["endpoints"]) == len(endpoints["subsets"][0]["addresses"]) == 4
    await sandbox.delete(SERVICES, "web")
    assert (await sandbox.service.list(ENDPOINT_SLICES)).items == ()
    assert not await sandbox.exists(ENDPOINTS, "web")


async def test_names_behind_a_headless_service(sandbox):
    headless = service(clusterIP="None", ports=None)
    await sandbox.create(SERVICES, headless)
    pod = {**PODS.new("p"), **template(hostname="h", subdomain="web")}
    await sandbox.create(PODS, {**pod, "metadata": meta("p", labels=LABELS)})
    (found,), endpoints = await behind(sandbox)
    for each in (found, endpoints):
        assert each["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert found["endpoints"][0]["hostname"] == "h"
    assert endpoints["subsets"][0]["addresses"][0]["hostname"] == "h"
    assert not endpoints["subsets"][0].get("ports")


def pods(count: int, **ports: int) -> list[Obj]:
    def one(number: int) -> Obj:
        ip = f"10.0.{number >> 8}.{number & 255}"
        own = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "labels": LABELS}
        named = [{"name": name, "containerPort": port} for name, port in ports.items()]
        containers = [{"name": "c", "ports": [{**each, "protocol": "TCP"} for each in named]}]
        ready = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIPs": [{"ip": ip}], "conditions": ready}
        spec = {"nodeName": "n", "containers": containers}
        return {"metadata": own, "spec": spec, "status": status}

    return [one(number) for number in range(count)]


def test_slices_are_filled_with_few_writes():
    found = service()
    found["metadata"]["uid"] = "s"
    found["spec"]["ports"][0]["protocol"] = "TCP"
    many, zones = pods(250, http=80), {"n": "z"}
    step = plan_slices(found, many, zones, [])
    assert [len(each["endpoints"]) for each in step.create] == [100, 100, 50]
    assert step.create[0]["endpoints"][0]["zone"] == "z"
    present = [
        {**each, "metadata": {**each["metadata"], "name": f"s{number}"}}
        for number, each in enumerate(step.create)
    ]
    assert plan_slices(found, many, zones, present) == type(step)()
    fewer = plan_slices(found, many[1:150], zones, present)
    assert [len(each["endpoints"]) for each in fewer.update] == [99, 50]
    assert [each["metadata"]["name"] for each in fewer.delete] == ["s2"]
    more = plan_slices(found, [*many, *pods(251, http=80)[250:]], zones, present)
    assert [len(each["endpoints"]) for each in more.update] == [51], "one write"
    assert (more.create, more.delete) == ((), ())
    assert len(present[0]["endpoints"]) == MOST_IN_SLICE

    other = [*many[:1], *[each for each in pods(2, http=81) if each["metadata"]["uid"] == "u1"]]
    both = plan_slices(found, other, zones, [])
    assert sorted(each["ports"][0]["port"] for each in both.create) == [80, 81]
    assert plan_slices(found, many, {}, []).create[0]["endpoints"] == [], "no node is known"


def test_endpoints_hold_a_thousand_addresses():
    found = service()
    found["spec"]["ports"][0]["protocol"] = "TCP"
    endpoints = endpoints_of(found, pods(1001, http=80), None)
    assert endpoints is not None
    (subset,) = endpoints["subsets"]
    assert len(subset["addresses"]) == 1000
    notes = endpoints["metadata"]["annotations"]
    assert notes == {"endpoints.kubernetes.io/over-capacity": "truncated"}
    assert endpoints_of(found, pods(1001, http=80), endpoints) is None
