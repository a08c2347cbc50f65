"""What stands in the way of a migration from the Go manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from kueuelib.app.configuration import Integrations
from kueuelib.app.doctor.examining import examine
from kueuelib.app.doctor.finding import Severity, all_checks, migration_checks

from .test_findings import place_by_a_topology

DOCS = Path(__file__).parents[4] / "docs"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def found(patient: Any) -> list[tuple[str, Severity, str, str]]:
    report = examine(patient.snapshot(), migration_checks())
    return [
        (name, one.severity, str(one.subject), one.problem)
        for name, one in report.findings
        if one.fix
    ]


def own(patient: Any, **owner: Any) -> None:
    patient.get("Workload")["metadata"]["ownerReferences"] = [{**OWNER, **owner}]


def run_go(patient: Any) -> None:
    patient.add("Deployment", "kueue-controller-manager", "kueue-system", spec={})


def dispatch(patient: Any) -> None:
    patient.add("AdmissionCheck", "far", spec={"controllerName": "kueue.x-k8s.io/multikueue"})


def queue_trains(patient: Any) -> None:
    own(patient, apiVersion="trainer.kubeflow.org/v1alpha1", kind="TrainJob")


def ask_for_more(patient: Any) -> None:
    queue = patient.get("ClusterQueue")
    queue["apiVersion"] = "kueue.x-k8s.io/v1beta2"
    queue["spec"]["later"] = True
    workload = patient.get("Workload")
    workload["apiVersion"] = "kueue.x-k8s.io/v1beta2"
    workload["spec"]["podSets"][0]["topologyRequest"] = {"podIndexLabel": "i"}  # of every Job
    queue["spec"]["resourceGroups"][0]["flavors"][0]["colour"] = "red"


def test_a_flavor_with_a_topology_is_found_too(patient: Any) -> None:
    place_by_a_topology(patient)
    ((name, severity, subject, _),) = found(patient)
    assert (name, severity, subject) == ("flavor-topology", Severity.WARNING, "ResourceFlavor f")


@pytest.mark.parametrize(
    ("change", "check", "severity", "subject", "words"),
    [
        (run_go, "deployment", Severity.ERROR, "Deployment kueue-system/kueue-c", "has its name"),
        (dispatch, "check", Severity.ERROR, "AdmissionCheck far", "MultiKueue"),
        (queue_trains, "kind", Severity.ERROR, "Workload ns/", "TrainJob j"),
        (
            ask_for_more,
            "fields",
            Severity.WARNING,
            "ClusterQueue cq",
            "drops spec.resourceGroups[].flavors[].colour, spec.later",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_it_is_found(
    patient: Any, change: Any, check: str, severity: Severity, subject: str, words: str
) -> None:
    assert found(patient) == []
    change(patient)
    ((name, *rest),) = found(patient)
    assert name == f"migration-{check}"
    assert rest[0] is severity
    assert rest[1].startswith(subject)
    assert words in rest[2]


def test_kinds_that_are_enabled_or_managed_elsewhere_are_no_problem(patient: Any) -> None:
    own(patient)
    assert found(patient) == []
    queue_trains(patient)
    elsewhere = Integrations(external_frameworks=("TrainJob.v1alpha1.trainer.kubeflow.org",))
    patient.configuration = attrs.evolve(patient.configuration, integrations=elsewhere)
    assert found(patient) == []


def test_what_has_finished_stays_as_it_is(patient: Any) -> None:
    queue_trains(patient)
    over = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    patient.get("Workload")["status"]["conditions"].append(over)
    assert found(patient) == []


def test_they_are_made_only_before_a_migration_and_are_on_its_page() -> None:
    page = (DOCS / "migration.md").read_text()
    ordinary = {one.name for one in all_checks()}
    for one in migration_checks():
        assert f"| `{one.name}` |" in page
        assert one.installed is (one.name in ordinary)
    assert page.count("\n| `") == len(migration_checks())
