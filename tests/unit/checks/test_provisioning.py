"""Nodes are asked for with the public API of the cluster autoscaler, which a stand-in obeys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kueuelib.api import kinds
from kueuelib.api.checks import ProvisioningRequestConfigSpec, ProvisioningRetryStrategy
from kueuelib.api.meta import Obj, ObjectKey, Resource, format_time, key_of
from kueuelib.api.names import MADE_FROM
from kueuelib.checks import Pending, Ready, Rejected
from kueuelib.checks.provisioning import CONTROLLER_NAME, decision, provisioning_check
from kueuelib.checks.provisioning.decision import (
    CONSUME,
    decide,
    fitting,
    updates,
    wanted,
)
from kueuelib.errors import NotFound
from kueuelib.runtime.queries import PatchType
from kueuelib.workload import states

if TYPE_CHECKING:
    from .conftest import Checks

REQUESTS = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
NOW = 1_700_000_000.0


def crd(version: str = "v1") -> Obj:
    """The public shape of the request: what, how, and for which pod templates."""
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {"type": "integer", "minimum": 1},
            "podTemplateRef": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "provisioningClassName": {"type": "string"},
            "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
            "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": pod_set},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{REQUESTS.plural}.{REQUESTS.group}"},
        "spec": {
            "group": REQUESTS.group,
            "scope": "Namespaced",
            "names": {
                "plural": REQUESTS.plural,
                "singular": "provisioningrequest",
                "kind": REQUESTS.kind,
                "listKind": "ProvisioningRequestList",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class Autoscaler:
    """Answers requests once their pod templates exist, as an autoscaler does.

    Args:
        client: of the cluster.
        answer: the condition that a request gets, None for none.
    """

    def __init__(self, client: Any, answer: Callable[[str], str | None]) -> None:
        self._client = client
        self._answer = answer
        self.templates: dict[str, Obj] = {}
        self.requests: dict[str, Obj] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(NotFound):
                for request in (await self._client.list(REQUESTS)).items:
                    await self._look(request)
            await asyncio.sleep(0.05)

    async def _look(self, request: Obj) -> None:
        self.requests[request["metadata"]["name"]] = request
        for pod_set in request["spec"]["podSets"]:
            name = pod_set["podTemplateRef"]["name"]
            key = ObjectKey(request["metadata"]["namespace"], name)
            self.templates[name] = await self._client.get(TEMPLATES, key)
        answer = self._answer(request["metadata"]["name"])
        if answer is not None and not (request.get("status") or {}).get("conditions"):
            await self.say(request, answer)

    async def say(self, request: Obj, type: str) -> None:
        time = format_time(asyncio.get_running_loop().time() + NOW)
        condition = {"type": type, "status": "True", "reason": type, "message": f"it is {type}"}
        body = {"status": {"conditions": [{**condition, "lastTransitionTime": time}]}}
        key = key_of(request)
        await self._client.patch(REQUESTS, key, body, PatchType.MERGE, subresource="status")


async def configure(checks: Checks, *, version: str = "v1", **spec: Any) -> None:
    if version:
        await checks.client.create(kinds.CRDS, crd(version))
    config = {"provisioningClassName": "check-capacity.example.com", **spec}
    await checks.world.create(kinds.PROVISIONING_REQUEST_CONFIGS, "nodes", config)
    ref = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "nodes"}
    await checks.admission_check("check", CONTROLLER_NAME, parameters=ref)
    await checks.queues("check")


async def names(checks: Checks, resource: Resource = REQUESTS) -> list[str]:
    found = await checks.client.list(resource, "default")
    return sorted(item["metadata"]["name"] for item in found.items)


async def test_a_workload_starts_when_its_nodes_are_there_and_its_pods_find_them(
    checks: Checks,
) -> None:
    scaler = Autoscaler(checks.client, lambda _: "Provisioned")
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}
    pods = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container]}}
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks, parameters={"zone": "a"})
        await checks.is_active("check", "True")
        pod_set = {"name": "main", "count": 1, "template": pods}
        await checks.world.workload("wl", podSets=[pod_set])
        await checks.world.is_("wl", "Admitted")
        entry = await checks.entry("wl")
        (update,) = entry["podSetUpdates"]
        assert [update["annotations"][name] for name in CONSUME] == ["wl-check-1"] * 2
        assert "wl-check-1" in await checks.event("wl", "ProvisioningRequestCreated")
        request = scaler.requests["wl-check-1"]
        assert request["spec"]["provisioningClassName"] == "check-capacity.example.com"
        assert request["spec"]["parameters"] == {"zone": "a"}
        (owner,) = request["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Workload", "wl")
        template = scaler.templates["ppt-wl-check-1-main"]["template"]
        assert template["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
        assert template["metadata"]["labels"] == {"app": "train"}, "affinity selects on them"

        await checks.world.delete(REQUESTS, "wl-check-1", "default")
        await checks.world.patch(
            kinds.ADMISSION_CHECKS, "check", {"metadata": {"labels": {"a": "b"}}}
        )
        await asyncio.sleep(0.3)
        assert states.is_admitted(await checks.get("wl"))
        assert not states.is_evicted(await checks.get("wl"))
        await checks.world.finish("wl")


async def test_the_kind_of_requests_may_be_installed_later_and_in_an_older_version(
    checks: Checks,
) -> None:
    async with checks.running(provisioning_check()):
        await configure(checks, version="")
        await checks.world.workload("wl")

        async def told() -> bool:
            return "is it installed?" in (await checks.entry("wl")).get("message", "")

        await checks.until(told)
        await checks.client.create(kinds.CRDS, crd("v1beta1"))

        async def asked() -> bool:
            with contextlib.suppress(NotFound):
                return await names(checks, REQUESTS.at("v1beta1")) == ["wl-check-1"]
            return False

        await checks.until(asked)


async def test_requests_are_taken_away_when_the_quota_is_lost(checks: Checks) -> None:
    scaler = Autoscaler(checks.client, lambda _: None)
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks)
        await checks.world.workload("wl")
        await checks.until(lambda: "wl-check-1" in scaler.requests)
        await checks.world.patch(kinds.CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})

        async def gone() -> bool:
            return await names(checks) == []

        await checks.until(gone)
        assert (await checks.entry("wl"))["state"] == "Pending"


async def test_a_template_that_is_not_its_own_is_waited_for(checks: Checks) -> None:
    scaler = Autoscaler(checks.client, lambda _: None)
    name = "ppt-wl-check-1-main"
    template = {"spec": {"containers": [{"name": "old", "image": "old"}]}}
    async with checks.running(provisioning_check()):
        await configure(checks)
        old = {"metadata": {"name": name, "namespace": "default"}, "template": template}
        await checks.client.create(TEMPLATES, {"apiVersion": "v1", "kind": "PodTemplate", **old})
        await checks.world.workload("wl")

        async def told() -> bool:
            return f"PodTemplate {name} " in (await checks.entry("wl"))["message"]

        await checks.until(told)
        await checks.world.delete(TEMPLATES, name, "default")
        async with scaler.running():
            await checks.until(lambda: name in scaler.templates)
    assert scaler.templates[name]["template"] != template


async def test_a_failed_request_is_followed_by_another_one_and_the_last_failure_rejects(
    checks: Checks,
) -> None:
    scaler = Autoscaler(checks.client, lambda name: "Failed")
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 0, "backoffMaxSeconds": 0}
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks, retryStrategy=retry)
        await checks.world.workload("wl")

        async def deactivated() -> bool:
            return (await checks.get("wl"))["spec"]["active"] is False

        await checks.until(deactivated)
        assert {*scaler.requests} == {"wl-check-1", "wl-check-2"}
        assert "it is Failed" in await checks.event("wl", "AdmissionCheckRejected")


async def test_a_second_request_may_succeed(checks: Checks) -> None:
    answers = {"wl-check-1": "Failed", "wl-check-2": "Provisioned"}
    scaler = Autoscaler(checks.client, answers.get)
    retry = {"backoffLimitCount": 3, "backoffBaseSeconds": 0, "backoffMaxSeconds": 0}
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks, retryStrategy=retry)
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        (update,) = (await checks.entry("wl"))["podSetUpdates"]
        assert update["annotations"][CONSUME[0]] == "wl-check-2"


async def test_whatever_becomes_of_the_request_of_a_running_job_it_runs_on(checks: Checks) -> None:
    answers = {"wl-check-1": "Failed", "wl-check-2": "Provisioned"}
    scaler = Autoscaler(checks.client, answers.get)
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 0, "backoffMaxSeconds": 0}
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks, retryStrategy=retry)
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        calls = 0
        deleted = ObjectKey("default", "wl-check-2")
        await checks.client.delete(REQUESTS, deleted, propagation="Background")
        failed = await checks.client.get(REQUESTS, ObjectKey("default", "wl-check-1"))
        while calls < 5:  # every change of a request asks again
            calls += 1
            await scaler.say(failed, "Failed")
            await scaler.say(failed, "BookingExpired")
            await asyncio.sleep(0.05)
        assert await names(checks) == ["wl-check-1"]
        assert (await checks.entry("wl"))["state"] == "Ready"
        assert (await checks.get("wl"))["spec"]["active"] is True


async def test_pods_are_sent_to_their_nodes_by_the_details_of_the_request(checks: Checks) -> None:
    scaler = Autoscaler(checks.client, lambda _: None)
    selector = [
        {"key": "example.com/booking", "valueFromProvisioningClassDetail": "RequestKey"},
        {"key": "example.com/zone", "valueFromProvisioningClassDetail": "Zone"},
    ]
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks, podSetUpdates={"nodeSelector": selector})
        await checks.world.workload("wl")
        await checks.until(lambda: "wl-check-1" in scaler.requests)
        details = {"status": {"provisioningClassDetails": {"RequestKey": "b-17"}}}
        key = ObjectKey("default", "wl-check-1")
        await checks.client.patch(REQUESTS, key, details, PatchType.MERGE, subresource="status")
        await scaler.say(scaler.requests["wl-check-1"], "Provisioned")
        entry = await checks.state("wl", "Ready")
        (update,) = entry["podSetUpdates"]
        assert update["nodeSelector"] == {"example.com/booking": "b-17"}
        assert "without the details Zone" in entry["message"]


async def test_a_changed_configuration_renews_the_request(checks: Checks) -> None:
    scaler = Autoscaler(checks.client, lambda _: None)
    async with checks.running(provisioning_check()), scaler.running():
        await configure(checks)
        await checks.world.workload("wl")
        await checks.until(lambda: "wl-check-1" in scaler.requests)
        spec = {"spec": {"provisioningClassName": "atomic-scale-up.example.com"}}
        await checks.world.patch(kinds.PROVISIONING_REQUEST_CONFIGS, "nodes", spec)

        async def renewed() -> bool:
            (request,) = (await checks.client.list(REQUESTS, "default")).items
            return request["spec"]["provisioningClassName"] == "atomic-scale-up.example.com"

        await checks.until(renewed)
        await checks.world.delete(kinds.PROVISIONING_REQUEST_CONFIGS, "nodes")
        await checks.is_active("check", "False", "does not exist")


async def test_pods_that_need_no_managed_resource_need_no_request(checks: Checks) -> None:
    async with checks.running(provisioning_check()):
        await configure(checks, managedResources=["example.com/gpu"])
        await checks.world.workload("wl")
        await checks.world.is_("wl", "Admitted")
        assert await names(checks) == []


# ---- the plan


def workload(**status: Any) -> Obj:
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    assignment = {"name": "main", "count": 2, "flavors": {"cpu": "f"}}
    admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    return {
        "metadata": {"name": "wl", "namespace": "ns", "uid": "u"},
        "spec": {"podSets": [{"name": "main", "count": 3, "template": template}]},
        "status": {"admission": admission, **status},
    }


def request(attempt: int = 1, *types: str, at: float = NOW, config: Any = None) -> Obj:
    want = wanted(workload(), "check", config or SPEC, attempt)[-1]
    refs = [
        {"podTemplateRef": {"name": want.template_of(one.name)}, "count": one.count}
        for one in want.pod_sets
    ]
    spec = {"provisioningClassName": want.class_name, "podSets": refs}
    since = format_time(at)
    conditions = [
        {"type": each, "status": "True", "message": each, "lastTransitionTime": since}
        for each in types
    ]
    return {"metadata": {"name": want.name}, "spec": spec, "status": {"conditions": conditions}}


SPEC = ProvisioningRequestConfigSpec("class")


def uses(name: str) -> Obj:
    """The entry of a workload whose pods were told to use the nodes of a request."""
    update = {"name": "main", "annotations": {CONSUME[0]: name}}
    entry = {"name": "check", "state": "Ready", "podSetUpdates": [update]}
    return {"admissionChecks": [entry]}


ADMITTED = {"conditions": [{"type": "Admitted", "status": "True"}]}


@pytest.mark.parametrize(
    ("requests", "status", "verdict", "created"),
    [
        ([], {}, Pending, 1),
        ([request()], {}, Pending, 1),
        ([request(1, "Provisioned")], {}, Ready, None),
        ([request(1, "Failed", at=NOW - 59)], {}, Pending, None),
        ([request(1, "Failed", at=NOW - 60)], {}, Pending, 2),
        ([request(1, "Failed"), request(2)], {}, Pending, 2),
        ([request(n, "Failed", at=NOW - 9999) for n in (1, 2, 3)], {}, Pending, 4),
        ([request(n, "Failed", at=NOW - 9999) for n in (1, 2, 3, 4)], {}, Rejected, None),
        ([request(1, "BookingExpired", at=NOW - 60)], {}, Pending, 2),
        ([request(1, "CapacityRevoked")], {}, Rejected, None),
        ([request(1, "CapacityRevoked", "Provisioned")], {}, Rejected, None),
        (
            [request(n, "Failed") for n in (1, 2, 3, 4)] + [request(5, "Provisioned")],
            {},
            Ready,
            None,
        ),
        ([request(n, "Failed") for n in (1, 2, 3, 4, 5)], {}, Rejected, None),
        ([request(1, "CapacityRevoked")], ADMITTED, Rejected, None),
        ([], ADMITTED, Ready, None),
        ([request(1, "Failed")], ADMITTED, Ready, None),
        ([request(1, "Failed", at=NOW - 9999)], ADMITTED, Ready, None),
        ([request(n, "Failed") for n in (1, 2, 3, 4)], ADMITTED, Ready, None),
        ([request(1, "BookingExpired", at=NOW - 9999)], ADMITTED, Ready, None),
        ([request(1, "CapacityRevoked")], {**ADMITTED, **uses("wl-check-2")}, Ready, None),
        (
            [request(1, "Failed"), request(2, "CapacityRevoked")],
            {**ADMITTED, **uses("wl-check-2")},
            Rejected,
            None,
        ),
    ],
)
def test_what_a_request_says_decides(
    requests: list[Obj], status: Obj, verdict: type, created: int | None
) -> None:
    found = decide(workload(**status), "check", SPEC, requests, NOW)
    assert isinstance(found.verdict, verdict), found
    assert (None if found.create is None else found.create.attempt) == created


def test_the_nodes_of_a_running_job_may_be_revoked_although_others_are_managed_now() -> None:
    spec = ProvisioningRequestConfigSpec("class", managed_resources=["example.com/tpu"])
    wl = workload(**ADMITTED, **uses("wl-check-1"))
    found = decide(wl, "check", spec, [request(1, "CapacityRevoked")], NOW)
    assert isinstance(found.verdict, Rejected)


def test_resources_of_a_whole_pod_may_be_managed() -> None:
    wl = workload()
    pod = {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "4"}}}
    wl["spec"]["podSets"][0]["template"] = {"spec": pod}
    for managed, asked in (["cpu"], 1), (["memory"], 0):
        spec = ProvisioningRequestConfigSpec("class", managed_resources=managed)
        assert len(wanted(wl, "check", spec, 1)[0].pod_sets) == asked


def test_the_pause_after_a_failure_doubles_up_to_its_limit() -> None:
    retry = ProvisioningRetryStrategy(9, 60, 200)
    spec = ProvisioningRequestConfigSpec("class", retry_strategy=retry)
    pauses = []
    for attempt in (1, 2, 3, 4):
        failed = [request(n, "Failed", config=spec) for n in range(1, attempt + 1)]
        verdict = decide(workload(), "check", spec, failed, NOW).verdict
        assert isinstance(verdict, Pending)
        pauses.append(verdict.again)
    assert pauses == [60, 120, 200, 200]


def test_what_asks_for_something_else_is_deleted_unless_it_runs() -> None:
    old = request(config=ProvisioningRequestConfigSpec("other"))
    assert decide(workload(), "check", SPEC, [old], NOW).delete == ("wl-check-1",)
    assert decide(workload(**ADMITTED), "check", SPEC, [old], NOW).delete == ()


def test_all_attempts_are_for_the_same_pods_which_are_compared_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests: list[Any] = []
    monkeypatch.setattr(decision, "digest_of", lambda pods: digests.append(pods) or "digest")
    first, second = wanted(workload(), "check", SPEC, 2)
    assert (first.name, second.name) == ("wl-check-1", "wl-check-2")
    assert attrs.evolve(first, name=second.name, attempt=2) == second
    decide(workload(), "check", SPEC, [], NOW)
    assert len(digests) == 2


def test_a_request_of_an_earlier_reservation_does_not_answer_for_other_pods_or_flavors() -> None:
    other_pods, other_flavors = workload(), workload()
    other_pods["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"zone": "new"}
    other_flavors["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "g"}
    made_from = wanted(workload(), "check", SPEC)[0].made_from
    old = request(1, "Provisioned")
    old["metadata"]["annotations"] = {MADE_FROM: made_from}
    assert isinstance(decide(workload(), "check", SPEC, [old], NOW).verdict, Ready)
    for changed in (other_pods, other_flavors):
        found = decide(changed, "check", SPEC, [old], NOW)
        assert isinstance(found.verdict, Pending)
        assert found.delete == ("wl-check-1",)


def test_a_request_that_is_being_deleted_answers_nothing() -> None:
    old = request(1, "Provisioned")
    old["metadata"]["deletionTimestamp"] = format_time(NOW)
    found = decide(workload(), "check", SPEC, [old], NOW)
    assert isinstance(found.verdict, Pending)
    assert (found.create, found.delete) == (None, ())


def test_parameters_of_the_workload_win_and_counts_are_those_of_the_admission() -> None:
    wl = workload()
    wl["metadata"]["annotations"] = {"provreq.kueue.x-k8s.io/zone": "b", "other": "x"}
    spec = ProvisioningRequestConfigSpec("class", {"zone": "a", "size": "1"})
    (found,) = wanted(wl, "check", spec)
    assert found.parameters == {"zone": "b", "size": "1"}
    assert [(one.name, one.count) for one in found.pod_sets] == [("main", 2)]


def containers(**amounts: str) -> list[Obj]:
    return [{"name": "c", "resources": {"requests": amounts}}]


TEMPLATES_OF = {
    "first": {"spec": {"containers": containers(cpu="1"), "nodeSelector": {}}},
    "same": {"metadata": {}, "spec": {"containers": containers(cpu="1")}},
    "alike": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers(cpu="1000m")}},
    "bigger": {"spec": {"containers": containers(cpu="2")}},
    "elsewhere": {"spec": {"containers": containers(cpu="1"), "nodeSelector": {"a": "b"}}},
    "limited": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]}},
    "wrapped": {"spec": {"containers": containers(cpu="1"), "overhead": {"cpu": "1"}}},
    "initial": {"spec": {"containers": containers(cpu="1"), "initContainers": containers(cpu="1")}},
    "sidecar": {
        "spec": {
            "containers": containers(cpu="1"),
            "initContainers": [{**one, "restartPolicy": "Always"} for one in containers(cpu="1")],
        }
    },
    "other flavor": {"spec": {"containers": containers(cpu="1")}},
}


@pytest.mark.parametrize(
    ("policy", "merged"),
    [
        ("", [(name, 2) for name in TEMPLATES_OF]),
        ("IdenticalPodTemplates", [("first", 4), ("alike", 2)]),
        ("IdenticalWorkloadSchedulingRequirements", [("first", 6)]),
    ],
)
def test_pod_sets_are_asked_for_as_one_as_the_policy_says(
    policy: str, merged: list[tuple[str, int]]
) -> None:
    apart = [] if not policy else [(name, 2) for name in [*TEMPLATES_OF][3:]]
    pod_sets = [{"name": name, "count": 2, "template": one} for name, one in TEMPLATES_OF.items()]
    assigned = [
        {"name": name, "count": 2, "flavors": {"cpu": "g" if "flavor" in name else "f"}}
        for name in TEMPLATES_OF
    ]
    wl = workload(admission={"clusterQueue": "cq", "podSetAssignments": assigned})
    wl["spec"]["podSets"] = pod_sets
    spec = ProvisioningRequestConfigSpec("class", pod_set_merge_policy=policy)
    (found,) = wanted(wl, "check", spec)
    assert [(one.name, one.count) for one in found.pod_sets] == [*merged, *apart]
    told = updates(found)
    assert {update.name for update in told} == {*TEMPLATES_OF}
    assert len(told) == len(TEMPLATES_OF)


def test_long_names_fit_and_stay_apart() -> None:
    found = {fitting("a" * 260 + end) for end in "12"}
    assert len(found) == 2
    assert all(len(name) <= 253 for name in found)
