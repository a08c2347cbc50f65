"""Every kind says by which labels its pods are ranked, and judges what they ask of a topology."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.declared.appwrapper import APP_WRAPPER
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.declared.kubeflow import MPI_JOB, PYTORCH_JOB
from kueuelib.jobs.declared.ray import RAY_CLUSTER
from kueuelib.jobs.pods.compose import compose
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.pods.leaderworkerset import validate_leader_worker_set
from kueuelib.jobs.pods.marks import gated, ungated
from kueuelib.jobs.pods.parents import pod_sets_of
from kueuelib.jobs.webhooks.rules import validate_job

Obj = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
NOTES = {f"{KUEUE}/podset-required-topology": "example.com/rack"}
ASKED = {"required": "example.com/rack"}
POD_SPEC: Obj = {"containers": [{"name": "c", "image": "i"}]}
COMPLETION = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
REPLICA = {"podIndexLabel": "training.kubeflow.org/replica-index"}
GROUP = {"podIndexLabel": f"{KUEUE}/pod-group-pod-index"}


def template(**notes: str) -> Obj:
    return {"metadata": {"annotations": {**NOTES, **notes}}, "spec": POD_SPEC}


def obj(spec: Obj, **meta: Any) -> Obj:
    return {"metadata": {"name": "a", "namespace": "default", "uid": "u", **meta}, "spec": spec}


def wrapped(kind: str, version: str, spec: Obj) -> Obj:
    inner = {"apiVersion": version, "kind": kind, "metadata": {"name": "b"}, "spec": spec}
    return obj({"components": [{"template": inner}]})


JOB_SPEC = {"parallelism": 4, "template": template()}
SETS = [{"name": "w", "replicas": 3, "template": {"spec": {**JOB_SPEC}}}]
IN_SETS = {**COMPLETION, "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 3}
DECLARED = {
    "path": "template.spec.template",
    "annotations": {
        "workload.codeflare.dev.appwrapper/tas-pod-index-label": "i",
        "workload.codeflare.dev.appwrapper/tas-sub-group-index-label": "g",
        "workload.codeflare.dev.appwrapper/tas-sub-group-count": "2",
    },
}
KINDS: list[tuple[Integration, Obj, Obj]] = [
    (BATCH_JOB, obj(JOB_SPEC), COMPLETION),
    (JOB_SET, obj({"replicatedJobs": SETS}), IN_SETS),
    (PYTORCH_JOB, obj({"pytorchReplicaSpecs": {"Worker": {"template": template()}}}), REPLICA),
    (MPI_JOB, obj({"mpiReplicaSpecs": {"Worker": {"template": template()}}}), REPLICA),
    (RAY_CLUSTER, obj({"headGroupSpec": {"template": template()}}), {}),
    (APP_WRAPPER, wrapped("Job", "batch/v1", JOB_SPEC), COMPLETION),
    (APP_WRAPPER, wrapped("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": SETS}), IN_SETS),
    (
        APP_WRAPPER,
        obj({"components": [{"template": {"spec": JOB_SPEC}, "podSets": [DECLARED]}]}),
        {"podIndexLabel": "i", "subGroupIndexLabel": "g", "subGroupCount": 2},
    ),
    (POD, obj(POD_SPEC, annotations=NOTES), GROUP),
]


@pytest.mark.parametrize(("integration", "given", "ranks"), KINDS)
def test_a_workload_knows_how_pods_are_ranked(
    integration: Integration, given: Obj, ranks: Obj
) -> None:
    (pod_set,) = integration.job_type(given).pod_sets()
    assert pod_set.raw()["topologyRequest"] == {**ASKED, **ranks}


def test_a_job_that_asks_nothing_says_how_its_pods_are_ranked() -> None:
    given = obj({"template": {"spec": POD_SPEC}})
    (pod_set,) = BATCH_JOB.job_type(given).pod_sets()
    assert pod_set.raw()["topologyRequest"] == COMPLETION


def pod(name: str, index: str = "", **notes: str) -> Obj:
    shared = {f"{KUEUE}/pod-group-total-count": "2", **NOTES, **notes}
    labels = {f"{KUEUE}/pod-group-name": "g", "index": index}
    return gated(obj(POD_SPEC, name=name, uid=name, annotations=shared, labels=labels))


def test_a_group_of_pods_is_ranked_by_their_index() -> None:
    (pod_set,) = compose([pod("a"), pod("b")]).pod_sets
    assert pod_set.raw()["topologyRequest"] == {**ASKED, **GROUP}


def test_the_pods_of_a_stateful_set_are_ranked_by_their_ordinal() -> None:
    notes = {f"{KUEUE}/pod-suspending-parent": "statefulset"}
    (pod_set,) = compose([pod("a", **notes), pod("b", **notes)]).pod_sets
    assert pod_set.topology_request == {**ASKED, "podIndexLabel": "apps.kubernetes.io/pod-index"}


def test_another_label_may_have_the_index_of_a_pod_in_its_group() -> None:
    named = pod("a", "7", **{f"{KUEUE}/pod-group-pod-index-label": "index"})
    assert named["metadata"]["labels"][f"{KUEUE}/pod-group-pod-index"] == "7"
    assert f"{KUEUE}/pod-group-pod-index" not in pod("a", "7")["metadata"]["labels"]


def test_workers_are_ranked_and_their_leader_is_alone() -> None:
    parts = {"size": 3, "leaderTemplate": template(), "workerTemplate": template()}
    leader, workers = pod_sets_of(obj({"leaderWorkerTemplate": parts}))
    assert leader.topology_request == ASKED
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    assert workers.topology_request == {**ASKED, "podIndexLabel": index}
    parts["workerTemplate"] = template(**{f"{KUEUE}/podset-unconstrained-topology": "true"})
    given = obj({"leaderWorkerTemplate": parts})
    assert validate_leader_worker_set(given, given) == ()
    (error,) = validate_leader_worker_set(given, None)
    assert error.path == "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations"


SLICES = {
    f"{KUEUE}/podset-slice-required-topology": "example.com/rack",
    f"{KUEUE}/podset-slice-size": "3",
}
SLICED = {"parallelism": 4, "template": template(**SLICES)}


@pytest.mark.parametrize(
    ("integration", "given", "path"),
    [
        (BATCH_JOB, obj(SLICED), "spec.template"),
        (
            JOB_SET,
            obj({"replicatedJobs": [{"name": "w", "template": {"spec": SLICED}}]}),
            "spec.replicatedJobs[w].template.spec.template",
        ),
    ],
)
def test_slices_that_do_not_divide_the_pods_are_refused_until_they_ran(
    integration: Integration, given: Obj, path: str
) -> None:
    (error,) = validate_job(integration, given, None)
    assert error.path == f"{path}.metadata.annotations[{KUEUE}/podset-slice-size]"
    assert "must evenly divide the pod set count 4" in error.message
    assert validate_job(integration, given, given) == ()


TOPOLOGY = "kueue.x-k8s.io/topology"


def gates(pod: Obj) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def test_a_pod_that_may_be_placed_waits_at_two_gates() -> None:
    waiting = gated(obj(POD_SPEC), places=True)
    assert gates(waiting) == [f"{KUEUE}/admission", TOPOLOGY]
    assert gates(ungated(waiting, PodSetInfo("main"))) == []
    assert gates(ungated(waiting, PodSetInfo("main", scheduling_gates=(TOPOLOGY,)))) == [TOPOLOGY]


def test_no_gate_is_added_to_a_pod_that_exists() -> None:
    waiting = gated(obj(POD_SPEC))
    assert gates(ungated(waiting, PodSetInfo("main", scheduling_gates=(TOPOLOGY,)))) == []


@pytest.mark.parametrize(
    ("launches", "notes", "offset"),
    [
        (True, {}, "1"),
        (False, {}, None),
        (True, {f"{KUEUE}/podset-group-name": "g"}, None),
        (True, {f"{KUEUE}/pod-index-offset": "2"}, "2"),
    ],
)
def test_the_indices_of_workers_begin_after_a_launcher_that_works_as_well(
    launches: bool, notes: Obj, offset: str | None
) -> None:
    launcher = {key: text for key, text in notes.items() if key.endswith("name")}
    roles = {
        "Launcher": {"template": template(**launcher)},
        "Worker": {"template": template(**notes)},
    }
    spec = {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": roles}
    started = MPI_JOB.job_type(copy.deepcopy(obj({**spec, "runLauncherAsWorker": launches})))
    started.run_with_podsets_info([PodSetInfo("launcher", 1), PodSetInfo("worker", 1)])
    written = {one.name: one.template["metadata"]["annotations"] for one in started.pod_sets()}
    key = f"{KUEUE}/pod-index-offset"
    assert (written["worker"].get(key), written["launcher"].get(key)) == (offset, None)
