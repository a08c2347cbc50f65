"""The kinds of other projects that come with kueuelib keep what a `GenericJob` has to keep."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import InvalidJob
from kueuelib.jobs.builtin import DECLARED
from kueuelib.jobs.contract.capabilities import (
    JobWithCustomStop,
    JobWithReclaimablePods,
    JobWithSkip,
    StopReason,
    is_stop_begun,
)
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import REFERRED, Integration, Reference
from kueuelib.jobs.contract.paths import put, value
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.declared.trainjob import runtime_of
from kueuelib.jobs.reconcile.priority import pod_priority_class
from kueuelib.jobs.webhooks.manifests import rbac_rules
from kueuelib.jobs.webhooks.rules import default_job, validate_job
from kueuelib.testing import JobAdapter, JobConformance
from kueuelib.testing.job_world import JobWorld

sys.path.insert(0, str(Path(__file__).parents[3] / "kinds"))

from samples import POD, Sample, samples

Obj = dict[str, Any]
SAMPLES = samples()
ENDING = [name for name, sample in SAMPLES.items() if "failed" in sample.content]
TRAIN_JOB = "trainer.kubeflow.org/trainjob"
SPARK = "sparkoperator.k8s.io/sparkapplication"
WRAPPER = "workload.codeflare.dev/appwrapper"
JOB_SET = SAMPLES["jobset.x-k8s.io/jobset"]
SERVICE = SAMPLES["ray.io/rayservice"]
SEEING = [
    JOB_SET.integration.name,
    TRAIN_JOB,
    SERVICE.integration.name,
    *(n for n in SAMPLES if n.startswith("kubeflow.org")),
]
"""Kinds with a condition that shows that a stop was seen."""
QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}


class Kind(JobAdapter):
    """Plays the controller of a kind by its sample; its status is replaced as a whole."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    @property
    def integration(self) -> Integration:  # type: ignore[override]
        return self.sample.integration

    def make(self) -> Obj:
        return self.sample.complete(self.sample.job())

    def _with(self, obj: Obj, state: str) -> Obj:
        """The job in a state, or running if its kind never ends."""
        known = state if state in self.sample.content else "running"
        return {**copy.deepcopy(obj), "status": self.sample.status(known)}

    def running(self, obj: Obj) -> Obj:
        return self._with(obj, "running")

    def stopped(self, obj: Obj) -> Obj:
        return self._with(obj, "stopped")

    def succeeded(self, obj: Obj) -> Obj:
        return self._with(obj, "succeeded")

    def failed(self, obj: Obj) -> Obj:
        return self._with(obj, "failed")

    def changed(self, obj: Obj) -> Obj:
        found = copy.deepcopy(obj)
        change = self.sample.content["change"]
        *way, last = change["path"].split(".")
        place: Any = found
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[last] = change["value"]
        return found

    def edited(self, obj: Obj, selector: Mapping[str, str]) -> Obj:
        if self.sample is SAMPLES[SPARK]:
            found = copy.deepcopy(obj)
            for role in (found["spec"]["driver"], found["spec"]["executor"]):
                role["nodeSelector"] = {**role.get("nodeSelector", {}), **selector}
            return found
        if self.sample is not SAMPLES[TRAIN_JOB]:
            return super().edited(obj, selector)
        found = copy.deepcopy(obj)
        jobs = [
            {"name": name, "template": {"spec": {"template": {"spec": {"nodeSelector": selector}}}}}
            for name in ("model-initializer", "node")
        ]
        patch = {
            "manager": "a-user",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
        }
        found["spec"].setdefault("runtimePatches", []).append(patch)
        return found


class TestDeclaredKinds(JobConformance):
    @pytest.fixture(autouse=True, params=ENDING)
    def kind(self, request: pytest.FixtureRequest) -> None:
        self.adapter = Kind(SAMPLES[request.param])  # type: ignore[misc]


class TestRayClusters(JobConformance):
    """They run until somebody deletes them."""

    adapter = Kind(SAMPLES["ray.io/raycluster"])

    def test_the_end_is_reported(self) -> None:
        job = self._job(self.adapter.running(self._started()))
        job.object["status"]["state"] = "failed"
        assert job.finished() is None

    def test_the_end_of_a_job_is_that_of_its_workload(self) -> None:
        """The cluster that is deleted gives its quota back."""
        world = self._running()
        world.delete_job()
        world.settle()
        assert not world.workload["metadata"]["finalizers"]

    def test_pods_of_a_cluster_that_never_became_ready_hold_quota(self) -> None:
        obj = self._started()
        obj["status"] = {"head": {"podName": "h"}}
        assert self._job(obj).is_active()
        obj["status"] = {"conditions": [{"type": "RayClusterSuspending", "status": "True"}]}
        assert self._job(obj).is_active()


class TestRayServices(JobConformance):
    """They run until somebody deletes them."""

    adapter = Kind(SERVICE)

    def test_the_end_is_reported(self) -> None:
        job = self._job(self.adapter.running(self._started()))
        job.object["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        assert job.finished() is None

    def test_the_end_of_a_job_is_that_of_its_workload(self) -> None:
        """The service that is deleted gives its quota back."""
        world = self._running()
        world.delete_job()
        world.settle()
        assert not world.workload["metadata"]["finalizers"]

    @pytest.mark.parametrize(
        "status",
        [
            {"pendingServiceStatus": {"rayClusterName": "j-abc"}},
            {"activeServiceStatus": {"rayClusterName": "j-abc"}},
            {"conditions": [{"type": "Suspending", "status": "True"}]},
        ],
    )
    def test_clusters_that_are_not_ready_hold_quota(self, status: Obj) -> None:
        job = self._job({**self._started(), "status": status})
        assert job.is_active()
        assert not job.pods_ready()


def test_each_bundled_kind_has_a_sample() -> None:
    missing = {found.name for found in DECLARED} ^ {*SAMPLES}
    assert not missing, (
        "each kind needs a sample in tests/kinds/samples.yaml, and each sample a kind"
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_pod_sets_are_those_of_the_kind(name: str) -> None:
    job = job_of(name)
    found = {entry.name: entry.count for entry in job.pod_sets()}
    assert found == SAMPLES[name].content["pod_sets"]
    assert list(found) == list(SAMPLES[name].content["pod_sets"])


@pytest.mark.parametrize("name", SAMPLES)
def test_pods_that_are_done_are_reclaimed(name: str) -> None:
    job = job_of(name, status=SAMPLES[name].status("running"))
    wanted = SAMPLES[name].content.get("reclaimable", {})
    assert (job.reclaimable_pods() if isinstance(job, JobWithReclaimablePods) else {}) == wanted


def test_the_run_policy_names_the_priority_class() -> None:
    for name in ("kubeflow.org/mpijob", "kubeflow.org/tfjob"):
        job = job_of(name)
        (entry, *_) = job.pod_sets()
        roles = next(value for key, value in job.object["spec"].items() if "Replica" in key)
        roles["Worker"]["template"]["spec"]["priorityClassName"] = "of-workers"
        assert pod_priority_class(job, job.pod_sets()) == "of-workers", entry.name
        job.object["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": "of-all"}}
        assert pod_priority_class(job, job.pod_sets()) == "of-all"


def test_the_message_of_the_end_is_that_of_its_condition() -> None:
    job = job_of(
        "jobset.x-k8s.io/jobset", status=SAMPLES["jobset.x-k8s.io/jobset"].status("failed")
    )
    end = job.finished()
    assert end is not None
    assert end.message == "It is Failed"


def test_a_jobset_is_ready_when_all_its_jobs_are() -> None:
    job = job_of(JOB_SET.integration.name, status=JOB_SET.status("running"))
    assert job.pods_ready()
    job.object["status"]["replicatedJobsStatus"][1]["ready"] = 0
    assert not job.pods_ready()


# ---- what KubeRay adds


def test_the_submitter_is_made_up_as_kuberay_does_and_goes_again() -> None:
    job = job_of("ray.io/rayjob")
    del job.object["spec"]["submitterPodTemplate"]
    before = copy.deepcopy(job.object)
    submitter = job.pod_sets()[-1].template["spec"]
    assert submitter["containers"][0]["image"] == "i", "that of the head"
    assert submitter["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "200Mi"}
    infos = [PodSetInfo(e.name, e.count, node_selector={"pool": "a"}) for e in job.pod_sets()]
    job.run_with_podsets_info(infos)
    assert job.object["spec"]["submitterPodTemplate"]["spec"]["nodeSelector"] == {"pool": "a"}
    job.suspend()
    labels = {"head": {"app": "a"}, "small": {"app": "a"}}
    job.restore_podsets_info(
        [PodSetInfo(e.name, e.count, labels=labels.get(e.name, {})) for e in infos]
    )
    assert "submitterPodTemplate" not in job.object["spec"]
    job.object["spec"].pop("suspend")
    assert job.object == before


def test_a_submitter_of_ones_own_stays() -> None:
    job = job_of("ray.io/rayjob")
    job.object["spec"]["submitterPodTemplate"] = {"spec": {"containers": [{"name": "mine"}]}}
    infos = [PodSetInfo(e.name, e.count) for e in job.pod_sets()]
    job.run_with_podsets_info(infos)
    job.restore_podsets_info(infos)
    assert value(job.object, "spec.submitterPodTemplate.spec.containers") == [{"name": "mine"}]


def test_the_sidecar_that_submits_needs_quota_and_is_not_written() -> None:
    job = job_of("ray.io/rayjob")
    job.object["spec"]["submissionMode"] = "SidecarMode"
    head, *others = job.pod_sets()
    found = {each["name"]: each.get("resources") for each in head.template["spec"]["containers"]}
    assert list(found) == ["c", "ray-job-submitter"]
    assert found["ray-job-submitter"]["requests"] == {"cpu": "500m", "memory": "200Mi"}
    assert [entry.name for entry in others] == ["small"], "no pod of its own submits it"
    job.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in job.pod_sets()])
    assert len(value(job.object, "spec.rayClusterSpec.headGroupSpec.template.spec.containers")) == 1


def test_a_rayjob_on_an_existing_cluster_is_left_alone() -> None:
    integration = SAMPLES["ray.io/rayjob"].integration
    obj = {"metadata": QUEUED, "spec": {"clusterSelector": {"ray.io/cluster": "c"}}}
    job = integration.job_type(obj)
    assert isinstance(job, JobWithSkip)
    assert job.skip()
    settings = JobSettings(frameworks=(integration.name,))
    stored = default_job(integration, obj, settings, namespace_labels={}, has_ancestor=False)
    assert stored is obj
    assert not validate_job(integration, obj, None)


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("rayjob", "spec.shutdownAfterJobFinishes", False),
        ("rayjob", "spec.clusterSelector", {"a": "b"}),
        ("rayjob", "spec.rayClusterSpec.enableInTreeAutoscaling", True),
        ("raycluster", "spec.enableInTreeAutoscaling", True),
        ("rayservice", "spec.rayClusterConfig.enableInTreeAutoscaling", True),
        ("sparkapplication", "spec.mode", "client"),
        ("sparkapplication", "spec.dynamicAllocation.enabled", True),
    ],
)
def test_what_would_use_more_than_its_quota_is_refused(kind: str, path: str, wrong: Any) -> None:
    sample = next(each for name, each in SAMPLES.items() if name.endswith(f"/{kind}"))
    obj = sample.job(**QUEUED)
    assert not validate_job(sample.integration, obj, None)
    put(obj, path, wrong)
    (error,) = validate_job(sample.integration, obj, None)
    assert error.path == path


@pytest.mark.parametrize(
    ("status", "succeeded"),
    [
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, True),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, False),
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, None),
    ],
)
def test_a_rayjob_ends_when_its_deployment_does(status: Obj, succeeded: bool | None) -> None:
    end = job_of("ray.io/rayjob", status=status).finished()
    assert (end.succeeded if end else None) is succeeded


def test_a_cluster_that_another_manager_has_suspended_starts_with_its_service() -> None:
    """The Go manager suspends the configuration of the cluster; KubeRay reads it only once."""
    job = job_of(SERVICE.integration.name)
    assert not job.is_suspended(), "it would stay suspended, so it is stopped by the other field"
    job.suspend()
    job.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in job.pod_sets()])
    assert job.object["spec"]["suspend"] is False
    assert "suspend" not in job.object["spec"]["rayClusterConfig"]


WORKERS = "spec.rayClusterConfig.workerGroupSpecs"
IMAGE = [{**POD["spec"]["containers"][0], "image": "next"}]


@pytest.mark.parametrize(
    ("path", "new", "upgrade", "suspended", "refused"),
    [
        (f"{WORKERS}.0.template.spec.containers", IMAGE, None, False, True),
        (f"{WORKERS}.0.template.spec.containers", IMAGE, "NewCluster", False, True),
        (f"{WORKERS}.0.template.spec.containers", IMAGE, "None", False, False),
        (f"{WORKERS}.0.template.spec.containers", IMAGE, None, True, False),
        ("spec.rayClusterConfig.rayVersion", "3", None, False, True),
        ("spec.rayClusterConfig.suspend", False, None, False, False),
        (f"{WORKERS}.0.replicas", 5, None, False, False),
        (f"{WORKERS}.0.template.spec.tolerations", [{"key": "a"}], None, False, False),
        ("spec.serveConfigV2", "applications: []", None, False, False),
    ],
)
def test_a_running_service_gets_no_second_cluster(
    path: str, new: Any, upgrade: str | None, suspended: bool, refused: bool
) -> None:
    old = SERVICE.job(**QUEUED)
    old["spec"] |= {"suspend": suspended, "upgradeStrategy": {"type": upgrade}}
    changed = copy.deepcopy(old)
    place, _, last = path.rpartition(".")
    value(changed, place)[last] = new
    errors = validate_job(SERVICE.integration, changed, old)
    assert [error.path for error in errors] == ["spec.rayClusterConfig"] * refused
    starting = copy.deepcopy(old)
    starting["spec"]["suspend"] = True
    assert not validate_job(SERVICE.integration, changed, starting), "as at a start"


# ---- what an AppWrapper wraps


def wrapper(*components: Obj) -> GenericJob:
    spec = {"components": [*components]}
    return SAMPLES[WRAPPER].integration.job_type({"metadata": {"name": "aw"}, "spec": spec})


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("jobset.x-k8s.io/jobset", [1, 6]),
        ("kubeflow.org/pytorchjob", [1, 2]),
        ("ray.io/raycluster", [1, 4]),
        ("ray.io/rayjob", [1, 4]),
    ],
)
def test_an_appwrapper_knows_where_other_kinds_have_their_pods(
    name: str, counts: list[int]
) -> None:
    found = wrapper({"template": SAMPLES[name].job()}).pod_sets()
    assert [(entry.name, entry.count) for entry in found] == [
        (f"aw-{index}", count) for index, count in enumerate(counts)
    ]


def test_an_appwrapper_may_wrap_pods_and_deployments() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD["spec"]}
    spec = {"replicas": 3, "template": POD}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
    found = wrapper({"template": pod}, {"template": deployment}).pod_sets()
    assert [entry.count for entry in found] == [1, 3]
    assert [entry.template["spec"] for entry in found] == [POD["spec"]] * 2
    assert found[0].template["metadata"] == {}, "the name is not of the template"


def test_what_is_added_to_an_appwrapper_is_written_beside_what_it_wraps() -> None:
    job = job_of(WRAPPER)
    before = copy.deepcopy(job.object)
    infos = [PodSetInfo(e.name, e.count, node_selector={"n": e.name}) for e in job.pod_sets()]
    job.run_with_podsets_info(infos)
    found = [each.get("podSetInfos") for each in job.object["spec"]["components"]]
    assert found[0] is None
    assert found[1] == [{"nodeSelector": {"n": "j-0"}}]
    assert found[2] == [{"nodeSelector": {"n": "j-1"}}, {"nodeSelector": {"n": "j-2"}}]
    assert job.restore_podsets_info(infos)
    job.object["spec"].pop("suspend")
    assert job.object == before


def test_a_failed_appwrapper_holds_quota_until_nothing_of_it_is_left() -> None:
    status = {"phase": "Failed", "conditions": [{"type": "ResourcesDeployed", "status": "True"}]}
    assert job_of(WRAPPER, status=status).finished() is None


@pytest.mark.parametrize(
    ("component", "path"),
    [
        (
            {"podSets": [{"path": "template.*"}], "template": {}},
            "spec.components[0].podSets[0].path",
        ),
        ({"podSets": [{}], "template": {}}, "spec.components[0].podSets[0].path"),
        ({"podSets": [{"path": "template.a"}], "template": {}}, "template.a"),
        ({"podSets": [{"path": "template", "replicas": -1}]}, "replicas"),
        ({"template": {"apiVersion": "v1", "kind": "Service"}}, "spec.components"),
    ],
)
def test_an_appwrapper_that_says_no_pods_is_told_where(component: Obj, path: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        wrapper(component).pod_sets()
    assert caught.value.path == path


def test_a_long_name_cannot_number_pod_sets() -> None:
    job = job_of(WRAPPER, metadata={"name": "x" * 62})
    with pytest.raises(InvalidJob, match="60 letters"):
        job.pod_sets()


# ---- what a TrainJob has from its runtime


def train_job(**trainer: Any) -> GenericJob:
    job = job_of(TRAIN_JOB)
    job.object["spec"]["trainer"] = trainer
    return job


def counts(job: GenericJob) -> dict[str, int]:
    return {entry.name: entry.count for entry in job.pod_sets()}


def test_a_trainjob_names_its_runtime() -> None:
    def runtime(**ref: str) -> Reference | None:
        obj = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"runtimeRef": ref}}
        return runtime_of(obj)

    found = runtime(name="torch")
    assert found is not None
    assert (found.resource.kind, found.key) == ("ClusterTrainingRuntime", ObjectKey("", "torch"))
    found = runtime(name="own", kind="TrainingRuntime")
    assert found is not None
    assert (found.resource.kind, found.key) == ("TrainingRuntime", ObjectKey("ns", "own"))
    assert runtime(name="x", kind="Other") is None
    assert runtime() is None


def test_runtimes_may_be_read_by_whoever_queues_trainjobs() -> None:
    rules = rbac_rules([SAMPLES[TRAIN_JOB].integration])
    (rule,) = [rule for rule in rules if rule["verbs"] == ["get"]]
    assert rule["resources"] == ["clustertrainingruntimes", "trainingruntimes"]


def test_a_trainjob_whose_runtime_is_not_there_waits() -> None:
    sample = SAMPLES[TRAIN_JOB]
    job = sample.integration.job_type(sample.job())
    with pytest.raises(InvalidJob, match='the runtime "torch" cannot be read'):
        job.pod_sets()
    job.object["status"] = sample.status("running")
    assert not job.pods_ready()


def test_the_number_of_nodes_is_that_of_the_job_else_that_of_the_runtime() -> None:
    assert counts(train_job(numNodes=5)) == {"model-initializer": 1, "node": 5}
    job = train_job()
    assert counts(job) == {"model-initializer": 1, "node": 1}
    spec = job.object[REFERRED]["spec"]
    spec["mlPolicy"]["numNodes"] = 4
    assert counts(job)["node"] == 4
    del spec["mlPolicy"]
    spec["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["parallelism"] = 2
    assert counts(job)["node"] == 2


@pytest.mark.parametrize(("as_node", "nodes", "count"), [(False, 4, 4), (True, 4, 3), (True, 1, 1)])
def test_an_mpi_launcher_may_be_one_of_the_nodes(as_node: bool, nodes: int, count: int) -> None:
    job = train_job(numNodes=nodes)
    spec = job.object[REFERRED]["spec"]
    spec["mlPolicy"] = {"numNodes": 2, "mpi": {"runLauncherAsNode": as_node}}
    launcher, node = spec["template"]["spec"]["replicatedJobs"]
    labels = launcher["template"]["metadata"]["labels"]
    labels["trainer.kubeflow.org/trainjob-ancestor-step"] = "trainer"
    launcher["name"] = "launcher"
    del node["template"]["metadata"]
    assert counts(job)["node"] == count


def test_resources_per_node_and_image_are_those_of_the_job() -> None:
    resources = {"requests": {"cpu": "8"}, "limits": {"gpu": "1"}}
    job = train_job(image="mine", resourcesPerNode=resources)
    for each in job.object[REFERRED]["spec"]["template"]["spec"]["replicatedJobs"]:
        (container,) = each["template"]["spec"]["template"]["spec"]["containers"]
        container["name"] = "node"
        container["resources"]["requests"]["memory"] = "1Gi"
    before = copy.deepcopy(job.object)
    model, node = (entry.template["spec"]["containers"][0] for entry in job.pod_sets())
    assert (model["image"], node["image"]) == ("i", "mine")
    assert model["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    assert node["resources"]["requests"] == {"cpu": "8", "memory": "1Gi"}
    assert node["resources"]["limits"] == {"gpu": "1"}
    assert job.object == before


def test_what_is_added_to_a_trainjob_is_a_patch_of_ours_beside_others() -> None:
    job = train_job(numNodes=3)
    tolerations = [{"key": "own", "operator": "Exists"}]
    theirs = {"name": "node", "template": {"spec": {"template": {"spec": {}}}}}
    theirs["template"]["spec"]["template"]["spec"] = {
        "nodeSelector": {"zone": "a"},
        "tolerations": tolerations,
    }
    others = {"manager": "example.com/other"}
    others["trainingRuntimeSpec"] = {"template": {"spec": {"replicatedJobs": [theirs]}}}
    job.object["spec"]["runtimePatches"] = [others]
    before = copy.deepcopy(job.object)
    more = {"key": "spot", "operator": "Exists"}
    infos = [
        PodSetInfo(e.name, e.count, node_selector={"pool": "x"}, tolerations=(more,))
        for e in job.pod_sets()
    ]
    job.run_with_podsets_info(infos)
    kept, ours = job.object["spec"]["runtimePatches"]
    assert kept == others
    assert ours["manager"] == "kueue.x-k8s.io/manager"
    patched = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [each["name"] for each in patched] == ["model-initializer", "node"]
    spec = patched[1]["template"]["spec"]["template"]["spec"]
    assert spec == {"nodeSelector": {"pool": "x"}, "tolerations": [*tolerations, more]}
    placed = job.pod_sets()[1].template["spec"]
    assert placed["nodeSelector"] == {"zone": "a", "pool": "x"}
    job.suspend()
    assert job.restore_podsets_info(infos)
    assert job.object["spec"]["runtimePatches"] == [others]
    job.object["spec"].pop("suspend")
    assert job.object == before


def test_a_trainjob_keeps_its_patch_until_no_pod_is_active() -> None:
    job = job_of(TRAIN_JOB)
    job.run_with_podsets_info([PodSetInfo(e.name, e.count) for e in job.pod_sets()])
    job.object["status"] = SAMPLES[TRAIN_JOB].status("running")
    assert isinstance(job, JobWithCustomStop)
    found = job.stop([], StopReason.WORKLOAD_EVICTED, "", 0.0)
    (suspended,) = found.commands
    assert found.stops_now
    assert isinstance(suspended, Change)
    assert suspended.new["spec"]["runtimePatches"]
    later = type(job)({**suspended.new, "status": SAMPLES[TRAIN_JOB].status("stopped")})
    assert later.is_stopping()
    found = later.stop([], StopReason.WORKLOAD_EVICTED, "", 0.0)
    assert not found.stops_now


def job_of(name: str, **parts: Any) -> GenericJob:
    found = SAMPLES[name]
    return found.integration.job_type(found.complete({**found.job(), **parts}))


@pytest.mark.parametrize("name", SEEING)
def test_quota_is_free_when_the_kind_has_seen_the_stop(name: str) -> None:
    """Its condition of before the start is not believed."""
    kind = Kind(SAMPLES[name])
    suspended = kind.make()
    suspended["metadata"] |= QUEUED
    put(suspended, kind.integration.job_type.declaration.suspend, True)
    world = JobWorld(kind.integration, suspended, one_at_a_time=True)

    def seen(state: str) -> None:
        world.change(kind._with(world.live_job, state))
        world.settle()

    seen("stopped")
    world.admit("spot")
    world.settle()
    assert not world.is_suspended()
    world.evict()
    world.settle()
    stopped = kind.integration.job_type(world.live_job)
    assert value(stopped.raw, stopped.declaration.suspend) is True
    assert world.live_job["status"]["conditions"] == [], "it is from before the start"
    assert world.holds_quota()
    seen("stopped")
    assert not world.holds_quota()
    assert world.is_suspended()
    assert is_stop_begun(world.live_job) is False


def test_the_kinds_that_say_that_they_have_seen_a_stop() -> None:
    """The page of kinds names them."""
    found = [
        name
        for name, each in SAMPLES.items()
        if each.integration.job_type.declaration.suspended is not None
    ]
    assert sorted(found) == sorted(SEEING)


def test_the_declaration_of_an_mpi_job_on_the_page_is_that_of_the_code() -> None:
    page = (Path(__file__).parents[4] / "docs" / "declared-kinds.md").read_text()
    block = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(block, names)
    shown, ours = names["mpijob"], SAMPLES["kubeflow.org/mpijob"].integration
    assert shown.job_type.declaration == ours.job_type.declaration
    assert (shown.name, shown.allows_prebuilt) == (ours.name, ours.allows_prebuilt)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_kind_is_in_the_table_of_the_page(name: str) -> None:
    page = (Path(__file__).parents[4] / "docs" / "declared-kinds.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    short = name.partition("/")[2]
    assert any(f"`{name}`" in cell or f", `{short}`" in cell for cell in cells), name
