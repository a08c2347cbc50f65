"""Objects that a validator of ours cannot read are denied before it sees them."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kinds import CLUSTER_QUEUES, RESOURCE_FLAVORS
from kueuelib.controllers.webhooks import path_of, serve
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.pods.deployment import DEPLOYMENT
from kueuelib.jobs.pods.integration import POD
from kueuelib.runtime.webhook.admission import (
    CONTAINER_BYTES,
    MAX_CONTAINERS,
    MAX_MEMORY,
    VALUE_BYTES,
    form_of,
    is_too_much,
    misfit_of_objects,
)
from kueuelib.runtime.webhook.server import WebhookServer


@pytest.mark.parametrize(
    ("resource", "version", "spec", "said"),
    [
        (CLUSTER_QUEUES, "v1beta2", {"resourceGroups": 5}, "spec.resourceGroups: a list is"),
        (CLUSTER_QUEUES, "v1beta1", {"cohort": {}}, "spec.cohort: a text is expected"),
        (CLUSTER_QUEUES, "v1beta2", {"resourceGroups": ["a"]}, "spec.resourceGroups[0]: an object"),
        (CLUSTER_QUEUES, "v9", {}, "apiVersion: kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2"),
        (RESOURCE_FLAVORS, "v1beta2", {}, "kind: ResourceFlavor is expected"),
    ],
)
async def test_a_queueing_object_of_another_form_is_denied(resource, version, spec, said) -> None:
    server = WebhookServer("127.0.0.1", 0, None)
    serve(server)
    obj = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "ClusterQueue", "spec": spec}
    request = {"uid": "u", "operation": "CREATE", "object": {**obj, "metadata": {"name": "q"}}}
    answer = await server._paths[path_of(resource, mutating=False)][1](request)
    assert (answer["allowed"], answer["status"]["code"]) == (False, 400)
    assert answer["status"]["message"].startswith(said)


GATE = {"containers": [{"name": "c"}], "schedulingGates": [{}]}


@pytest.mark.parametrize(
    ("integration", "obj", "said"),
    [
        (POD, {"spec": GATE}, "spec.schedulingGates[0].name is missing"),
        (POD, {}, "spec is missing"),
        (
            BATCH_JOB,
            {"spec": {"parallelism": "x", "template": {}}},
            "spec.parallelism: a whole number is expected",
        ),
        (DEPLOYMENT, {"spec": {"replicas": 1}}, "spec.template is missing"),
        (JOB_SET, {"spec": {"suspend": "x"}}, "spec.suspend: true or false is expected"),
    ],
)
def test_a_job_of_another_form_has_a_misfit(integration, obj: Any, said: str) -> None:
    forms = {version: form_of(shape) for version, shape in integration.shapes.items()}
    found = misfit_of_objects({"object": {**obj, "metadata": {}}}, forms)
    assert found == said


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("shape", "value", "said"),
    [
        ({}, None, ""),
        ({"items": TEXT}, ["a", 1], "field[1]: a text is expected"),
        ({"additionalProperties": TEXT}, {"a": None}, "field[a]: a text is expected"),
        ({"type": "number"}, 1, ""),
        ({"type": "number"}, True, "field: a number is expected"),
        ({"type": "integer"}, 1.0, "field: a whole number is expected"),
        ({"x-kubernetes-int-or-string": True}, True, "field: a whole number or a text is expected"),
        ({"type": "string", "minLength": 1}, "", "field is missing"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "field: a or b is expected"),
        ({"type": "object", "required": ["a"]}, {"a": None}, "field.a is missing"),
        ({"properties": {"a": TEXT}}, {"a": None, "b": 1}, ""),
        ({"properties": {"a": TEXT}}, {"a": []}, "field.a: a text is expected"),
    ],
)
def test_a_misfit_names_the_field_and_what_is_expected(shape, value: Any, said: str) -> None:
    form = form_of({"type": "object", "properties": {"field": shape}})
    assert misfit_of_objects({"object": {"field": value}}, {"": form}) == said


@pytest.mark.parametrize("kind", ["AdmissionReview", "ConversionReview"])
def test_a_short_body_never_has_too_many_values(kind: str) -> None:
    short = MAX_MEMORY // (2 + VALUE_BYTES + CONTAINER_BYTES)
    assert not is_too_much(b"{" * short, kind)
    assert is_too_much(b"{" * (short + 1), kind) is (kind == "AdmissionReview")
    assert is_too_much(b"{" * (MAX_CONTAINERS + 1), kind)
