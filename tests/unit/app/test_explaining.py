"""What `kueuelib explain` reads and how objects become the Workload in question."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import orjson
import pytest
import yaml

from kueuelib.api.conversion import convert
from kueuelib.api.kinds import KUEUE, PODS, V1BETA1, V1BETA2
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.asking import ObjectAnswer, ask, ask_about
from kueuelib.app.explaining.subject import (
    SubjectReference,
    parse_manifests,
    parse_reference,
    workload_of,
)
from kueuelib.app.part_settings import job_settings
from kueuelib.cli.explain.command import answer_data, to_json
from kueuelib.cli.explain.text import show
from kueuelib.errors import ConfigError, Forbidden, KueuelibError, NotFound
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.client import Client
from kueuelib.runtime.queries import ObjectList
from kueuelib.scheduler.explain.trial import TrialResult
from kueuelib.scheduler.policy import Protected
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import FairSharingRules, Settings

NOW = 1000.0
ALL = JobSettings(manage_jobs_without_queue_name=True, frameworks=("batch/job", "pod"))
DEFAULT = JobSettings()
LABEL = "kueue.x-k8s.io/queue-name"
SINCE = {"lastTransitionTime": "1970-01-01T00:00:01Z"}


class Ticks:
    """A clock that nobody waits for."""

    def __init__(self, sleep: Callable[[], None] = lambda: None) -> None:
        self.slept: list[float] = []
        self._sleep = sleep

    def now(self) -> float:
        return NOW + sum(self.slept)

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._sleep()


class FakeClient:
    """A cluster that only answers GET and LIST; everything else is an AttributeError."""

    def __init__(
        self,
        *objects: Obj,
        version: str = V1BETA2,
        forbidden: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
    ) -> None:
        self._objects: tuple[Obj, ...] = objects
        self._version = version
        self._forbidden, self._missing = forbidden, missing
        self.asked: set[str] = set()

    def replace(self, obj: Obj) -> None:
        """Changes the object of the same kind and name."""
        same = (obj["kind"], obj["metadata"]["name"])
        self._objects = tuple(
            obj if (one["kind"], one["metadata"]["name"]) == same else one for one in self._objects
        )

    async def served_versions(self, group: str) -> tuple[str, ...]:
        assert group == KUEUE
        return (self._version,) if self._version else ()

    @property
    def transport(self) -> Any:
        async def endpoint() -> Any:
            return SimpleNamespace(url="https://cluster")

        return SimpleNamespace(endpoint=endpoint)

    async def list_all(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", **_: Any
    ) -> AsyncIterator[Obj]:
        assert not label_selector, "explain reads everything"
        self.asked.add(resource.api_version)
        if resource.plural in self._forbidden:
            raise Forbidden(f"may not list {resource.plural}")
        if resource.plural in self._missing:
            raise NotFound(f"no {resource.plural}")
        for obj in self._objects:
            ours = namespace in ("", obj["metadata"].get("namespace", ""))
            if obj["kind"] == resource.kind and ours:
                yield convert(obj, self._version) if resource.group == KUEUE else obj

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        limit: int = 500,
        continue_token: str = "",
        **_: Any,
    ) -> ObjectList:
        assert limit, "an API server answers long lists page by page"
        assert not continue_token, "there is one page"
        objects = self.list_all(resource, namespace, label_selector=label_selector)
        return ObjectList(tuple([obj async for obj in objects]))

    async def get(self, resource: Resource, key: ObjectKey) -> Obj:
        async for obj in self.list_all(resource, key.namespace):
            if obj["metadata"]["name"] == key.name:
                return obj
        raise NotFound(f"{key} not found")


def thing(kind: str, name: str, api: str = f"{KUEUE}/{V1BETA2}", **parts: Any) -> Obj:
    meta = {"name": name, "uid": f"uid-{name}", **parts.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **parts}


def cluster() -> list[Obj]:
    quota = {"name": "cpu", "nominalQuota": "4"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    return [
        thing("Namespace", "ns", "v1"),
        thing("ResourceFlavor", "f"),
        thing(
            "ClusterQueue",
            "cq",
            spec={"namespaceSelector": {}, "resourceGroups": [group], "cohortName": "all"},
        ),
        thing("LocalQueue", "lq", metadata={"namespace": "ns"}, spec={"clusterQueue": "cq"}),
    ]


def pod_spec(cpu: str = "1") -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], "restartPolicy": "Never"}


def limited(memory: str) -> Obj:
    return {"name": "i", "image": "i", "resources": {"limits": {"memory": memory}}}


def pods(cpu: str) -> Obj:
    return {"name": f"set{cpu}", "count": 1, "template": {"spec": pod_spec(cpu)}}


def job(name: str = "train", pods: int = 3, cpu: str = "2", **labels: str) -> Obj:
    meta = {"namespace": "ns", "labels": {LABEL: "lq", **labels}}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec(cpu)}}
    return thing("Job", name, "batch/v1", metadata=meta, spec=spec)


def workload(owner: Obj, name: str = "wl", **status: Any) -> Obj:
    ref = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    meta = {
        "namespace": "ns",
        "ownerReferences": [ref],
        "creationTimestamp": "1970-01-01T00:00:01Z",
    }
    pod_set = {"name": "main", "count": 3, "template": {"spec": pod_spec("2")}}
    spec = {"queueName": "lq", "podSets": [pod_set], "priority": 0}
    return thing("Workload", name, metadata=meta, spec=spec, status=status)


def without_queue(found: Obj, **spec: Any) -> Obj:
    del found["metadata"]["labels"][LABEL]
    return {**found, "spec": {**found["spec"], **spec}}


def pod(**meta: Any) -> Obj:
    return thing("Pod", "p", "v1", metadata={"namespace": "ns", **meta}, spec=pod_spec())


async def asked(text: str, *objects: Obj, jobs: JobSettings = DEFAULT, **rest: Any) -> ObjectAnswer:
    client = cast("Client", FakeClient(*cluster(), *objects, **rest))
    return await ask(client, parse_reference(text), "ns", jobs=jobs, clock=Ticks())


async def filed(text: str, *objects: Obj, jobs: JobSettings = DEFAULT) -> tuple[ObjectAnswer, ...]:
    client = cast("Client", FakeClient(*cluster(), *objects))
    return await ask_about(client, parse_manifests(text, "in.yaml", "", "ns"), NOW, jobs=jobs)


async def sent(*objects: Obj, jobs: JobSettings = DEFAULT) -> tuple[ObjectAnswer, ...]:
    return await filed("\n---\n".join(orjson.dumps(obj).decode() for obj in objects), jobs=jobs)


def changes(answer: ObjectAnswer) -> list[str]:
    assert answer.explanation is not None
    return [found.change.text for found in answer.explanation.changes]


def small(name: str = "wl", **status: Any) -> Obj:
    """A Workload for which there is room."""
    found = workload(job(), name, **status)
    found["spec"]["podSets"][0]["count"] = 1
    return found


def holder(**status: Any) -> Obj:
    """The same with quota."""
    pod_set = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "r", "message": "", **SINCE}
    admission = {"clusterQueue": "cq", "podSetAssignments": [pod_set]}
    return small(admission=admission, conditions=[reserved], **status)


async def test_a_victim_is_told_when_its_quota_goes() -> None:
    gone = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "", **SINCE}
    leaving = holder()
    leaving["status"]["conditions"].append(gone)
    for content, words in (
        ({}, "none of its pods runs, except pods being deleted (OnTermination"),
        ({"quota_release_strategy": "OnTerminal"}, "its pods have ended (OnTerminal"),
    ):
        jobs = job_settings(Configuration(**content))
        client = cast("Client", FakeClient(*cluster(), leaving))
        answer = await ask(client, parse_reference("workload/wl"), "ns", jobs=jobs)
        assert any(words in note for note in answer.notes)
        assert not any("evicted" in note for note in (await asked("workload/wl", holder())).notes)


async def test_a_check_whose_process_is_gone_is_named_to_who_holds_quota() -> None:
    state = {"name": "budget", "state": "Pending", "message": "", **SINCE}
    gone = {"type": "Active", "status": "False", "reason": "NoSignOfLife", **SINCE}
    gone["message"] = "no sign of life from example.com/budget since 1970-01-01T00:00:01Z"
    spec = {"controllerName": "example.com/budget"}
    check = thing("AdmissionCheck", "budget", spec=spec, status={"conditions": [gone]})
    answer = await asked("workload/wl", holder(admissionChecks=[state]), check)
    assert answer.explanation is not None
    (problem,) = answer.explanation.problems
    assert problem.subject == "AdmissionCheck budget"
    assert problem.problem == f"is not Active: {gone['message']}"


async def test_that_nothing_stands_in_the_way_is_said_after_three_looks() -> None:
    clock = Ticks()
    client = cast("Client", FakeClient(*cluster(), small()))
    answer = await ask(client, parse_reference("workload/wl"), "ns", clock=clock)
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.ADMITTED
    assert clock.slept == [1.0, 1.0]
    assert answer.notes[-1] == "this was so for 2 seconds, and no manager acted: is one running?"


async def test_an_admission_between_two_looks_is_the_answer() -> None:
    held = holder()
    fake = FakeClient(*cluster(), small())

    def admit() -> None:
        fake.replace(held)

    clock = Ticks(admit)
    answer = await ask(cast("Client", fake), parse_reference("workload/wl"), "ns", clock=clock)
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.HOLDS_QUOTA
    assert (clock.slept, answer.notes) == ([1.0], ())


@pytest.mark.parametrize("version", [V1BETA1, V1BETA2])
async def test_both_versions_give_the_same_answer(version: str) -> None:
    train = job()
    answer = await asked("job/train", train, workload(train), version=version)
    assert answer.submitted
    assert "raise nominalQuota of flavor f: cpu by 2 (to 6)" in changes(answer)
    other = await asked("job/train", train, workload(train), version=V1BETA2)
    data = answer_data(answer)
    assert data == answer_data(other)
    assert orjson.loads(orjson.dumps(data)) == data


def cohort(name: str, parent: str = "", **quota: str) -> Obj:
    spec: Obj = {"parentName": parent}
    if quota:
        flavors = [{"name": "f", "resources": [{"name": "cpu", **quota}]}]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return thing("Cohort", name, spec=spec)


async def test_quota_and_limits_of_cohorts_are_read() -> None:
    train = job()
    top = cohort("top", nominalQuota="2")
    answer = await asked("job/train", train, workload(train), cohort("all", "top"), top)
    assert answer.explanation is not None
    assert answer.explanation.outcome.verdict is TrialResult.ADMITTED
    limited = cohort("all", "top", nominalQuota="0", borrowingLimit="1")
    answer = await asked("job/train", train, workload(train), limited, top)
    assert "raise nominalQuota of flavor f: cpu by 1 (to 5)" in changes(answer)


async def test_a_cycle_of_cohorts_is_what_is_in_the_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train = job(cpu="1")
    answer = await asked("job/train", train, cohort("all", "top"), cohort("top", "all"))
    show([answer])
    assert "all -> top -> all" in capsys.readouterr().out.replace("\n", " ")


async def test_a_cluster_without_the_kind_of_cohorts_needs_no_note() -> None:
    train = job()
    assert (await asked("job/train", train, workload(train), missing=("cohorts",))).notes == ()
    answer = await asked("job/train", train, workload(train), forbidden=("cohorts",))
    assert answer.notes == ("cohorts were not read and count as absent: you may not list them",)


async def test_a_job_without_a_workload_is_answered_as_if_it_had_one() -> None:
    answer = await asked("job/train", job())
    assert not answer.submitted
    assert "no Workload for it yet" in answer.notes[0]
    assert "raise nominalQuota of flavor f: cpu by 2 (to 6)" in changes(answer)


async def test_the_configuration_of_the_manager_may_change_the_answer(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
        "waitForPodsReady: {enable: true, blockAdmission: true}\n"
    )
    started, train = job("started", pods=1, cpu="1"), job("train", pods=1, cpu="1")
    pod_set = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": "1"},
    }
    held = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [pod_set]},
        "conditions": [
            {"type": name, "status": "True", "reason": "r", "message": "", **SINCE}
            for name in ("QuotaReserved", "Admitted")
        ],
    }
    client = cast(
        "Client", FakeClient(*cluster(), started, train, workload(started, "held", **held))
    )
    answers = [
        await ask(client, parse_reference("job/train"), "ns", settings, clock=Ticks())
        for settings in map(engine_settings, map(load_configuration, (None, config)))
    ]
    verdicts = [answer_data(answer)["verdict"] for answer in answers]
    assert verdicts == ["admitted", "waits"]
    assert answer_data(answers[1])["reason"]["reason"] == "WaitingForPodsReady"


async def test_a_missing_prebuilt_workload_is_what_a_job_waits_for() -> None:
    labels = {"kueue.x-k8s.io/prebuilt-workload-name": "nope"}
    train = job()
    train["metadata"]["labels"] |= labels
    answer = await asked("job/train", train)
    (problem,) = answer.problems
    assert problem.subject == "Workload ns/nope"
    assert answer.explanation is None


async def test_what_the_manager_said_is_repeated() -> None:
    train = job()
    told = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "by another manager",
        "lastTransitionTime": "1970-01-01T00:00:01Z",
    }
    answer = await asked("workload/wl", train, workload(train, conditions=[told]))
    assert answer.last_message is not None
    assert answer.last_message.message == "by another manager"


async def test_a_preemption_policy_of_the_manager_that_was_not_named_is_noted() -> None:
    train, protected = job(), Protected("example.com/mine", 1, "it ran too short", None)
    told = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", **SINCE}
    told["message"] = f"couldn't assign flavors. {protected.text}"
    answer = await asked("workload/wl", train, workload(train, conditions=[told]))
    (note,) = answer.notes
    assert note.startswith("the manager has the preemption policy example.com/mine, which is left")
    assert note.endswith("; name its configuration with --config")


async def test_a_pod_leads_to_the_workload_of_its_job() -> None:
    train = job()
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "x", "controller": True}
    meta = {"namespace": "ns", "ownerReferences": [ref]}
    pod = thing("Pod", "train-1", "v1", metadata=meta, spec=pod_spec())
    answer = await asked("pod/train-1", train, workload(train), pod)
    assert answer.title == "Pod train-1 of Job train"
    assert answer.explanation is not None
    assert answer.explanation.key == ObjectKey("ns", "wl")


async def test_an_incomplete_group_says_what_is_missing() -> None:
    labels = {
        "kueue.x-k8s.io/queue-name": "lq",
        "kueue.x-k8s.io/pod-group-name": "g",
        "kueue.x-k8s.io/managed": "true",
    }
    total = {"kueue.x-k8s.io/pod-group-total-count": "3"}
    meta = {"namespace": "ns", "labels": labels, "annotations": total}
    spec = {**pod_spec(), "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    answer = await asked("pod/one", thing("Pod", "one", "v1", metadata=meta, spec=spec))
    assert answer.explanation is None
    assert answer.problems[0].problem == "The group has 1 of 3 pods"
    assert answer_data(answer)["verdict"] == "no workload"


async def test_what_may_not_be_read_is_noted_and_what_is_needed_is_an_error() -> None:
    answer = await asked("job/train", job(), forbidden=("namespaces", "limitranges"))
    note = "namespaces, limitranges were not read and count as absent: you may not list them"
    assert answer.notes[1:] == (note,)
    assert answer.explanation is not None
    assert answer.explanation.problems == ()
    with pytest.raises(KueuelibError, match="may not list clusterqueues; ask for the right"):
        await asked("workload/wl", small(), forbidden=("clusterqueues", "workloads"))


async def test_a_cluster_without_the_queueing_api_is_an_error() -> None:
    with pytest.raises(ConfigError, match="run kueuelib install first"):
        await asked("job/train", version="")


async def test_an_object_that_cannot_be_read_is_left_out_and_noted() -> None:
    broken = thing("ClusterQueue", "broken", spec={"resourceGroups": "none"})
    answer = await asked("job/train", job(), broken)
    assert any("ClusterQueue broken cannot be read" in note for note in answer.notes)


async def test_manifests_wait_for_each_other_in_their_order() -> None:
    texts = [orjson.dumps(job(name, pods=2)).decode() for name in ("one", "two")]
    first, second = await filed("\n---\n".join(texts))
    assert first.explanation is not None
    assert first.explanation.verdict is TrialResult.ADMITTED
    assert second.explanation is not None
    assert second.explanation.verdict is TrialResult.WAITS
    assert second.explanation.ahead == (first.explanation.key,)


async def test_a_pod_and_a_workload_may_be_manifests_too() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    pod = thing("Pod", "p", "v1", metadata={"labels": labels}, spec=pod_spec("5"))
    pod_set = {"count": 1, "template": {"spec": pod_spec("1")}}
    wl = thing("Workload", "w", spec={"queueName": "lq", "podSets": [pod_set]})
    items = {"apiVersion": "v1", "kind": "List", "items": [pod, wl]}
    big, small = await filed(orjson.dumps(items).decode())
    assert "raise nominalQuota of flavor f: cpu by 1 (to 5)" in changes(big)
    assert small.explanation is not None
    assert small.explanation.verdict is TrialResult.ADMITTED


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (thing("Deployment", "d", "apps/v1"), "objects of kind Deployment"),
        (thing("Job", "j", "batch.volcano.sh/v1", spec={}), "objects of kind Job"),
        (thing("Job", "j", "batch/v1", spec={}), "spec.template.spec.containers is missing"),
        (
            thing("Job", "j", "batch/v1", spec={"parallelism": "two"}),
            "in.yaml, Job j: spec.parallelism",
        ),
        (thing("Workload", "w", spec={"podSets": []}), "spec.podSets"),
        (thing("Workload", "w"), "spec.podSets"),
        (job(**{"kueue.x-k8s.io/priority-class": "vip"}), 'WorkloadPriorityClass "vip"'),
        (job(cpu="1x"), "cpu"),
        (
            job(cpu="-1"),
            (
                'spec.template.spec.containers[0].resources.requests[cpu]: Invalid value: "-1": '
                "must be greater than or equal to 0; give 0 or more there, or leave it out"
            ),
        ),
        (job(pods=-1), "spec.parallelism: Invalid value: -1: must be greater"),
        (
            thing("Pod", "p", "v1", spec={**pod_spec(), "initContainers": [limited("-1Gi")]}),
            'spec.initContainers[0].resources.limits[memory]: Invalid value: "-1Gi"',
        ),
        (
            thing("Pod", "p", "v1", spec={**pod_spec(), "overhead": {"cpu": -1}}),
            "spec.overhead[cpu]: Invalid value: -1: must be greater",
        ),
        (
            thing("Workload", "w", spec={"podSets": [pods("1"), pods("-100m")]}),
            (
                "spec.podSets[1].template.spec.containers[0].resources.requests[cpu]: "
                'Invalid value: "-100m": must be greater than or equal to 0'
            ),
        ),
    ],
)
async def test_a_manifest_that_cannot_work_names_the_object_and_the_field(
    obj: Obj, text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        await filed(orjson.dumps(obj).decode())
    assert text in str(error.value)
    assert str(error.value).startswith(f"in.yaml, {obj['kind']} ")


@pytest.mark.parametrize("large", ["requests: {cpu: 99999999999999999999}", "requests: {cpu: 9E}"])
async def test_amounts_beyond_64_bits_can_be_printed(large: str) -> None:
    text = yaml.safe_dump(job()).replace("requests:\n            cpu: '2'", large)
    assert large in text
    found = json.loads(to_json(await filed(text), many=False))
    assert found["verdict"] == "waits"


def test_references_are_written_as_for_kubectl() -> None:
    assert parse_reference("po/x") == SubjectReference(PODS, "x")
    assert parse_reference("jobs.batch/a").resource.kind == "Job"
    assert parse_reference("wl/a").resource.kind == "Workload"
    for wrong in ("a", "/a", "job/", "job/a/b"):
        with pytest.raises(ConfigError):
            parse_reference(wrong)


def test_the_newest_unfinished_workload_is_meant() -> None:
    train = job()
    finished = {"type": "Finished", "status": "True"}
    old, new = workload(train, "old"), workload(train, "new", conditions=[finished])
    assert workload_of(train, [old, new]) is old
    assert workload_of(train, [new]) is new
    assert workload_of(job("other"), [old, new]) is None


def test_a_namespace_that_contradicts_is_refused() -> None:
    with pytest.raises(ConfigError, match="metadata.namespace is ns, but other was asked for"):
        parse_manifests(orjson.dumps(job()).decode(), "in.yaml", "other", "default")


@pytest.mark.parametrize(
    ("on", "labels", "priority"),
    [(True, {}, 7), (False, {}, 0), (True, {"kueue.x-k8s.io/priority-class": "high"}, 9)],
)
async def test_the_default_class_counts_as_if_the_webhook_had_written_it(
    on: bool, labels: dict[str, str], priority: int
) -> None:
    classes = [thing("WorkloadPriorityClass", "default", value=7)]
    classes.append(thing("WorkloadPriorityClass", "high", value=9))
    settings = attrs.evolve(DEFAULT, defaults_priority_class=on)
    manifest = orjson.dumps(job(**labels)).decode()
    (answer,) = await filed(manifest, *classes, jobs=settings)
    assert answer.explanation is not None
    assert answer.explanation.workload.spec.priority == priority


async def test_a_job_without_a_queue_is_nobodys(capsys: pytest.CaptureFixture[str]) -> None:
    answers = await sent(without_queue(job(cpu="9")))
    show(answers)
    assert capsys.readouterr().out == (
        "Job train names no queue, so no manager queues it: it gets no Workload, and "
        "nothing holds it\n"
        f"To have it queued, set the label {LABEL} to one of lq\n"
        "Note: a manager whose configuration sets manageJobsWithoutQueueName queues it "
        "anyway; name its configuration with --config\n"
    )
    (data,) = json.loads(to_json(answers, many=True))
    assert (data["verdict"], data["submitted"]) == ("not managed", False)
    assert data["problems"][0]["subject"] == "Job train"
    assert "reason" not in data


async def test_a_job_with_a_queue_is_nobodys_where_the_selector_does_not_match() -> None:
    settings = attrs.evolve(DEFAULT, namespace_selector={"matchLabels": {"team": "a"}})
    (answer,) = await sent(job(), jobs=settings)
    assert answer.unmanaged is not None
    text = "names a queue, but managedJobsNamespaceSelector does not admit namespace ns"
    assert answer.unmanaged.problem.startswith(text)
    assert answer.notes == ()


async def test_an_unmanaged_manifest_takes_no_quota_from_the_next_one() -> None:
    alone, queued = await sent(without_queue(job("a", pods=2)), job("b", pods=2))
    assert alone.unmanaged is not None
    assert queued.explanation is not None
    assert queued.explanation.verdict is TrialResult.ADMITTED


@pytest.mark.parametrize(
    ("suspend", "held", "fix"),
    [
        (False, "nothing holds it", f"submit it again with the label {LABEL} set to one of lq"),
        (True, "nothing but its own spec.suspend: true", f"set the label {LABEL} to one of lq"),
    ],
)
async def test_a_submitted_job_without_a_queue_is_nobodys(
    suspend: bool, held: str, fix: str
) -> None:
    answer = await asked("job/train", without_queue(job(), suspend=suspend))
    assert answer.explanation is None
    assert answer.unmanaged is not None
    assert held in answer.unmanaged.problem
    assert answer.unmanaged.fix == fix


async def test_the_annotation_names_a_queue_too() -> None:
    train = without_queue(job(pods=1))
    train["metadata"]["annotations"] = {LABEL: "lq"}
    (answer,) = await sent(train)
    assert answer.explanation is not None
    assert answer.explanation.verdict is TrialResult.ADMITTED


async def test_a_pod_without_a_queue_is_nobodys_but_its_owner_may_be_queued() -> None:
    ref = {"apiVersion": "x/v1", "kind": "Ray", "name": "r", "uid": "u", "controller": True}
    alone = (await asked("pod/p", pod())).unmanaged
    owned = (await asked("pod/p", pod(ownerReferences=[ref]))).unmanaged
    assert alone is not None
    assert alone.problem.endswith("nothing holds it")
    assert owned is not None
    assert owned.problem.endswith("nothing holds it, unless Ray r, which owns it, is queued")


async def test_all_jobs_may_be_managed_and_then_wait_for_a_queue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configuration = attrs.evolve(Configuration(), manage_jobs_without_queue_name=True)
    train = without_queue(job())
    (answer,) = await sent(train, jobs=job_settings(configuration))
    show([answer])
    told = capsys.readouterr().out
    assert "Job train: not submitted; its Workload would be ns/job-train-" in told
    assert "It waits: Misconfigured: it names no LocalQueue\n" in told
    assert f"names no queue; set the label {LABEL} to one of lq" in told
    assert answer_data(answer)["verdict"] == "waits"
    submitted = await asked("job/train", train, jobs=ALL)
    assert submitted.unmanaged is None


@pytest.mark.parametrize(
    ("obj", "changed", "text"),
    [
        (
            without_queue(job()),
            {"namespace_selector": {"matchLabels": {"team": "a"}}},
            "names no queue, and managedJobsNamespaceSelector does not admit namespace ns, so",
        ),
        (
            pod(),
            {"frameworks": ("batch/job",)},
            "names no queue, and integrations.frameworks of the configuration does not list pod",
        ),
        (
            pod(),
            {"pods": attrs.evolve(ALL.pods, pod_selector={"matchLabels": {"a": "b"}})},
            "integrations.podOptions of the configuration leaves it out",
        ),
    ],
)
async def test_what_is_left_out_even_where_all_jobs_are_managed(
    obj: Obj, changed: dict[str, Any], text: str
) -> None:
    (managed,) = await sent(obj, jobs=ALL)
    assert managed.unmanaged is None
    (answer,) = await sent(obj, jobs=attrs.evolve(ALL, **changed))
    assert answer.unmanaged is not None
    assert text in answer.unmanaged.problem
    assert answer.notes == ()


async def test_the_first_line_has_a_subject(capsys: pytest.CaptureFixture[str]) -> None:
    pod_set = {"count": 1, "template": {"spec": pod_spec("1")}}
    wl = thing("Workload", "w", spec={"queueName": "lq", "podSets": [pod_set]})
    show(await sent(wl))
    assert capsys.readouterr().out.startswith(
        "Workload ns/w: not submitted; its priority would be 0\n"
    )
    stored = {**wl, "metadata": {**wl["metadata"], "namespace": "ns"}}
    show([await asked("workload/w", stored)])
    assert capsys.readouterr().out.startswith("Workload ns/w, priority 0\n")


@pytest.mark.parametrize(
    ("weight", "told_usage", "usage"), [("1", "4", 4), ("0", "infinite usage", "infinite")]
)
async def test_local_queues_that_used_less_are_named(
    capsys: pytest.CaptureFixture[str], weight: str, told_usage: str, usage: object
) -> None:
    train, rival = job(), workload(job("rival"), "first")
    rival["spec"]["queueName"] = "other"
    place = {"metadata": {"namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    own = {**place, "spec": {**place["spec"], "fairSharing": {"weight": weight}}}
    past = {"consumedResources": {"cpu": "4"}, "lastUpdate": "1970-01-01T00:15:00Z"}
    sharing = {"weightedShare": 0, "admissionFairSharingStatus": past}
    *objects, _ = cluster()
    objects[-1]["spec"]["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    objects += [
        thing("LocalQueue", "lq", status={"fairSharing": sharing}, **own),
        thing("LocalQueue", "other", **place),
    ]
    client = cast("Client", FakeClient(*objects, train, workload(train), rival))
    settings = Settings(past_usage=UsageRule(half_life=600.0))
    answer = await ask(client, parse_reference("job/train"), "ns", settings, clock=Ticks())
    show([answer])
    told = capsys.readouterr().out
    assert "place 2 of 2\nAhead of it: ns/first\n" in told
    assert f"Behind LocalQueues that used less: ns/other (0); lq has {told_usage}\n" in told
    data = json.loads(to_json([answer], many=False))
    assert data["pastUsage"] == usage
    assert data["usedLess"] == [{"localQueue": "ns/other", "pastUsage": 0}]


async def test_the_tree_is_shown_from_below_upwards(capsys: pytest.CaptureFixture[str]) -> None:
    train = job()
    limited = cohort("all", "top", nominalQuota="0", borrowingLimit="1", lendingLimit="0")
    limited["spec"]["fairSharing"] = {"weight": "2"}
    settings = Settings(fair_sharing=FairSharingRules())
    objects = (*cluster(), train, workload(train), limited, cohort("top", nominalQuota="2"))
    client = cast("Client", FakeClient(*objects))
    answer = await ask(client, parse_reference("job/train"), "ns", settings, clock=Ticks())
    show([answer])
    told = capsys.readouterr().out
    rows = [line.replace("│", " ").split() for line in told.splitlines() if line.startswith("│")]
    assert rows[1:] == [
        ["ClusterQueue", "cq", "1", "0", "cpu", "f", "4", "4", "0", "-", "-", "-"],
        ["Cohort", "all", "2", "0", "cpu", "f", "0", "4", "0", "1", "0", "5"],
        ["Cohort", "top", "-", "-", "cpu", "f", "2", "2", "0", "-", "-", "6"],
    ]
    assert "  Cohort all: raise borrowingLimit of flavor f: cpu by 1 (to 2)\n" in told
    data = answer_data(answer)
    assert data["cohortTree"][1] == {
        "kind": "Cohort",
        "name": "all",
        "flavor": "f",
        "resource": "cpu",
        "own": "0",
        "nominal": "4",
        "used": "0",
        "borrowingLimit": "1",
        "lendingLimit": "0",
        "room": "5",
        "weight": 2.0,
        "weightedShare": 0,
    }
    raised = next(one for one in data["changes"] if "borrowingLimit" in one["text"])
    assert raised["details"]["place"] == {"kind": "Cohort", "name": "all"}


async def test_a_check_that_decides_later_is_named_with_the_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    active = {"type": "Active", "status": "True", "reason": "r", "message": "", **SINCE}
    check = thing("AdmissionCheck", "budget", status={"conditions": [active]})
    check["spec"] = {"controllerName": "example.com/budget"}
    found = cluster()
    found[2]["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "budget"}]}
    train = job()
    client = cast("Client", FakeClient(*found, check, train, workload(train), small("free")))
    answer = await ask(client, parse_reference("job/train"), "ns", clock=Ticks())
    show([answer])
    told = capsys.readouterr().out
    assert "would admit it now" not in told
    assert "would reserve quota; check budget then decides (a slightly smaller change" in told
    assert {tuple(one["checks"]) for one in answer_data(answer)["changes"]} == {("budget",)}
    free = await ask(client, parse_reference("workload/free"), "ns", clock=Ticks())
    show([free])
    told = capsys.readouterr().out
    assert "(cpu from f). That reserves quota; check budget then decides.\n" in told
    assert answer_data(free)["checksAfterQuota"] == ["budget"]


async def test_what_this_version_does_not_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    boost, elastic = "kueue.x-k8s.io/priority-boost", "kueue.x-k8s.io/elastic-job"
    forced = "kueue.x-k8s.io/safe-to-forcefully-delete"
    train = job()
    train["metadata"]["annotations"] = {boost: "1", elastic: "true"}
    train["spec"]["template"]["metadata"] = {"annotations": {forced: "true"}}
    (answer,) = await sent(train)
    show([answer])
    told = " ".join(capsys.readouterr().out.split())
    (one,) = answer_data(answer)["notHonoured"]
    assert one["field"] == f"metadata.annotations[{boost}]"
    assert f"Not done by this version: Job train: metadata.annotations[{boost}] has no" in told
    assert f"workload slices, requested by {elastic} of the Workload; submit it without" in told
    assert f"do not terminate, requested by {forced} of pod set main; submit it without" in told
    submitted = await asked("job/train", train, workload(train))
    assert [one.subject for one in submitted.unhonoured] == ["Job train"]
