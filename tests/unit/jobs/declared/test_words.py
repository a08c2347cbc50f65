"""Kinds that a word suspends: what is written, what a start restores, and what is refused."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.api.quantity import Quantity
from kueuelib.errors import InvalidJob
from kueuelib.jobs import Pods, Word, declare, enough, equals
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.declared.crd_mismatches import mismatches
from kueuelib.jobs.webhooks.rules import default_job, validate_job
from kueuelib.runtime import Client, ObjectKey, PatchType, Resource, key_of, kinds
from kueuelib.runtime.webhook.admission import form_of, misfit_of_objects
from kueuelib.testing import (
    JobAdapter,
    JobConformance,
    eventually,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    queueing,
)

Obj = dict[str, Any]
FLINK = Path(__file__).parents[4] / "examples/flink"
PROGRAM = runpy.run_path(str(FLINK / "flink.py"))
DEPLOYMENTS: Integration = PROGRAM["integration"]
QUEUE = "kueue.x-k8s.io/queue-name"
NOTE = "kueuelib.dev/resumes-as"
NO_FIELD = "for a kind without such a field, see docs/kinds-without-suspend.md"

MACHINES = declare(
    Resource("g.example.com", "v1", "machines", "Machine", namespaced=True),
    suspend=Word("spec.run", suspended="Halted", running="Always"),
    pods=[Pods("machine", template="spec.template", count="spec.size")],
    active="status.active",
    ready=enough("status.ready"),
    succeeded=equals("status.phase", "Succeeded"),
    failed=equals("status.phase", "Failed"),
)
"""A kind with more than two words."""


def machine(word: str | None = None, **meta: Any) -> Obj:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Obj = {"size": 2, "template": template}
    if word is not None:
        spec["run"] = word
    return {"metadata": {"name": "m", "namespace": "ns", "uid": "u", **meta}, "spec": spec}


def started(obj: Obj) -> Obj:
    job = MACHINES.job_type(copy.deepcopy(obj))
    job.run_with_podsets_info([PodSetInfo("machine", 2)])
    return job.raw


def suspended(obj: Obj) -> Obj:
    return MACHINES.job_type(copy.deepcopy(obj)).suspended_copy().raw


def stored(obj: Obj) -> Obj:
    """What the webhook stores."""
    queued = copy.deepcopy(obj)
    queued["metadata"]["labels"] = {QUEUE: "team"}
    settings = JobSettings(frameworks=(MACHINES.name,))
    return default_job(MACHINES, queued, settings, namespace_labels={}, has_ancestor=False)


@pytest.mark.parametrize(
    ("word", "note", "resumed"),
    [
        (None, None, "Always"),
        ("", None, "Always"),
        ("Always", None, "Always"),
        ("Halted", None, "Always"),
        ("RerunOnFailure", "RerunOnFailure", "RerunOnFailure"),
    ],
)
def test_a_start_writes_the_word_that_the_user_had(
    word: str | None, note: str | None, resumed: str
) -> None:
    waiting = stored(machine(word))
    assert waiting["spec"]["run"] == "Halted"
    assert (waiting["metadata"].get("annotations") or {}).get(NOTE) == note
    running = started(waiting)
    assert running["spec"]["run"] == resumed
    assert NOTE not in (running["metadata"].get("annotations") or {})
    again = started(suspended(running))
    assert again["spec"]["run"] == resumed


def test_the_last_word_of_the_user_counts() -> None:
    waiting = suspended(machine("RerunOnFailure"))
    for word, note in (("Once", {NOTE: "Once"}), ("Always", {})):
        edited = copy.deepcopy(waiting)
        edited["spec"]["run"] = word
        assert not MACHINES.job_type(edited).is_suspended()
        assert suspended(edited)["metadata"]["annotations"] == note
        assert started(suspended(edited))["spec"]["run"] == word


def test_other_annotations_stay_and_a_note_that_suspends_has_no_effect() -> None:
    waiting = suspended(machine("Once", annotations={"a": "b"}))
    assert waiting["metadata"]["annotations"] == {"a": "b", NOTE: "Once"}
    assert started(waiting)["metadata"]["annotations"] == {"a": "b"}
    assert started(machine("Halted", annotations={NOTE: "Halted"}))["spec"]["run"] == "Always"


def test_a_suspended_job_is_not_changed() -> None:
    waiting = stored(machine("Once"))
    assert stored(waiting) == waiting
    assert validate_job(MACHINES, waiting, waiting) == ()


def test_the_webhook_refuses_a_word_that_is_not_a_text() -> None:
    forms = {"": form_of(MACHINES.shapes[""])}
    assert misfit_of_objects({"object": machine("Once")}, forms) == ""
    wrong = machine()
    wrong["spec"]["run"] = True
    assert misfit_of_objects({"object": wrong}, forms) == "spec.run: a text is expected"


# ---- against the schema of a CRD


def crd(**run: Any) -> Obj:
    fields = {"size": {"type": "integer"}, "template": {}}
    if run:
        fields["run"] = run
    schema = {"properties": {"spec": {"type": "object", "properties": fields}, "status": {}}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"type": "string"}, ""),
        ({"type": "string", "enum": ["Halted", "Always", "Once"]}, ""),
        (
            {"type": "string", "enum": ["Halted", "Running"]},
            "suspend='spec.run' is never 'Always': the CRD allows 'Halted', 'Running'",
        ),
        (
            {"type": "boolean"},
            "suspend='spec.run' is of type boolean: write suspend='spec.run'",
        ),
        ({"type": "integer"}, "suspend='spec.run' is of type integer: give a string"),
        (
            {},
            f"suspend='spec.run' is not a field of the CRD: spec has size, template; {NO_FIELD}",
        ),
    ],
)
def test_the_words_have_to_fit_the_crd(run: Obj, said: str) -> None:
    assert [str(each) for each in mismatches(MACHINES, crd(**run))] == ([said] if said else [])


# ---- the suite


class Machines(JobAdapter):
    integration = MACHINES
    word = "RerunOnFailure"

    def make(self) -> Obj:
        return machine(self.word)

    def running(self, obj: Obj) -> Obj:
        return {**obj, "status": {"active": 2, "ready": obj["spec"]["size"]}}

    def stopped(self, obj: Obj) -> Obj:
        return {**obj, "status": {}}

    def succeeded(self, obj: Obj) -> Obj:
        return {**obj, "status": {"phase": "Succeeded"}}

    def failed(self, obj: Obj) -> Obj:
        return {**obj, "status": {"phase": "Failed"}}

    def changed(self, obj: Obj) -> Obj:
        return {**obj, "spec": {**obj["spec"], "size": 5}}


class TestKindWithAThirdWord(JobConformance):
    adapter = Machines()


class Deployments(JobAdapter):
    """Plays the Flink operator: it removes both roles before it says that a job is suspended."""

    integration = DEPLOYMENTS
    crd = FLINK / "crd.yaml"

    def make(self) -> Obj:
        obj: Obj = yaml.load((FLINK / "deployment.yaml").read_text(), yaml.CSafeLoader)
        del obj["metadata"]["labels"]
        container = {"name": "flink-main-container", "image": "flink:1.20"}
        for role in ("jobManager", "taskManager"):
            obj["spec"][role]["podTemplate"] = {"spec": {"containers": [container]}}
        return copy.deepcopy(obj)

    def running(self, obj: Obj) -> Obj:
        return self._told(obj, "READY", "RUNNING", "STABLE")

    def stopped(self, obj: Obj) -> Obj:
        return self._told(obj, "MISSING", "FINISHED", "SUSPENDED")

    def succeeded(self, obj: Obj) -> Obj:
        return self._told(obj, "MISSING", "FINISHED", "STABLE")

    def failed(self, obj: Obj) -> Obj:
        return self._told(obj, "MISSING", "FAILED", "FAILED")

    def changed(self, obj: Obj) -> Obj:
        changed = copy.deepcopy(obj)
        changed["spec"]["taskManager"]["replicas"] = 5
        return changed

    def _told(self, obj: Obj, manager: str, job: str, life: str) -> Obj:
        status = {"jobManagerDeploymentStatus": manager, "jobStatus": {"state": job}}
        return {**obj, "status": {**status, "lifecycleState": life}}


class TestFlinkDeployment(JobConformance):
    adapter = Deployments()


# ---- Flink


def flink(**spec: Any) -> Obj:
    obj: Obj = yaml.load((FLINK / "deployment.yaml").read_text(), yaml.CSafeLoader)
    obj["metadata"]["uid"] = "u"
    obj["spec"].update(spec)
    return obj


@pytest.mark.parametrize(
    ("memory", "is_"),
    [("2048m", "2Gi"), ("2g", "2Gi"), ("2 gb", "2Gi"), ("2Gi", "2Gi"), ("1024", "1024")],
)
def test_resources_of_a_role_need_quota(memory: str, is_: str) -> None:
    obj = flink(jobManager={"resource": {"cpu": 0.5, "memory": memory}})
    manager, workers = DEPLOYMENTS.job_type(obj).pod_sets()
    assert [(each.name, each.count) for each in (manager, workers)] == [
        ("jobmanager", 1),
        ("taskmanager", 2),
    ]
    *_, added = manager.template["spec"]["containers"]
    requests = added["resources"]["requests"]
    assert Quantity.parse(requests["memory"]) == Quantity.parse(is_)
    assert Quantity.parse(requests["cpu"]) == Quantity.parse("500m")


def test_what_cannot_be_counted_is_refused() -> None:
    (error,) = validate_job(DEPLOYMENTS, flink(taskManager={}), None)
    assert (error.path, error.reason) == ("spec.taskManager.replicas", "FieldValueRequired")
    with pytest.raises(InvalidJob, match=r"spec.jobManager.resource.memory: 'much' is not"):
        DEPLOYMENTS.job_type(flink(jobManager={"resource": {"memory": "much"}})).pod_sets()


def test_a_session_cluster_is_left_alone() -> None:
    obj = flink()
    del obj["spec"]["job"]
    settings = JobSettings(frameworks=(DEPLOYMENTS.name,))
    assert default_job(DEPLOYMENTS, obj, settings, namespace_labels={}, has_ancestor=False) is obj


async def test_a_flink_deployment_waits_starts_and_is_stopped_in_a_cluster(
    kube_client: Client,
) -> None:
    resource = DEPLOYMENTS.resource
    crd = yaml.load((FLINK / "crd.yaml").read_text(), yaml.CSafeLoader)
    await kube_client.create(kinds.CRDS, crd)
    queue = make_cluster_queue("all", {"spot": {"cpu": 5, "memory": "20Gi"}})
    async with queueing(kube_client, DEPLOYMENTS):
        for each in (make_flavor("spot"), queue, make_local_queue("team", "all", "default")):
            await kube_client.of(type(each)).create(each)
        flink = Deployments()
        wanted = yaml.load((FLINK / "deployment.yaml").read_text(), yaml.CSafeLoader)
        container = {"name": "flink-main-container", "env": [{"name": "A", "value": "b"}]}
        wanted["spec"]["podTemplate"] = {"kind": "Pod", "spec": {"containers": [container]}}
        first = await eventually(lambda: kube_client.create(resource, wanted))

        async def state(name: str, word: str) -> Any:
            found = await kube_client.get(resource, ObjectKey("default", name))
            return found if found["spec"]["job"].get("state") == word else None

        one = await eventually(lambda: state("clicks", "running"))
        assert one["spec"]["taskManager"]["podTemplate"]["metadata"]["labels"]
        await _tell(kube_client, flink.running(one))
        wanted["metadata"]["name"] = "views"
        await kube_client.create(resource, wanted)
        assert await eventually(lambda: state("views", "suspended"))
        key = ObjectKey("default", "clicks")
        active = {"spec": {"active": False}}
        (workload,) = [
            each
            for each in (await kube_client.list(kinds.WORKLOADS, "default")).items
            if each["metadata"]["ownerReferences"][0]["uid"] == first["metadata"]["uid"]
        ]
        await kube_client.patch(kinds.WORKLOADS, key_of(workload), active, PatchType.MERGE)
        stopped = await eventually(lambda: state("clicks", "suspended"))
        assert await state("views", "suspended"), "its pods use the quota"
        await _tell(kube_client, flink.stopped(stopped))
        assert await eventually(lambda: state("views", "running"))
        restored = await kube_client.get(resource, key)
        wanted["spec"]["job"]["state"] = "suspended"
        assert restored["spec"] == wanted["spec"]


async def _tell(client: Client, obj: Obj) -> None:
    status = {"status": obj["status"]}
    key = key_of(obj)
    await client.patch(DEPLOYMENTS.resource, key, status, PatchType.MERGE, subresource="status")
