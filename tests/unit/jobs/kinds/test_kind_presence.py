"""What is concluded from what the API server says about a kind."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.meta import Resource
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.declared.declarative import HasCondition, declare
from kueuelib.jobs.declared.pod_shape import Pods
from kueuelib.jobs.kinds.follower import Presence, Served, Unclear, Unfit, is_lasting, judged
from kueuelib.jobs.webhooks.manifests import webhook_entries

THINGS = Resource("g.example.com", "v1", "things", "Thing", namespaced=True)
INTEGRATION = declare(
    THINGS,
    pods=[Pods()],
    active="status.active",
    ready="status.ready",
    succeeded=HasCondition("Complete"),
    failed=HasCondition("Failed"),
    other_versions=("v1beta1",),
)
V1BETA1, V2 = THINGS.at("v1beta1"), THINGS.at("v2")


def definition(*versions: str, names: str = "True") -> dict[str, Any]:
    accepted = {"type": "NamesAccepted", "status": names, "message": "Thing is taken"}
    listed = [{"name": version, "served": version != "v1alpha1"} for version in versions]
    return {"spec": {"versions": listed}, "status": {"conditions": [accepted]}}


@pytest.mark.parametrize(
    ("offered", "crd", "concluded"),
    [
        ([THINGS], None, Served("v1")),
        ([V1BETA1, THINGS], None, Served("v1")),
        ([V1BETA1, V2], None, Served("v1beta1")),
        ([V2], None, Unfit("it is served in v2; the integration reads v1 or v1beta1")),
        (
            [attrs.evolve(THINGS, plural="thingies")],
            None,
            Unfit("its plural is thingies, and the integration's is things"),
        ),
        (
            [attrs.evolve(THINGS, namespaced=False)],
            None,
            Unfit("its objects are in no namespace"),
        ),
        ([], None, Unclear("the API server does not serve it")),
        ([], definition("v1"), Unclear("it is defined, but not served yet")),
        ([], definition("v2"), Unfit("it is served in v2; the integration reads v1 or v1beta1")),
        (
            [],
            definition("v1alpha1"),
            Unfit("no version of it is served; the integration reads v1 or v1beta1"),
        ),
        (
            [],
            definition("v1", names="False"),
            Unfit("the names of its definition are not accepted: Thing is taken"),
        ),
    ],
)
def test_a_kind_is_judged_by_what_is_served_and_by_its_definition(
    offered: list[Resource], crd: Any, concluded: Presence
) -> None:
    assert judged(INTEGRATION, {each.version: each for each in offered}, crd) == concluded


def test_an_integration_at_another_version_is_the_same_but_for_that() -> None:
    moved = INTEGRATION.at("v1beta1")
    assert moved.resource == V1BETA1
    assert moved.name == INTEGRATION.name
    assert moved.is_owner({"apiVersion": "g.example.com/v1", "kind": "Thing"})
    assert moved.job_type({"spec": {"suspend": True}}).is_suspended()
    assert INTEGRATION.resource == THINGS
    assert INTEGRATION.at("v1") is INTEGRATION


def test_kinds_of_the_server_itself_need_nobody_to_follow_them() -> None:
    known = builtin_registry().integrations
    lasting = {found.resource.group for found in known if is_lasting(found) and found.watches}
    assert lasting == {"", "batch"}
    assert not is_lasting(INTEGRATION)


def test_the_webhook_is_asked_about_every_version_that_is_read() -> None:
    found = webhook_entries([INTEGRATION], JobSettings())
    assert {entry.path for entry in found} == {
        "/mutate-g-example-com-v1-thing",
        "/validate-g-example-com-v1-thing",
    }
    for entry in found:
        (rule,) = entry.entry["rules"]
        assert rule["apiVersions"] == ["v1", "v1beta1"]
