"""What the Spark operator and Spark make of the fields of a SparkApplication."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.errors import InvalidJob, InvalidPodSetUpdate
from kueuelib.jobs.contract.podset_info import PodSetInfo, from_pod_set
from kueuelib.jobs.declared.spark import SparkApplication

Obj = dict[str, Any]
SPOT = {"key": "spot", "operator": "Exists"}
OWN = {"key": "own", "operator": "Exists"}


def application(driver: Obj | None = None, executor: Obj | None = None, **spec: Any) -> Any:
    roles = {"driver": driver or {}, "executor": executor or {}}
    obj = {"metadata": {"name": "s", "namespace": "ns"}, "spec": {**spec, **roles}}
    return SparkApplication(copy.deepcopy(obj))


def driver_of(job: SparkApplication) -> Obj:
    return job.pod_sets()[0].template


def admitted(job: SparkApplication, **parts: Any) -> list[PodSetInfo]:
    """What a Workload remembers of the job, after a start that adds something."""
    asked = job.pod_sets()
    job.run_with_podsets_info([PodSetInfo(e.name, e.count, **parts) for e in asked])
    return [from_pod_set(e.raw()) for e in asked]


def test_there_is_one_driver_and_an_executor_unless_more_are_wanted() -> None:
    assert [(e.name, e.count) for e in application().pod_sets()] == [("driver", 1), ("executor", 1)]
    assert application(executor={"instances": 4}).pod_sets()[1].count == 4


@pytest.mark.parametrize(
    ("role", "resources"),
    [
        ({"coreRequest": "500m", "cores": 2}, {"requests": {"cpu": "500m"}}),
        ({"cores": 2, "memoryOverhead": "1g"}, {}),
        ({"coreLimit": "2", "memoryLimit": "3G"}, {"limits": {"cpu": "2", "memory": "3Gi"}}),
        ({"memory": "512m"}, {"requests": {"memory": "512Mi"}}),
        ({"memory": "2GB"}, {"requests": {"memory": "2Gi"}}),
        ({"memory": "64k"}, {"requests": {"memory": "64Ki"}}),
        ({"memory": "512"}, {"requests": {"memory": "512Mi"}}),
        ({"memory": "1Gi"}, {"requests": {"memory": "1Gi"}}),
        (
            {"gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "coreLimit": "1"},
            {"limits": {"cpu": "1", "nvidia.com/gpu": "2"}},
        ),
        ({"gpu": {"name": "", "quantity": 2}}, {}),
    ],
)
def test_the_container_of_spark_asks_for_what_the_fields_say(role: Obj, resources: Obj) -> None:
    (container,) = driver_of(application(driver=role))["spec"]["containers"]
    assert container == {"name": "spark-kubernetes-driver", "resources": resources}


def test_a_template_is_what_the_fields_are_added_to() -> None:
    template = {
        "metadata": {"name": "t", "labels": {"a": "t", "b": "t"}, "annotations": {"n": "t"}},
        "spec": {
            "containers": [
                {"name": "log", "resources": {"requests": {"cpu": "1"}}},
                {"name": "spark-kubernetes-driver", "image": "i"},
            ],
            "nodeSelector": {"zone": "a"},
            "tolerations": [OWN],
            "priorityClassName": "low",
        },
    }
    role = {
        "template": template,
        "coreRequest": "2",
        "labels": {"b": "role"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [SPOT],
        "priorityClassName": "high",
        "affinity": {"podAffinity": {}},
        "sidecars": [{"name": "log"}, {"name": "proxy"}],
        "initContainers": [{"name": "fetch"}],
        "volumeMounts": [
            {"name": "data", "mountPath": "/d"},
            {"name": "spark-local-dir-1", "mountPath": "/l"},
        ],
    }
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "spark-local-dir-1"}, {"name": "unused"}]
    found = driver_of(application(driver=role, volumes=volumes))
    assert found["metadata"] == {"labels": {"a": "t", "b": "role"}, "annotations": {"n": "t"}}
    log, spark, proxy = found["spec"].pop("containers")
    assert log["resources"] == {"requests": {"cpu": "1"}}, "a name that is taken is not added"
    assert spark["resources"] == {"requests": {"cpu": "2"}}
    assert spark["volumeMounts"] == [{"name": "data", "mountPath": "/d"}]
    assert proxy == {"name": "proxy"}
    assert found["spec"] == {
        "nodeSelector": {"zone": "a", "disk": "ssd"},
        "tolerations": [OWN, SPOT],
        "priorityClassName": "high",
        "affinity": {"podAffinity": {}},
        "initContainers": [{"name": "fetch"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }


TEMPLATE = {
    "metadata": {"labels": {"t": "1"}},
    "spec": {"containers": [{"name": "c"}], "nodeSelector": {"zone": "a"}, "tolerations": [OWN]},
}


@pytest.mark.parametrize(
    "driver",
    [
        {},
        {"labels": {"app": "a"}, "nodeSelector": {"disk": "ssd"}, "tolerations": [OWN]},
        {"template": TEMPLATE},
        {"template": TEMPLATE, "labels": {"t": "1"}, "nodeSelector": {"zone": "a"}},
        {"template": TEMPLATE, "tolerations": [OWN]},
    ],
)
def test_what_a_start_adds_is_in_the_fields_and_goes_again(driver: Obj) -> None:
    job = application(driver=driver, executor={"instances": 2}, suspend=True)
    before = copy.deepcopy(job.object)
    stored = admitted(
        job, labels={"l": "1"}, node_selector={"pool": "spot"}, tolerations=(SPOT, OWN)
    )
    assert job.object["spec"]["driver"].get("template") == driver.get("template")
    assert job.object["spec"]["executor"]["nodeSelector"] == {"pool": "spot"}
    placed = driver_of(job)
    assert placed["metadata"]["labels"].items() >= {"l": "1"}.items()
    assert placed["spec"]["nodeSelector"]["pool"] == "spot"
    assert SPOT in placed["spec"]["tolerations"]
    assert OWN in placed["spec"]["tolerations"]
    job.suspend()
    assert job.restore_podsets_info(stored)
    assert job.object == before


def test_node_selectors_of_all_pods_are_given_to_each_role_as_the_operator_wants_it() -> None:
    job = application(nodeSelector={"zone": "a"}, driver={"labels": {"app": "a"}})
    assert driver_of(job)["spec"]["nodeSelector"] == {"zone": "a"}
    as_it_is = copy.deepcopy(job.object)
    stored = admitted(job, labels={"l": "1"})
    assert job.object["spec"]["nodeSelector"] == {"zone": "a"}, "nothing else selects nodes"
    job.restore_podsets_info(stored)
    assert job.object["spec"] == {**as_it_is["spec"], "suspend": False}
    stored = admitted(job, node_selector={"pool": "spot"})
    spec = job.object["spec"]
    assert "nodeSelector" not in spec
    assert spec["driver"]["nodeSelector"] == {"zone": "a", "pool": "spot"}
    job.restore_podsets_info(stored)
    for role in ("driver", "executor"):
        assert job.object["spec"][role]["nodeSelector"] == {"zone": "a"}


def test_a_start_does_not_contradict_the_template() -> None:
    job = application(driver={"template": TEMPLATE})
    infos = [PodSetInfo(e.name, e.count, node_selector={"zone": "b"}) for e in job.pod_sets()]
    with pytest.raises(InvalidPodSetUpdate, match=r'nodeSelector\[zone\] is "a"'):
        job.run_with_podsets_info(infos)


@pytest.mark.parametrize(
    ("driver", "path"),
    [
        ("x", "spec.driver"),
        ({"labels": "x"}, "spec.driver.labels"),
        ({"nodeSelector": ["x"]}, "spec.driver.nodeSelector"),
        ({"tolerations": ["x"]}, "spec.driver.tolerations"),
        ({"sidecars": ["x"]}, "spec.driver.sidecars"),
        ({"template": {"spec": {"containers": ["x"]}}}, "spec.driver.template.spec.containers"),
        ({"template": {"spec": "x"}}, "spec.driver.template.spec"),
        ({"gpu": {"name": "a", "quantity": "x"}}, "gpu.quantity"),
    ],
)
def test_fields_of_a_wrong_type_are_named(driver: Any, path: str) -> None:
    job = application(driver=driver)
    with pytest.raises(InvalidJob) as caught:
        job.pod_sets()
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("state", "executors", "ready"),
    [
        ("RUNNING", {"a": "RUNNING", "b": "COMPLETED"}, True),
        ("RUNNING", {"a": "RUNNING", "b": "PENDING"}, False),
        ("RUNNING", {}, False),
        ("SUBMITTED", {"a": "RUNNING", "b": "RUNNING"}, False),
    ],
)
def test_it_is_ready_when_its_executors_are(state: str, executors: Obj, ready: bool) -> None:
    job = application(executor={"instances": 2})
    job.object["status"] = {"applicationState": {"state": state}, "executorState": executors}
    assert job.pods_ready() is ready


@pytest.mark.parametrize(
    ("state", "active", "ended"),
    [
        *((state, True, False) for state in ("SUBMITTED", "RUNNING", "SUSPENDING", "RESUMING")),
        *((state, True, False) for state in ("SUBMISSION_FAILED", "FAILING", "PENDING_RERUN")),
        ("", False, False),
        ("SUSPENDED", False, False),
        ("COMPLETED", False, True),
        ("FAILED", False, True),
    ],
)
def test_states_of_the_operator(state: str, active: bool, ended: bool) -> None:
    job = application()
    job.object["status"] = {"applicationState": {"state": state, "errorMessage": "it broke"}}
    assert job.is_active() is active
    end = job.finished()
    assert (end is not None) is ended
    if end is not None:
        assert (end.succeeded, end.message) == (state == "COMPLETED", "it broke")
