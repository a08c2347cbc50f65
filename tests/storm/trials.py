"""Trials of programs that are not the bundled manager: a check, a kind of jobs, a broken one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import yaml

from kueuelib.checks import Ready, check
from kueuelib.testing.hostile import create, delete, trial

EXAMPLE = Path(__file__).parents[2] / "examples/custom_job"
QUEUES = list(yaml.safe_load_all((EXAMPLE / "queues.yaml").read_text()))
CHECKED = [
    *(each for each in QUEUES if each["kind"] != "ClusterQueue"),
    *(
        {**each, "spec": {**each["spec"], "admissionChecks": ["hours"]}}
        for each in QUEUES
        if each["kind"] == "ClusterQueue"
    ),
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "hours"},
        "spec": {"controllerName": "example.com/hours"},
    },
]
LABELS = {"kueue.x-k8s.io/queue-name": "team"}


def _module(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@check("example.com/hours")
async def hours(workload, parameters):
    """Everything may pass at any hour."""
    return Ready()


def jobs(draws):
    """Users submit Jobs, and delete one of them."""
    for number in range(3):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"annotations": {"kueuelib.dev/run-seconds": "5"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"job-{number}", "namespace": "default", "labels": LABELS},
            "spec": {"template": template},
        }
        yield create(draws.uniform(f"{number}/at", 0, 40), "jobs.batch", job)
    yield delete(draws.uniform("deleted", 10, 60), "jobs.batch", "default", "job-0")


def trainings(draws):
    """Users submit trainings."""
    training = yaml.safe_load((EXAMPLE / "training.yaml").read_text())
    for number in range(3):
        meta = {**training["metadata"], "name": f"training-{number}"}
        yield create(
            draws.uniform(f"{number}/at", 0, 40),
            "trainings.ml.example.com",
            {**training, "metadata": meta},
        )


def every_job_ends(cluster):
    """Every Job is complete."""
    for job in cluster.objects("jobs.batch"):
        states = {each["type"] for each in job["status"].get("conditions", ())}
        if "Complete" not in states:
            yield f"{job['metadata']['name']} has {sorted(states)}"


def every_training_ends(cluster):
    """Every training has succeeded."""
    for training in cluster.objects("trainings.ml.example.com"):
        phase = training.get("status", {}).get("phase")
        if phase != "Succeeded":
            yield f"{training['metadata']['name']} is {phase}"


def no_pod_before_its_turn(commit, cluster):
    """No pod of a training is created while it is suspended."""
    if commit.resource == "pods" and commit.old is None:
        owner = commit.new["metadata"]["ownerReferences"][0]["uid"]
        for training in cluster.objects("trainings.ml.example.com"):
            if training["metadata"]["uid"] == owner and not _started(training, cluster):
                yield "its training never ran"


def _started(training, cluster):
    uid = training["metadata"]["uid"]
    states = (each.new for each in cluster.history if each.new is not None)
    return any(
        state["metadata"]["uid"] == uid and not state["spec"].get("suspend")
        for state in states
        if state["kind"] == "Training"
    )


async def broken(endpoint):
    """A program that does not even start."""
    raise KeyError(endpoint.namespace)


CHECK = trial(hours, objects=CHECKED, users=jobs, at_rest=[every_job_ends], patience=120.0)
TRAINING = trial(
    _module("training_declared").integration,
    objects=[yaml.safe_load((EXAMPLE / "crd.yaml").read_text()), *QUEUES],
    users=trainings,
    beside={"vendor": _module("controller").run},
    at_rest=[every_training_ends],
    at_commit=[no_pod_before_its_turn],
)
BROKEN = trial(broken)
