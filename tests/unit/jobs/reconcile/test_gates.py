"""The Workload of a job has the admission gates that the job has."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import annotations_of
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.commands import Change, Create
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.webhooks.rules import validate_job

GATES = "kueue.x-k8s.io/admission-gated-by"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
A, B = "example.com/a", "example.com/b"


def noted(gates: str) -> dict[str, Any]:
    return {"annotations": {GATES: gates}}


def gates_of(obj: Any) -> str | None:
    return annotations_of(obj).get(GATES)


def changes(commands: Any) -> list[Any]:
    return [each.new for each in commands if isinstance(each, Change)]


def test_a_new_workload_gets_the_gates_of_its_job(build):
    job = build.job(annotations={GATES: f"{A}, {B}"})
    (create,) = [each for each in plan(build.situation(job)) if isinstance(each, Create)]
    assert gates_of(create.obj) == f"{A},{B}"


@pytest.mark.parametrize(("left", "kept"), [(B, B), ("", None), (None, None)])
def test_the_workload_loses_the_gates_that_its_job_loses(build, left, kept):
    gated = build.job(annotations={GATES: f"{A},{B}"})
    workload = build.workload(gated, meta=noted(f"{A},{B}"))
    assert plan(build.situation(gated, workload)) == ()
    job = build.job(annotations=None if left is None else {GATES: left})
    (changed,) = changes(plan(build.situation(job, workload)))
    assert gates_of(changed) == kept
    assert changed["spec"] == workload["spec"]


def test_an_edit_and_the_end_of_the_gate_come_together(build):
    """Otherwise the Workload would be admitted for what the job asked for before."""
    workload = build.workload(build.job(), meta=noted(A))
    job = build.job(parallelism=2)
    (changed,) = changes(plan(build.situation(job, workload)))
    assert gates_of(changed) is None
    assert changed["spec"]["podSets"][0]["count"] == 2


def test_what_holds_quota_is_not_gated(build):
    workload = build.workload(build.job(), admitted=True)
    job = build.job(suspend=False, annotations={GATES: A})
    assert changes(plan(build.situation(job, workload))) == []


def test_a_prebuilt_workload_keeps_its_own_gates(build):
    prebuilt = build.workload(build.job(), meta=noted(A))
    job = build.job(labels={PREBUILT: prebuilt["metadata"]["name"]})
    assert changes(plan(build.situation(job, prebuilt, prebuilt=prebuilt))) == []


def test_gates_of_a_job_with_a_prebuilt_workload_are_refused(build):
    job = build.job(annotations={GATES: A}, labels={PREBUILT: "wl"})
    (error,) = validate_job(BATCH_JOB, job, None)
    assert error.path == f"metadata.annotations[{GATES}]"
    assert "a prebuilt Workload has gates of its own" in error.message


def test_a_gate_of_a_job_can_only_be_removed(build):
    free, one = build.job(), build.job(annotations={GATES: A})
    two = build.job(annotations={GATES: f"{A},{B}"})
    assert validate_job(BATCH_JOB, two, None) == ()
    assert validate_job(BATCH_JOB, one, two) == validate_job(BATCH_JOB, free, one) == ()
    for new, old in ((two, one), (one, free)):
        (error,) = validate_job(BATCH_JOB, new, old)
        assert error.path == f"metadata.annotations[{GATES}]"
