"""Who manages what the parts of the cluster write: the programs that they stand for."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import EVENTS, JOBS, LEASES, NODES, PODS, STATEFUL_SETS
from kueuelib.embedded.verbs import WriteOptions

CONTROLLERS = ("kube-controller-manager", "Update", "")
CONTROLLERS_STATUS = ("kube-controller-manager", "Update", "status")
KUBELET = ("kubelet", "Update", "")
KUBELET_STATUS = ("kubelet", "Update", "status")
SCHEDULER_STATUS = ("kube-scheduler", "Update", "status")
USER = ("user", "Update", "")
CONTAINERS = [{"name": "c", "image": "i"}]


def managers(obj):
    """The managed fields by manager, operation and subresource."""
    return {
        (each["manager"], each["operation"], each.get("subresource", "")): each["fieldsV1"]
        for each in obj["metadata"].get("managedFields", ())
    }


@pytest.fixture
async def made(sandbox):
    """Makes an object in the name of a user; all that the cluster makes of it is done then."""

    async def make(resource, name, **fields):
        meta = {"name": name, "namespace": "default"} if resource.namespaced else {"name": name}
        obj = {**resource.new(name), "metadata": meta, **fields}
        await sandbox.service.create(resource, obj, options=WriteOptions(field_manager="user"))
        await sandbox.settle()
        return await sandbox.get(resource, name) if resource.namespaced else None

    return make


async def test_a_job_and_its_pods(sandbox, made):
    meta = {"annotations": {"kueuelib.dev/run-seconds": "1"}}
    spec = {"restartPolicy": "Never", "containers": CONTAINERS}
    job = await made(JOBS, "job", spec={"template": {"metadata": meta, "spec": spec}})
    assert managers(job).keys() == {USER, CONTROLLERS_STATUS}
    assert managers(job)[CONTROLLERS_STATUS].keys() == {"f:status"}
    await sandbox.pass_time(2)
    (pod,) = (await sandbox.service.list(PODS)).items
    found = managers(pod)
    assert found.keys() == {CONTROLLERS, KUBELET_STATUS}
    assert found[CONTROLLERS].keys() == {"f:metadata", "f:spec"}
    status = found[KUBELET_STATUS]["f:status"]
    assert {"f:phase", "f:containerStatuses", "f:podIP", "f:startTime"} <= status.keys()
    assert 'k:{"type":"Ready"}' in status["f:conditions"]
    assert 'k:{"type":"PodScheduled"}' not in status["f:conditions"]  # a binding is nobody's


async def test_a_stateful_set_and_its_pods(sandbox, made):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s", "template": template}
    found = await made(STATEFUL_SETS, "set", spec=spec)
    assert managers(found).keys() == {USER, CONTROLLERS_STATUS}
    (pod,) = (await sandbox.service.list(PODS)).items
    assert managers(pod).keys() == {CONTROLLERS, KUBELET_STATUS}


async def test_a_pod_that_fits_nowhere(made):
    found = await made(PODS, "pod", spec={"containers": CONTAINERS, "nodeSelector": {"a": "b"}})
    assert managers(found).keys() == {USER, SCHEDULER_STATUS}
    conditions = managers(found)[SCHEDULER_STATUS]["f:status"]["f:conditions"]
    assert conditions.keys() == {".", 'k:{"type":"PodScheduled"}'}


async def test_events_are_those_of_who_tells_them(sandbox, made):
    await made(PODS, "pod", spec={"containers": CONTAINERS})
    await sandbox.job()
    told = {
        each["source"]["component"]: list(managers(each))
        for each in (await sandbox.service.list(EVENTS)).items
    }
    assert told == {
        "default-scheduler": [("kube-scheduler", "Update", "")],
        "job-controller": [CONTROLLERS],
    }


async def test_nodes_and_their_leases(sandbox, made):
    for resource in (NODES, LEASES):
        for each in (await sandbox.service.list(resource)).items:
            assert managers(each).keys() == {KUBELET}
    labels = {"labels": {"kueuelib.dev/simulated": "true"}}
    await made(NODES, "ill", spec={"unschedulable": True})
    await sandbox.service.create(
        NODES,
        {**NODES.new("own"), "metadata": {"name": "own", **labels}},
        options=WriteOptions(field_manager="user"),
    )
    await sandbox.settle()
    nodes = {each["metadata"]["name"]: each for each in (await sandbox.service.list(NODES)).items}
    assert managers(nodes["own"]).keys() == {USER, KUBELET_STATUS}
    assert managers(nodes["ill"])[CONTROLLERS] == {"f:spec": {"f:taints": {}}}
