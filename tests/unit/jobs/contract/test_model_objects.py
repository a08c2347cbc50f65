"""Jobs with models of kubernetes_asyncio instead of raw JSON: the raw object follows."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client as k8s

from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError, InvalidJob, InvalidObject
from kueuelib.jobs import (
    GenericJob,
    Integration,
    Pods,
    PodSet,
    PodSetInfo,
    declare,
    enough,
    equals,
)
from kueuelib.jobs.client.following import queued
from kueuelib.jobs.contract.loose_objects import read_loosely
from kueuelib.runtime import Resource, encode, kinds
from kueuelib.testing.builders import make_pod_set, make_workload

EXAMPLE = Path(__file__).parents[4] / "examples/from_kubernetes_asyncio/queued.py"
SmallJob: Any = runpy.run_path(str(EXAMPLE))["SmallJob"]
POD: Obj = {"spec": {"containers": [{"name": "c", "image": "i", "fresh": 1}], "fresh": None}}


def raw(**spec: Any) -> Obj:
    meta = {"name": "j", "uid": "u", "labels": {"a": "b"}, "fresh": [1]}
    return {
        **kinds.JOBS.new("j", spec={"template": POD, "suspend": False, "fresh": 2, **spec}),
        "metadata": meta,
    }


def test_the_kind_is_that_of_the_class() -> None:
    assert SmallJob.resource == kinds.JOBS
    assert Integration.of(SmallJob).name == "batch/job"
    with pytest.raises(ConfigError, match="V1PodSpec: is not the class of a kind"):

        class Wrong(GenericJob[k8s.V1PodSpec]):  # type: ignore[type-var]
            """A piece is not a kind."""


def test_a_change_in_place_reaches_the_raw_object_and_nothing_else_changes() -> None:
    job = SmallJob(given := copy.deepcopy(raw()))
    job.object.spec.parallelism = 3
    job.object.metadata.labels["c"] = "d"
    job.object.spec.template.spec.containers[0].image = "other"
    wanted = copy.deepcopy(raw(parallelism=3))
    wanted["metadata"]["labels"]["c"] = "d"
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert job.raw == wanted
    assert job.raw is given


def test_what_a_method_changes_is_in_the_raw_object_at_once() -> None:
    given = copy.deepcopy(raw())
    SmallJob(given).suspend()
    assert given == raw(suspend=True)
    SmallJob(given).run_with_podsets_info([PodSetInfo("main", 1, node_selector={"a": "b"})])
    assert given["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    assert given["spec"]["template"]["spec"]["containers"] == POD["spec"]["containers"]


def test_models_and_the_raw_object_may_be_changed_in_turn() -> None:
    job = SmallJob(copy.deepcopy(raw()))
    spec = job.object.spec
    spec.parallelism = 3
    job.raw["spec"]["completions"] = 5
    spec.parallelism = 4  # of a model that was made before the raw object changed
    assert job.object.spec.completions == 5
    assert job.object.spec.parallelism == 4
    job.spec["backoffLimit"] = 1
    assert (job.object.spec.backoff_limit, job.object.spec.parallelism) == (1, 4)
    assert job.raw == raw(parallelism=4, completions=5, backoffLimit=1)


def test_one_model_is_made_while_nothing_changes_and_it_is_not_kept() -> None:
    job = SmallJob(copy.deepcopy(raw()))
    first = job.object
    assert job.object is first
    assert job.raw == raw()
    assert job.object is first, "somebody has it"
    assert job.is_suspended() is False
    assert job.object is first, "somebody has it"
    del first
    assert job.is_suspended() is False
    assert job._raw._handed_out == []


def test_a_model_may_be_assigned() -> None:
    job = SmallJob(copy.deepcopy(raw()))
    job.object = job.object
    assert job.raw == raw()
    changed = copy.deepcopy(job.object)
    changed.spec.suspend = True
    job.object = changed
    assert job.raw == raw(suspend=True)
    changed.spec.parallelism = 8  # no longer the job's
    assert job.raw == raw(suspend=True)


def test_a_job_is_made_of_a_model_as_well() -> None:
    pod = k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="i")])
    template = k8s.V1PodTemplateSpec(spec=pod)
    given = k8s.V1Job(metadata=k8s.V1ObjectMeta(name="j"), spec=k8s.V1JobSpec(template=template))
    job = SmallJob(given)
    assert job.raw["kind"] == "Job"
    assert job.pod_sets()[0].template == {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert PodSet("main", 1, template).template == job.pod_sets()[0].template
    assert job.suspended_copy().object.spec.suspend is True
    assert job.raw["spec"].get("suspend") is None


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="a Pod: is not a Job; give a V1Job"):
        SmallJob(k8s.V1Pod())
    made = SmallJob(raw())
    with pytest.raises(ConfigError, match="a Pod: is not a Job; give a V1Job"):
        made.object = k8s.V1Pod()
    with pytest.raises(ConfigError, match="a V1PodSpec: is not a whole object"):
        SmallJob(k8s.V1PodSpec(containers=[]))


def test_templates_of_declared_kinds_and_of_builders_may_be_models() -> None:
    pod = k8s.V1PodSpec(containers=[k8s.V1Container(name="c", image="i")])
    declared = declare(
        Resource("example.com", "v1", "renders", "Render", namespaced=True),
        pods=[Pods("main", template="spec.template")],
        active="status.active",
        ready=enough("status.ready"),
        succeeded=equals("status.phase", "Succeeded"),
        failed=equals("status.phase", "Failed"),
    )
    meta = k8s.V1ObjectMeta(name="r", namespace="n")
    spec = {"template": k8s.V1PodTemplateSpec(spec=pod)}
    job = declared.job_type({"metadata": meta, "spec": spec})
    wanted = {"containers": [{"name": "c", "image": "i"}]}
    assert job.pod_sets()[0].template["spec"] == wanted
    submitted = queued(job, "q", "", "")
    assert submitted["spec"] == {"template": {"spec": wanted}}
    assert queued({"apiVersion": "v1", "kind": "R", "metadata": meta, "spec": spec}, "q", "", "")[
        "spec"
    ] == {"template": {"spec": wanted}}
    assert make_pod_set(containers=pod.containers)["template"]["spec"] == wanted
    workload = make_workload("w", "q", pod_sets=[make_pod_set(containers=pod.containers)])
    assert encode(workload)["spec"]["podSets"][0]["template"]["spec"] == wanted


def test_an_object_that_does_not_fit_is_read_as_far_as_it_does() -> None:
    wrong: Obj = copy.deepcopy(raw(parallelism=2))
    wrong["spec"]["template"]["spec"] |= {"nodeSelector": ["x"], "tolerations": [3, {"key": "k"}]}
    with pytest.raises(InvalidObject, match="nodeSelector must be of type object"):
        SmallJob(wrong).suspend()
    before = copy.deepcopy(wrong)
    loose = read_loosely(SmallJob(wrong))
    loose.suspend()
    before["spec"]["suspend"] = True
    assert loose.raw == before, "what does not fit stays"
    assert loose.object.spec.template.spec.tolerations[0].key == "k"
    with pytest.raises(InvalidJob, match=r"spec\.template\.spec\.nodeSelector"):
        loose.pod_sets()
