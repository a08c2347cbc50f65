"""Jobs as the server defaults, refuses and changes them."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import JOBS
from kueuelib.embedded.builtins.fields import shown

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"


async def test_a_job_gets_the_defaults_of_kubernetes(writer) -> None:
    job = await writer.job()
    spec, uid = job["spec"], job["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["completionMode"] == "NonIndexed"
    assert spec["suspend"] is False
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert spec["template"]["metadata"]["labels"] == labels
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30
    assert job["status"] == {}


@pytest.mark.parametrize(
    ("given", "parallelism", "completions"),
    [
        ({}, 1, 1),
        ({"parallelism": 3}, 3, None),
        ({"completions": 3}, 1, 3),
        ({"parallelism": 0}, 0, None),
    ],
)
async def test_parallelism_and_completions_default_to_each_other(
    writer, given, parallelism, completions
) -> None:
    spec = (await writer.job(**given))["spec"]
    assert spec["parallelism"] == parallelism
    assert spec.get("completions") == completions


async def test_requests_are_not_copied_from_limits_in_a_template(writer) -> None:
    resources = {"limits": {"cpu": "1"}}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": resources}],
    }
    job = await writer.job(template={"spec": pod})
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == resources


REFUSED = [
    (
        {"parallelism": -1},
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
    ),
    ({"completionMode": "Some"}, 'spec.completionMode: Unsupported value: "Some"'),
    (
        {"completionMode": "Indexed", "parallelism": 1},
        "spec.completions: Required value: when completion mode is Indexed",
    ),
    ({"managedBy": "me"}, "spec.managedBy: Invalid value"),
    (
        {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    (
        {"template": {"spec": {"restartPolicy": "Never"}}},
        "spec.template.spec.containers: Required value",
    ),
    (
        {
            "template": {
                "metadata": {"labels": {"job-name": "other"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            }
        },
        "must be 'j'",
    ),
    (
        {"manualSelector": True},
        "spec.selector: Required value",
    ),
    (
        {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
        "`selector` does not match template `labels`",
    ),
]


@pytest.mark.parametrize(("spec", "text"), REFUSED, ids=[text[:50] for _, text in REFUSED])
async def test_a_job_that_breaks_a_rule_is_refused_in_the_words_of_kubernetes(
    writer, spec, text
) -> None:
    message = await writer.refusal(writer.job(**spec))
    assert message.startswith('Job.batch "j" is invalid: ')
    assert text in message


async def change_template(writer, job, edit) -> str | None:
    return await writer.change(JOBS, job, lambda job: edit(job["spec"]["template"]))


DIRECTIVES = {
    "node selector": lambda template: template["spec"].update(nodeSelector={"a": "b"}),
    "tolerations": lambda template: template["spec"].update(
        tolerations=[{"key": "k", "operator": "Exists"}]
    ),
    "gates": lambda template: template["spec"].update(schedulingGates=[{"name": "g"}]),
    "labels": lambda template: template["metadata"]["labels"].update(a="b"),
    "annotations": lambda template: template["metadata"].update(annotations={"a": "b"}),
    "node affinity": lambda template: template["spec"].update(
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    ),
    "resources": lambda template: template["spec"]["containers"][0].update(
        resources={"requests": {"cpu": "1"}}
    ),
}


@pytest.mark.parametrize("name", DIRECTIVES)
async def test_placement_may_change_while_a_job_is_suspended_and_never_started(
    writer, name
) -> None:
    job = await writer.job(suspend=True)
    changed = await change_template(writer, job, DIRECTIVES[name])
    assert changed["metadata"]["generation"] == 2


@pytest.mark.parametrize("name", DIRECTIVES)
async def test_nothing_of_the_template_may_change_while_a_job_runs(writer, name) -> None:
    job = await writer.job()
    message = await writer.refusal(change_template(writer, job, DIRECTIVES[name]))
    assert message.startswith('Job.batch "j" is invalid: spec.template: Invalid value: {')
    assert message.endswith(": field is immutable")


SUSPENDED = {"type": "Suspended", "status": "True", "lastTransitionTime": NOW}


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ({"startTime": NOW}, True),
        ({"startTime": NOW, "conditions": [SUSPENDED]}, False),
        ({"startTime": NOW, "conditions": [{**SUSPENDED, "status": "False"}]}, True),
        ({"startTime": NOW, "conditions": [SUSPENDED], "active": 1}, True),
        ({"active": 1}, True),
    ],
)
async def test_placement_may_change_again_when_a_started_job_is_suspended_and_has_no_pods(
    writer, status, refused
) -> None:
    job = await writer.job(suspend=True)
    job["status"] = status
    job = await writer.service.update_status(JOBS, job)
    change = change_template(writer, job, DIRECTIVES["node selector"])
    if refused:
        assert (await writer.refusal(change)).endswith(": field is immutable")
    else:
        assert (await change)["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}


async def test_placement_may_change_in_the_update_that_resumes_a_job(writer) -> None:
    job = await writer.job(suspend=True)
    job["spec"]["suspend"] = False
    job["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    changed = await writer.service.update(JOBS, job)
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}


async def test_the_image_may_not_even_change_while_a_job_waits(writer) -> None:
    job = await writer.job(suspend=True)
    message = await writer.refusal(
        change_template(writer, job, lambda t: t["spec"]["containers"][0].update(image="i:2"))
    )
    assert message.endswith(": field is immutable")


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda spec: spec.update(completions=5), "spec.completions"),
        (lambda spec: spec["selector"]["matchLabels"].update(job="x"), "spec.selector"),
        (lambda spec: spec.update(completionMode="Indexed"), "spec.completionMode"),
        (lambda spec: spec.update(managedBy="example.com/x"), "spec.managedBy"),
    ],
)
async def test_what_is_fixed_for_ever(writer, edit, path) -> None:
    job = await writer.job(completions=3)
    message = await writer.refusal(writer.change(JOBS, job, lambda job: edit(job["spec"])))
    assert f"{path}: Invalid value" in message
    assert "field is immutable" in message


@pytest.mark.parametrize(
    "change",
    [
        {"parallelism": 5},
        {"suspend": True},
        {"backoffLimit": 1},
        {"activeDeadlineSeconds": 9},
        {"ttlSecondsAfterFinished": 0},
    ],
)
async def test_what_may_always_change(writer, change) -> None:
    job = await writer.job()
    changed = await writer.change(JOBS, job, lambda job: job["spec"].update(change))
    assert change.items() <= changed["spec"].items()


def condition(type: str, status: str = "True") -> dict[str, str]:
    return {"type": type, "status": status}


COMPLETE = {
    "startTime": NOW,
    "completionTime": LATER,
    "succeeded": 1,
    "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
}
FAILED = {
    "startTime": NOW,
    "failed": 1,
    "conditions": [condition("FailureTarget"), condition("Failed")],
}


@pytest.mark.parametrize("status", [COMPLETE, FAILED])
async def test_a_true_end_is_accepted(writer, status) -> None:
    job = await writer.job()
    changed = await writer.service.update_status(JOBS, {**job, "status": status})
    unset = {"lastProbeTime": None, "lastTransitionTime": None}
    conditions = [{**each, **unset} for each in status["conditions"]]
    assert changed["status"] == {**status, "conditions": conditions}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"active": -1}, "status.active: Invalid value: -1: must be greater than or equal to 0"),
        ({**COMPLETE, "startTime": None}, "startTime is required for finished job"),
        ({**COMPLETE, "completionTime": None}, "completionTime is required for Complete jobs"),
        ({**COMPLETE, "active": 1}, "active>0 is invalid for finished job"),
        ({**COMPLETE, "startTime": LATER, "completionTime": NOW}, "cannot be set before startTime"),
        (
            {**COMPLETE, "conditions": [condition("Complete")]},
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            {**FAILED, "conditions": [condition("Failed")]},
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            {**FAILED, "completionTime": LATER},
            "cannot set completionTime when there is no Complete=True condition",
        ),
        (
            {**COMPLETE, "conditions": [*COMPLETE["conditions"], condition("Failed")]},
            "cannot set Complete=True and Failed=true conditions",
        ),
    ],
)
async def test_a_false_end_is_refused(writer, status, text) -> None:
    job = await writer.job()
    message = await writer.refusal(writer.service.update_status(JOBS, {**job, "status": status}))
    assert text in message


async def test_an_end_is_for_ever(writer) -> None:
    job = await writer.job()
    job = await writer.service.update_status(JOBS, {**job, "status": COMPLETE})
    message = await writer.refusal(
        writer.service.update_status(JOBS, {**job, "status": {**COMPLETE, "conditions": []}})
    )
    assert "cannot disable the terminal Complete=True condition" in message


async def test_the_start_is_forgotten_only_while_suspended(writer) -> None:
    job = await writer.job()
    job = await writer.service.update_status(JOBS, {**job, "status": {"startTime": NOW}})
    message = await writer.refusal(writer.service.update_status(JOBS, {**job, "status": {}}))
    assert (
        "status.startTime: Required value: startTime cannot be removed for unsuspended" in message
    )
    job["spec"]["suspend"] = True
    job = await writer.service.update(JOBS, job)
    job = await writer.service.update_status(JOBS, {**job, "status": {}})
    assert "startTime" not in job["status"]


def test_values_are_shown_as_json() -> None:
    assert shown({"a": ["b", 1, None]}) == '{"a":["b",1,null]}'


@pytest.mark.parametrize(
    "edit",
    [
        lambda pod: pod.update(tolerations=[], nodeSelector={}, affinity=None),
        lambda pod: pod["containers"][0].update(resources={"requests": {"cpu": "1"}}),
    ],
)
async def test_another_way_to_write_the_same_template_is_no_change(writer, edit) -> None:
    resources = {"requests": {"cpu": "1000m"}}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": resources}],
    }
    meta = {"creationTimestamp": None}
    job = await writer.job(template={"metadata": meta, "spec": pod})
    changed = await writer.change(JOBS, job, lambda job: edit(job["spec"]["template"]["spec"]))
    assert changed["metadata"]["uid"] == job["metadata"]["uid"]
